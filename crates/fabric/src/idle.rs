//! What a caller does while nothing comes: it looks again at once, then lets others run, and where
//! there are more endpoints than processors, sleeps until it is woken.
//!
//! Where every endpoint has a processor a sleep only costs time. Where they share one, whoever
//! spins keeps the processor from the one that it waits for.

use ginnel_region::sys;

/// So many looks in vain follow each other at once …
const SPINS: u32 = 1000;
/// … or so many, where endpoints share processors.
const SPINS_CROWDED: u32 = 60;
/// Then so many times others may run first, before the caller sleeps.
const YIELDS: u32 = 20;
/// The longest sleep, milliseconds: a wake-up ends it before.
const LONGEST: i32 = 2;
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
}

impl Idle {
    /// Something came.
    #[inline]
    pub fn reset(&mut self) {
        self.vain = 0;
    }

    /// There are so many processes on so many processors.
    pub fn count(&mut self, processes: usize) {
        self.crowded =
            processes > std::thread::available_parallelism().map_or(1, usize::from).max(online());
    }

    /// Nothing came: what to do?
    #[inline]
    pub fn rest(&mut self) -> Rest {
        self.vain = self.vain.saturating_add(1);
        let spins = if self.crowded { SPINS_CROWDED } else { SPINS };
        if self.vain <= spins {
            Rest::Spin
        } else if !self.crowded || self.vain <= spins + YIELDS {
            Rest::Yield
        } else {
            Rest::Sleep(LONGEST)
        }
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

/// Processors that run. A rank that its launcher bound to one of them may still have it for itself.
fn online() -> usize {
    // SAFETY: no memory is passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_crowd_sleeps() {
        let mut alone = Idle::default();
        assert!((0..SPINS).all(|_| alone.rest() == Rest::Spin));
        assert!((0..5000).all(|_| alone.rest() == Rest::Yield));
        let mut crowded = Idle::default();
        crowded.count(100_000);
        let all: Vec<Rest> = (0..200).map(|_| crowded.rest()).collect();
        assert_eq!((all[0], all[70], all[150]), (Rest::Spin, Rest::Yield, Rest::Sleep(LONGEST)));
        crowded.reset();
        assert_eq!(crowded.rest(), Rest::Spin);
    }
}
