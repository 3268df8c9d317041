//! An operation on one semaphore that can be done at once, by one exchange of its word: no lock is
//! taken, so nothing is left by who is killed or jumps away, and signals need not wait.
//!
//! It is done so where nobody sleeps in the set, nothing is to be undone, and nobody has the
//! semaphore marked ([`HELD`]); else it goes the long way. A sleeper is entered before the marks of
//! the semaphores that it has looked at are taken away. So whoever changes one of them after that
//! sees the sleeper when it looks at the queue once more, and wakes it ([`Quick::Look`]). One that
//! dies before that look is found out by the sleeper, which looks itself ten times a second.
//!
//! Which sets a process has at hand stands in a table of its own. A call counts itself in before it
//! looks at an entry; a set is let go only after its entry was emptied and found without calls.

use super::operation::Op;
use super::set::{HELD, HIGHEST, OPERATED, QUEUE_END, Set, UNDO_END};
use super::{Access, Answer, Ask, Caller, Perm, Space, now};
use crate::raw::Area;
use ginnel_region::PAGE;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

const ENTRIES: usize = 64;

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quick {
    /// It is done.
    Done,
    /// It is done, and [`Space::look`] is due.
    Look,
    /// It fails with this `errno`.
    Fails(i32),
}

#[derive(Default)]
struct Entry {
    /// 0: none.
    id: AtomicI32,
    /// Calls that look at it. One that was left by `siglongjmp` stays for good.
    calls: AtomicU32,
    /// What stands in the table of names for as long as the set has its name.
    name: AtomicU64,
    page: AtomicU32,
    count: AtomicU32,
}

/// The sets at hand.
pub(super) struct Table([Entry; ENTRIES]);

impl Default for Table {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Entry::default()))
    }
}

struct Call<'a>(&'a Entry);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Release);
    }
}

impl Table {
    fn at(&self, id: i32) -> &Entry {
        // The low bits are where its name stands.
        &self.0[id.cast_unsigned() as usize % ENTRIES]
    }

    /// Has it at hand, where there is room. By one thread at a time, as [`Self::let_go`].
    pub fn put(&self, id: i32, set: &Set) {
        let entry = self.at(id);
        if entry.id.load(Relaxed) != 0 || entry.calls.load(SeqCst) != 0 {
            return;
        }
        entry.name.store(set.object.name_word(), Relaxed);
        entry.page.store(set.object.head.page(), Relaxed);
        entry.count.store(u32::try_from(set.count).unwrap_or(0), Relaxed);
        entry.id.store(id, SeqCst);
    }

    /// False where a call has it in hand still.
    pub fn let_go(&self, id: i32) -> bool {
        let entry = self.at(id);
        if entry.id.compare_exchange(id, 0, SeqCst, Relaxed).is_err() {
            // Another's, or none. A call that saw this one there before is counted still.
            return entry.calls.load(SeqCst) == 0;
        }
        entry.calls.load(SeqCst) == 0
    }
}

/// A set at hand, for a call.
struct AtHand<'a> {
    _call: Call<'a>,
    words: Area,
    values: Area,
}

impl Space {
    /// The set of an id, where it is at hand and quiet, it has this semaphore, and the caller may
    /// do that to it.
    #[inline]
    fn at_hand(&self, id: i32, number: u32, access: Access, by: &Caller) -> Option<AtHand<'_>> {
        let presence = &self.inner().presence;
        presence.check_all().ok()?;
        let entry = self.table.at(id);
        if entry.id.load(Relaxed) != id {
            return None;
        }
        entry.calls.fetch_add(1, SeqCst);
        let call = Call(entry);
        if entry.id.load(SeqCst) != id {
            return None;
        }
        let segment = presence.segment();
        if !segment.names().holds(super::index_of(id), entry.name.load(Relaxed)) {
            return None;
        }
        let (page, count) = (u64::from(entry.page.load(Relaxed)), entry.count.load(Relaxed));
        let words = Area::new(segment, page * PAGE, PAGE)?;
        let values = Area::new(segment, (page + 1) * PAGE, u64::from(count) * 8)?;
        if number >= count || !is_quiet(words) {
            return None;
        }
        Perm::of(words).check(by, access).ok()?;
        Some(AtHand { _call: call, words, values })
    }

    /// Does an operation at once, if that can be; else the call goes the long way.
    #[inline]
    pub fn quick(&self, id: i32, op: Op, caller: &Caller) -> Option<Quick> {
        if op.is_undone() {
            return None;
        }
        let access = if op.add != 0 { Access::WRITE } else { Access::READ };
        let set = self.at_hand(id, op.number.into(), access, caller)?;
        attempt(set.words, set.values, op, caller.pid)
    }

    /// The value of a semaphore, or who changed it last, likewise.
    #[inline]
    pub fn quick_look(&self, id: i32, number: i32, of: Ask, caller: &Caller) -> Option<u32> {
        let number = u32::try_from(number).ok()?;
        let set = self.at_hand(id, number, Access::READ, caller)?;
        let seen = set.values.word(number as usize * 8).load(Acquire);
        match of {
            _ if seen & HELD != 0 => None,
            Ask::Value => Some((seen & 0xffff) as u32),
            Ask::Pid => Some((seen >> 32) as u32),
            Ask::Increase | Ask::Zero => None,
        }
    }

    /// Has those go on that can, after [`Quick::Look`].
    ///
    /// # Errors
    /// Where the set is gone by now.
    pub fn look(&self, id: i32) -> Answer<()> {
        let set = self.set(id)?;
        let mut locked = set.lock(&|| ())?;
        locked.let_go_on(locked.has_any_zero());
        Ok(())
    }
}

fn is_quiet(words: Area) -> bool {
    words.word(QUEUE_END).load(Relaxed) == 0 && words.word(UNDO_END).load(Relaxed) == 0
}

#[inline]
fn attempt(words: Area, values: Area, op: Op, pid: u32) -> Option<Quick> {
    let word = values.word(usize::from(op.number) * 8);
    for _ in 0..64 {
        let seen = word.load(Acquire);
        let value = (seen & 0xffff) as i32;
        let result = value + i32::from(op.add);
        if seen & HELD != 0 || result > HIGHEST {
            return None;
        }
        if result < 0 || op.add == 0 && value != 0 {
            return op.is_not_to_wait().then_some(Quick::Fails(libc::EAGAIN));
        }
        let next = u64::from(pid) << 32 | u64::from(result.cast_unsigned());
        // Acquire pairs with the Release by which marks are taken away; Release with the mark.
        if word.compare_exchange_weak(seen, next, AcqRel, Relaxed).is_err() {
            continue;
        }
        let (operated, now) = (words.word(OPERATED), now());
        if operated.load(Relaxed) != now {
            operated.store(now, Relaxed);
        }
        let alone = op.add == 0 || words.word(QUEUE_END).load(Acquire) == 0;
        return Some(if alone { Quick::Done } else { Quick::Look });
    }
    None
}
