//! Back to TCP at the reader's wish: it reads no further in the ring, and the writer sends what lies there again.

use crate::endpoint::Endpoint;
use crate::ledger::{Stage, flag};
use ginnel_node::waiter;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

impl<'a> Endpoint<'a> {
    /// Does the writer ask for a freeze?
    #[must_use]
    pub fn asked_to_freeze(self) -> bool {
        let direction = self.incoming();
        let wish = direction.wish().load(Acquire);
        wish & 1 == 1 && wish == direction.epoch().load(Acquire) && self.slot().rx.frozen.load(Relaxed) == 0
    }

    /// Asks the writer to come back to TCP: reads no further in the ring, and names where it stopped.
    pub fn request_downgrade(self) {
        let frozen = {
            let _held = self.receive_lock();
            self.freeze()
        };
        if frozen {
            self.poke_service();
        }
    }

    /// Testing: freezes this phase where nobody reads. Under the send lock.
    pub(crate) fn freeze_if_idle(self) {
        let frozen = self.slot().rx.lock.try_lock(self.ticket()).is_some_and(|_held| self.freeze());
        if frozen {
            self.poke_reader();
        }
    }

    /// Reads no further in the ring, and names where it stopped. False where no ring carries the direction, or it is frozen. Under the receive lock.
    #[cold]
    pub(crate) fn freeze(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if self.slot().stage() != Stage::Active
            || phase & 1 == 0
            || rx.frozen.load(Relaxed) != 0
            || direction.epoch().load(Acquire) != phase
        {
            return false;
        }
        rx.frozen.store(1, Relaxed);
        self.tell_frozen();
        true
    }

    /// Names where reading has stopped, which may have been done already: nothing is read since. Under the receive lock.
    pub(super) fn tell_frozen(self) {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if phase & 1 == 1 && direction.epoch().load(Acquire) == phase {
            direction.freeze_ring().store(rx.head.load(Relaxed), Relaxed);
            direction.freeze_epoch().store(phase, SeqCst);
        }
    }

    /// Wakes the other end's service thread: there is a wish for it to look at.
    pub fn poke_service(self) {
        if !self.is_known() {
            return;
        }
        self.poke_reader();
        // A writer that sleeps for room looks again when it is woken.
        self.grant_space();
    }

    /// Has the other end proved itself? Before that nobody is woken for its sake.
    fn is_known(self) -> bool {
        self.slot().stage() == Stage::Active || self.slot().has(flag::PROVED)
    }

    /// [`Self::poke_service`], under the send lock.
    pub(crate) fn poke_reader(self) {
        if !self.is_known() {
            return;
        }
        let channel = self.channel();
        let other = 1 - self.slot().side();
        let page = channel.service(other).load(Relaxed);
        let index = channel.owner(other).load(Relaxed) as u32;
        fence(SeqCst);
        if let (Ok(page @ 1..), Ok(bit)) = (u32::try_from(page), u16::try_from(index % waiter::BITS)) {
            // Where it is not reached, it looks by itself after a while.
            let _ = self.attachment.node.ring(page, bit);
        }
    }
}
