//! Who sleeps for a set, in the order in which they came. Whoever changes a value does for those
//! that sleep what they wait to do, as the kernel does: a call that comes later does not go first.
//!
//! A sleeper has a slot of eight words, and one more for each seven of its operations.
//!
//! | word of the first slot | what |
//! |---|---|
//! | 0 | state (bits 0–7), slots (8–23), its result (24–31), operations (32–47) |
//! | 1 | its number: who came first has the lower one |
//! | 2 | its party |
//! | 3 | its wish to be woken, which only it puts there |
//! | 4 | the operation that it waits for (0–31), its process's number (32–63) |
//! | 5 | 1: it changes something |
//! | 6, 7 | by what its process is known (see [`super::doer`]) |
//!
//! The other slots have [`FOLLOWS`] in the first word. A slot that follows none is free.

use super::doer::Doer;
use super::operation::{Op, Step};
use super::set::{Locked, MOST_OPERATIONS, QUEUE_END, SLOT, SLOTS, Set, TICKET};
use crate::wait;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u64 = 0;
const WAITS: u64 = 1;
const DONE: u64 = 2;
const FOLLOWS: u64 = 3;
const PER_SLOT: usize = SLOT / 8 - 1;

/// Those that are to be woken once the set is another's to change.
#[derive(Default)]
pub(super) struct Wakes(Vec<&'static AtomicU64>);

impl Wakes {
    pub fn wake(&mut self, set: &Set) {
        for wish in self.0.drain(..) {
            wait::wake(set.object.presence(), wish);
        }
    }
}

/// A sleeper, as it stands in the queue: copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sleeper {
    slot: usize,
    state: u64,
    pub ticket: u64,
    doer: Doer,
    blocking: usize,
    changes: bool,
}

fn slots_of(state: u64) -> usize {
    (state >> 8) as usize & 0xffff
}

fn count_of(state: u64) -> usize {
    (state >> 32) as usize & 0xffff
}

fn is_used(state: u64) -> bool {
    matches!(state & 0xff, WAITS | DONE)
}

impl Set {
    /// The word by which a sleeper knows that it may go on.
    pub(super) fn state_of(&self, sleeper: &Sleeper) -> &'static AtomicU64 {
        self.word(self.slot(sleeper.slot))
    }

    /// The word for its wish to be woken.
    pub(super) fn wish_of(&self, sleeper: &Sleeper) -> &'static AtomicU64 {
        self.word(self.slot(sleeper.slot) + 24)
    }

    /// May it go on?
    pub(super) fn is_done(&self, sleeper: &Sleeper) -> bool {
        // Acquire pairs with the Release of whoever did it.
        self.state_of(sleeper).load(Acquire) & 0xff != WAITS
    }

    /// The used slots that begin a sleeper, as (slot, its first word).
    fn queue(&self) -> impl Iterator<Item = (usize, u64)> {
        let end = usize::try_from(self.word(QUEUE_END).load(Relaxed)).unwrap_or(SLOTS).min(SLOTS);
        let mut next = 0;
        std::iter::from_fn(move || {
            while next < end {
                let (at, state) = (next, self.word(self.slot(next)).load(Acquire));
                next += if is_used(state) { slots_of(state).clamp(1, SLOTS) } else { 1 };
                if is_used(state) && at + slots_of(state) <= SLOTS {
                    return Some((at, state));
                }
            }
            None
        })
    }

    fn sleeper(&self, slot: usize, state: u64) -> Sleeper {
        let word = |at: usize| self.word(self.slot(slot) + at * 8).load(Relaxed);
        let (ticket, party, about) = (word(1), word(2), word(4));
        Sleeper {
            slot,
            state,
            ticket,
            doer: Doer { party, pid: (about >> 32) as u32, process: [word(6), word(7)] },
            blocking: (about & 0xffff_ffff) as usize,
            changes: word(5) == 1,
        }
    }

    fn operations_of(&self, sleeper: &Sleeper) -> Vec<Op> {
        let count = count_of(sleeper.state).min(MOST_OPERATIONS);
        let slots = slots_of(sleeper.state).min(SLOTS - sleeper.slot);
        let at = |i: usize| {
            let slot = sleeper.slot + 1 + i / PER_SLOT;
            self.word(self.slot(slot) + (1 + i % PER_SLOT) * 8).load(Relaxed)
        };
        let count = count.min(slots.saturating_sub(1) * PER_SLOT);
        (0..count).map(|i| Op::unpacked(at(i))).collect()
    }

    /// It was removed: wakes all.
    pub(super) fn wake_all(&self) {
        for (slot, state) in self.queue() {
            wait::wake(self.object.presence(), self.wish_of(&self.sleeper(slot, state)));
        }
    }
}

