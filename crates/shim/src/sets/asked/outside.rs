//! What a set that was told of has to report that is news to the sets it is in.

use super::{carried, is_any_ready, look_inside, poll_now, suspects};
use crate::sets::collect::{ENDS, IN, OUT};
use crate::sets::edges::{self, as_end};
use crate::sets::registration::{Edges, is_told};
use crate::sets::{Registration, Set, make_hot, set_at, witness};
use core::sync::atomic::Ordering;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::flag;
use libc::pollfd;
use smallvec::SmallVec;

/// Has set `index` something to report that is news to an outer set, which was told when `seen`
/// arrivals were counted, and knows of these edges? The kernel makes an edge of every wake-up, and
/// tells it where anything is ready in the inner set, also what the outer one was told of before.
/// One that no wake-up explains is the kernel's own.
pub(in crate::sets) fn has_news(index: u32, seen: u64, known: Edges) -> bool {
    news_since(index, seen, known) != Outside::Woken
}

/// What came of set `index` since so many arrivals and edges were known?
fn news_since(index: u32, seen: u64, known: Edges) -> Outside {
    let Some(set) = set_at(index) else { return Outside::News };
    let Some(suspects) = suspects(set).filter(|suspects| !suspects.is_empty()) else {
        return Outside::News;
    };
    let mut polled: SmallVec<[pollfd; 16]> = suspects.iter().map(|(_, asked)| *asked).collect();
    polled.iter_mut().for_each(|polled| polled.events |= libc::POLLRDHUP | libc::POLLPRI);
    if poll_now(&mut polled).is_none() {
        return Outside::News;
    }
    // A token that has come was asked for once: what comes after it is found in the ring.
    let spoken_of =
        suspects.iter().zip(&polled).filter(|(_, polled)| polled.revents & libc::POLLIN != 0);
    set.with(|inner| spoken_of.for_each(|((place, _), _)| make_hot(inner, *place)));
    let (mut news, mut woken) = (false, false);
    for ((place, _), polled) in suspects.iter().zip(&polled) {
        match seen_outside(set, *place, u32::from(polled.revents.cast_unsigned())) {
            // What the others have is told with it.
            Outside::News => news = true,
            Outside::Woken => woken = true,
            Outside::Nothing => {}
        }
    }
    // (Each outer set that was told of a wake-up's edge is to find what explains it.)
    set.with(|inner| inner.witness.edges.woken += u64::from(woken));
    let edges = witness::edges(index);
    let came = look_inside(index).is_none_or(|(_, arrivals)| arrivals != seen);
    // Of what the witness has not nobody knows since when it is ready.
    let all = set.shared.load(Ordering::Relaxed);
    let unknown = |entry: &Registration| all || !entry.witnessed;
    if news || came || edges.own != known.own {
        Outside::News
    } else if edges.woken == known.woken {
        Outside::Nothing
    } else if is_any_ready(set, &suspects, unknown) != Some(false) {
        Outside::News
    } else {
        Outside::Woken
    }
}

/// What the kernel says of a registration means to every outer set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    News,
    /// A wake-up has come since it was looked at last.
    Woken,
    /// Nothing that is known here.
    Nothing,
}

