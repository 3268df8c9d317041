//! Processes: fork, namespaces, the end, and what else replaces descriptors wholesale.
use super::{bypass, bypass_process, identity, keeping_errno, make::made, vfork};
use crate::identity::Reach;
use crate::next::{self, errno, set_errno};
use crate::ops::{self, fd::Kind};
use crate::own;
use ginnel_node::life::forks;
use libc::{c_char, c_int, c_void, pid_t, termios, winsize};

/// Has the handlers below run around each `fork` (also `__fork`, `daemon`, `forkpty`: all go
/// through the C library's).
pub(crate) fn watch_forks() {
    forks::heed();
    // SAFETY: the handlers live as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(fork_prepare), Some(fork_parent), Some(fork_child)) };
}

extern "C" fn fork_prepare() {
    if !bypass() {
        keeping_errno(ops::process::fork_prepare);
    }
}

extern "C" fn fork_parent() {
    if !bypass() {
        keeping_errno(ops::process::fork_parent);
    }
}

extern "C" fn fork_child() {
    vfork::forget_others();
    if !bypass() {
        keeping_errno(ops::process::fork_child);
    }
}

/// Runs `fork`, a call that returns 0 in a child with its own memory, between the handlers that the
/// C library does not run for it.
pub(super) fn forking<T: Copy + PartialOrd + From<bool>>(fork: impl FnOnce() -> T) -> T {
    fork_prepare();
    forks::before();
    let result = fork();
    if result == T::from(false) {
        forks::in_child();
        fork_child();
    } else {
        forks::after();
        fork_parent();
        failed(result < T::from(false));
    }
    result
}

/// After the parent's handler, which the C library runs also where there is no child.
fn failed(failed: bool) {
    if failed && !bypass() {
        keeping_errno(ops::process::fork_failed);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: the program's own call.
    let child = unsafe { next::fork() };
    failed(child < 0);
    child
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> pid_t {
    // SAFETY: the program's own call.
    forking(|| unsafe { next::_Fork() })
}

/// What a cloned child runs first.
struct Start {
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

extern "C" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: the child's copy of what `clone` below made, at the same address; its thread is the
    // only one.
    let Start { function, argument } = unsafe { start.cast::<Start>().read() };
    forks::in_child();
    fork_child();
    function(argument)
}

/// Variadic in C; see [`fcntl`](super::fd::fcntl). Without CLONE_VM it is a fork that the C library
/// runs no handlers for.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn clone(
    function: Option<extern "C" fn(*mut c_void) -> c_int>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut pid_t,
    tls: *mut c_void,
    child_tid: *mut pid_t,
) -> c_int {
    match function {
        Some(function) if flags & libc::CLONE_VM == 0 && !bypass_process() => {
            let mut start = Start { function, argument };
            fork_prepare();
            forks::before();
            // SAFETY: the program's own arguments, but for the function: `begin` calls the
            // program's with its argument.
            let child = unsafe {
                next::clone(
                    Some(begin),
                    stack,
                    flags,
                    (&raw mut start).cast(),
                    parent_tid,
                    tls,
                    child_tid,
                )
            };
            forks::after();
            fork_parent();
            failed(child < 0);
            child
        }
        _ => {
            if flags & libc::CLONE_VM != 0 {
                own::lend();
                if flags & libc::CLONE_FILES == 0 && !bypass_process() {
                    keeping_errno(crate::sets::lend_inherited);
                }
            }
            // SAFETY: the program's own arguments.
            unsafe { next::clone(function, stack, flags, argument, parent_tid, tls, child_tid) }
        }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_FILES != 0 && !bypass_process() {
        identity::parting_tables();
    }
    // SAFETY: takes a number only.
    identity::changing_thread(Reach::Thread, || unsafe { next::unshare(flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: takes numbers only.
    identity::changing_thread(Reach::Thread, || unsafe { next::setns(fd, kind) })
}

/// The process ends here, without the handlers that `exit` runs.
pub(super) fn ending() {
    if !bypass_process() {
        ops::process::finish_all();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    ending();
    loop {
        // SAFETY: takes a number only.
        unsafe { next::_exit(status) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    ending();
    loop {
        // SAFETY: takes a number only.
        unsafe { next::_Exit(status) };
    }
}

/// Descriptors 0 to 2 were replaced inside the C library.
fn standard_replaced() {
    let saved = errno();
    for fd in 0..=2 {
        made(fd, Kind::Other);
    }
    set_errno(saved);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn daemon(keep_directory: c_int, keep_stdio: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let result = unsafe { next::daemon(keep_directory, keep_stdio) };
    if result == 0 && keep_stdio == 0 {
        standard_replaced();
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn login_tty(fd: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let result = unsafe { next::login_tty(fd) };
    if result == 0 {
        standard_replaced();
        // It was closed.
        made(fd, Kind::Other);
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn forkpty(
    fd: *mut c_int,
    name: *mut c_char,
    termios: *const termios,
    size: *const winsize,
) -> pid_t {
    // SAFETY: the program's own arguments.
    let child = unsafe { next::forkpty(fd, name, termios, size) };
    if child == 0 {
        standard_replaced();
    }
    child
}