impl Locked<'_> {
    /// How many sleep for a semaphore to become zero, or to grow.
    pub fn sleepers_of(&self, number: usize, zero: bool) -> u32 {
        let waits = |&(slot, state): &(usize, u64)| {
            let sleeper = self.set.sleeper(slot, state);
            let op = self.set.operations_of(&sleeper).get(sleeper.blocking).copied();
            let is_it =
                op.is_some_and(|op| usize::from(op.number) == number && (op.add == 0) == zero);
            state & 0xff == WAITS && is_it && self.set.lives(sleeper.doer.party)
        };
        u32::try_from(self.set.queue().filter(waits).count()).unwrap_or(u32::MAX)
    }

    /// Enters this process in the queue; `None` where there is no room.
    pub fn enter(&self, ops: &[Op], blocking: usize) -> Option<Sleeper> {
        let set = self.set;
        let slots = 1 + ops.len().div_ceil(PER_SLOT);
        let slot = self.room(slots).or_else(|| {
            self.free_dead();
            self.room(slots)
        })?;
        let word = |at: usize| set.word(set.slot(slot) + at * 8);
        let changes = ops.iter().any(|op| op.add != 0);
        let ticket = set.word(TICKET).fetch_add(1, Relaxed);
        let Doer { party, pid, process: [begin, namespace] } = set.own;
        let about = blocking as u64 | u64::from(pid) << 32;
        let words = [ticket, party, 0, about, changes.into(), begin, namespace];
        for (at, value) in (1..).zip(words) {
            word(at).store(value, Relaxed);
        }
        for (i, op) in ops.iter().enumerate() {
            let at = set.slot(slot + 1 + i / PER_SLOT);
            set.word(at).store(FOLLOWS, Relaxed);
            set.word(at + (1 + i % PER_SLOT) * 8).store(op.packed(), Relaxed);
        }
        let end = set.word(QUEUE_END);
        if end.load(Relaxed) < (slot + slots) as u64 {
            end.store((slot + slots) as u64, Relaxed);
        }
        let state = WAITS | (slots as u64) << 8 | (ops.len() as u64) << 32;
        word(0).store(state, Release);
        Some(set.sleeper(slot, state))
    }

    /// The first run of so many free slots.
    fn room(&self, slots: usize) -> Option<usize> {
        let mut from = 0;
        for (slot, state) in self.set.queue() {
            if slot >= from + slots {
                break;
            }
            from = slot + slots_of(state).max(1);
        }
        (from + slots <= SLOTS).then_some(from)
    }

    fn free(&self, slot: usize) {
        self.set.word(self.set.slot(slot)).store(FREE, Release);
    }

    fn free_dead(&self) {
        for (slot, state) in self.set.queue() {
            if !self.set.lives(self.set.sleeper(slot, state).doer.party) {
                self.free(slot);
            }
        }
    }

    /// This process sleeps no longer. Its result, where it has one: 0, or an `errno`.
    pub fn leave(&self, sleeper: &Sleeper) -> Option<i32> {
        let state = self.set.state_of(sleeper).load(Acquire);
        let now = self.set.sleeper(sleeper.slot, state);
        if !is_used(state) || now.ticket != sleeper.ticket || now.doer.party != sleeper.doer.party {
            // Somebody wrote nonsense there.
            return Some(libc::EIDRM);
        }
        self.free(sleeper.slot);
        if self.set.queue().next().is_none() {
            self.set.word(QUEUE_END).store(0, Relaxed);
        }
        (state & 0xff == DONE).then_some((state >> 24 & 0xff) as i32)
    }

    /// Is one of these semaphores zero by now?
    pub fn has_zero(&self, of: impl Iterator<Item = usize>) -> bool {
        let set = self.set;
        let mut of = of.filter(|&number| number < set.count);
        of.any(|number| set.word(set.semaphore(number)).load(Relaxed) & 0xffff == 0)
    }

    /// Is any of all, where somebody may wait for that?
    pub fn has_any_zero(&self) -> bool {
        self.has_sleepers() && self.has_zero(0..self.set.count)
    }

    /// Does what sleepers wait to do, as far as that can be done now: first those that wait for
    /// zeroes and change nothing, then the others in their order, and from the beginning after
    /// each. `fell`: one of the semaphores that were changed is zero. Only then Linux looks at
    /// those that change nothing (`do_smart_wakeup_zero` in its ipc/sem.c), and so only then one of
    /// them is told that it would have to wait for another than before, and may not.
    pub fn let_go_on(&mut self, mut fell: bool) {
        // Each time one goes on.
        for _ in 0..=SLOTS {
            let mut waiting: Vec<Sleeper> = self
                .set
                .queue()
                .filter(|(_, state)| state & 0xff == WAITS)
                .map(|(slot, state)| self.set.sleeper(slot, state))
                .collect();
            waiting.sort_by_key(|sleeper| (sleeper.changes, sleeper.ticket));
            let Some(went) = waiting.iter().find(|sleeper| self.goes_on(sleeper, fell)) else {
                return;
            };
            fell = self.has_zero(self.numbers_of(went));
        }
    }

    /// Does what one sleeper waits to do, if it can be done.
    pub fn look_at(&mut self, sleeper: &Sleeper) {
        let state = self.set.state_of(sleeper).load(Acquire);
        let now = self.set.sleeper(sleeper.slot, state);
        if state & 0xff == WAITS && now.ticket == sleeper.ticket && self.goes_on(&now, false) {
            self.let_go_on(self.has_zero(self.numbers_of(&now)));
        }
    }

    /// The semaphores of its operations.
    fn numbers_of(&self, sleeper: &Sleeper) -> impl Iterator<Item = usize> + use<> {
        let ops = self.set.operations_of(sleeper).into_iter();
        ops.map(|op| usize::from(op.number))
    }

    /// True where it changed a value, so that others are to be looked at again.
    fn goes_on(&mut self, sleeper: &Sleeper, fell: bool) -> bool {
        let ops = self.set.operations_of(sleeper);
        if ops.is_empty() || ops.iter().any(|op| usize::from(op.number) >= self.set.count) {
            return false;
        }
        let mut change = self.change();
        let is_looked_at = fell || sleeper.changes;
        let result = match self.attempt(&mut change, &ops, &sleeper.doer) {
            Step::Blocks(_) | Step::Fails(libc::EAGAIN) if !is_looked_at => return false,
            Step::Blocks(at) => {
                let about = at as u64 | u64::from(sleeper.doer.pid) << 32;
                self.set.word(self.set.slot(sleeper.slot) + 32).store(about, Relaxed);
                return false;
            }
            Step::Done => 0,
            Step::Fails(errno) => {
                change = self.change();
                errno
            }
        };
        if sleeper.doer.party != self.set.mine() && !self.set.lives(sleeper.doer.party) {
            self.free(sleeper.slot);
            return false;
        }
        let done = sleeper.state & !0xff & !(0xff << 24)
            | DONE
            | (u64::from(result.cast_unsigned()) & 0xff) << 24;
        change.put(self.set.slot(sleeper.slot), done);
        self.commit(&change);
        if result == 0 {
            self.set.touch();
        }
        self.wakes.0.push(self.set.wish_of(sleeper));
        result == 0 && sleeper.changes
    }

    /// Is anybody in the queue?
    pub fn has_sleepers(&self) -> bool {
        self.set.word(QUEUE_END).load(Relaxed) != 0
    }
}
