//! Giving up everything that a process has as one user, before it goes on as another.
//!
//! A process keeps what it has mapped whatever it becomes. So when it changes its user, its groups,
//! its rights or its root directory it is asked whether it could still open, by itself, what it
//! has: the same effective user, the same tables and the same segment under the same names. Where
//! it could not, it has to leave, and zeroes of its own take the place of all.

use crate::attach::Attachment;
use crate::ledger::{Reason, Slot, TAKEN};
use crate::lifetime;
use std::sync::atomic::Ordering::Acquire;

impl Attachment {
    /// Could this process, as it is now, open by itself what it has of its tables and segment?
    #[must_use]
    pub fn is_still_own(&self) -> bool {
        self.node.is_still_own() && self.ledger.can_be_opened()
    }

    /// Takes the process off a slot, whose socket stays open: the connection is on TCP, and nothing
    /// of it in a ring. A slot that nobody else has is free afterwards.
    pub fn renounce_slot(&self, slot: &Slot) {
        let cookie = slot.cookie.load(Acquire);
        slot.let_go(self.node.me());
        if slot.is_alone()
            && !slot.is_held(&self.node.processes)
            && !matches!(cookie, 0 | TAKEN..)
            && slot.seize(cookie, self.node.ticket())
        {
            lifetime::release_channel(self, slot);
            self.ledger.free(slot);
        }
    }

    /// Leaves the segment and gives process table and ledger up. Nothing here is reached by this
    /// value any more, but by threads that are late: they find zeroes.
    pub fn renounce(&self, reason: Reason) {
        self.pairs.let_go_of_all();
        self.node.renounce(reason as u32);
        self.ledger.let_go();
    }

    /// In a fork child that does not enter the process table, whose entry is its parent's there:
    /// gives all maps and descriptors up, and says nothing in them.
    pub fn abandon(&self) {
        self.pairs.forget_parent();
        self.pairs.let_go_of_all();
        self.node.abandon();
        self.ledger.let_go();
    }
}
