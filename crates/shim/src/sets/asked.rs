//! Sets that are asked from outside, by poll, select or a set that they are in: asking takes
//! nothing away.

mod outside;

use super::collect::{ENDS, IN, OUT};
use super::edges::{self, as_end};
use super::hot::{arm_hot, armed, note_arrivals, rang};
use super::look::ask;
use super::room::{heat_masked, unmask_hot};
use super::told::{Purpose, heed_bells, truth};
use super::wait::leave;
use super::{
    Inner, Registration, Set, adopted, doors, inside, late, make_hot, nest, set_at, shared, witness,
};
use crate::fds::{self, Entry};
use crate::runtime;
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Stage;
use libc::{c_int, epoll_event, pollfd};
pub(super) use outside::has_news;
use smallvec::SmallVec;

/// Have the rings of set `number`, and of those in it, something to report? Reports nothing.
/// Returns how often something came to them, so far: an edge for whoever knows of less.
pub(super) fn news(number: u32) -> Option<u64> {
    look_inside(number).and_then(|(any, arrivals)| any.then_some(arrivals))
}

/// Has inner set `number`, registered as `entry`, something to tell for the sake of its rings? And
/// how often something came to them.
///
/// Where edges are told, what came is one also if the inner set itself told of it meanwhile, or it
/// was read: then whatever else is ready there is told.
pub(super) fn to_tell(number: u32, entry: &Registration) -> Option<(bool, u64)> {
    let (any, arrivals) = look_inside(number)?;
    if !entry.wants(libc::EPOLLET) {
        return Some((any, arrivals));
    }
    let fd = set_at(number)?.fd.load(Ordering::Relaxed);
    let is_ready = || any || sys::poll(fd, libc::POLLIN, 0) != 0 && truly_ready(number, fd);
    Some((entry.seen != arrivals && (any || arrivals != 0) && is_ready(), arrivals))
}

/// The same, and how often something came also where nothing of that is left.
pub(super) fn look_inside(number: u32) -> Option<(bool, u64)> {
    let set = set_at(number)?;
    shared::look(set, set.fd.load(Ordering::Relaxed));
    heat_masked(set);
    set.with(|inner| {
        if let Some(attachment) = runtime::attachment() {
            // A channel that was armed in a wait, and told of bytes since.
            rang(inner, attachment);
        }
        unmask_hot(set, inner);
        let mut any = note_arrivals(inner) | !inner.owed.is_empty();
        for &(place, child) in &inner.children {
            let Some(entry) = inner.registrations.get_mut(place as usize) else { continue };
            if entry.disabled || entry.events & IN == 0 {
                continue;
            }
            let Some((tells, arrivals)) = to_tell(child, entry) else { continue };
            any |= tells;
            if entry.noted != arrivals && arrivals != 0 {
                entry.noted = arrivals;
                inner.arrivals = inner.arrivals.wrapping_add(1);
            }
        }
        Some((any, inner.arrivals))
    })
}

/// Set `index` is waited for from outside (poll, select): arms everything hot with tokens. False:
/// there is something to report.
pub fn arm_for_kernel(index: u32) -> bool {
    arm(index, false)
}

/// Set `index` was told to a set that it is in: whoever sleeps on that hears of what comes after
/// it. False: something is yet to be told.
pub(super) fn arm_past(index: u32) -> bool {
    arm(index, true)
}

fn arm(index: u32, past: bool) -> bool {
    let Some(set) = set_at(index) else { return true };
    let (all, children) = set.with(|inner| {
        nest(set, inner);
        let all = if past { arm_hot_past(set, inner) } else { arm_hot(set, inner) };
        (all && (past || inner.owed.is_empty()), inside::awaited(inner))
    });
    all && children.into_iter().all(|(child, told)| match told {
        Some(told) => inside::arm_told(child, told),
        None => arm(child, past),
    })
}

/// [`arm_hot`] for what comes after that which outer sets were told of. It stays hot: a wait on the
/// set itself may have it to tell.
fn arm_hot_past(set: &Set, inner: &mut Inner) -> bool {
    late::tell(set, inner);
    unmask_hot(set, inner);
    (0..inner.hot.len()).all(|at| {
        let Some(&index) = inner.hot.get(at) else { return true };
        let endpoint = inner.registrations.get(index as usize).and_then(Registration::endpoint);
        endpoint.is_none_or(|endpoint| armed(inner, index, endpoint, true))
    })
}

/// See [`news`].
pub fn ready_at(index: u32) -> bool {
    news(index).is_some()
}

/// The kernel says that set `index` is ready: is it, once tokens and full rings are taken into
/// account? Reports nothing to anybody.
///
/// As long as it can be answered so, the kernel's set is left alone: who takes an edge from it, or
/// a shot, and gives it back makes an edge of every set that it is in.
pub fn truly_ready(index: u32, epfd: c_int) -> bool {
    let Some(set) = set_at(index) else { return true };
    let beside = beside_rings(set, epfd).unwrap_or_else(|| by_asking(set, epfd));
    beside || ready_at(index)
}

