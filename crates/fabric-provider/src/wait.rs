//! Waiting without a lock: resting between looks, sleeping until something comes.

use crate::lock::Held;
use crate::objects::Shared;
use crate::state::State;
use ginnel_fabric::idle::Rest;
use ginnel_region::sys;
use smallvec::SmallVec;
use std::ffi::c_int;

/// The longest sleep at a time, milliseconds: now and then the dead are looked for.
const SLICE: c_int = 100;

/// A time limit.
pub struct Until(Option<u64>);

impl Until {
    /// In so many milliseconds; fewer than 0: never.
    pub fn of(ms: c_int) -> Self {
        let ms = u64::try_from(ms).ok();
        Self(ms.map(|ms| sys::monotonic_ns() + ms * 1_000_000))
    }

    /// How long to sleep, milliseconds; `None`: it is time.
    fn slice(&self) -> Option<c_int> {
        let Some(until) = self.0 else { return Some(SLICE) };
        let left = until.saturating_sub(sys::monotonic_ns());
        (left > 0).then(|| c_int::try_from(left.div_ceil(1_000_000)).unwrap_or(SLICE).min(SLICE))
    }
}

/// A look was in vain: lets others run, where that has gone on for a while.
#[inline]
pub fn rest(shared: &Shared, mut held: Held<'_, State>) {
    match held.rest() {
        Rest::Spin => {}
        Rest::Yield => {
            drop(held);
            sys::yield_now();
        }
        Rest::Sleep(ms) => doze(shared, held, ms),
    }
}

/// The caller of a blocking call waits. False: its time is over.
pub fn sleep(shared: &Shared, mut held: Held<'_, State>, until: &Until) -> bool {
    let Some(slice) = until.slice() else { return false };
    if held.rest() != Rest::Spin {
        doze(shared, held, slice);
    }
    true
}

/// Sleeps until an endpoint is woken, at most so long.
fn doze(shared: &Shared, mut held: Held<'_, State>, ms: c_int) {
    held.fall_asleep();
    if held.progress() {
        held.wake_up();
        return;
    }
    let mut polled: SmallVec<[libc::pollfd; 4]> =
        held.fifos().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    drop(held);
    // SAFETY: as many descriptors as it says.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
    shared.lock.lock().wake_up();
}

/// Whoever polled a queue's descriptor looks again.
#[inline]
pub fn heard(held: &mut Held<'_, State>) {
    if held.polled {
        held.polled = false;
        held.wake_up();
    }
}
