//! The life of a connection: connect, accept, shutdown, options.
use super::Outcome;
use libc::{c_int, c_void, socklen_t};

/// `accept`/`accept4` returned `fd`.
pub fn accepted(_listener: c_int, _fd: c_int, _nonblocking: bool) {}

/// `connect` on `fd` returned 0 or failed with EINPROGRESS.
pub fn connected(_fd: c_int) {}

/// `shutdown(2)`; with `Done`/`Failed` the kernel's shutdown has been made.
pub fn shutdown(_fd: c_int, _how: c_int) -> Outcome<c_int> {
    Outcome::Libc
}

/// Before `setsockopt`: some options make a socket unfit for a ring (TCP_ULP, SO_TIMESTAMP, SO_ZEROCOPY, TCP_REPAIR …) and hand it over first.
pub fn setting_option(_fd: c_int, _level: c_int, _name: c_int, _value: *const c_void, _len: socklen_t) {}

/// After `setsockopt` succeeded (SO_RCVLOWAT and the like are tracked).
pub fn option_set(_fd: c_int, _level: c_int, _name: c_int) {}

/// After `getsockopt` succeeded: corrects what the kernel says of an accelerated socket (TCP_INFO's counters), in place.
///
/// # Safety
/// `value` points to `len` readable and writable bytes.
pub unsafe fn option_read(_fd: c_int, _level: c_int, _name: c_int, _value: *mut c_void, _len: socklen_t) {}