/// A registration of which the kernel may tell more than is true, and what it is asked for there.
type Suspects = SmallVec<[(u32, pollfd); 16]>;
/// With more of them the set is asked.
pub(super) const MOST: usize = 64;

/// Has the kernel something to report of a set, beside what it tells for the sake of rings? `None`:
/// that takes asking.
fn beside_rings(set: &Set, epfd: c_int) -> Option<bool> {
    let suspects = suspects(set)?;
    if suspects.is_empty() {
        return Some(true);
    }
    let mut polled: SmallVec<[pollfd; 16]> = suspects.iter().map(|(_, asked)| *asked).collect();
    poll_now(&mut polled)?;
    // Their rings are looked at from now on: what lies there is counted before it is told.
    let spoken_of =
        suspects.iter().zip(&polled).filter(|(_, polled)| polled.revents & libc::POLLIN != 0);
    set.with(|inner| spoken_of.for_each(|((place, _), _)| make_hot(inner, *place)));
    let alone = polled.iter().filter(|polled| polled.revents != 0).count() == 1;
    let mut untrue = false;
    for ((place, _), polled) in suspects.iter().zip(&polled) {
        let events = u32::from(polled.revents.cast_unsigned());
        if events != 0 && is_true(set, *place, events, alone)? {
            return Some(true);
        }
        untrue |= events != 0;
    }
    // A token that lay there may have been swept away, here or since the kernel was asked.
    if sys::poll(epfd, libc::POLLIN, 0) == 0 {
        return Some(false);
    }
    (!untrue || has_plain(set, &suspects)).then_some(true)
}

/// Is something that the kernel alone knows of ready in a set, and told for as long as it is?
fn has_plain(set: &Set, suspects: &Suspects) -> bool {
    // (The number of one that was closed may be a connection's by now.)
    let apart = |entry: &Registration| {
        matches!(fds::get(entry.fd), Entry::Plain) || fds::get(entry.fd).is_apart()
    };
    let of_kernel =
        |entry: &Registration| entry.slot.is_none() && entry.inner_set.is_none() && apart(entry);
    is_any_ready(set, suspects, |entry| of_kernel(entry) && !entry.wants(libc::EPOLLET))
        == Some(true)
}

/// Is one of these ready that are none of the `suspects`? `None`: that cannot be known of all of
/// them.
fn is_any_ready(
    set: &Set,
    suspects: &Suspects,
    of: impl Fn(&Registration) -> bool,
) -> Option<bool> {
    let (mut polled, all_known) = set.with(|inner| {
        let mut polled = SmallVec::<[pollfd; 16]>::new();
        let mut all_known = true;
        let awaited = |entry: &Registration| entry.used && !entry.disabled && of(entry);
        let all = (0..).zip(&inner.registrations).filter(|(_, entry)| awaited(entry));
        for (_, entry) in
            all.filter(|(place, _)| !suspects.iter().any(|(suspect, _)| suspect == place))
        {
            if fds::get(entry.fd) == Entry::Unknown || entry.outlived || polled.len() == MOST {
                all_known = false;
            } else {
                polled.push(pollfd {
                    fd: entry.fd,
                    events: (entry.interest() & 0x3fff) as i16,
                    revents: 0,
                });
            }
        }
        (polled, all_known)
    });
    let found = if polled.is_empty() { 0 } else { poll_now(&mut polled)? };
    if polled.iter().any(|polled| polled.revents & libc::POLLNVAL != 0) {
        return None;
    }
    if found == 0 && !all_known { None } else { Some(found > 0) }
}

/// How many of these are ready now. `None`: the kernel does not say.
fn poll_now(polled: &mut [pollfd]) -> Option<usize> {
    let mut now = [0u64; 2];
    let at = [polled.as_mut_ptr() as usize, polled.len(), now.as_mut_ptr() as usize, 0, 8, 0];
    // SAFETY: both are ours: the entries, and a time of zero.
    unsafe { sys::raw(syscalls::Sysno::ppoll, at) }.ok()
}

/// Counts how often the kernel was given back what was taken from a set to be looked at.
static GIVEN_BACK: AtomicU32 = AtomicU32::new(0);

/// See [`GIVEN_BACK`].
pub(super) fn given_back() -> u32 {
    GIVEN_BACK.load(Ordering::Relaxed)
}

