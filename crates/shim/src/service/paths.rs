//! Whether TCP still gets through where rings carry bytes.

use super::with_endpoint;
use crate::{fds, runtime};
use core::sync::atomic::{AtomicU64, Ordering};
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{SLOTS, Stage};
use ginnel_tcp::{Attachment, path};

/// For each slot how many bytes its rings had carried at the last look at its path, and in the
/// lowest two bits how many looks ago that changed.
static CARRIED: [AtomicU64; SLOTS as usize] = [const { AtomicU64::new(0) }; SLOTS as usize];

/// How often it looks at paths while rings carry bytes or a path is in question, ms.
const PATH_TICK: u64 = 1000;

/// How often while a probe is not answered yet, ms.
const DOUBT_TICK: u64 = 250;

/// How often it looks whether rings carry bytes, ms.
pub(super) const PATHS_TICK: u64 = 2000;

/// So many sockets a process has TCP ask at once, and then none for a while, ms: about a tenth of
/// what the kernel takes at one moment, and the kernel's timers gather what is less than some 60 ms
/// apart (see [`Endpoint::check_path`]).
const ASKS: u32 = 128;

const ASKS_PAUSE: u64 = 20;

/// A round of looks at the paths of all connections, which may take several turns.
#[derive(Default)]
pub(super) struct Paths {
    /// When it began, monotonic nanoseconds.
    began: u64,
    /// The slot that comes next.
    next: u32,
    /// When rings that are silent last counted as so one look longer.
    aged: u64,
    /// The soonest that any path is to be looked at again.
    due: path::Next,
}

impl Paths {
    /// Looks whether TCP still gets through where rings carry bytes. Returns when to go on, or to
    /// look again. Idle ones cost a look at two counters.
    pub(super) fn look(&mut self, attachment: &'static Attachment, now: u64) -> u64 {
        /// For so many looks more after rings fell silent. A connection that speaks now and then is
        /// not to have its options changed each time.
        const LINGER: u64 = 3;
        if self.next == 0 {
            let ages = now.saturating_sub(self.aged) >= (PATH_TICK - DOUBT_TICK) * 1_000_000;
            *self =
                Self { began: now, aged: if ages { now } else { self.aged }, ..Self::default() };
        }
        let older = u64::from(self.aged == self.began);
        let mut asks = ASKS;
        for index in fds::slots(self.next) {
            if asks == 0 {
                self.next = index;
                return now + ASKS_PAUSE * 1_000_000;
            }
            let slot = attachment.ledger.slot(index);
            let Some(known) = CARRIED.get(index as usize) else { continue };
            if slot.stage() != Stage::Active {
                continue;
            }
            let carried = slot
                .in_ring
                .load(Ordering::Relaxed)
                .wrapping_add(slot.out_ring.load(Ordering::Relaxed))
                << 2;
            let before = known.load(Ordering::Relaxed);
            let quiet = if before & !LINGER == carried {
                (before & LINGER).saturating_add(older).min(LINGER)
            } else {
                0
            };
            known.store(carried | quiet, Ordering::Relaxed);
            let moved = quiet < LINGER && carried != 0;
            if moved || runtime::endpoint(-1, index).is_some_and(Endpoint::path_in_question) {
                let next = with_endpoint(index, |endpoint| endpoint.check_path(moved, &mut asks));
                self.due = self.due.max(next.unwrap_or_default());
            }
        }
        self.next = 0;
        let tick = match self.due {
            path::Next::Idle => PATHS_TICK,
            path::Next::Watched => PATH_TICK,
            path::Next::Doubted => DOUBT_TICK,
        };
        (self.began + tick * 1_000_000).max(now + ASKS_PAUSE * 1_000_000)
    }
}
