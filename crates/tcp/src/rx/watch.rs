//! What a reader that spins looks at, found once for the whole spin.

use crate::endpoint::Endpoint;
use crate::layout::Direction;
use crate::ledger::Receive;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The ring that an endpoint reads from, as it is when a spin begins.
///
/// Each method of [`Endpoint`] finds its slot, its segment and its channel anew, which takes longer
/// than the look itself: the writer's news waits that long. What is found here stays mapped, as
/// everything does that threads may be late for. Should the endpoint change its channel meanwhile,
/// the spin sees news that is none, or sees none until it gives up: who spins looks again, by the
/// endpoint, before it does anything else.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    rx: &'a Receive,
    incoming: Direction<'a>,
    base: *const u8,
}

impl<'a> Endpoint<'a> {
    /// What to look at in a spin that begins now.
    #[must_use]
    pub fn watch(self) -> Watch<'a> {
        Watch { rx: &self.slot().rx, incoming: self.incoming(), base: self.joined().segment.base() }
    }
}

impl Watch<'_> {
    /// Are there bytes in the ring, the ring being the carrier and no switch under way? In memory
    /// alone.
    #[must_use]
    #[inline]
    pub fn is_filled(&self) -> bool {
        let phase = self.rx.phase.load(Relaxed);
        let filled = self.incoming.tail().load(Acquire) != self.rx.head.load(Relaxed)
            && self.rx.frozen.load(Relaxed) == 0;
        filled && phase & 1 == 1 && self.incoming.epoch().load(Acquire) == phase
    }

    /// Has the writer said anything: bytes, or a switch? In memory alone.
    #[must_use]
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.is_filled() || self.incoming.epoch().load(Acquire) != self.rx.phase.load(Relaxed)
    }

    /// Where the next byte will lie, if nothing changes: for prefetching only.
    #[must_use]
    #[inline]
    pub fn next_place(&self) -> *const u8 {
        let rx = self.rx;
        let size = rx.ring_size.load(Relaxed);
        let at =
            rx.head.load(Relaxed).wrapping_sub(rx.ring_start.load(Relaxed)) & size.wrapping_sub(1);
        self.base.wrapping_add(rx.ring_offset.load(Relaxed).wrapping_add(at) as usize)
    }
}
