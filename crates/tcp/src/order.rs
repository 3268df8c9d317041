//! In which order connections became ready.
//!
//! The kernel's epoll reports descriptors in the order in which they became ready, and programs count
//! on it. A reader that finds bytes in several rings at once sees how many there are, not since when.
//! So a reader that looks at several connections asks their writers for it ([`Endpoint::ask_for_order`]):
//! who publishes bytes into a ring that the reader has emptied says when, behind the bytes. The time
//! is the processor's counter, which processors of one machine have in common. What a peer writes
//! there, or that it writes nothing, changes the order of reports and nothing else.

use crate::endpoint::Endpoint;
use crate::layout::Direction;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A cheap clock for short times: ticks of unknown length near a nanosecond.
#[must_use]
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: no memory is touched.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        ginnel_region::sys::monotonic_ns()
    }
}

impl Endpoint<'_> {
    /// Has the writer say since when its ring holds something.
    pub fn ask_for_order(self) {
        self.incoming().ordered().store(1, Relaxed);
    }

    /// When the first byte that is unread was put into the ring, ticks. `None`: the writer has not
    /// said, as just now perhaps.
    #[must_use]
    pub fn ready_since(self) -> Option<u64> {
        let direction = self.incoming();
        let there = direction.since().load(Acquire) == self.slot().rx.head.load(Relaxed);
        Some(direction.since_ticks().load(Relaxed)).filter(|&since| there && since != 0)
    }
}

/// The writer has published bytes from `from` on: says when, if the reader had none before. Looked at
/// after the publication, which the reader's line, on its way here, is not to hold up.
#[inline(always)]
pub(crate) fn note(direction: Direction<'_>, from: u64) {
    if direction.ordered().load(Relaxed) != 0 && direction.head().load(Relaxed) == from {
        direction.since_ticks().store(ticks(), Relaxed);
        direction.since().store(from, Release);
    }
}
