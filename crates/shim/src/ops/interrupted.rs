//! What a signal handler asks for while the thread that it interrupted is in the middle of work on the same socket, or on epoll sets. Handlers may close and shut down
//! (signal-safety(7)), but the interrupted work holds locks, and goes on with the socket once the handler is over: the service thread does it then.

use super::{Outcome, fd};
use crate::fds::{self, Entry};
use crate::{next, runtime, service, sets};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ginnel_channel::settle::Endpoint;
use ginnel_region::sys;
use libc::c_int;

/// Sockets that were closed: 0, or 1 + the slot and above it the number that keeps the socket until the slot is let go of.
static CLOSED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Cookies of sockets that are to be shut down, times four, and in what way.
static SHUT: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// There is something in one of them.
static ANY: AtomicBool = AtomicBool::new(false);

/// Is the caller such a handler?
#[inline]
pub fn is_inside(endpoint: Endpoint<'_>) -> bool {
    endpoint.is_interrupted() || sets::is_interrupted()
}

/// `close(2)` of an endpoint there: the number is free at once.
#[cold]
pub fn close(fd: c_int, slot: u32) -> Outcome<c_int> {
    if fds::count(slot) > 1 {
        fds::take(fd);
        fds::unrefer(slot, fd);
        return Outcome::Libc;
    }
    sets::forsake(fd, slot);
    fds::park(slot, fd);
    let kept = sys::move_high(fd);
    if kept == fd {
        // No number to be had: the other end sees what it sees of a process that ended.
        return Outcome::Libc;
    }
    fds::set(kept, Entry::Own);
    let entry = u64::from(kept.unsigned_abs()) << 32 | (u64::from(slot) + 1);
    if keep(&CLOSED, entry) {
        later();
    } else {
        fds::set(kept, Entry::Unknown);
        sys::close(kept);
    }
    Outcome::Done(0)
}

/// `shutdown(2)` there.
#[cold]
pub fn shutdown(endpoint: Endpoint<'_>, how: c_int) -> Outcome<c_int> {
    let cookie = endpoint.slot().cookie.load(Ordering::Relaxed);
    if !keep(&SHUT, cookie << 2 | u64::from(how.unsigned_abs() & 3)) {
        return Outcome::Libc;
    }
    later();
    Outcome::Done(0)
}

/// False where there is no place.
fn keep(places: &[AtomicU64], entry: u64) -> bool {
    places.iter().any(|place| place.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

fn later() {
    ANY.store(true, Ordering::Release);
    service::ring();
}

/// Does it, where the interrupted work is over. True if there is more to be done.
pub fn catch_up() -> bool {
    if !ANY.swap(false, Ordering::AcqRel) {
        return false;
    }
    let is_over = |endpoint: Endpoint<'_>| endpoint.is_at_rest() && sets::are_at_rest();
    let mut more = false;
    for place in &SHUT {
        let entry = place.load(Ordering::Acquire);
        let (cookie, how) = (entry >> 2, (entry & 3) as c_int);
        let step = |endpoint: Endpoint<'static>| {
            // The slot may be another socket's by now.
            if endpoint.slot().cookie.load(Ordering::Relaxed) != cookie {
                return true;
            }
            is_over(endpoint) && {
                if super::sock::shutdown(endpoint.fd(), how) == Outcome::Libc {
                    // SAFETY: the program's own call.
                    unsafe { next::shutdown(endpoint.fd(), how) };
                }
                true
            }
        };
        let is_it = |slot: &u32| runtime::endpoint(-1, *slot).is_some_and(|of| of.slot().cookie.load(Ordering::Relaxed) == cookie);
        if entry == 0 {
            continue;
        }
        if service::own_slots().find(is_it).and_then(|slot| service::with_endpoint(slot, step)) == Some(false) {
            more = true;
        } else {
            place.store(0, Ordering::Release);
        }
    }
    for place in &CLOSED {
        let entry = place.load(Ordering::Acquire);
        let (kept, slot) = ((entry >> 32) as c_int, (entry as u32).wrapping_sub(1));
        if entry == 0 {
            continue;
        }
        if !runtime::endpoint(kept, slot).is_none_or(is_over) {
            more = true;
            continue;
        }
        sets::forget(slot);
        fds::unpark(slot, kept);
        let _ = fd::close(kept);
        place.store(0, Ordering::Release);
    }
    if more {
        ANY.store(true, Ordering::Release);
    }
    more
}

/// In a fork child: what the parent's handlers asked for is the parent's.
pub fn forget_parent() {
    for place in &CLOSED {
        let entry = place.swap(0, Ordering::AcqRel);
        if entry != 0 {
            let kept = (entry >> 32) as c_int;
            fds::set(kept, Entry::Unknown);
            fds::unrefer((entry as u32).wrapping_sub(1), kept);
            sys::close(kept);
        }
    }
    for place in &SHUT {
        place.store(0, Ordering::Relaxed);
    }
}
