//! Brings what one wait found into one order: what rings had, and what the kernel told.

use super::collect::IN;
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
    let since = |event: &epoll_event| {
        let entry = resolve(inner, event.u64).and_then(|at| inner.registrations.get(at as usize))?;
        let first = entry.hot && entry.turn.first && event.events & IN != 0;
        let endpoint = entry.endpoint().filter(|endpoint| first && endpoint.receives_by_ring());
        (endpoint.is_some() && entry.turn.said).then_some(entry.turn.ready)
    };
    for end in 1..told.len() {
        let Some(own) = told.get(end).and_then(since) else { continue };
        let mut at = end;
        for before in (0..end).rev() {
            let Some(other) = told.get(before).and_then(since) else { continue };
            if other <= own {
                break;
            }
            told.swap(before, at);
            at = before;
        }
    }
    // Their places in the list are these from now on.
    let now = ticks();
    for (place, event) in (0..).zip(told) {
        let index = resolve(inner, event.u64);
        if let Some(entry) = index.and_then(|at| inner.registrations.get_mut(at as usize)).filter(|entry| entry.turn.listed != 0) {
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
    // What is in no ring has been moved by then, behind all that was ready before it.
    let reads = |event: &epoll_event| entry_of(inner, event).filter(|entry| entry.reads_ring());
    let since = |event: &epoll_event| reads(event).map_or(u64::MAX, |entry| entry.turn.ready);
    let mut behind = own;
    for at in (0..own).rev() {
        let Some(told) = times.get(at).copied().filter(|&told| told != 0) else { continue };
        let later = room.get(behind..).unwrap_or_default().iter().take_while(|e| since(e) < told);
        let to = behind + later.count();
        if let Some(moved) = room.get_mut(at..to) {
            moved.rotate_left(1);
        }
        behind -= 1;
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
        let known = attachment.filter(|_| entry.used && !entry.plain && entry.inner_set.is_none()).and_then(|attachment| {
            if let Some(endpoint) = entry.endpoint() {
                return endpoint.spoken_since(inner.begun_before, now);
            }
            strange += 1;
            let asked = strange <= MOST_STRANGE && fds::get(entry.fd).has_no_slot() && fds::get(entry.fd) != Entry::Listener;
            if asked { by_tcp::since(attachment, entry.fd, inner.begun_before, now) } else { None }
        });
        last = last.max(known.unwrap_or(0));
        *time = last;
    }
    times
}
