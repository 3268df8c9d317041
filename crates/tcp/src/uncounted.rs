//! System calls that nobody counts, while the other end seems to have no shim.
//!
//! Two ends may agree on the bytes so far only while none of a socket's reads and writes is in the
//! kernel, so each counts itself in [`busy_rx`](Slot::busy_rx) or [`busy_tx`](Slot::busy_tx): three
//! locked instructions a call, which a program pays for nothing where nobody ever comes. After
//! `PATIENT` looks a process therefore says in the slot that its calls are not counted any more,
//! and from then on only notes for itself which thread is in such a call. The connection takes no
//! step towards a channel until it has said that they are counted again, and seen all of those
//! threads come back. A process that died, or made room for another program (exec), has nobody in
//! the kernel.
//!
//! Whoever finds that its call goes uncounted after it has noted the call is safe: who is to end
//! that has every thread know first, and pass a barrier (`membarrier(2)`), before it looks at the
//! notes.

use crate::endpoint::Endpoint;
#[cfg(doc)]
use crate::ledger::Slot;
use crate::ledger::{Stage, flag};
use crate::rendezvous::{Entry, state};
use crate::settle::{self, PATIENT};
use ginnel_node::node::Standing;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// In [`uncounted`](Slot::uncounted), above the ticket of the process: it does not count its calls
/// …
const OPEN: u64 = 1 << 32;
/// … or counts them again, but there may still be some in the kernel that began before.
const ENDING: u64 = 1 << 33;
/// Of so many calls one is counted, and looks whether somebody has come.
pub const LOOKS: u32 = 1024;

/// What stands in [`uncounted`](Slot::uncounted) while the process with this ticket does not count
/// its calls.
fn word(ticket: u32) -> u64 {
    OPEN | u64::from(ticket)
}

impl Endpoint<'_> {
    /// From here on this process need not count its calls, if nobody has come for long, and none
    /// was ever here.
    #[must_use]
    pub fn begin_uncounted(self) -> bool {
        let slot = self.slot();
        if slot.attempts.load(Relaxed) <= PATIENT || slot.upgrades.load(Relaxed) != 0 {
            return false;
        }
        // Under this lock each step towards a channel is taken.
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return false };
        // Nor where another process has it: only this one can say that its calls are counted again,
        // and may never use the socket any more.
        // (In this order: see `Slot::is_alone`.)
        let alone = slot.forking.load(SeqCst) == 0 && slot.holder_count() < 2;
        let fits = alone && !slot.has(flag::HOLD | flag::LEAVING) && self.waits_published();
        fits && slot.uncounted.compare_exchange(0, word(self.ticket()), SeqCst, Relaxed).is_ok()
    }

    /// Is it in the rendezvous table, with nobody there, and nothing else to be done?
    fn waits_published(self) -> bool {
        let entry =
            Entry::at(&self.joined().segment, self.slot().entry.load(Relaxed).wrapping_sub(1));
        self.slot().stage() == Stage::Published
            && self.attachment.node.standing() == Standing::Here
            && entry.state() == state::PUBLISHED
    }

    /// Does this process not count its calls?
    #[inline]
    #[must_use]
    pub fn is_uncounted(self) -> bool {
        self.slot().uncounted.load(SeqCst) == word(self.ticket())
    }

    /// Is this process's word in the slot, also where it is counting again?
    #[must_use]
    pub fn does_not_count(self) -> bool {
        self.slot().uncounted.load(Relaxed) & !ENDING == word(self.ticket())
    }

    /// Is this process to count its calls again, before anything else can become of the connection?
    #[inline]
    #[must_use]
    pub fn is_to_count(self) -> bool {
        self.does_not_count() && (!self.is_uncounted() || !self.waits_published())
    }

    /// Runs `work`, which may have this process's threads know that it does not count its calls:
    /// one thread's at a time.
    pub fn while_uncounted(self, work: impl FnOnce()) {
        if let Some(_held) = self.slot().tx.lock.try_lock(self.ticket())
            && self.is_uncounted()
        {
            // The next call that is counted gets past `waits_in_vain`, and asks all that is ever
            // asked.
            self.slot().attempts.store(2 * PATIENT - 1, Relaxed);
            work();
        }
    }

    /// From here on this process counts its calls, as soon as its threads know.
    pub fn count_again(self) {
        let mine = word(self.ticket());
        let _ = self.slot().uncounted.compare_exchange(mine, mine | ENDING, SeqCst, Relaxed);
    }

    /// Is this process's last uncounted call over, as `have_ended` says, which is asked after
    /// [`count_again`](Self::count_again)? Then the connection may move.
    #[must_use]
    pub fn end_uncounted(self, have_ended: impl FnOnce() -> bool) -> bool {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return false };
        let ending = word(self.ticket()) | ENDING;
        // A child that was just made has not said yet that it is another process.
        let over =
            slot.uncounted.load(SeqCst) == ending && slot.forking.load(SeqCst) == 0 && have_ended();
        over && self.forget_uncounted(ending)
    }

    /// May some process that has the socket be in a call that was not counted? That one lives is
    /// asked now and then.
    pub(crate) fn has_uncounted(self) -> bool {
        let now = self.slot().uncounted.load(SeqCst);
        if now == 0 {
            return false;
        }
        // As in `waits_in_vain`, past which this comes at each eighth.
        let looks = self.slot().attempts.fetch_add(1, Relaxed).wrapping_add(1);
        let gone = looks.is_multiple_of(settle::ASK_EVERY)
            && !self.attachment.node.processes.is_still(now as u32);
        !(gone && self.forget_uncounted(now))
    }

    /// All calls are counted.
    fn forget_uncounted(self, before: u64) -> bool {
        self.learn_cork();
        self.slot().uncounted.compare_exchange(before, 0, SeqCst, Relaxed).is_ok()
    }
}
