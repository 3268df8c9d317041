//! The send lock, and what one who died with it left half done.

use crate::endpoint::Endpoint;
use crate::growth;
use crate::kernel;
use crate::layout::GATE_TAKEN;
use crate::ledger::{Slot, Stage, attention, flag};
use crate::lifetime;
use ginnel_node::processes::{Held, Interrupted, Lock};
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

impl<'a> Endpoint<'a> {
    /// Takes the send lock; what a dead holder left half done is made whole.
    #[inline(always)]
    pub(crate) fn send_lock(self) -> Held<'a> {
        self.made_whole(self.slot().tx.lock.lock(&self.attachment.node.processes, self.ticket()))
    }

    /// The same, for calls of signal handlers.
    #[inline(always)]
    pub(super) fn send_lock_unless_interrupted(self) -> Result<Held<'a>, Interrupted> {
        let held = self
            .slot()
            .tx
            .lock
            .lock_unless_interrupted(&self.attachment.node.processes, self.ticket())?;
        Ok(self.made_whole(held))
    }

    #[inline]
    fn made_whole(self, held: Held<'a>) -> Held<'a> {
        if held.taken_over {
            self.recount();
        }
        held
    }

    /// Does the caller run in a signal handler that interrupted this thread's work on the
    /// connection?
    #[inline]
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        let (slot, ticket) = (self.slot(), self.ticket());
        slot.tx.lock.is_interrupted(ticket) || slot.rx.lock.is_interrupted(ticket)
    }

    /// After taking the send lock over from the dead. A thread dies as a system call returns: what
    /// the kernel took is then not counted yet. How many tokens and re-sent bytes are among it
    /// follows from where the last downgrade put them.
    #[cold]
    fn recount(self) {
        let (slot, tx) = (self.slot(), &self.slot().tx);
        // It may have died, or left by `siglongjmp`, in a stop of its stream ([`catchup`]).
        self.channel().pausing(slot.side()).store(0, SeqCst);
        if !slot.has(flag::COUNTED) {
            return;
        }
        if let Ok(facts) = kernel::facts(self.fd(), slot.has(flag::CONNECTED)) {
            tx.sent.store(facts.sent, Relaxed);
            self.count_sent(0);
        }
        if slot.stage() != Stage::Active {
            return;
        }
        let sent = tx.sent.load(Relaxed);
        let direction = self.outgoing();
        // Pages that the dead had claimed, and described nowhere yet, are to be looked for in the
        // end.
        self.channel().released().fetch_or(lifetime::DIED, SeqCst);
        growth::finish(tx, direction);
        // The channel's words follow the private ones: the one that was stored first counts.
        direction.tail().store(tx.tail.load(Relaxed), Release);
        direction.epoch().store(tx.epoch.load(Relaxed), Release);
        if slot.has(flag::TX_SHUT) {
            // All that was owed had been given to the kernel before, or will never be. Its FIN
            // wakes who sleeps.
            self.say_end();
            tx.owed.store(0, Relaxed);
            slot.attention.fetch_and(!(attention::RESEND | attention::TOKEN_OWED), Relaxed);
            return self.end_in_kernel();
        }
        if self.tx_in_ring() {
            direction.gate().fetch_or(GATE_TAKEN, SeqCst);
            slot.attention.fetch_and(!attention::RESEND, Relaxed);
            // A wish may have been claimed and not granted, or a token promised and not sent. One
            // token too many does no harm in the ring; a close is to count it.
            if park::promise(direction.want_data()) != Want::Closed {
                Slot::count(&tx.owed, 1);
            }
        } else {
            direction.gate().fetch_and(!GATE_TAKEN, SeqCst);
            let (down, start, end) =
                (tx.down.load(Relaxed), tx.resend_start.load(Relaxed), tx.resend_to.load(Relaxed));
            tx.owed.store(down.saturating_sub(sent).min(tx.owed.load(Relaxed)), Relaxed);
            let again = sent.saturating_sub(down).min(end.wrapping_sub(start));
            tx.resend_from.store(start.wrapping_add(again), Relaxed);
            if tx.resend_from.load(Relaxed) != end {
                slot.attention.fetch_or(attention::RESEND, Relaxed);
            }
        }
        if tx.owed.load(Relaxed) != 0 {
            slot.attention.fetch_or(attention::TOKEN_OWED, Relaxed);
        }
    }

    /// The kernel's side of a direction that was ended. (Where the socket is being closed, the
    /// close says how: by a reset, perhaps.)
    #[cold]
    pub(super) fn end_in_kernel(self) {
        if !self.slot().has(flag::ENDING) {
            kernel::end_writing(self.fd());
        }
    }

    /// Takes and gives back the locks that this thread left by `siglongjmp`: another may be waiting
    /// for them, and cannot know.
    pub fn take_back_left(self) {
        self.free_locks(|lock| lock.was_left_here(self.ticket()));
    }

    /// Frees locks of this end whose holders are dead.
    pub fn heal(self) {
        self.free_locks(|lock| lock.is_orphan(&self.attachment.node.processes));
    }

    /// Takes, makes whole and gives back the `left` ones of this end's two locks.
    fn free_locks(self, left: impl Fn(&Lock) -> bool) {
        if left(&self.slot().tx.lock) {
            drop(self.send_lock());
        }
        if left(&self.slot().rx.lock) {
            drop(self.receive_lock());
        }
    }
}
