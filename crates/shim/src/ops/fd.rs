//! Descriptors: made, copied, replaced, closed.
use super::Outcome;
use libc::c_int;

/// What a new descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A socket; looked at when first used.
    Socket,
    /// An epoll set.
    Epoll,
    /// Anything else.
    Other,
}

/// `fd` was just made by a hooked call. Forgets whatever the number stood for before.
pub fn created(_fd: c_int, _kind: Kind) {}

/// `close(2)`: when `Done`/`Failed` the kernel's close has been made.
pub fn close(_fd: c_int) -> Outcome<c_int> {
    Outcome::Libc
}

/// Before `close_range`/`closefrom` on `first..=last` (after clamping): lets go of endpoints in the range. With `Done(0)` the range was
/// closed here, sparing the shim's own descriptors. `cloexec`: CLOSE_RANGE_CLOEXEC was given.
pub fn close_range(_first: u32, _last: u32, _cloexec: bool) -> Outcome<c_int> {
    Outcome::Libc
}

/// Before `dup2`/`dup3` onto `new` (`old != new`): lets go of what `new` stood for, as `close` does, except for the kernel's close.
pub fn replacing(_new: c_int) {}

/// After `dup`, `dup2`, `dup3`, `F_DUPFD`, `F_DUPFD_CLOEXEC` succeeded.
pub fn duplicated(_old: c_int, _new: c_int) {}

/// After `fcntl(F_SETFL)`, `ioctl(FIONBIO)` succeeded: is the description non-blocking now? `asynchronous`: O_ASYNC is set.
pub fn flags_changed(_fd: c_int, _nonblocking: bool, _asynchronous: bool) {}

/// `ioctl(FIONREAD)`/`SIOCINQ` and `SIOCOUTQ`/`TIOCOUTQ` on an accelerated socket: the number to store; `Libc` for anything else.
pub fn ioctl_count(_fd: c_int, _request: libc::c_ulong) -> Outcome<c_int> {
    Outcome::Libc
}
