//! Descriptors: copied, replaced, closed, and their flags.
use super::{Outcome, bypass, bypass_process, cancel, in_lent_memory, keeping_errno};
use crate::{fds, next, ops};
use core::ptr;
use libc::{Ioctl, c_int, c_uint, c_void};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn close(fd: c_int) -> c_int {
    if fds::forget_plain(fd) {
        // SAFETY: the program's own arguments.
        unsafe { next::close(fd) }
    } else {
        close_known(fd)
    }
}

/// `close` of what may be of interest.
#[inline(never)]
fn close_known(fd: c_int) -> c_int {
    cancel::point();
    // In the midst of it a thread that left would leave the socket half closed.
    let outcome =
        if bypass_process() { Outcome::Libc } else { cancel::none(|| ops::fd::close(fd)) };
    // SAFETY: takes a number only.
    outcome.or(|| unsafe { next::close(fd) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
    // With that the thread leaves the table that other threads have, if there are any.
    let parts = |flags| flags & UNSHARE != 0 && !super::identity::parting_tables();
    let outcome =
        if first > last || flags & !(CLOEXEC | UNSHARE) != 0 || bypass_process() || parts(flags) {
            Outcome::Libc
        } else {
            ops::fd::close_range(first, last, flags & CLOEXEC != 0)
        };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::close_range(first, last, flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn closefrom(low: c_int) {
    if bypass_process()
        || ops::fd::close_range(low.max(0).unsigned_abs(), c_uint::MAX, false) == Outcome::Libc
    {
        // SAFETY: the program's own arguments.
        unsafe { next::closefrom(low) }
    }
}

/// A copy of `old` was made.
fn copied(old: c_int, new: c_int) -> c_int {
    if new >= 0 {
        if bypass_process() {
            stays_open(old);
        } else {
            keeping_errno(|| ops::fd::duplicated(old, new));
        }
    }
    new
}

/// `fd`, or a copy of it, stays open in whatever program follows.
fn stays_open(fd: c_int) {
    if in_lent_memory() {
        keeping_errno(|| ops::lent::kept(fd));
    }
}

/// Before a copy of `old` replaces `new`: unless the kernel will refuse to.
fn replacing(old: c_int, new: c_int) {
    if old != new
        && new >= 0
        && !bypass_process()
        // SAFETY: takes numbers only.
        && unsafe { next::fcntl(old, libc::F_GETFD, ptr::null_mut()) } >= 0
    {
        ops::fd::replacing(new);
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    copied(fd, unsafe { next::dup(fd) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    replacing(old, new);
    // SAFETY: the program's own arguments.
    let result = unsafe { next::dup2(old, new) };
    if old == new { result } else { copied(old, result) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if flags & !libc::O_CLOEXEC == 0 {
        replacing(old, new);
    }
    // SAFETY: the program's own arguments.
    copied(old, unsafe { next::dup3(old, new, flags) })
}

/// The flags of `fd` may have changed: tells what they are.
fn flags_changed(fd: c_int) {
    keeping_errno(|| {
        // SAFETY: takes numbers only.
        let flags = unsafe { next::fcntl(fd, libc::F_GETFL, ptr::null_mut()) };
        if flags >= 0 {
            ops::fd::flags_changed(fd, flags & libc::O_NONBLOCK != 0, flags & libc::O_ASYNC != 0);
        }
    });
}

/// Variadic in C. Its one optional argument is passed as a named one would be (x86-64 and aarch64
/// Linux), and goes on as it came.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    let result = ops::fd::hide(fd).or(|| unsafe { next::fcntl(fd, command, argument) });
    if result < 0 {
        return result;
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, result),
        libc::F_SETFD if argument.addr() as c_int & libc::FD_CLOEXEC == 0 => {
            stays_open(fd);
            result
        }
        _ if bypass() => result,
        libc::F_SETFL => {
            // The kernel takes these bits as they are given.
            let flags = argument.addr() as c_int;
            keeping_errno(|| {
                ops::fd::flags_changed(
                    fd,
                    flags & libc::O_NONBLOCK != 0,
                    flags & libc::O_ASYNC != 0,
                )
            });
            result
        }
        libc::F_SETOWN | F_SETOWN_EX | F_SETSIG => {
            flags_changed(fd);
            result
        }
        _ => result,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fstat(fd: c_int, result: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    ops::fd::hide(fd).or(|| unsafe { next::fstat(fd, result) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fstat64(fd: c_int, result: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    ops::fd::hide(fd).or(|| unsafe { next::fstat64(fd, result) })
}

/// `asm-generic/fcntl.h`; signals are then sent to someone in particular.
const F_SETSIG: c_int = 10;
/// As above.
const F_SETOWN_EX: c_int = 15;

/// `linux/sockios.h`: bytes that were never sent.
const SIOCOUTQNSD: Ioctl = 0x894b;
/// `asm-generic/sockios.h`: who is sent SIGIO.
const FIOSETOWN: Ioctl = 0x8901;
/// As above, by its other name.
const SIOCSPGRP: Ioctl = 0x8902;
/// As above: is the next byte the one after urgent data?
const SIOCATMARK: Ioctl = 0x8905;

/// The answer of a request for a number.
fn number(fd: c_int, request: Ioctl) -> Outcome<c_int> {
    if request == SIOCATMARK { ops::fd::at_mark(fd) } else { ops::fd::ioctl_count(fd, request) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut answer: c_int = 0;
    // SAFETY: the request stores an int.
    let result = unsafe { ioctl(fd, SIOCATMARK, (&raw mut answer).cast()) };
    if result < 0 { result } else { answer }
}

/// Variadic in C; see [`fcntl`].
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ioctl(fd: c_int, request: Ioctl, argument: *mut c_void) -> c_int {
    let outcome = match request {
        _ if bypass() => Outcome::Libc,
        libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD | SIOCATMARK => match number(fd, request) {
            Outcome::Done(_) if argument.is_null() => Outcome::Failed(libc::EFAULT),
            Outcome::Done(count) => {
                // SAFETY: for these requests the argument is where an int goes.
                unsafe { argument.cast::<c_int>().write_unaligned(count) };
                Outcome::Done(0)
            }
            other => other,
        },
        _ => Outcome::Libc,
    };
    outcome.or(|| {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::ioctl(fd, request, argument) };
        if result >= 0 && request == libc::FIONCLEX {
            stays_open(fd);
        }
        if result >= 0
            && matches!(request, libc::FIONBIO | libc::FIOASYNC | FIOSETOWN | SIOCSPGRP)
            && !bypass()
        {
            flags_changed(fd);
        }
        result
    })
}