/// `None`: too many, or one of which nothing can be known.
fn suspects(set: &Set) -> Option<Suspects> {
    let unknown = |entry: &&Registration| {
        let may_be_carried = || !fds::get(entry.fd).is_apart();
        entry.used && !entry.plain && entry.slot.is_none() && may_be_carried()
    };
    let unknown = set.with(|inner| {
        let unknown = inner.registrations.iter().filter(unknown);
        unknown.map(|entry| entry.fd).collect::<SmallVec<[c_int; 16]>>()
    });
    for fd in unknown {
        // Another process may have carried it.
        if let (Some(endpoint), Entry::Endpoint(_)) = (runtime::find(fd), fds::get(fd)) {
            adopted(fd, endpoint.index());
        }
    }
    set.with(|inner| {
        witness::forget_carried(inner);
        let mut found = Suspects::new();
        if let Some(waiter) = inner.waiter {
            found.push((u32::MAX, pollfd { fd: waiter.fifo(), events: libc::POLLIN, revents: 0 }));
        }
        found.extend(
            inner.lines().map(|fd| (u32::MAX, pollfd { fd, events: libc::POLLIN, revents: 0 })),
        );
        for (place, entry) in (0..).zip(&inner.registrations).filter(|(_, entry)| entry.used) {
            if entry.loud && entry.slot.is_none() {
                return None;
            }
            let carried = carried(entry).is_some()
                || entry.loud
                || entry.masked
                || entry.shot && entry.slot.is_some();
            if !carried && entry.inner_set.is_none() {
                continue;
            }
            let fd = match entry.is_named() {
                true => entry.fd,
                // Its number is closed here. Asking the set would take its shot or its edge: the
                // socket has another number.
                false if entry.wants(libc::EPOLLET) || entry.wants(libc::EPOLLONESHOT) => {
                    entry.endpoint()?.fd()
                }
                false => return None,
            };
            if found.len() == MOST {
                return None;
            }
            let loud = if entry.loud { OUT } else { 0 };
            let events = ((entry.interest() | loud) & 0x3fff) as i16;
            found.push((place, pollfd { fd, events, revents: 0 }));
        }
        Some(found)
    })
}

pub(super) fn carried(entry: &Registration) -> Option<Endpoint<'static>> {
    entry
        .endpoint()
        .filter(|endpoint| matches!(endpoint.slot().stage(), Stage::Settling | Stage::Active))
}

/// Is what the kernel tells of registration `place` to be told to the program? `alone`: it is the
/// only one of which the kernel tells anything. `None`: that takes asking.
fn is_true(set: &Set, place: u32, events: u32, alone: bool) -> Option<bool> {
    if place == u32::MAX {
        set.with(|inner| {
            inner.rung(set);
            doors::empty(set, inner, |_| true);
        });
        return Some(false);
    }
    let (endpoint, child, disabled, told) = set.with(|inner| {
        let entry = inner.registrations.get(place as usize).filter(|entry| entry.used)?;
        // Of an inner set whose edges are told: up to which it was.
        let told = Some(entry.seen).filter(|&seen| entry.wants(libc::EPOLLET) && seen != u64::MAX);
        Some((carried(entry), entry.inner_set, entry.disabled, told))
    })?;
    if disabled {
        // The kernel tells of an error all the same, and nobody is told of it here.
        return if set.shared.load(Ordering::Relaxed) { None } else { Some(false) };
    }
    if let Some(child) = child {
        if told.is_some() {
            // That it is ready is no edge. (One of the kernel's own is found by asking.)
            return Some(news(child).is_some_and(|arrivals| told != Some(arrivals)));
        }
        return Some(truly_ready(child, set_at(child)?.fd.load(Ordering::Relaxed)));
    }
    let mut events = events;
    if let Some(endpoint) = endpoint {
        if events & (IN | ENDS) != 0 {
            endpoint.slot().heed_kernel();
            if !endpoint.tidy_before_sleep() {
                events &= !IN;
            }
        }
        events = as_end(endpoint, events);
        if events & OUT != 0 && !endpoint.sendable(true) {
            events &= !OUT;
        }
    }
    set.with(|inner| {
        let entry = inner
            .registrations
            .get(place as usize)
            .filter(|entry| entry.used && !entry.disabled)?;
        events &= entry.asked();
        if let Some(endpoint) = endpoint.filter(|_| entry.wants(libc::EPOLLET)) {
            events = edges::news_of(set, entry, endpoint, events, alone);
        }
        Some(events != 0)
    })
}

/// Asks the kernel for what it has to report of a set, and has it tell all of that again.
fn by_asking(set: &Set, epfd: c_int) -> bool {
    let mut room = [epoll_event { events: 0, u64: 0 }; 16];
    let got = ask(set, epfd, &mut room).unwrap_or(0);
    let mut any = false;
    for event in room.into_iter().take(got) {
        any |= truth(set, epfd, event, Purpose::Asking).1.is_some();
    }
    GIVEN_BACK.fetch_add(u32::from(any), Ordering::Relaxed);
    heed_bells(set);
    set.with(|inner| {
        // Nobody was told of it: the next wait asks, too.
        inner.looked = 0;
        // What was given back is an edge for outer sets.
        inner.witness.edges.woken += u64::from(any);
    });
    // What rang for those who sleep on the set was taken from them.
    leave(set);
    any
}
