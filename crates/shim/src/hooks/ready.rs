//! Readiness: poll, select and epoll.
use super::clock::{now, remaining};
use super::{Outcome, bypass, cancel, keeping_errno};
use crate::{next, ops, sets};
use core::ptr;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

/// A timeout in milliseconds; below zero means for ever.
fn milliseconds(timeout: c_int) -> Option<timespec> {
    (timeout >= 0).then(|| timespec {
        tv_sec: (timeout / 1000).into(),
        tv_nsec: (timeout % 1000 * 1_000_000).into(),
    })
}

/// Would the kernel take this timeout?
fn valid(timeout: Option<timespec>) -> bool {
    timeout
        .is_none_or(|timeout| timeout.tv_sec >= 0 && (0..1_000_000_000).contains(&timeout.tv_nsec))
}

/// `poll` and its kin.
///
/// # Safety
/// As for `ppoll(2)`.
#[inline]
unsafe fn poll_for(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Outcome<c_int> {
    cancel::point();
    match usize::try_from(count) {
        Ok(n)
            if !bypass()
                && (n == 0 || !fds.is_null())
                && n <= c_int::MAX.unsigned_abs() as usize
                && valid(timeout) =>
        {
            // SAFETY: the caller promises `n` entries.
            unsafe { ops::ready::poll(fds, n, timeout, mask) }
        }
        _ => Outcome::Libc,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let outcome = unsafe { poll_for(fds, count, milliseconds(timeout), ptr::null()) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::poll(fds, count, timeout) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    if room / size_of::<pollfd>() >= count as usize {
        // SAFETY: the program's own arguments.
        unsafe { poll(fds, count, timeout) }
    } else {
        // SAFETY: the program's own arguments; the C library's function ends the program.
        unsafe { next::__poll_chk(fds, count, timeout, room) }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own arguments; a timeout is null or the program's.
    let outcome = unsafe { poll_for(fds, count, timeout.as_ref().copied(), mask) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::ppoll(fds, count, timeout, mask) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    if room / size_of::<pollfd>() >= count as usize {
        // SAFETY: the program's own arguments.
        unsafe { ppoll(fds, count, timeout, mask) }
    } else {
        // SAFETY: the program's own arguments; the C library's function ends the program.
        unsafe { next::__ppoll_chk(fds, count, timeout, mask, room) }
    }
}

/// `select`'s timeout as the C library reads it: microseconds may be a second or more, neither part
/// below zero.
fn from_timeval(timeout: timeval) -> Option<timespec> {
    const SECOND: i64 = 1_000_000;
    (timeout.tv_sec >= 0 && timeout.tv_usec >= 0).then(|| timespec {
        tv_sec: timeout.tv_sec.saturating_add(timeout.tv_usec / SECOND),
        tv_nsec: timeout.tv_usec % SECOND * 1000,
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn select(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    cancel::point();
    // SAFETY: null or the program's own.
    let given = unsafe { timeout.as_ref() }.map(|timeout| from_timeval(*timeout));
    let outcome = match given {
        _ if bypass() || nfds < 0 => Outcome::Libc,
        // A bad timeout.
        Some(None) => Outcome::Libc,
        // SAFETY: the program's own arguments.
        None => unsafe { ops::ready::select(nfds, read, write, except, None, ptr::null()) },
        Some(Some(limit)) => {
            let start = now();
            // SAFETY: the program's own arguments.
            let outcome =
                unsafe { ops::ready::select(nfds, read, write, except, Some(limit), ptr::null()) };
            if outcome != Outcome::Libc {
                let left = remaining(limit, start, now());
                // SAFETY: not null, since there is a limit. Linux tells what is left of it, also
                // when interrupted.
                unsafe { *timeout = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 } };
            }
            outcome
        }
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::select(nfds, read, write, except, timeout) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pselect(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    cancel::point();
    // SAFETY: null or the program's own.
    let limit = unsafe { timeout.as_ref() }.copied();
    let outcome = if bypass() || nfds < 0 || !valid(limit) {
        Outcome::Libc
    } else {
        // SAFETY: the program's own arguments.
        unsafe { ops::ready::select(nfds, read, write, except, limit, mask) }
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::pselect(nfds, read, write, except, timeout, mask) })
}

/// A new epoll set.
fn new_set(fd: c_int) -> c_int {
    if fd >= 0 && !bypass() {
        keeping_errno(|| ops::fd::created(fd, ops::fd::Kind::Epoll));
    }
    fd
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    new_set(unsafe { next::epoll_create(size) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    new_set(unsafe { next::epoll_create1(flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let outcome = if bypass() {
        Outcome::Libc
    } else {
        // SAFETY: the program's own arguments.
        unsafe { ops::ready::epoll_ctl(epfd, op, fd, event) }
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::epoll_ctl(epfd, op, fd, event) })
}

/// `epoll_wait` and its kin.
///
/// # Safety
/// As for `epoll_pwait2(2)`.
#[inline]
unsafe fn wait_for(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Outcome<c_int> {
    cancel::point();
    if bypass() || events.is_null() || max <= 0 || !valid(timeout) {
        return Outcome::Libc;
    }
    // SAFETY: the caller promises room for `max` events.
    unsafe { ops::ready::epoll_wait(epfd, events, max, timeout, mask) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    cancel::point();
    let limit = milliseconds(timeout);
    // SAFETY: the program's own arguments.
    let ask = || unsafe { next::epoll_wait(epfd, events, max, timeout) };
    let still =
        // SAFETY: the program's own arguments.
        if bypass() { None } else { unsafe { sets::wait_still(epfd, events, max, limit, ask) } };
    // SAFETY: the program's own arguments.
    let outcome =
        still.unwrap_or_else(|| unsafe { wait_for(epfd, events, max, limit, ptr::null()) });
    outcome.or(ask)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own arguments.
    let outcome = unsafe { wait_for(epfd, events, max, milliseconds(timeout), mask) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::epoll_pwait(epfd, events, max, timeout, mask) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own arguments; a timeout is null or the program's.
    let outcome = unsafe { wait_for(epfd, events, max, timeout.as_ref().copied(), mask) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::epoll_pwait2(epfd, events, max, timeout, mask) })
}
