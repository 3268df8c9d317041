//! The receive lock, and what one who died with it left half done.

use crate::endpoint::Endpoint;
use crate::kernel;
use crate::ledger::{Slot, Stage, flag};
use ginnel_node::processes::{Held, Interrupted};
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{Relaxed, Release};

impl<'a> Endpoint<'a> {
    /// Takes the receive lock; what a dead holder left half done is made whole.
    #[inline(always)]
    pub(crate) fn receive_lock(self) -> Held<'a> {
        self.made_whole_rx(self.slot().rx.lock.lock(&self.attachment.node.processes, self.ticket()))
    }

    /// The same, for calls of signal handlers.
    #[inline(always)]
    pub(super) fn receive_lock_unless_interrupted(self) -> Result<Held<'a>, Interrupted> {
        let held = self
            .slot()
            .rx
            .lock
            .lock_unless_interrupted(&self.attachment.node.processes, self.ticket())?;
        Ok(self.made_whole_rx(held))
    }

    #[inline]
    fn made_whole_rx(self, held: Held<'a>) -> Held<'a> {
        if held.taken_over {
            self.recount_rx();
        }
        held
    }

    #[cold]
    fn recount_rx(self) {
        let slot = self.slot();
        slot.rx.seen.store(0, Relaxed);
        if slot.has(flag::COUNTED)
            && let Ok(facts) = kernel::facts(self.fd(), slot.has(flag::CONNECTED))
        {
            let uncounted = facts.received.wrapping_sub(slot.rx.received.load(Relaxed));
            if self.rx_in_ring() && uncounted < 1 << 32 {
                // Only tokens are taken from the kernel there.
                Slot::count(&slot.rx.tokens, uncounted);
            }
            slot.rx.received.store(facts.received, Relaxed);
            self.incoming().received().store(facts.received, Relaxed);
        }
        if slot.stage() == Stage::Active {
            let direction = self.incoming();
            direction.head().store(slot.rx.head.load(Relaxed), Release);
            direction.ack().store(slot.rx.phase.load(Relaxed), Release);
            direction.grown_ack().store(slot.rx.grown.load(Relaxed), Release);
            // What the kernel had reported may not have been looked at to its end.
            slot.heed_kernel();
            if slot.rx.frozen.load(Relaxed) != 0 {
                // The writer may not have been told.
                self.tell_frozen();
            }
            // Whoever sleeps may have lost the wish that was to wake it.
            let (_, fresh) = park::arm(direction.want_data(), Want::Token);
            slot.rx.armed.fetch_add(fresh, Relaxed);
        }
    }
}
