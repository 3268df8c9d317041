//! Sets that are in sets.
//!
//! An inner set is a registration like any other: it has data, which may be another's too, and is
//! told of once or by its edges. What makes an edge of it is that something comes to what it holds.
//! The kernel knows that of its own; of rings it is counted here, whenever somebody asks
//! (*arrivals*).

use super::asked::{self, news};
use super::collect::{IN, OUT};
use super::edges::key;
use super::told::Purpose;
use super::{
    Inner, Registration, Set, all_sets, drop_registration, nest, retell, set_at, shrinks, stir,
    witness,
};
use core::sync::atomic::Ordering;
use libc::{c_int, epoll_event};
use smallvec::SmallVec;

/// `place` was registered: notes it, if it is an inner set.
pub(super) fn note(set: &Set, inner: &mut Inner, place: u32) {
    if let Some(number) = inner.registrations.get(place as usize).and_then(|entry| entry.inner_set)
    {
        inner.children.push((place, number));
        set.size.fetch_add(1, Ordering::AcqRel);
    }
}

/// Set `number` is in another from now on.
pub(super) fn begins(number: u32) {
    if let Some(child) = set_at(number) {
        // Whoever sleeps on it is to arm anew, with tokens.
        child.with(|inner| {
            nest(child, inner);
            stir(child, inner);
        });
    }
}

/// Registration `place` was added or changed: is it of an inner set, and are edges told of that?
/// Then it is to be known of each edge of that set whether it is the kernel's own.
pub(super) fn note_edges(set: &Set, place: u32) {
    let told = set.inner.with(|inner| {
        let entry = inner.registrations.get(place as usize)?;
        entry.inner_set.filter(|_| entry.wants(libc::EPOLLET) || inner.tells_edges())
    });
    told.into_iter().for_each(witness::begins);
}

/// Registration `place` is an inner set's no more, if it was one.
pub(super) fn forget(set: &Set, inner: &mut Inner, place: u32) {
    let entry = inner.registrations.get_mut(place as usize);
    if entry.is_some_and(|entry| entry.inner_set.take().is_some()) {
        inner.children.retain(|(child, _)| *child != place);
        shrinks(set, inner, 1);
    }
}

/// `fd`, of set `number`, is closed. `last`: and with it the set, as far as this process goes.
pub(super) fn closed(fd: c_int, number: u32, last: bool) {
    for set in all_sets() {
        if set.descriptors.load(Ordering::Relaxed) == 0 || set.size.load(Ordering::Relaxed) == 0 {
            continue;
        }
        set.with(|inner| {
            let places: SmallVec<[u32; 4]> = inner
                .children
                .iter()
                .filter(|(_, child)| *child == number)
                .map(|(place, _)| *place)
                .collect();
            for place in places {
                if inner.by_fd.get(&fd) == Some(&place) {
                    // The number may be another's soon.
                    inner.by_fd.remove(&fd);
                }
                if !last {
                    // The kernel goes on telling of it, as it has another number.
                } else if set.shared.load(Ordering::Relaxed) {
                    // Another process may have it, and then the kernel goes on telling of it.
                    forget(set, inner, place);
                } else {
                    drop_registration(set, inner, place);
                }
            }
        });
    }
}

/// The inner sets that may be told of, and what outer waits know of each where its edges are told.
pub(super) fn awaited(inner: &Inner) -> SmallVec<[(u32, Option<u64>); 4]> {
    let told = |&(place, number): &(u32, u32)| {
        let entry = inner.registrations.get(place as usize)?;
        let awaited = entry.used && !entry.disabled && entry.events & IN != 0;
        awaited.then(|| (number, entry.wants(libc::EPOLLET).then_some(entry.seen)))
    };
    inner.children.iter().filter_map(told).collect()
}

/// Puts behind the `n` events in `room` the inner sets in whose rings there is something to report.
/// `pass`: the number of the wait's pass. Returns how many there are in all.
pub(super) fn collect(
    set: &Set,
    inner: &mut Inner,
    epfd: c_int,
    room: &mut [epoll_event],
    mut n: usize,
    pass: u64,
) -> usize {
    let Inner { children, registrations, .. } = inner;
    for &(index, number) in children.iter() {
        let Some(entry) = registrations.get_mut(index as usize) else { continue };
        let (Some(place), true) =
            (room.get_mut(n), entry.used && !entry.disabled && entry.events & IN != 0)
        else {
            continue;
        };
        let Some((tells, arrivals)) = asked::to_tell(number, entry) else { continue };
        let edges = entry.wants(libc::EPOLLET);
        if !tells {
            if edges && arrivals != 0 {
                // What came is gone, and was no edge.
                entry.seen = arrivals;
            }
            continue;
        }
        *place = epoll_event { events: entry.events & IN, u64: entry.data };
        entry.seen = arrivals;
        if edges {
            entry.seen_edges = witness::edges(number);
            note_room(number);
        }
        entry.reported = (pass, u32::try_from(n).unwrap_or(u32::MAX));
        n += 1;
        if entry.wants(libc::EPOLLONESHOT) {
            entry.spend(true);
            retell(set, epfd, entry);
        }
    }
    n
}

