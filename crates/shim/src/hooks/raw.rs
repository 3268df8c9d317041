//! `syscall(2)`: a system call by its number is sent to the hook of its name, which answers in the
//! same way (-1 and `errno`).
use super::clock::{now, remaining};
use super::process::forking;
use super::{bypass, fd, identity, io, limits, make, message, ready, sock, uring};
use crate::identity::Reach;
use crate::{next, own};
use core::ptr;
use libc::{c_int, c_long, c_uint, c_void, sigset_t, timespec};

/// A word as a C int: the kernel looks at no more of it.
fn int(word: c_long) -> c_int {
    word as c_int
}

/// A word as an unsigned C int.
fn uint(word: c_long) -> c_uint {
    word as c_uint
}

/// A word as a size.
fn size(word: c_long) -> usize {
    word as usize
}

/// A word as a pointer.
fn pointer<T>(word: c_long) -> *mut T {
    ptr::with_exposed_provenance_mut(word as usize)
}

/// Does `seccomp(2)` with these arguments confine anybody? A filter that is nowhere is a question:
/// libseccomp and QEMU ask so whether the kernel knows filters, and hear EFAULT.
fn confines(operation: c_int, filter: c_long) -> bool {
    const SET_MODE_FILTER: c_int = 1;
    const GET_ACTION_AVAIL: c_int = 2;
    const GET_NOTIF_SIZES: c_int = 3;
    match operation {
        GET_ACTION_AVAIL | GET_NOTIF_SIZES => false,
        SET_MODE_FILTER => filter != 0,
        _ => true,
    }
}

/// May this call change who the calling thread is? (By its number it is that thread's alone, but
/// all threads have one memory.)
fn changes_thread(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setreuid
            | libc::SYS_setresuid
            | libc::SYS_setgid
            | libc::SYS_setregid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_capset
    )
}

/// Does this call make a process with memory of its own?
///
/// # Safety
/// As for `clone3(2)`.
unsafe fn forks(number: c_long, flags: c_long) -> bool {
    const VM: c_long = libc::CLONE_VM as c_long;
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        libc::SYS_clone => flags & VM == 0,
        libc::SYS_clone3 => {
            let flags = pointer::<u64>(flags);
            // SAFETY: the structure begins with the flags.
            !flags.is_null() && unsafe { flags.read_unaligned() } & VM.unsigned_abs() == 0
        }
        _ => false,
    }
}

/// The system call's own `ppoll`, which tells what is left of the timeout (the C library's does
/// not).
///
/// # Safety
/// As for `ppoll(2)`.
unsafe fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *mut timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: null or the program's own.
    let limit = unsafe { timeout.as_ref() }.copied();
    let start = now();
    // SAFETY: the caller's promise.
    let result = unsafe { ready::ppoll(fds, count, timeout, mask) };
    if let Some(limit) = limit {
        // SAFETY: not null, since there is a limit.
        unsafe { *timeout = remaining(limit, start, now()) };
    }
    result
}

