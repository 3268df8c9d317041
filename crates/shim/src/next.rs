//! The C library's own functions: what each hook calls when the program's call is not Ginnel's
//! business.
//!
//! One line of the table below gives one function of the same name and type, as `dlsym(RTLD_NEXT)`
//! would find it ([`symbols`]). [`resolve_all`] fills the table when the library is loaded; a hook
//! that runs earlier (another library's constructor), or in several threads at once, finds its
//! function itself: finding is idempotent, so two atomic words per function are all the state, and
//! there is no lock. A function that this C library is too old to have answers as the `=` part of
//! its line says, or with ENOSYS.
//!
//! ```ignore
//! // SAFETY: the program's own arguments, unchanged.
//! unsafe { next::read(fd, buf, n) }
//! ```

mod find;

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use find::get;
use libc::{
    FILE, aiocb, c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, gid_t, iovec,
    mmsghdr, mode_t, msghdr, nfds_t, off_t, off64_t, pid_t, pollfd, posix_spawn_file_actions_t,
    posix_spawnattr_t, pthread_t, rlimit64, sigevent, sigset_t, size_t, sockaddr, socklen_t,
    termios, timespec, timeval, uid_t, winsize,
};
use syscalls::{Errno, Sysno, syscall as kernel};

/// This thread's `errno`.
#[must_use]
#[inline]
pub fn errno() -> c_int {
    // SAFETY: the C library gives every thread a valid address for its errno.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
#[inline]
pub fn set_errno(value: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value }
}

/// What a function that does not exist here returns: the C library's own sign of failure, with
/// `errno` set to ENOSYS.
trait Absent {
    fn absent() -> Self;
}

macro_rules! absent {
    ($($type:ty => $value:expr),* $(,)?) => {
        $(impl Absent for $type {
            #[cold]
            fn absent() -> Self {
                set_errno(libc::ENOSYS);
                $value
            }
        })*
    };
}
absent! { c_int => -1, isize => -1, c_long => -1, () => (), *mut FILE => ptr::null_mut() }

/// A raw system call's answer as the C library's wrapper would give it.
fn wrapped(result: Result<usize, Errno>) -> c_int {
    match result {
        // A descriptor, a count of events or 0: what fits the C type, as the wrapper's own
        // conversion.
        Ok(value) => value as c_int,
        Err(error) => {
            set_errno(error.into_raw());
            -1
        }
    }
}