/// An outer set is told of an edge of set `index`, for the sake of bytes: with it goes whatever
/// room there is, and all that has come. (Of a set that holds many that is not looked for, and may
/// come as an edge of its own.)
fn note_room(index: u32) {
    let Some(set) = set_at(index) else { return };
    set.with(|inner| {
        if inner.registrations.len() > asked::MOST {
            return;
        }
        for entry in inner.registrations.iter_mut().filter(|entry| entry.used) {
            entry.noted_room |= !entry.masked && entry.events & OUT != 0;
            if entry.noted == u64::MAX
                && let Some(endpoint) =
                    asked::carried(entry).filter(|endpoint| endpoint.rx_in_ring())
            {
                entry.note_come(key(endpoint));
            }
        }
    });
}

impl Registration {
    /// Is what came to an inner set's rings, so often by now, to be told?
    fn is_news(&self, arrivals: u64) -> bool {
        !self.wants(libc::EPOLLET) || self.seen != arrivals
    }
}

/// The kernel calls the inner set ready that registration `index` is. What of that is for the
/// program?
pub(super) fn judge(
    set: &Set,
    epfd: c_int,
    events: u32,
    index: u32,
    purpose: Purpose,
) -> Option<epoll_event> {
    let number = set.inner.with(|inner| {
        let entry = inner.registrations.get(index as usize).filter(|entry| entry.used)?;
        entry.inner_set
    })?;
    let child = set_at(number)?;
    let arrivals = news(number);
    let (of_rings, edges, seen, known) = set.inner.with(|inner| {
        let entry = inner.registrations.get(index as usize)?;
        let of_rings = arrivals.is_some_and(|arrivals| entry.is_news(arrivals));
        Some((of_rings, entry.wants(libc::EPOLLET), entry.seen, entry.seen_edges))
    })?;
    let given_back = asked::given_back();
    // Asked also where this one was told of nothing yet: what it is told of now is known from then
    // on.
    let is_news = of_rings || !edges || asked::has_news(number, seen, known) || seen == u64::MAX;
    // Before it is asked, which may make one more.
    let known = if edges { witness::edges(number) } else { known };
    let ready = of_rings || is_news && asked::truly_ready(number, child.fd.load(Ordering::Relaxed));
    let arrivals =
        if ready { asked::look_inside(number).map(|(_, arrivals)| arrivals) } else { arrivals };
    let echoes = asked::given_back() != given_back;
    set.with(|inner| {
        let entry = inner.registrations.get_mut(index as usize).filter(|entry| entry.used)?;
        if entry.is_spent(set) {
            return None;
        }
        entry.rearm();
        let once = entry.wants(libc::EPOLLONESHOT);
        let again = once || entry.wants(libc::EPOLLET);
        if !(ready && purpose == Purpose::Asking && again) {
            // The kernel's edge is gone, and with it what explains it.
            entry.seen_edges = known;
        }
        if ready && purpose == Purpose::Asking && again || !ready && once {
            // Nobody is told of it now, and the kernel disabled it: it is to tell that again.
            retell(set, epfd, entry);
        } else if ready {
            entry.seen = arrivals.unwrap_or(entry.seen);
            if once {
                entry.spend(false);
            }
        }
        let (again, data) = (ready && echoes && again && !once, entry.data);
        if again && purpose == Purpose::Telling {
            inner.echoes.push(index);
            set.echoes.store(true, Ordering::Relaxed);
        }
        ready.then_some(epoll_event { events, u64: data })
    })
}

/// Whose edge is told of now and will come once more, since what had been taken from the inner set
/// to be looked at was given back? (What comes of its own before the program hears of this is told
/// with it: the program looks into the inner set afterwards.)
pub(super) fn echoes(inner: &Inner, index: Option<u32>) -> bool {
    index.is_some_and(|index| inner.echoes.contains(&index))
}

/// What was told of is about to be handed to the program: whatever comes from here on is news.
pub(super) fn forget_echoes(set: &Set) {
    if set.echoes.load(Ordering::Relaxed) {
        set.with(|inner| {
            set.echoes.store(false, Ordering::Relaxed);
            inner.echoes.clear();
        });
    }
}

/// Set `index` was told to the sets that it is in; those who sleep on them hear of what comes after
/// that. False: something came meanwhile.
pub(super) fn arm_told(number: u32, told: u64) -> bool {
    news(number).is_none_or(|arrivals| arrivals == told) && asked::arm_past(number)
}
