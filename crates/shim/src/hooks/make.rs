//! Calls that make descriptors of no further interest. They are watched for one reason: a number
//! whose last close was not seen (made inside another library, by a raw system call) must not stand
//! for a connection that is gone.
use super::{bypass, keeping_errno};
use crate::{fds, next, ops};
use libc::{c_char, c_int, c_uint, mode_t, pid_t, sigset_t};
use ops::fd::Kind;

/// `fd` was made, unless it is below zero.
#[inline(never)]
pub(super) fn made(fd: c_int, kind: Kind) -> c_int {
    if fd >= 0 && !bypass() {
        keeping_errno(|| ops::fd::created(fd, kind));
    }
    fd
}

/// `fd` was made, unless it is below zero, and is of no further interest.
#[inline]
fn made_other(fd: c_int) -> c_int {
    if fds::becomes_plain(fd) { fd } else { made(fd, Kind::Other) }
}

/// Two were made, if `result` is 0.
///
/// # Safety
/// As for `pipe(2)`, after it returned `result`.
unsafe fn made_pair(result: c_int, ends: *const c_int, kind: Kind) -> c_int {
    if result == 0 {
        // SAFETY: the kernel wrote two numbers there.
        for fd in unsafe { [ends.read(), ends.add(1).read()] } {
            made(fd, kind);
        }
    }
    result
}

/// Functions that only make a descriptor.
macro_rules! makers {
    ($(fn $name:ident($($arg:ident : $type:ty),*) $(= $as:ident)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                // SAFETY: the program's own arguments.
                made_other(unsafe { makers!(@next $name $($as)?)($($arg),*) })
            }
        )*
    };
    (@next $name:ident) => { next::$name };
    (@next $name:ident $as:ident) => { next::$as };
}

makers! {
    // The mode is optional in C; it is passed as a named argument would be (x86-64 and aarch64
    // Linux), and looked at only with O_CREAT.
    fn open(path: *const c_char, flags: c_int, mode: mode_t);
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) = open;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t);
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) = open64;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn __open_2(path: *const c_char, flags: c_int);
    fn __open64_2(path: *const c_char, flags: c_int);
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int);
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int);
    fn creat(path: *const c_char, mode: mode_t);
    fn creat64(path: *const c_char, mode: mode_t);
    fn eventfd(value: c_uint, flags: c_int);
    fn timerfd_create(clock: c_int, flags: c_int);
    fn inotify_init();
    fn inotify_init1(flags: c_int);
    fn memfd_create(name: *const c_char, flags: c_uint);
    fn pidfd_open(pid: pid_t, flags: c_uint);
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let result = unsafe { next::signalfd(fd, mask, flags) };
    if fd == -1 { made(result, Kind::Other) } else { result }
}

/// Another process's descriptor: one that was received, as far as this process can tell.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int {
    // SAFETY: the program's own arguments.
    let fd = unsafe { next::pidfd_getfd(pidfd, target, flags) };
    if fd >= 0 && !bypass() {
        keeping_errno(|| ops::process::received_fds(&[fd]));
    }
    fd
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    made(unsafe { next::socket(domain, kind, protocol) }, Kind::of_socket(domain, kind, protocol))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    ends: *mut c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { made_pair(next::socketpair(domain, kind, protocol, ends), ends, Kind::Socket) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { made_pair(next::pipe(ends), ends, Kind::Other) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { made_pair(next::pipe2(ends, flags), ends, Kind::Other) }
}
