//! What this process may take of its segment: a part of what its cgroup's memory limit leaves.
//!
//! The limit is looked at where pages are claimed that nobody has touched before, at most once a
//! second, or when a sixty-fourth of the room that was seen then is spent: other processes take of
//! it too.

use crate::cgroup::{self, Room};
use ginnel_region::{PAGE, sys};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A look at the limit holds for so long, nanoseconds …
const WHILE: u64 = 1_000_000_000;
/// … and for such a part of the room that was seen.
const PART: u64 = 64;

/// What for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The first rings of a connection.
    Rings,
    /// A larger one.
    Growth,
}

/// What is left of what was seen.
pub struct Budget {
    /// When the limit was looked at; 0: never.
    seen: AtomicU64,
    rings: AtomicU64,
    growth: AtomicU64,
    /// Bytes until the next look.
    step: AtomicU64,
    /// The least growth that was refused since.
    refused: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

impl Budget {
    /// One that will look when it is first asked.
    #[must_use]
    pub const fn new() -> Self {
        let [seen, rings, growth, step, refused] = [const { AtomicU64::new(0) }; 5];
        Self { seen, rings, growth, step, refused }
    }

    /// Was as much growth refused just now? Then nothing need be tried.
    #[must_use]
    pub fn refuses_growth(&self, bytes: u64) -> bool {
        bytes >= self.refused.load(Relaxed) && self.is_fresh() && self.seen.load(Relaxed) != 0
    }

    /// Takes `bytes` more for memory that nobody has touched so far, if there is so much. `taken`:
    /// bytes of the segment that have been touched, by whomever.
    #[must_use]
    pub fn take(&self, bytes: u64, purpose: Purpose, taken: impl FnOnce() -> u64) -> bool {
        self.take_of(bytes, purpose, || cgroup::room(taken()))
    }

    fn take_of(&self, bytes: u64, purpose: Purpose, look: impl FnOnce() -> Room) -> bool {
        if bytes == 0 {
            return true;
        }
        let (fresh, enough) = (self.is_fresh(), self.rings.load(Relaxed) >= bytes);
        // Where there was not enough a moment ago there is none now.
        if !fresh || enough && !spend(&self.step, bytes) {
            self.note(look());
        }
        let done = match purpose {
            Purpose::Rings => spend(&self.rings, bytes),
            Purpose::Growth => spend(&self.growth, bytes) && spend(&self.rings, bytes),
        };
        if !done && purpose == Purpose::Growth {
            self.refused.fetch_min(bytes, Relaxed);
        }
        done
    }

    fn is_fresh(&self) -> bool {
        let seen = self.seen.load(Relaxed);
        seen != 0 && sys::coarse_monotonic_ns().saturating_sub(seen) < WHILE
    }

    fn note(&self, room: Room) {
        self.rings.store(room.rings, Relaxed);
        self.growth.store(room.growth, Relaxed);
        self.step.store((room.rings / PART).max(PAGE), Relaxed);
        self.refused.store(u64::MAX, Relaxed);
        self.seen.store(sys::coarse_monotonic_ns().max(1), Relaxed);
    }
}

/// Takes `bytes` away, if there are so many.
fn spend(from: &AtomicU64, bytes: u64) -> bool {
    from.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_limit_is_looked_at_when_much_was_spent() {
        let (budget, looks) = (Budget::new(), Cell::new(0));
        let room = Room { limit: 1 << 30, free: 512 << 20, rings: 64 << 20, growth: 32 << 20 };
        let take = |bytes, purpose| {
            budget.take_of(bytes, purpose, || {
                looks.set(looks.get() + 1);
                room
            })
        };
        assert!(
            take(0, Purpose::Rings) && looks.get() == 0,
            "what was touched before costs nothing"
        );
        assert!(take(1 << 16, Purpose::Rings) && take(1 << 16, Purpose::Rings) && looks.get() == 1);
        assert!(take(1 << 20, Purpose::Rings) && looks.get() == 2, "a MiB is a sixty-fourth");
        // Growth leaves room to others …
        assert!(take(31 << 20, Purpose::Growth) && !take(40 << 20, Purpose::Growth));
        assert!(
            budget.refuses_growth(40 << 20)
                && budget.refuses_growth(1 << 30)
                && !budget.refuses_growth(39 << 20)
        );
        assert!(take(33 << 20, Purpose::Rings));
        // … and where nothing is left, nobody looks again and again.
        let before = looks.get();
        assert!(
            !take(65 << 20, Purpose::Rings)
                && !take(65 << 20, Purpose::Rings)
                && looks.get() == before
        );
    }

    #[test]
    fn without_a_limit_there_is_no_end() {
        let budget = Budget::new();
        let endless =
            || Room { limit: u64::MAX, free: u64::MAX, rings: u64::MAX, growth: u64::MAX };
        assert!((0..100).all(|_| budget.take_of(1 << 40, Purpose::Growth, endless)));
    }
}
