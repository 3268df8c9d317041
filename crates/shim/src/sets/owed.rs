//! Events that were taken from the kernel's set to be looked at, and cannot be given back: of
//! registrations whose number is closed here, while another process has the socket. The kernel is
//! told nothing more of such a one, so its edge, or its shot, is kept here until somebody waits on
//! the set. Those who ask for the set's readiness are told of it meanwhile.

use super::{Inner, Set, stir};
use core::sync::atomic::Ordering;
use libc::epoll_event;

/// Registration `index` has these `events`, of which nobody was told: whoever sleeps on the set is
/// to look.
pub(super) fn note(set: &Set, inner: &mut Inner, index: u32, events: u32) {
    match inner.owed.iter_mut().find(|(of, _)| *of == index) {
        Some((_, owed)) => *owed |= events,
        None => inner.owed.push((index, events)),
    }
    if set.sleepers.load(Ordering::Acquire) != 0 {
        stir(set, inner);
    }
}

/// Registration `index` is gone.
pub(super) fn forget(inner: &mut Inner, index: u32) {
    inner.owed.retain(|(of, _)| *of != index);
}

/// Puts what is owed behind the `got` events in `room` that the kernel told, or beside what it told
/// of the same registration, as far as there is room. Returns how many there are in all.
pub(super) fn tell(inner: &mut Inner, room: &mut [epoll_event], mut got: usize) -> usize {
    let Inner { owed, registrations, .. } = inner;
    owed.retain(|&(index, events)| {
        let Some(entry) = registrations.get(index as usize) else { return false };
        let told = room.get_mut(..got).unwrap_or_default();
        if let Some(event) = told.iter_mut().find(|event| event.u64 == entry.known) {
            event.events |= events;
            return false;
        }
        let Some(place) = room.get_mut(got) else { return true };
        *place = epoll_event { events, u64: entry.known };
        got += 1;
        false
    });
    got
}
