//! What a caller does while nothing comes: it looks again at once, then lets others run, and where
//! there are more endpoints than processors, sleeps until it is woken.
//!
//! Where every endpoint has a processor a sleep only costs time. Where they share one, whoever
//! spins keeps the processor from the one that it waits for.
//!
//! Nobody says whether the caller waits, or computes and looks now and then (`MPI_Test` between
//! two steps). Who waits looks again at once. So before a sleep the time between two looks is
//! taken, and who did something in between does not sleep. Steps may be too short to tell: so
//! whoever slept stays awake for as long afterwards. Half of such a caller's time is left to it.

use ginnel_region::sys;

/// So many looks in vain follow each other at once …
const SPINS: u32 = 1000;
/// … or so many, where endpoints share processors.
const SPINS_CROWDED: u32 = 60;
/// Then so many times others may run first, before the caller sleeps …
const YIELDS: u32 = 20;
/// … and where nobody sleeps, they may at each so many looks: to ask takes as long as several.
const YIELD_EVERY: u32 = 16;
/// Whoever lets so much time pass between two looks, nanoseconds, does something else meanwhile. A
/// library that waits looks after its other transports, which takes it less.
const WORKS: u64 = 3000;
/// The longest sleep, milliseconds: a wake-up ends it before.
const LONGEST: i32 = 2;
/// So long, nanoseconds, whoever slept stays awake at most.
const AWAKE: u64 = LONGEST as u64 * 1_000_000;
/// How often the dead are looked for, and endpoints are counted, nanoseconds.
const LOOK: u64 = 500_000_000;
/// A clock is asked once in so many looks in vain.
const CLOCK: u32 = 512;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Look again.
    Spin,
    /// Let others run, then look again.
    Yield,
    /// Sleep until woken, or for so many milliseconds.
    Sleep(i32),
}

/// How long nothing has come.
#[derive(Debug, Default)]
pub struct Idle {
    vain: u32,
    crowded: bool,
    looked: u64,
    drowsy: Drowsy,
}

/// Whether one may sleep of whom there are more than processors, and for whom nothing has come.
/// Times are those of the monotonic clock, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Drowsy {
    /// It may sleep, should it look again soon.
    #[default]
    Unsure,
    /// It was told to look again at this time, to see when it does.
    Tried(u64),
    /// Its last sleep began at this time.
    Slept(u64),
    /// It does not sleep before this time.
    AwakeUntil(u64),
}

impl Idle {
    /// Something came.
    #[inline]
    pub fn reset(&mut self) {
        self.vain = 0;
    }

    /// Are there [more endpoints than processors](crate::node::Node::is_crowded)?
    pub fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    /// Nothing came: what to do?
    #[inline]
    pub fn rest(&mut self) -> Rest {
        self.vain = self.vain.saturating_add(1);
        let spins = if self.crowded { SPINS_CROWDED } else { SPINS };
        if self.vain <= spins {
            Rest::Spin
        } else if !self.crowded {
            self.yield_seldom()
        } else if self.vain <= spins + YIELDS {
            Rest::Yield
        } else {
            self.sleep_or_yield(sys::monotonic_ns())
        }
    }

    fn yield_seldom(&self) -> Rest {
        if self.vain.is_multiple_of(YIELD_EVERY) { Rest::Yield } else { Rest::Spin }
    }

    fn sleep_or_yield(&mut self, now: u64) -> Rest {
        let (next, rest) = match self.drowsy {
            Drowsy::Unsure => (Drowsy::Tried(now), Rest::Spin),
            Drowsy::Tried(then) if now.saturating_sub(then) < WORKS => {
                (Drowsy::Slept(now), Rest::Sleep(LONGEST))
            }
            Drowsy::Tried(_) => (Drowsy::Unsure, Rest::Yield),
            Drowsy::Slept(since) => {
                (Drowsy::AwakeUntil(now + now.saturating_sub(since).min(AWAKE)), Rest::Yield)
            }
            Drowsy::AwakeUntil(then) if now < then => (self.drowsy, self.yield_seldom()),
            Drowsy::AwakeUntil(_) => (Drowsy::Tried(now), Rest::Spin),
        };
        self.drowsy = next;
        rest
    }

    /// Is it time to look for the dead?
    #[inline]
    pub fn is_time(&mut self) -> bool {
        // One that sleeps looks in vain seldom, and so asks the clock each time.
        let asleep = self.crowded && self.vain > SPINS_CROWDED + YIELDS;
        if self.vain == 0 || !asleep && !self.vain.is_multiple_of(CLOCK) {
            return false;
        }
        let now = sys::coarse_monotonic_ns();
        let due = now.saturating_sub(self.looked) >= LOOK;
        if due {
            self.looked = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_crowd_sleeps() {
        let mut alone = Idle::default();
        assert!((0..SPINS).all(|_| alone.rest() == Rest::Spin));
        let later: Vec<Rest> = (0..5000).map(|_| alone.rest()).collect();
        let yields = later.iter().filter(|rest| **rest == Rest::Yield).count();
        assert!(yields.abs_diff(5000 / YIELD_EVERY as usize) <= 1, "{yields}");
        assert!(!later.contains(&Rest::Sleep(LONGEST)));
        let mut crowded = Idle::default();
        crowded.set_crowded(true);
        let all: Vec<Rest> = (0..80).map(|_| crowded.rest()).collect();
        assert_eq!((all[0], all[70]), (Rest::Spin, Rest::Yield));
        crowded.reset();
        assert_eq!(crowded.rest(), Rest::Spin);
    }

    /// Whoever waits sleeps half of the time while nothing comes.
    #[test]
    fn who_waits_sleeps_and_is_awake_for_as_long() {
        let mut idle = Idle::default();
        assert_eq!(idle.sleep_or_yield(1000), Rest::Spin, "to see when it looks again");
        assert_eq!(idle.sleep_or_yield(1100), Rest::Sleep(LONGEST));
        let back = 2_001_100;
        assert_eq!(idle.sleep_or_yield(back), Rest::Yield);
        assert_eq!(idle.sleep_or_yield(2 * back - 1101), Rest::Yield);
        assert_eq!(idle.sleep_or_yield(2 * back - 1100), Rest::Spin);
        assert_eq!(idle.sleep_or_yield(2 * back - 1000), Rest::Sleep(LONGEST));
    }

    /// Whoever computes between two looks never sleeps.
    #[test]
    fn who_does_something_else_between_two_looks_does_not_sleep() {
        let mut idle = Idle::default();
        let mut looks = (0..1000).map(|look| idle.sleep_or_yield(1000 + look * WORKS));
        assert!(looks.all(|rest| rest != Rest::Sleep(LONGEST)));
    }
}