macro_rules! table {
    (@call $address:ident ($($arg:ident : $type:ty),*) () -> $ret:ty) => {{
        // SAFETY: the symbol of this name in every C library has this type (its manual page; for
        // the fortified ones and other `__` names, glibc's headers), and so has what stands for it
        // at first.
        let function: unsafe extern "C" fn($($type),*) -> $ret = unsafe { core::mem::transmute($address) };
        // SAFETY: the caller keeps that function's contract.
        unsafe { function($($arg),*) }
    }};
    (@call $address:ident ($($arg:ident : $type:ty),*) ($($variable:ident : $kind:ty),+) -> $ret:ty) => {{
        // SAFETY: as above; the function is variadic after its named arguments. What stands for it
        // at first takes these as named ones, which are passed alike (x86-64 and aarch64 Linux).
        let function: unsafe extern "C" fn($($type),*, ...) -> $ret = unsafe { core::mem::transmute($address) };
        // SAFETY: the caller keeps that function's contract. An argument it does not look at may be
        // anything.
        unsafe { function($($arg,)* $($variable),*) }
    }};
    (@absent) => { Absent::absent() };
    (@absent $value:expr) => { $value };
    ($(
        fn $name:ident($($arg:ident : $type:ty),* $(; $($variable:ident : $kind:ty),+)?) -> $ret:ty $(= $absent:expr)?;
    )*) => {
        /// A word for each function, side by side in the order of the table: a hook's cost is the
        /// cache lines that it touches.
        #[repr(C, align(64))]
        #[allow(non_snake_case, reason = "the C names")]
        struct Addresses {
            $($name: AtomicPtr<c_void>,)*
        }

        /// What is called: the function, or what finds it first, so that a call has nothing to ask.
        static ADDRESSES: Addresses = Addresses { $($name: AtomicPtr::new(first::$name as *mut c_void),)* };

        /// Where each function is; null: not looked for yet.
        static FOUND: Addresses = Addresses { $($name: AtomicPtr::new(ptr::null_mut()),)* };

        /// What is called in place of each function until it is found, and where it is missing.
        #[allow(non_snake_case, reason = "the C names")]
        mod first {
            use super::*;
            $(
                #[cold]
                pub(super) unsafe extern "C" fn $name($($arg: $type),* $(, $($variable: $kind),+)?) -> $ret {
                    match slot::$name() {
                        Some(address) => table!(@call address ($($arg: $type),*) ($($($variable: $kind),+)?) -> $ret),
                        None => table!(@absent $($absent)?),
                    }
                }
            )*
        }

        mod slot {
            $(
                #[allow(non_snake_case, reason = "the C name")]
                pub(super) fn $name() -> Option<*mut core::ffi::c_void> {
                    const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("checked when compiled"),
                    };
                    super::get(&super::FOUND.$name, &super::ADDRESSES.$name, NAME)
                }
            )*
        }

        $(
            #[doc = concat!("The C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for that function.
            #[inline]
            #[allow(dead_code, reason = "of some only the address is taken")]
            #[allow(non_snake_case, reason = "the C name")]
            pub unsafe fn $name($($arg: $type),* $(, $($variable: $kind),+)?) -> $ret {
                // Acquire: pairs with the Release in `get`; what lies behind the pointer is the
                // loader's, and was there before either.
                let address = ADDRESSES.$name.load(Ordering::Acquire);
                table!(@call address ($($arg: $type),*) ($($($variable: $kind),+)?) -> $ret)
            }
        )*

        /// Looks up every function of the table, so that no hook has to (the loader's lock, a
        /// signal handler, a vfork child).
        pub fn resolve_all() {
            $(let _ = slot::$name();)*
        }

        /// The address of the C library's function of this name, for code that jumps there with the
        /// program's own registers.
        pub(crate) mod address {
            $(
                #[allow(dead_code, reason = "one for each line of the table")]
                #[inline]
                #[allow(non_snake_case, reason = "the C name")]
                pub(crate) fn $name() -> Option<*mut core::ffi::c_void> {
                    super::slot::$name()
                }
            )*
        }
    };
}

