//! Sets that are asked from outside, by poll, select or a set that they are in: asking takes nothing away.

use super::told::{ask, heed_bells, truth};
use super::wait::{arm_hot, heat_masked, hot_has_news, rang, unmask_hot};
use super::{Inner, Registration, Set, make_hot, nest, retell, set_at, shared};
use crate::fds::{self, Entry};
use crate::runtime;
use core::sync::atomic::Ordering;
use ginnel_channel::settle::Endpoint;
use libc::{c_int, epoll_event};

/// Does an inner set have something to report?
pub(super) fn ready_inside(fd: c_int) -> bool {
    let Entry::Epoll(index) = fds::get(fd) else { return false };
    set_at(index).is_some_and(ready)
}

/// Has a ring of this set something to report? Reports nothing.
fn ready(set: &Set) -> bool {
    shared::look(set, set.fd.load(Ordering::Relaxed));
    heat_masked(set);
    set.inner.with(|inner| {
        if let Some(attachment) = runtime::attachment() {
            // A channel that was armed in a wait, and told of bytes since.
            rang(inner, attachment);
        }
        unmask_hot(set, inner);
        if !inner.stash.is_empty() {
            return true;
        }
        hot_has_news(inner) || inner.children.clone().iter().any(|(child, ..)| ready_inside(*child))
    })
}

/// Set `index` is waited for from outside (poll, select): arms everything hot with tokens. False: there is something to report.
pub fn arm_for_kernel(index: u32) -> bool {
    let Some(set) = set_at(index) else { return true };
    let children = set.inner.with(|inner| {
        nest(inner);
        inner.children.clone()
    });
    let all = set.inner.with(|inner| arm_hot(set, inner));
    all && children.iter().all(|(child, ..)| match fds::get(*child) {
        Entry::Epoll(child) => arm_for_kernel(child),
        _ => true,
    })
}

/// See [`ready`], by number. Not under any set's lock.
pub fn ready_at(index: u32) -> bool {
    set_at(index).is_some_and(|set| {
        freshen(set);
        ready(set)
    })
}

/// The kernel says that set `index` is ready: is it, once tokens and full rings are taken into account? Reports nothing to anybody.
pub fn truly_ready(index: u32, epfd: c_int) -> bool {
    let Some(set) = set_at(index) else { return true };
    let mut room = [epoll_event { events: 0, u64: 0 }; 16];
    let got = ask(set, epfd, &mut room).unwrap_or(0);
    let mut any = false;
    for event in room.into_iter().take(got) {
        let (index, event) = truth(set, epfd, event);
        let Some(event) = event else { continue };
        any = true;
        set.inner.with(|inner| {
            let of = index.and_then(|index| Some((index, inner.registrations.get_mut(index as usize)?)));
            // (Unless it was armed again meanwhile, or removed.)
            let once = |entry: &Registration| entry.used && (entry.disabled || entry.wants(libc::EPOLLET));
            if let Some((index, entry)) = of.filter(|(_, entry)| once(entry)) {
                // The kernel has told it, and will not again: the next wait does.
                entry.kept |= event.events;
                if !inner.stash.contains(&index) {
                    inner.stash.push(index);
                }
            }
        });
    }
    heed_bells(set);
    any || ready(set)
}

/// Reports what is [kept](Registration::kept). Returns how many events there are.
pub(super) fn deliver(set: &Set, room: &mut [epoll_event]) -> usize {
    freshen(set);
    set.inner.with(|inner| {
        let mut n = 0;
        let Inner { stash, registrations, .. } = inner;
        stash.retain(|&index| {
            let Some(entry) = registrations.get_mut(index as usize).filter(|entry| entry.kept != 0) else { return false };
            let Some(place) = room.get_mut(n) else { return true };
            *place = epoll_event { events: core::mem::take(&mut entry.kept), u64: entry.data };
            n += 1;
            false
        });
        n
    })
}

/// Keeps only what is still so. Not under any set's lock.
fn freshen(set: &Set) {
    for index in set.inner.with(|inner| inner.stash.clone()) {
        let kept = set.inner.with(|inner| {
            let entry = inner.registrations.get(index as usize)?;
            Some((entry.endpoint().map_or(entry.fd, Endpoint::fd), entry.kept))
        });
        let Some((fd, events)) = kept.filter(|(_, events)| *events != 0) else { continue };
        let now = events & crate::ops::ready::now(fd, events);
        set.inner.with(|inner| {
            // Unless it was changed meanwhile.
            let Some(entry) = inner.registrations.get_mut(index as usize).filter(|entry| entry.kept == events) else { return };
            entry.kept = now;
            if now == 0 {
                if entry.disabled {
                    // Nobody was told: it is armed yet.
                    entry.rearm();
                    retell(set, set.fd.load(Ordering::Relaxed), index, entry);
                    make_hot(inner, index);
                }
                inner.stash.retain(|of| *of != index);
            }
        });
    }
}
