//! Waits on sets of which the kernel knows everything.
//!
//! A server whose clients have no shim waits once for each request, and all that is to be done is
//! to hand the kernel's answer on. After a sleep the processor finds little of this library's code
//! in its caches, and what a wait costs is above all how much of it has to be fetched anew: so such
//! a wait does without whatever a ring, a waiter, another process or a late word would ask for, and
//! takes the set's lock once, to look the events up.
//!
//! *Still* is said of a set by a wait that found none of these, and no more by whoever works on the
//! set next. A wait counts itself among the sleepers before it asks, and who works on the set says
//! that it is not still before it looks for sleepers: so either the wait finds that there is more
//! to do, or it is woken.

use super::told::usual;
use super::wait::{awake, hand_on, leave, until_ready};
use super::{Inner, Set, late, set_at};
use crate::fds::{self, Entry};
use crate::outcome::Outcome;
use crate::{deadline, next, runtime};
use core::ptr;
use core::sync::atomic::{Ordering, fence};
use libc::{c_int, epoll_event, timespec};

impl Set {
    /// Works on what is known of the registrations.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        self.inner.with(|inner| {
            self.disturb();
            work(inner)
        })
    }

    /// The same where the lock can be had soon: see [`super::Spin::soon`].
    pub(super) fn soon<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> Option<R> {
        self.inner.soon(|inner| {
            self.disturb();
            work(inner)
        })
    }

    /// Under the lock, before anything changes: the next wait is to think of everything.
    pub(super) fn disturb(&self) {
        if self.still.load(Ordering::Relaxed) {
            self.still.store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// A sleeper has woken. How many there were with it; 0 where it slept in the parent, whose
    /// signal handler forked.
    pub(super) fn wakes(&self) -> u32 {
        let less = |sleepers: u32| sleepers.checked_sub(1);
        self.sleepers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).unwrap_or(0)
    }

    /// Under the lock, by a wait for which there was nothing but the kernel.
    pub(super) fn leave_to_kernel(&self) {
        self.still.store(true, Ordering::Relaxed);
    }
}

/// `epoll_wait` on a still set: `ask` is the program's own call. `None`: it is no such set, and
/// nothing was done.
///
/// # Safety
/// `events` has room for `max` events where both are valid.
#[inline]
pub unsafe fn wait_still(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    limit: Option<timespec>,
    ask: impl FnOnce() -> c_int,
) -> Option<Outcome<c_int>> {
    let Entry::Epoll(index) = fds::get(epfd) else { return None };
    let set = set_at(index).filter(|set| set.still.load(Ordering::Relaxed))?;
    let attachment = runtime::attachment()?;
    let room = usize::try_from(max).ok().filter(|&max| max > 0 && !events.is_null())?;
    late::give_way();
    set.sleepers.fetch_add(1, Ordering::SeqCst);
    if !set.still.load(Ordering::SeqCst) {
        set.wakes();
        return None;
    }
    let at_once = limit.is_some_and(|limit| limit.tv_sec == 0 && limit.tv_nsec == 0);
    let end = if at_once { None } else { deadline::roughly_after(limit) };
    let got = ask();
    let got = if got < 0 { Err(next::errno()) } else { Ok(got.unsigned_abs() as usize) };
    // SAFETY: the caller's promise.
    let room = unsafe { core::slice::from_raw_parts_mut(events, room) };
    let (still, told) = set.inner.with(|inner| {
        let still = set.still.load(Ordering::Relaxed);
        if still {
            set.wakes();
        } else {
            awake(set, inner, attachment, room, true, got);
        }
        let alone = !set.shared.load(Ordering::Relaxed);
        (still, got.ok().filter(|_| alone).map_or((0, 0), |got| usual(inner, room, (0, 0), got)))
    });
    if still
        && let Ok(got) = got
        && told == (got, got)
    {
        return Some(Outcome::Done(got as c_int));
    }
    let done = match got {
        Err(errno) => Err(errno),
        // The time is up.
        Ok(0) => Ok(0),
        Ok(got) => match hand_on(set, epfd, room, told, got) {
            // What the kernel told was for nobody, and some of the time is over.
            // SAFETY: the caller's promise.
            0 => unsafe { until_ready(set, attachment, epfd, room, at_once, end, ptr::null()) },
            n => Ok(n),
        },
    };
    leave(set);
    Some(
        done.map_or_else(Outcome::Failed, |n| {
            Outcome::Done(c_int::try_from(n).unwrap_or(c_int::MAX))
        }),
    )
}
