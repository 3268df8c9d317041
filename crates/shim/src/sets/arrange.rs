//! Brings what one wait found into one order: what rings had, and what the kernel told.

use super::collect::IN;
use super::order::Order;
use super::{Inner, Registration, resolve};
use crate::fds::{self, Entry};
use crate::runtime;
use crate::spin::ticks;
use ginnel_tcp::by_tcp;
use libc::epoll_event;

/// So many of the kernel's events in one wait have their places among those of rings; and of so
/// many the kernel is asked who they are.
const MOST_TIMES: usize = 64;
const MOST_STRANGE: usize = 8;

/// Brings what the kernel told of connections in rings into their order: its own list has those
/// first for which a wake-up was swept away before, and it is only of these that it knows no
/// better.
pub(super) fn arrange_told(inner: &mut Inner, told: &mut [epoll_event]) {
    let mut order = core::mem::take(&mut inner.order);
    order.sort_among(told, |event| {
        let entry = entry_of(inner, event)?;
        let first = entry.hot && entry.turn.first && event.events & IN != 0;
        let endpoint = entry.endpoint().filter(|endpoint| first && endpoint.receives_by_ring());
        (endpoint.is_some() && entry.turn.said).then_some(entry.turn.ready)
    });
    inner.order = order;
    // Their places in the list are these from now on.
    let now = ticks();
    for (place, event) in (0..).zip(told) {
        let index = resolve(inner, event.u64);
        if let Some(entry) = index
            .and_then(|at| inner.registrations.get_mut(at as usize))
            .filter(|entry| entry.turn.listed != 0)
        {
            entry.turn.listed = now.wrapping_add(place);
        }
    }
}

/// Brings what one wait found into order: `ready` events of rings, which are in order, and behind
/// them what the kernel told. What that told of connections in rings has its place among these, and
/// so has what others said over TCP, if when is known ([`ginnel_tcp::by_tcp`]). The rest of the
/// kernel's own comes first: a new connection, or what wakes a program, is to be told before what
/// was said on a connection meanwhile.
pub(super) fn arrange(inner: &Inner, room: &mut [epoll_event], ready: usize) {
    let own = room.len().saturating_sub(ready);
    if own == 0 || ready == 0 {
        return;
    }
    room.rotate_left(ready);
    let times = told_since(inner, room.get(..own).unwrap_or_default());
    // Those that are to be moved, apart; those that stay, in front.
    let mut timed = [(0, 0, epoll_event { events: 0, u64: 0 }); MOST_TIMES];
    let (mut moved, mut to) = (0, 0);
    for at in 0..own {
        let Some(event) = room.get(at).copied() else { break };
        match (times.get(at).copied().filter(|&since| since != 0), timed.get_mut(moved)) {
            (Some(since), Some(place)) => {
                *place = (since, at, event);
                moved += 1;
            }
            _ => put(room, &mut to, event),
        }
    }
    let Some(timed) = timed.get_mut(..moved) else { return };
    timed.sort_unstable_by_key(|&(since, at, _)| (since, at));
    // What is in no ring comes behind all that was ready before it.
    let since = |event: &epoll_event| {
        entry_of(inner, event)
            .filter(|entry| entry.reads_ring())
            .map_or(u64::MAX, |entry| entry.turn.ready)
    };
    let mut from = own;
    for &mut (told, _, event) in timed {
        while let Some(ring) = room.get(from).copied().filter(|ring| since(ring) < told) {
            put(room, &mut to, ring);
            from += 1;
        }
        put(room, &mut to, event);
    }
}

fn put(room: &mut [epoll_event], to: &mut usize, event: epoll_event) {
    if let Some(place) = room.get_mut(*to) {
        *place = event;
        *to += 1;
    }
}

fn entry_of<'a>(inner: &'a Inner, event: &epoll_event) -> Option<&'a Registration> {
    inner.registrations.get(resolve(inner, event.u64)? as usize)
}

