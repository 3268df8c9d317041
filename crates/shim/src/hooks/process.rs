//! Processes: fork, exec, spawn, and what else replaces descriptors wholesale.
use super::{bypass, bypass_process, in_lent_memory, keeping_errno, make::made, vfork};
use crate::next::{self, errno, set_errno};
use crate::ops::{self, fd::Kind};
use crate::own;
use core::ffi::CStr;
use core::ptr;
use libc::{FILE, c_char, c_int, c_void, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, termios, winsize};

/// The program's environment as it stands.
pub(super) fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's variable; reading the pointer is what `execv` does, too.
    unsafe { (&raw const environ).read() }
}

/// Has the handlers below run around each `fork` (also `__fork`, `daemon`, `forkpty`: all go through the C library's).
pub(super) fn watch_forks() {
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

/// Runs `fork`, a call that returns 0 in a child with its own memory, between the handlers that the C library does not run for it.
pub(super) fn forking<T: Copy + PartialOrd + From<bool>>(fork: impl FnOnce() -> T) -> T {
    fork_prepare();
    let result = fork();
    if result == T::from(false) {
        fork_child();
    } else {
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
    // SAFETY: the child's copy of what `clone` below made, at the same address; its thread is the only one.
    let Start { function, argument } = unsafe { start.cast::<Start>().read() };
    fork_child();
    function(argument)
}

/// Variadic in C; see [`fcntl`](super::fd::fcntl). Without CLONE_VM it is a fork that the C library runs no handlers for.
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
            // SAFETY: the program's own arguments, but for the function: `begin` calls the program's with its argument.
            let child = unsafe { next::clone(Some(begin), stack, flags, (&raw mut start).cast(), parent_tid, tls, child_tid) };
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

/// Before an exec of `path`, or of `fd` where `path` is null.
///
/// # Safety
/// As for `execve(2)`.
pub(super) unsafe fn executing(path: *const c_char, fd: c_int, envp: *const *const c_char) {
    // SAFETY: the caller's promise.
    unsafe {
        if !bypass_process() {
            keeping_errno(|| ops::process::executing(path, fd, envp));
        } else if in_lent_memory() {
            keeping_errno(|| ops::lent::executing(path, fd, envp));
        }
    }
}

/// An exec came back: it failed.
pub(super) fn not_executed(result: c_int) -> c_int {
    if !bypass_process() {
        keeping_errno(ops::process::not_executed);
    }
    result
}

/// Before an exec of `file`, looked for in PATH.
///
/// # Safety
/// As for `execvpe(3)`.
pub(super) unsafe fn executing_file(file: *const c_char, envp: *const *const c_char) {
    // SAFETY: the caller's promise; `executing` looks whose call it is.
    keeping_errno(|| unsafe { with_program(file, |path| executing(path, -1, envp)) });
}

/// Calls `run` with the path that `execvp` would find for `file`; not at all where there is none, for then nothing will run.
///
/// # Safety
/// `file` is null or a C string.
unsafe fn with_program(file: *const c_char, run: impl FnOnce(*const c_char)) {
    if file.is_null() {
        return;
    }
    // SAFETY: a C string by the caller's promise.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes_with_nul();
    if name.contains(&b'/') {
        return run(file);
    }
    // SAFETY: the name is a C string. The program promises not to change its environment while it looks for a program in it.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: not null, so a C string; the default is the C library's (`confstr(_CS_PATH)`).
    let path = if path.is_null() { c"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(path) } };
    let mut room = [0_u8; libc::PATH_MAX as usize];
    for folder in path.to_bytes().split(|byte| *byte == b':') {
        let joint: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        if let Some(path) = join(&mut room, &[folder, joint, name])
            && is_program(path)
        {
            return run(path);
        }
    }
}

/// The parts, one after the other; the last ends with NUL. `None` where they do not fit.
fn join(room: &mut [u8], parts: &[&[u8]]) -> Option<*const c_char> {
    let mut at = 0;
    for part in parts {
        room.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(room.as_ptr().cast())
}

/// Is there a file at `path` that may be executed?
fn is_program(path: *const c_char) -> bool {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `path` was made NUL-terminated by `join`, and `status` has room for the answer, which is read only if there is one.
    unsafe {
        libc::access(path, libc::X_OK) == 0
            && libc::stat(path, status.as_mut_ptr()) == 0
            && status.assume_init().st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executing(path, -1, envp);
        not_executed(next::execve(path, argv, envp))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executing(path, -1, environment());
        not_executed(next::execv(path, argv))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executing_file(file, environment());
        not_executed(next::execvp(file, argv))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executing_file(file, envp);
        not_executed(next::execvpe(file, argv, envp))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executing(ptr::null(), fd, envp);
        not_executed(next::fexecve(fd, argv, envp))
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execveat(
    at: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executing_at(at, path, envp, flags);
        not_executed(next::execveat(at, path, argv, envp, flags))
    }
}

/// # Safety
/// As for `execveat(2)`.
unsafe fn executing_at(at: c_int, path: *const c_char, envp: *const *const c_char, flags: c_int) {
    if path.is_null() {
        return;
    }
    // SAFETY: a C string by the caller's promise.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let (empty, absolute) = (name.len() == 1, name.first() == Some(&b'/'));
    if empty && flags & libc::AT_EMPTY_PATH != 0 {
        // SAFETY: the caller's promise.
        unsafe { executing(ptr::null(), at, envp) }
    } else if absolute || at == libc::AT_FDCWD {
        // SAFETY: the caller's promise.
        unsafe { executing(path, -1, envp) }
    } else {
        let mut digits = [0_u8; 10];
        let mut room = [0_u8; libc::PATH_MAX as usize];
        if let Some(path) = join(&mut room, &[b"/proc/self/fd/", decimal(at, &mut digits), b"/", name]) {
            // SAFETY: `join` made a C string; the rest is the caller's promise.
            unsafe { executing(path, -1, envp) }
        }
    }
}

/// The digits of a descriptor's number.
fn decimal(fd: c_int, room: &mut [u8; 10]) -> &[u8] {
    let mut rest = fd.max(0);
    let mut used = 0;
    for place in room.iter_mut().rev() {
        // A digit, so it fits.
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    room.get(10 - used..).unwrap_or_default()
}

/// Before a spawn of `path`.
///
/// # Safety
/// As for `posix_spawn(3)`.
unsafe fn spawning(path: *const c_char, envp: *const *mut c_char) {
    if !bypass_process() {
        // SAFETY: the caller's promise.
        keeping_errno(|| unsafe { ops::process::spawning(path, envp.cast()) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: *const *mut c_char,
    envp: *const *mut c_char,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        spawning(path, envp);
        next::posix_spawn(pid, path, actions, attributes, argv, envp)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: *const *mut c_char,
    envp: *const *mut c_char,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        keeping_errno(|| with_program(file, |path| spawning(path, envp)));
        next::posix_spawnp(pid, file, actions, attributes, argv, envp)
    }
}

/// The one place where a spawn says which descriptor its child will have, whatever CLOEXEC says: nearly always as standard input or
/// output, where a socket is on TCP in any case.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_adddup2(actions: *mut posix_spawn_file_actions_t, fd: c_int, new: c_int) -> c_int {
    if !bypass_process() {
        keeping_errno(|| {
            ops::io::offer(fd);
            crate::sets::lend(fd);
        });
    }
    // SAFETY: the program's own arguments.
    unsafe { next::posix_spawn_file_actions_adddup2(actions, fd, new) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the program's own arguments. Without a command nothing runs.
    unsafe {
        if !command.is_null() {
            spawning(ptr::null(), environment().cast());
        }
        next::system(command)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        spawning(ptr::null(), environment().cast());
        next::popen(command, mode)
    }
}

/// Runs a call that may need a process of one thread.
fn alone<T>(call: impl FnOnce() -> T) -> T {
    if bypass_process() { call() } else { ops::process::alone(call) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    // SAFETY: takes a number only.
    alone(|| unsafe { next::unshare(flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: takes numbers only.
    alone(|| unsafe { next::setns(fd, kind) })
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
unsafe extern "C" fn forkpty(fd: *mut c_int, name: *mut c_char, termios: *const termios, size: *const winsize) -> pid_t {
    // SAFETY: the program's own arguments.
    let child = unsafe { next::forkpty(fd, name, termios, size) };
    if child == 0 {
        standard_replaced();
    }
    child
}