/// A call that is made before the library was set up, or by a child of `vfork`. What such a child
/// keeps for its next program, and which that is, concerns its parent: the hooks of these calls see
/// to that.
///
/// # Safety
/// As for the system call.
#[cold]
unsafe fn aside(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_dup => fd::dup(int(a)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => fd::dup2(int(a), int(b)).into(),
            libc::SYS_dup3 => fd::dup3(int(a), int(b), int(c)).into(),
            libc::SYS_fcntl => fd::fcntl(int(a), int(b), pointer(c)).into(),
            libc::SYS_execve => super::exec::execve(pointer(a), pointer(b), pointer(c)).into(),
            libc::SYS_execveat => {
                super::exec::execveat(int(a), pointer(b), pointer(c), pointer(d), int(e)).into()
            }
            _ => next::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// Variadic in C; see [`fcntl`](super::fd::fcntl). Words beyond those that the program passed are
/// read, as the C library's own does.
#[allow(clippy::too_many_lines, reason = "a table: a line for each system call that has a hook")]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if bypass() {
        // SAFETY: the program's own arguments.
        return unsafe { aside(number, [a, b, c, d, e, f]) };
    }
    // SAFETY: the program's own arguments; each hook takes those of the system call of its name.
    unsafe {
        match number {
            libc::SYS_read => io::read(int(a), pointer(b), size(c)) as c_long,
            libc::SYS_readv => io::readv(int(a), pointer(b), int(c)) as c_long,
            libc::SYS_write => io::write(int(a), pointer(b), size(c)) as c_long,
            libc::SYS_writev => io::writev(int(a), pointer(b), int(c)) as c_long,
            // The offset is in two words, of which a 64-bit kernel reads the first.
            libc::SYS_preadv2 => io::preadv2(int(a), pointer(b), int(c), d, int(f)) as c_long,
            libc::SYS_pwritev2 => io::pwritev2(int(a), pointer(b), int(c), d, int(f)) as c_long,
            libc::SYS_recvfrom => {
                message::recvfrom(int(a), pointer(b), size(c), int(d), pointer(e), pointer(f))
                    as c_long
            }
            libc::SYS_recvmsg => message::recvmsg(int(a), pointer(b), int(c)) as c_long,
            libc::SYS_recvmmsg => {
                message::recvmmsg(int(a), pointer(b), uint(c), int(d), pointer(e)).into()
            }
            libc::SYS_sendto => {
                message::sendto(int(a), pointer(b), size(c), int(d), pointer(e), uint(f)) as c_long
            }
            libc::SYS_sendmsg => message::sendmsg(int(a), pointer(b), int(c)) as c_long,
            libc::SYS_sendmmsg => message::sendmmsg(int(a), pointer(b), uint(c), int(d)).into(),
            libc::SYS_sendfile => io::sendfile(int(a), int(b), pointer(c), size(d)) as c_long,
            libc::SYS_splice => {
                io::splice(int(a), pointer(b), int(c), pointer(d), size(e), uint(f)) as c_long
            }

            libc::SYS_close => fd::close(int(a)).into(),
            libc::SYS_close_range => fd::close_range(uint(a), uint(b), int(c)).into(),
            libc::SYS_dup => fd::dup(int(a)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => fd::dup2(int(a), int(b)).into(),
            libc::SYS_dup3 => fd::dup3(int(a), int(b), int(c)).into(),
            libc::SYS_fcntl => fd::fcntl(int(a), int(b), pointer(c)).into(),
            libc::SYS_ioctl => fd::ioctl(int(a), uint(b) as libc::Ioctl, pointer(c)).into(),
            libc::SYS_pidfd_getfd => make::pidfd_getfd(int(a), int(b), uint(c)).into(),

            libc::SYS_socket => make::socket(int(a), int(b), int(c)).into(),
            libc::SYS_socketpair => make::socketpair(int(a), int(b), int(c), pointer(d)).into(),
            libc::SYS_accept => sock::accept(int(a), pointer(b), pointer(c)).into(),
            libc::SYS_accept4 => sock::accept4(int(a), pointer(b), pointer(c), int(d)).into(),
            libc::SYS_connect => sock::connect(int(a), pointer(b), uint(c)).into(),
            libc::SYS_shutdown => sock::shutdown(int(a), int(b)).into(),
            libc::SYS_getsockopt => {
                sock::getsockopt(int(a), int(b), int(c), pointer(d), pointer(e)).into()
            }
            libc::SYS_setsockopt => {
                sock::setsockopt(int(a), int(b), int(c), pointer(d), uint(e)).into()
            }

            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => ready::poll(pointer(a), uint(b).into(), int(c)).into(),
            libc::SYS_ppoll => ppoll(pointer(a), uint(b).into(), pointer(c), pointer(d)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                ready::select(int(a), pointer(b), pointer(c), pointer(d), pointer(e)).into()
            }
            libc::SYS_pselect6 => {
                pselect6(int(a), pointer(b), pointer(c), pointer(d), pointer(e), pointer(f)).into()
            }
            libc::SYS_epoll_create1 => ready::epoll_create1(int(a)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => ready::epoll_create(int(a)).into(),
            libc::SYS_epoll_ctl => ready::epoll_ctl(int(a), int(b), int(c), pointer(d)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => ready::epoll_wait(int(a), pointer(b), int(c), int(d)).into(),
            libc::SYS_epoll_pwait => {
                ready::epoll_pwait(int(a), pointer(b), int(c), int(d), pointer(e)).into()
            }
            libc::SYS_epoll_pwait2 => {
                ready::epoll_pwait2(int(a), pointer(b), int(c), pointer(d), pointer(e)).into()
            }

            libc::SYS_execve => super::exec::execve(pointer(a), pointer(b), pointer(c)).into(),
            libc::SYS_execveat => {
                super::exec::execveat(int(a), pointer(b), pointer(c), pointer(d), int(e)).into()
            }
            libc::SYS_unshare => super::process::unshare(int(a)).into(),
            libc::SYS_setns => super::process::setns(int(a), int(b)).into(),
            number if changes_thread(number) => {
                identity::changing_thread(Reach::Thread, || next::syscall(number, a, b, c, d, e, f))
            }
            // All threads have one root directory.
            libc::SYS_chroot | libc::SYS_pivot_root => {
                identity::changing(Reach::Process, || next::syscall(number, a, b, c, d, e, f))
            }
            libc::SYS_prctl if identity::changes_rights(int(a), b.unsigned_abs()) => {
                identity::of_thread(|| next::syscall(number, a, b, c, d, e, f))
            }
            // As seccomp: it takes rights away, and what is mapped stays.
            libc::SYS_landlock_restrict_self => {
                crate::ops::process::confined();
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_seccomp if confines(int(a), c) => {
                crate::ops::process::confined();
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_prctl
                if super::variadic::confines(int(a), b.unsigned_abs(), c.unsigned_abs()) =>
            {
                crate::ops::process::confined();
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_mlockall => limits::mlockall(int(a)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_getrlimit => limits::getrlimit(int(a), pointer(b)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_setrlimit => limits::setrlimit(int(a), pointer(b)).into(),
            libc::SYS_prlimit64 => limits::prlimit64(int(a), int(b), pointer(c), pointer(d)).into(),
            libc::SYS_exit_group => {
                super::process::ending();
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_io_uring_enter => {
                uring::submitting(int(a), uint(d));
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_io_uring_register => {
                uring::registering(uint(b));
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_io_uring_setup => {
                uring::used();
                next::syscall(number, a, b, c, d, e, f)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_vfork => {
                own::lend();
                next::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_clone | libc::SYS_clone3 if !forks(number, a) => {
                own::lend();
                next::syscall(number, a, b, c, d, e, f)
            }
            _ if forks(number, a) => forking(|| next::syscall(number, a, b, c, d, e, f)),
            _ => next::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// The sixth argument of `pselect6`.
#[repr(C)]
struct SizedMask {
    mask: *const sigset_t,
    size: usize,
}

/// The system call behind `pselect`, which tells what is left of the timeout.
///
/// # Safety
/// As for `pselect6(2)`.
unsafe fn pselect6(
    nfds: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut timespec,
    mask: *const c_void,
) -> c_int {
    // SAFETY: null or the program's own.
    let (limit, mask) = unsafe { (timeout.as_ref().copied(), mask.cast::<SizedMask>().as_ref()) };
    let start = now();
    // SAFETY: the caller's promise.
    let result = unsafe {
        ready::pselect(
            nfds,
            read,
            write,
            except,
            timeout,
            mask.map_or(ptr::null(), |mask| mask.mask),
        )
    };
    if let Some(limit) = limit {
        // SAFETY: not null, since there is a limit.
        unsafe { *timeout = remaining(limit, start, now()) };
    }
    result
}
