//! Moving bytes: every form of receive and send.
use super::Outcome;
use libc::{c_int, iovec, off64_t};

/// Every receive (`read`, `readv`, `recv`, `recvfrom`, `recvmsg`): fill `iov` from `fd`; `flags` as for `recv(2)` (0 for read).
/// `Done(n)`: the hook zeroes the source address length and the control length itself (TCP has neither).
///
/// # Safety
/// The iovecs describe writable memory of the calling program.
pub unsafe fn recv(_fd: c_int, _iov: &[iovec], _flags: c_int) -> Outcome {
    Outcome::Libc
}

/// Every send (`write`, `writev`, `send`, `sendto`, `sendmsg` without control data); `flags` as for `send(2)` (0 for write).
/// `to_address`: the call named a destination. Raises SIGPIPE itself where the kernel would.
///
/// # Safety
/// The iovecs describe readable memory of the calling program.
pub unsafe fn send(_fd: c_int, _iov: &[iovec], _flags: c_int) -> Outcome {
    Outcome::Libc
}

/// `sendfile(2)` and `sendfile64`.
///
/// # Safety
/// `offset` is null or points to the program's offset.
pub unsafe fn sendfile(_out: c_int, _from: c_int, _offset: *mut off64_t, _count: usize) -> Outcome {
    Outcome::Libc
}

/// `fd` is about to be used in a way that the hooks cannot follow (splice, fdopen, dprintf, vmsplice, SCM_TXTIME …): bring both directions back to
/// TCP and keep them there. Returns when the kernel's socket holds the whole truth, or has reported that it cannot.
pub fn hand_over(_fd: c_int) {}