table! {
    // What programs call often that have nothing in a ring: one cache line.
    fn close(fd: c_int) -> c_int;
    fn open(path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn openat(at: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn openat64(at: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn fstat(fd: c_int, result: *mut c_void) -> c_int
        // SAFETY: the caller's promise.
        = wrapped(unsafe { kernel!(Sysno::fstat, fd, result) });
    fn fstat64(fd: c_int, result: *mut c_void) -> c_int
        // SAFETY: the caller's promise.
        = wrapped(unsafe { kernel!(Sysno::fstat, fd, result) });
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int;

    // Bytes.
    fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize;
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> isize;
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize;
    fn write(fd: c_int, buf: *const c_void, n: usize) -> isize;
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> isize;
    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize;
    fn recv(fd: c_int, buf: *mut c_void, n: usize, flags: c_int) -> isize;
    fn recvfrom(fd: c_int, buf: *mut c_void, n: usize, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) -> isize;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn send(fd: c_int, buf: *const c_void, n: usize, flags: c_int) -> isize;
    fn sendto(fd: c_int, buf: *const c_void, n: usize, flags: c_int, to: *const sockaddr, len: socklen_t) -> isize;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(out: c_int, from: c_int, offset: *mut off64_t, count: usize) -> isize;
    fn splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, n: usize, flags: c_uint) -> isize;
    fn __read_chk(fd: c_int, buf: *mut c_void, n: usize, room: usize) -> isize;
    fn __recv_chk(fd: c_int, buf: *mut c_void, n: usize, room: usize, flags: c_int) -> isize;
    fn __recvfrom_chk(fd: c_int, buf: *mut c_void, n: usize, room: usize, flags: c_int, from: *mut sockaddr, len: *mut socklen_t)
        -> isize;
    fn aio_read(request: *mut aiocb) -> c_int;
    fn aio_write(request: *mut aiocb) -> c_int;
    fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;

    // Descriptors.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int
        // SAFETY: takes numbers only.
        = wrapped(unsafe { kernel!(Sysno::close_range, first, last, flags) });
    fn closefrom(low: c_int) -> ()
        // SAFETY: takes numbers only.
        = drop(unsafe { close_range(low.max(0).unsigned_abs(), c_uint::MAX, 0) });
    fn dup(fd: c_int) -> c_int;
    fn dup2(old: c_int, new: c_int) -> c_int;
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int; argument: *mut c_void) -> c_int;
    fn ioctl(fd: c_int, request: libc::Ioctl; argument: *mut c_void) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn pipe(ends: *mut c_int) -> c_int;
    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int;
    fn eventfd(value: c_uint, flags: c_int) -> c_int;
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int;
    fn inotify_init() -> c_int;
    fn inotify_init1(flags: c_int) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn pidfd_open(pid: pid_t, flags: c_uint) -> c_int
        // SAFETY: takes numbers only.
        = wrapped(unsafe { kernel!(Sysno::pidfd_open, pid, flags) });
    fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int
        // SAFETY: takes numbers only.
        = wrapped(unsafe { kernel!(Sysno::pidfd_getfd, pidfd, target, flags) });

    // Sockets.
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;

    // Readiness.
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int;
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: usize) -> c_int;
    fn select(nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(
        nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int
        // SAFETY: the system call behind it, which takes the same arguments and the size of the
        // kernel's signal set.
        = wrapped(unsafe { kernel!(Sysno::epoll_pwait2, epfd, events, max, timeout, mask, KERNEL_SIGSET) });

    // Processes.
    fn setrlimit(resource: c_int, limit: *const rlimit64) -> c_int;
    fn getrlimit(resource: c_int, limit: *mut rlimit64) -> c_int;
    fn mlockall(flags: c_int) -> c_int;
    fn prlimit64(process: pid_t, resource: c_int, new: *const rlimit64, old: *mut rlimit64) -> c_int
        // SAFETY: the system call behind it, which takes the same arguments.
        = wrapped(unsafe { kernel!(Sysno::prlimit64, process, resource, new, old) });
    fn fork() -> pid_t;
    fn _Fork() -> pid_t;
    fn clone(
        start: Option<extern "C" fn(*mut c_void) -> c_int>, stack: *mut c_void, flags: c_int, argument: *mut c_void;
        parent_tid: *mut pid_t, tls: *mut c_void, child_tid: *mut pid_t
    ) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execl(path: *const c_char, first: *const c_char) -> c_int;
    fn execle(path: *const c_char, first: *const c_char) -> c_int;
    fn execlp(file: *const c_char, first: *const c_char) -> c_int;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execveat(at: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int
        // SAFETY: the system call behind it, which takes the same arguments.
        = wrapped(unsafe { kernel!(Sysno::execveat, at, path, argv, envp, flags) });
    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char, envp: *const *mut c_char
    ) -> c_int;
    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char, envp: *const *mut c_char
    ) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut posix_spawn_file_actions_t, fd: c_int, new: c_int) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    fn unshare(flags: c_int) -> c_int;
    fn setuid(user: uid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn setegid(group: gid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn capset(header: *mut c_void, data: *const c_void) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn prctl(option: c_int, second: c_ulong, third: c_ulong, fourth: c_ulong, fifth: c_ulong) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn _exit(status: c_int) -> ();
    fn _Exit(status: c_int) -> ();
    fn pthread_cancel(thread: pthread_t) -> c_int;
    fn pthread_testcancel() -> ();
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn daemon(keep_directory: c_int, keep_stdio: c_int) -> c_int;
    fn login_tty(fd: c_int) -> c_int;
    fn forkpty(fd: *mut c_int, name: *mut c_char, termios: *const termios, size: *const winsize) -> pid_t;
    fn syscall(number: c_long; a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;

    // Standard I/O.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn fclose(file: *mut FILE) -> c_int;
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE;
    fn dprintf(fd: c_int, format: *const c_char) -> c_int;
    fn __dprintf_chk(fd: c_int, flag: c_int, format: *const c_char) -> c_int;
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// Bytes in the kernel's signal set (glibc's `sigset_t` is larger, and the kernel takes only its
/// own size).
pub(crate) const KERNEL_SIGSET: usize = 8;