/// Since when the first of the kernel's events are ready, 0 where nobody knows. Those of no ring
/// are in the kernel's order, which is kept.
fn told_since(inner: &Inner, own: &[epoll_event]) -> [u64; MOST_TIMES] {
    let mut times = [0; MOST_TIMES];
    let (mut last, mut strange) = (0, 0);
    let attachment = runtime::attachment().filter(|_| inner.begun_by_tcp != inner.begun_before);
    let now = ticks();
    for (time, event) in times.iter_mut().zip(own) {
        let Some(entry) = entry_of(inner, event) else { continue };
        if entry.reads_ring() {
            *time = entry.turn.ready;
            continue;
        }
        let known = attachment
            .filter(|_| entry.used && !entry.plain && entry.inner_set.is_none())
            .and_then(|attachment| {
                if let Some(endpoint) = entry.endpoint() {
                    return endpoint.spoken_since(inner.begun_before, now);
                }
                strange += 1;
                let asked = strange <= MOST_STRANGE
                    && fds::get(entry.fd).has_no_slot()
                    && fds::get(entry.fd) != Entry::Listener;
                if asked {
                    by_tcp::since(attachment, entry.fd, inner.begun_before, now)
                } else {
                    None
                }
            });
        last = last.max(known.unwrap_or(0));
        *time = last;
    }
    times
}

impl Order {
    /// Sorts those of `events` by time that have one, among the places that they have. (As far as
    /// there is room to note them: each registration is told of once.)
    pub(super) fn sort_among(
        &mut self,
        events: &mut [epoll_event],
        since: impl Fn(&epoll_event) -> Option<u64>,
    ) {
        let begun = self.due.len();
        self.places.clear();
        for (place, event) in (0..).zip(&*events) {
            if self.due.len() == self.due.capacity() || self.places.len() == self.places.capacity()
            {
                break;
            }
            if let (Some(since), Ok(number)) = (since(event), u32::try_from(self.places.len())) {
                self.due.push((since, number));
                self.places.push(place);
            }
        }
        if let Some(sorted) = self.due.get_mut(begun..).filter(|found| !found.is_sorted()) {
            sorted.sort_unstable();
            permute(events, &self.places, sorted);
        }
        self.due.truncate(begun);
    }
}

/// Puts at each of `places` the event that its entry of `sorted` names by the number of the place
/// where that is now. Each entry names its own place in the end.
fn permute(events: &mut [epoll_event], places: &[u32], sorted: &mut [(u64, u32)]) {
    let place = |number: usize| places.get(number).map_or(usize::MAX, |&place| place as usize);
    for first in 0..sorted.len() {
        // Round the circle of those that move one to another's place.
        let Some(kept) = events.get(place(first)).copied() else { return };
        let mut to = first;
        while let Some((_, from)) = sorted.get_mut(to) {
            let from = core::mem::replace(from, to as u32) as usize;
            let event = if from == first { Some(kept) } else { events.get(place(from)).copied() };
            if let (Some(event), Some(place)) = (event, events.get_mut(place(to))) {
                *place = event;
            }
            if from == first {
                break;
            }
            to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_a_time_are_sorted_among_their_places() {
        let times = [0, 7, 3, 0, 7, 1, 0, 9, 2, 0];
        let mut events: Vec<epoll_event> =
            (0..times.len() as u64).map(|u64| epoll_event { events: 1, u64 }).collect();
        let mut order = Order::default();
        order.reserve(events.len() + 1);
        order.due.push((5, 5));
        order.sort_among(&mut events, |event| {
            Some(times[event.u64 as usize]).filter(|&time| time != 0)
        });
        let sorted: Vec<u64> = events.iter().map(|event| event.u64).collect();
        assert_eq!(sorted, [0, 5, 8, 3, 2, 1, 6, 4, 7, 9]);
        assert_eq!(order.due, [(5, 5)], "what is due is as it was");
    }
}
