//! Readiness: poll, select and epoll.
use super::Outcome;
use libc::{c_int, epoll_event, fd_set, pollfd, sigset_t, timespec};

/// `poll` and `ppoll` (and their `_chk` forms). `timeout`: `None` waits for ever. `mask`: null or a signal mask to sleep with.
///
/// # Safety
/// `fds` points to `n` pollfds.
pub unsafe fn poll(_fds: *mut pollfd, _n: usize, _timeout: Option<timespec>, _mask: *const sigset_t) -> Outcome<c_int> {
    Outcome::Libc
}

/// `select` and `pselect`. Sets may be null. The hook writes back a `select` timeout itself from the time that passed.
///
/// # Safety
/// Non-null sets hold at least `nfds` bits.
pub unsafe fn select(
    _nfds: c_int,
    _read: *mut fd_set,
    _write: *mut fd_set,
    _except: *mut fd_set,
    _timeout: Option<timespec>,
    _mask: *const sigset_t,
) -> Outcome<c_int> {
    Outcome::Libc
}

/// `epoll_ctl`; with `Done`/`Failed` the kernel's call has been made.
///
/// # Safety
/// `event` is null or points to an event.
pub unsafe fn epoll_ctl(_epfd: c_int, _op: c_int, _fd: c_int, _event: *mut epoll_event) -> Outcome<c_int> {
    Outcome::Libc
}

/// `epoll_wait`, `epoll_pwait`, `epoll_pwait2`. `timeout`: `None` waits for ever.
///
/// # Safety
/// `events` has room for `max` events (`max` may be invalid: ≤ 0 goes to libc).
pub unsafe fn epoll_wait(
    _epfd: c_int,
    _events: *mut epoll_event,
    _max: c_int,
    _timeout: Option<timespec>,
    _mask: *const sigset_t,
) -> Outcome<c_int> {
    Outcome::Libc
}
