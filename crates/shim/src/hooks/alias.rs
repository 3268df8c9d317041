//! Other names under which the C library exports the same functions.
use super::{exec, fd, io, limits, make, process, ready, sock, stdio};
use libc::{
    FILE, c_char, c_int, c_void, fd_set, iovec, nfds_t, off64_t, pid_t, pollfd, rlimit64, sockaddr,
    socklen_t, timeval,
};

/// Each alias is the named hook of the named module, with the same arguments.
macro_rules! aliases {
    ($(fn $alias:ident($($arg:ident : $type:ty),*) -> $ret:ty = $module:ident::$hook:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $alias($($arg: $type),*) -> $ret {
                // SAFETY: the program's own arguments; the two names have one contract.
                unsafe { $module::$hook($($arg),*) }
            }
        )*
    };
}

aliases! {
    fn __read(fd: c_int, buf: *mut c_void, n: usize) -> isize = io::read;
    fn __write(fd: c_int, buf: *const c_void, n: usize) -> isize = io::write;
    fn __send(fd: c_int, buf: *const c_void, n: usize, flags: c_int) -> isize = io::send;
    // The 64-bit names differ only where `off_t` has 32 bits.
    fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> isize = io::preadv2;
    fn pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> isize = io::pwritev2;
    fn sendfile64(out: c_int, from: c_int, offset: *mut off64_t, count: usize) -> isize = io::sendfile;
    fn __close(fd: c_int) -> c_int = fd::close;
    fn __dup2(old: c_int, new: c_int) -> c_int = fd::dup2;
    fn __fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int = fd::fcntl;
    fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int = fd::fcntl;
    fn __pipe(ends: *mut c_int) -> c_int = make::pipe;
    fn __connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int = sock::connect;
    fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = ready::poll;
    fn __select(nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int
        = ready::select;
    fn __clone(
        function: Option<extern "C" fn(*mut c_void) -> c_int>, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_tid: *mut pid_t, tls: *mut c_void, child_tid: *mut pid_t
    ) -> c_int = process::clone;
    fn setrlimit64(resource: c_int, limit: *const rlimit64) -> c_int = limits::setrlimit;
    fn getrlimit64(resource: c_int, limit: *mut rlimit64) -> c_int = limits::getrlimit;
    fn prlimit(process: pid_t, resource: c_int, new: *const rlimit64, old: *mut rlimit64) -> c_int = limits::prlimit64;
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = stdio::fdopen;
    fn _IO_fclose(file: *mut FILE) -> c_int = stdio::fclose;
    fn _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE = exec::popen;
}
