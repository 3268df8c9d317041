//! Giving up everything that a process has as one user, before it goes on as another.
//!
//! A process keeps what it has mapped whatever it becomes. So when it changes its user, its groups,
//! its rights or its root directory it is asked whether it could still open, by itself, what it has:
//! the same effective user, the same ledger and the same segment under the same names. Where it
//! could not, it has to leave, and zeroes of its own take the place of both.

use crate::attach::Attachment;
use crate::ledger::{Reason, Slot, TAKEN};
use crate::lifetime;
use ginnel_region::{Segment, sys};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

impl Attachment {
    /// Could this process, as it is now, open by itself what it has of ledger and segment?
    #[must_use]
    pub fn is_still_own(&self) -> bool {
        let (user, groups) = self.identity;
        let segment = &self.joined().segment;
        user == sys::effective_ids().0
            && self.ledger.can_be_opened()
            // ginneld has judged by who the process was when it came.
            && if self.joined().bells.is_some() { groups == identity().1 } else { can_be_opened(segment) }
    }

    /// Takes the process off a slot, whose socket stays open: the connection is on TCP, and nothing
    /// of it in a ring. A slot that nobody else has is free afterwards.
    pub fn renounce_slot(&self, slot: &Slot) {
        let cookie = slot.cookie.load(Acquire);
        slot.let_go(self.me());
        if slot.is_alone() && !slot.is_held(&self.ledger) && !matches!(cookie, 0 | TAKEN..) && slot.seize(cookie, self.ticket()) {
            lifetime::release_channel(self, slot);
            self.ledger.free(slot);
        }
    }

    /// Leaves the segment and gives the ledger up. Nothing here is reached by this value any more,
    /// but by threads that are late: they find zeroes.
    pub fn renounce(&self, reason: Reason) {
        self.leave(reason);
        self.ledger.process(self.me()).reason.store(reason as u32, Relaxed);
        self.ledger.let_go();
    }

    /// In a fork child that does not enter the ledger, whose entry is its parent's there: gives both
    /// maps and all descriptors up, and says nothing in either.
    pub fn abandon(&self) {
        self.forget_parent();
        self.let_go_of_segment();
        self.ledger.let_go();
    }
}

/// Returns (effective user, a mark of the groups and rights) of this process.
pub(crate) fn identity() -> (u32, u64) {
    let (user, group) = sys::effective_ids();
    let mut groups = [0u32; 256];
    // SAFETY: room for so many numbers.
    let count = unsafe { sys::raw(syscalls::Sysno::getgroups, [groups.len(), groups.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    // FNV-1a. With more groups than that, each change is one.
    let known = count.unwrap_or(0);
    let seed = 0xcbf2_9ce4_8422_2325 ^ if count.is_err() { sys::random_u64() } else { 0 };
    let numbers = groups.iter().take(known).chain(std::iter::once(&group));
    (user, numbers.fold(seed, |hash: u64, id| (hash ^ u64::from(*id)).wrapping_mul(0x100_0000_01b3)))
}

/// Could this process open the segment's file, and is it the same?
fn can_be_opened(segment: &Segment) -> bool {
    let Ok(again) = Segment::open(segment.path()) else { return false };
    let same = again.id() == segment.id();
    again.close();
    same
}