/// What does it mean that the kernel tells `events` of registration `place`, as far as can be
/// known? What was not counted among the arrivals before is counted: for other outer sets, too.
fn seen_outside(set: &Set, place: u32, events: u32) -> Outside {
    if place == u32::MAX {
        set.with(|inner| inner.rung(set));
        return if events == 0 { Outside::Nothing } else { Outside::Woken };
    }
    let Some((endpoint, asked)) = asked_of(set, place) else {
        return seen_of_spent(set, place, events);
    };
    let Some(endpoint) = endpoint else { return seen_of_another(set, place, events) };
    if events & (IN | ENDS) != 0 {
        endpoint.slot().heed_kernel();
    }
    let bytes = events & IN != 0
        && endpoint.tidy_before_sleep()
        && !endpoint.rx_in_ring()
        && asked & IN != 0;
    let ends = as_end(endpoint, events) & ENDS;
    let again = bytes
        && set.with(|inner| {
            inner.registrations.get(place as usize).is_some_and(|e| edges::was_noted(e, endpoint))
        });
    // (What was told of an end is told with its bytes.)
    if bytes && !again && ends == 0 || events & asked & !(IN | OUT | ENDS) != 0 {
        return Outside::News;
    }
    // (This end's shutdowns hang up as well: after them FIN changes no event.)
    let ends = if ends == 0 { 0 } else { ends | edges::marks(endpoint) };
    let room = events & OUT != 0 && asked & OUT != 0 && endpoint.sendable(true);
    let slot = endpoint.slot();
    let (edges, tokens) =
        (slot.edges.load(Ordering::Acquire), slot.rx.tokens.load(Ordering::Relaxed));
    let key = (asked & IN != 0 && endpoint.rx_in_ring()).then(|| edges::key(endpoint));
    let filled = endpoint.ring_is_filled();
    set.with(|inner| {
        let Some(entry) = inner.registrations.get_mut(place as usize) else { return Outside::News };
        if entry.noted == u64::MAX && endpoint.was_never_in_ring() {
            // What comes by a ring from here on is counted, read or not.
            entry.note_come(edges::key(endpoint));
        }
        // Also what was read by now came.
        let came = key.is_some_and(|key| match entry.note_come(key) {
            u64::MAX => filled && !(entry.wants(libc::EPOLLET) && entry.was_told(key)),
            noted => !is_told(noted, key),
        });
        let made = entry.noted_edges != edges;
        if came || ends & !entry.noted_ends != 0 || room && !entry.noted_room || made {
            inner.arrivals = inner.arrivals.wrapping_add(1);
        }
        let retold = core::mem::take(&mut entry.retold_outside);
        let woken = again
            | entry.loud
            | retold
            | (core::mem::replace(&mut entry.noted_tokens, tokens) != tokens);
        entry.noted_ends |= ends;
        entry.noted_room |= room;
        entry.noted_edges = edges;
        // An urgent byte is an edge, asked for or not.
        let urgent = events & libc::EPOLLPRI as u32 != 0;
        let urged = !core::mem::replace(&mut entry.noted_urgent, urgent) && urgent;
        match urged || room && slot.has(flag::KERNEL_FULL) {
            true => Outside::News,
            false if woken => Outside::Woken,
            false => Outside::Nothing,
        }
    })
}

/// The same of a set, or of what is carried by nobody.
fn seen_of_another(set: &Set, place: u32, events: u32) -> Outside {
    let noted = set.with(|inner| {
        let entry = inner.registrations.get(place as usize)?;
        entry.inner_set.map(|number| (number, entry.noted, entry.noted_inside))
    });
    let Some((number, noted, known)) =
        noted.filter(|(number, ..)| set_at(*number).is_some_and(Set::holds_any))
    else {
        return if events == 0 { Outside::Nothing } else { Outside::News };
    };
    let news = news_since(number, noted, known);
    let edges = witness::edges(number);
    set.with(|inner| {
        if let Some(entry) = inner.registrations.get_mut(place as usize) {
            entry.noted_inside = edges;
        }
        // Counted for every outer set.
        let counts = news == Outside::News && (events != 0 || edges.own != known.own);
        inner.witness.edges.own += u64::from(counts);
    });
    // A wake-up of one of the inner set's connections goes all the way out.
    if news == Outside::Woken { news } else { Outside::Nothing }
}

/// The same of one whose shot was spent. Where a ring's bytes were the shot, the kernel was told of
/// that by this library: it goes on telling of an end, of which it makes an edge for outer sets.
fn seen_of_spent(set: &Set, place: u32, events: u32) -> Outside {
    set.with(|inner| {
        let Some(entry) = inner.registrations.get_mut(place as usize) else {
            return Outside::Nothing;
        };
        let endpoint = entry.endpoint().filter(|_| events & ENDS != 0);
        let ends = endpoint.map_or(0, |endpoint| events & ENDS | edges::marks(endpoint));
        // (An end that was told with the shot was an edge before it.)
        let since = entry.shot && ends & !(entry.noted_ends | entry.ended) != 0;
        let woken = core::mem::take(&mut entry.retold_outside) | since;
        entry.noted_ends |= ends;
        if woken { Outside::Woken } else { Outside::Nothing }
    })
}

/// What a registration that is to be told of anything asks for, and its connection, if that is
/// carried.
fn asked_of(set: &Set, place: u32) -> Option<(Option<Endpoint<'static>>, u32)> {
    set.with(|inner| {
        let entry = inner
            .registrations
            .get(place as usize)
            .filter(|entry| entry.used && !entry.disabled)?;
        Some((carried(entry), entry.events))
    })
}
