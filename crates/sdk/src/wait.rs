//! Waiting: spinning for as long as a wake-up would cost, then sleeping until somebody wakes.
//!
//! Who waits writes into a word of the object by which waiter it is to be woken, says that the
//! waiter sleeps, looks once more, and sleeps. Who has news claims that word and rings the waiter
//! ([`ginnel_ring::park`] has the handshake, which loom checks). Nobody sleeps for longer than
//! [`SLICE`] without looking again: so a neighbour that dies between its claim and the ring costs a
//! tenth of a second, and nobody waits for the dead.

use crate::joined::Inner;
use crate::presence::Presence;
use crate::sleeper::{SLICE, Sleeper, UNASKED, Wish};
use crate::{Error, Result};
use ginnel_ring::park::{self, Want};
use std::cell::OnceCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long to spin before sleeping, on one kernel …
const SPIN: Duration = Duration::from_micros(30);
/// … and where other machines have the segment, whose wake-ups are interrupts.
const SPIN_FAR: Duration = Duration::from_micros(200);

/// When a call gives up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub const NEVER: Self = Self(None);

    pub fn after(time: Duration) -> Self {
        // A time beyond all clocks is never.
        Self(Instant::now().checked_add(time))
    }

    pub fn left(self) -> Result<Duration> {
        let Some(at) = self.0 else { return Ok(Duration::MAX) };
        at.checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
            .ok_or(Error::TimedOut)
    }
}

/// The descriptor of an end that asks in `want`, made at the first call. It is readable then: a
/// call before may have said [`Error::WouldBlock`], and nobody was asked to wake this.
pub(crate) fn watched<'a>(
    watch: &'a OnceCell<Sleeper>,
    presence: &Presence,
    want: &AtomicU64,
) -> Result<BorrowedFd<'a>> {
    presence.check()?;
    if watch.get().is_none() {
        let sleeper = Sleeper::new(presence)?;
        sleeper.arm_at_once(presence, &want);
        let _ = watch.set(sleeper);
    }
    watch.get().map(AsFd::as_fd).ok_or(Error::WouldBlock)
}

/// In place of a descriptor that could not be made: one that epoll refuses, and that poll says is
/// not open.
pub(crate) fn no_descriptor() -> BorrowedFd<'static> {
    crate::raw::borrow(i32::MAX)
}

/// There is news for whoever asked in `want`: wakes it. True if somebody slept.
#[inline]
pub(crate) fn wake(presence: &Presence, want: &AtomicU64) -> bool {
    ring(presence, park::claim(want))
}

/// The same, directly behind the exchange that was the news.
#[inline]
pub(crate) fn wake_after_exchange(presence: &Presence, want: &AtomicU64) -> bool {
    ring(presence, park::claim_after_exchange(want))
}

#[inline]
fn ring(presence: &Presence, claimed: Want) -> bool {
    match claimed {
        Want::Waiter { page, bit } => presence.neighbour.ring(page, bit),
        _ => false,
    }
}

/// How often in a row spinning found nothing.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// After so many times in vain …
const ENOUGH: u32 = 8;
/// … only one wait in so many spins, to see whether it pays again.
const NOW_AND_THEN: u32 = 16;

/// Does `attempt` again and again for as long as a wake-up would cost, unless that has not paid of
/// late: what is waited for comes later, or from the same processor. `None`: it is time to sleep.
pub(crate) fn spin<T>(
    presence: &Presence,
    mut attempt: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(done) = attempt()? {
        return Ok(Some(done));
    }
    let in_vain = IN_VAIN.fetch_add(1, Ordering::Relaxed);
    // With one processor, whoever is waited for cannot run meanwhile.
    let pays = in_vain < ENOUGH || in_vain.is_multiple_of(NOW_AND_THEN);
    if !pays || !crate::raw::has_processors() {
        return Ok(None);
    }
    let far = presence.segment().source() != ginnel_region::Source::File;
    let until = Instant::now() + if far { SPIN_FAR } else { SPIN };
    while Instant::now() < until {
        for _ in 0..20 {
            if let Some(done) = attempt()? {
                IN_VAIN.store(0, Ordering::Relaxed);
                return Ok(Some(done));
            }
            std::hint::spin_loop();
        }
    }
    Ok(None)
}

/// Waits until `attempt` gives something: spinning, then asleep with a wish in `want`. `look` is
/// asked before each sleep whether there is anybody to wait for, and may give it too.
pub(crate) fn until<T>(
    inner: &Inner,
    want: impl Wish,
    deadline: Deadline,
    mut attempt: impl FnMut() -> Result<Option<T>>,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let presence = &inner.presence;
    if let Some(done) = spin(presence, &mut attempt)? {
        return Ok(done);
    }
    let sleeper = inner.sleepers.take(presence)?;
    let mut sleep = || loop {
        let asked = want.put(sleeper.wish());
        sleeper.sleeping(presence);
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        presence.check_all()?;
        if let Some(done) = look()? {
            return Ok(done);
        }
        let most = if asked { SLICE } else { UNASKED };
        sleeper.sleep(deadline.left()?.min(most));
        sleeper.awake(presence);
        if let Some(done) = attempt()? {
            return Ok(done);
        }
    };
    let done = sleep();
    want.take_back(sleeper.wish());
    sleeper.awake(presence);
    inner.sleepers.give_back(sleeper, presence);
    done
}
