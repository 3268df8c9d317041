//! The life of a connection: connect, accept, shutdown, options.
use super::direct::{self, DIRECT, int, word};
use super::{Outcome, bypass, bypass_process, errno, keeping_errno};
use crate::uncounted::Word;
use crate::{next, ops};
use libc::{c_int, c_void, sockaddr, socklen_t};

/// `accept` returned `fd`.
fn accepted(listener: c_int, fd: c_int) -> c_int {
    if fd >= 0 && !bypass() {
        keeping_errno(|| ops::sock::accepted(listener, fd));
    }
    fd
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own arguments.
    accepted(fd, unsafe { next::accept(fd, address, len) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    accepted(fd, unsafe { next::accept4(fd, address, len, flags) })
}

/// A connect to no address undoes a connection: the socket begins anew.
///
/// # Safety
/// As for `connect(2)`.
unsafe fn disconnects(address: *const sockaddr, len: socklen_t) -> bool {
    if (len as usize) < size_of::<libc::sa_family_t>() || address.is_null() {
        return false;
    }
    // SAFETY: not null, and long enough for the family by the caller's promise.
    let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
    family == libc::AF_UNSPEC as libc::sa_family_t
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn connect(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    if bypass_process() {
        // SAFETY: the program's own arguments.
        return unsafe { next::connect(fd, address, len) };
    }
    // SAFETY: the program's own arguments.
    let disconnects = unsafe { disconnects(address, len) };
    if disconnects {
        ops::sock::disconnecting(fd);
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { next::connect(fd, address, len) };
    if !disconnects && (result == 0 || matches!(errno(), libc::EINPROGRESS | libc::EINTR)) {
        // An interrupted connect goes on by itself.
        keeping_errno(|| ops::sock::connected(fd));
    }
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let outcome = if bypass_process() { Outcome::Libc } else { ops::sock::shutdown(fd, how) };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::shutdown(fd, how) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if !bypass() {
        ops::sock::reading_option(fd, level, name);
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { next::getsockopt(fd, level, name, value, len) };
    if result == 0 && !value.is_null() && !len.is_null() && !bypass() {
        // SAFETY: the kernel wrote `*len` bytes to `value`.
        keeping_errno(|| unsafe { ops::sock::option_read(fd, level, name, value, *len) });
    }
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let arguments = [int(level), int(name), value.cast_mut(), word(len as usize)];
    // SAFETY: the program's own arguments.
    let result =
        unsafe { direct::call(&DIRECT.setsockopt, ops::sock::is_cork(level, name), fd, arguments) };
    // An int, whatever is in the upper half.
    result as c_int
}

/// # Safety
/// As for `setsockopt(2)`.
#[inline(never)]
pub(super) unsafe extern "C" fn setsockopt_here(
    fd: c_int,
    level: Word,
    name: Word,
    value: Word,
    len: Word,
) -> isize {
    let (level, name, len) = (level.addr() as c_int, name.addr() as c_int, len.addr() as socklen_t);
    let value = value.cast_const();
    let ours = ops::sock::is_of_interest(level, name) && !bypass_process();
    if ours {
        // SAFETY: the program's own arguments.
        if unsafe { ops::sock::corked_in_ring(fd, level, name, value, len) } {
            return 0;
        }
        ops::sock::setting_option(fd, level, name, value, len);
    }
    // SAFETY: the program's own arguments.
    let call = || unsafe { next::setsockopt(fd, level, name, value, len) };
    let result = match () {
        () if ours => ops::sock::with_own_options(fd, level, name, call),
        () if bypass_process() => call(),
        () => ops::sock::beside_tokens(fd, level, name, call),
    };
    if ours && result == 0 {
        // SAFETY: the program's own arguments, which the kernel has read.
        keeping_errno(|| unsafe { ops::sock::option_set(fd, level, name, value, len) });
    }
    result as isize
}
