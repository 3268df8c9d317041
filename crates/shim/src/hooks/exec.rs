//! Programs: the `exec` family, `posix_spawn`, `system`, `popen`.

mod spawn;

use super::path::{decimal, join, with_program};
use super::{bypass_process, environment, in_lent_memory, keeping_errno};
use crate::next;
use crate::ops::{self, program::Program};
use core::ffi::CStr;
use core::ptr;
use libc::{FILE, c_char, c_int};
use spawn::spawning;

/// What `system` and `popen` run.
const SHELL: &CStr = c"/bin/sh";

/// Before an exec of `program`. A child of `vfork`, say, only has the parent know.
fn executing(program: Program) {
    if !bypass_process() {
        keeping_errno(|| ops::process::executing(program));
    } else if in_lent_memory() {
        keeping_errno(|| ops::lent::executing(program));
    }
}

/// An exec of `program` (`None`: there is no such program) with the environment `envp`: `exec` is
/// called with the one that it is to have, and returns only where that failed.
///
/// # Safety
/// `envp` is null or a null-terminated array of strings.
unsafe fn executes(
    program: Option<Program>,
    envp: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    let Some(program) = program.map(Program::itself) else { return exec(envp) };
    executing(program);
    // SAFETY: the caller's promise.
    let result = unsafe { environment::for_program(program, envp, exec) };
    if !bypass_process() {
        keeping_errno(ops::process::not_executed);
    }
    result
}

/// Has the loader executed in the place of the program at `path`, where that is the way for it.
/// `start` executes the file that it is given, with that environment; `None`: the program is to be
/// executed itself.
///
/// # Safety
/// As for `execve(2)`.
#[cfg(target_arch = "x86_64")]
unsafe fn by_loader<T>(
    program: &mut Option<Program>,
    path: *const c_char,
    envp: *const *const c_char,
    start: impl FnOnce(*const c_char, *const *const c_char) -> Option<T>,
) -> Option<T> {
    let found = program.filter(|program| program.is_loaded())?;
    // SAFETY: the caller's promise: `path` is a string, since the program was found by it.
    let path = unsafe { CStr::from_ptr(path) };
    let started = crate::loader::for_program(path).and_then(|loader| {
        // SAFETY: the caller's promise.
        unsafe { environment::for_loader(found, path, envp, |envp| start(loader.as_ptr(), envp)) }
    });
    *program = Some(found.itself());
    started.flatten()
}

/// [`by_loader`], to become the program: returns where that failed, or is not the way.
///
/// # Safety
/// As for `execve(2)`.
#[cfg(target_arch = "x86_64")]
unsafe fn becomes_loader(
    program: &mut Option<Program>,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) {
    let Some(found) = program.filter(|program| program.is_loaded()) else { return };
    executing(found);
    // SAFETY: the caller's promise.
    let _: Option<()> = unsafe {
        by_loader(program, path, envp, |loader, envp| {
            next::execve(loader, argv, envp);
            None
        })
    };
    if !bypass_process() {
        keeping_errno(ops::process::not_executed);
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn by_loader<T>(
    _: &mut Option<Program>,
    _: *const c_char,
    _: *const *const c_char,
    _: impl FnOnce(*const c_char, *const *const c_char) -> Option<T>,
) -> Option<T> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn becomes_loader(
    _: &mut Option<Program>,
    _: *const c_char,
    _: *const *const c_char,
    _: *const *const c_char,
) {
}

/// Before an exec of the program at `path` that the C library does itself.
///
/// # Safety
/// As for `execve(2)`.
pub(super) unsafe fn begins(path: *const c_char, envp: *const *const c_char) {
    // SAFETY: the caller's promise.
    if let Some(program) = unsafe { at_path(path, envp) } {
        executing(program.itself());
    }
}

/// Likewise of the program that `file` is found to be in PATH.
///
/// # Safety
/// As for `execvpe(3)`.
pub(super) unsafe fn begins_in_path(file: *const c_char, envp: *const *const c_char) {
    // SAFETY: the caller's promise.
    if let Some(program) = unsafe { in_path(file, envp) } {
        executing(program.itself());
    }
}

/// The program at `path`.
///
/// # Safety
/// As for `execve(2)`.
unsafe fn at_path(path: *const c_char, envp: *const *const c_char) -> Option<Program> {
    // SAFETY: the caller's promise.
    (!path.is_null()).then(|| unsafe { Program::of(path, -1, envp) })
}

/// The program that `file` is found to be in PATH.
///
/// # Safety
/// As for `execvpe(3)`.
unsafe fn in_path(file: *const c_char, envp: *const *const c_char) -> Option<Program> {
    let mut program = None;
    // SAFETY: the caller's promise.
    keeping_errno(|| unsafe { with_program(file, |path| program = at_path(path, envp)) });
    program
}

/// [`in_path`] for an exec, where the loader has not been executed in its place.
///
/// # Safety
/// As for `execvpe(3)`.
unsafe fn in_path_or_loaded(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> Option<Program> {
    let mut program = None;
    let run = |path| {
        // SAFETY: the caller's promise, and a path that was found.
        unsafe {
            program = at_path(path, envp);
            becomes_loader(&mut program, path, argv, envp);
        }
    };
    // SAFETY: the caller's promise.
    keeping_errno(|| unsafe { with_program(file, run) });
    program
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let mut program = at_path(path, envp);
        becomes_loader(&mut program, path, argv, envp);
        executes(program, envp, |envp| next::execve(path, argv, envp))
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    let own = environment::own();
    // SAFETY: the program's own arguments, and environment.
    unsafe {
        let mut program = at_path(path, own);
        becomes_loader(&mut program, path, argv, own);
        executes(program, own, |envp| {
            if envp == own { next::execv(path, argv) } else { next::execve(path, argv, envp) }
        })
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    let own = environment::own();
    // SAFETY: the program's own arguments, and environment.
    unsafe {
        executes(in_path_or_loaded(file, argv, own), own, |envp| {
            if envp == own { next::execvp(file, argv) } else { next::execvpe(file, argv, envp) }
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executes(in_path_or_loaded(file, argv, envp), envp, |envp| next::execvpe(file, argv, envp))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(
    fd: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        executes(Some(Program::of(ptr::null(), fd, envp)), envp, |envp| {
            next::fexecve(fd, argv, envp)
        })
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
        executes(relative(at, path, envp, flags), envp, |envp| {
            next::execveat(at, path, argv, envp, flags)
        })
    }
}

/// The program that `execveat` would execute.
///
/// # Safety
/// As for `execveat(2)`.
unsafe fn relative(
    at: c_int,
    path: *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> Option<Program> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string by the caller's promise.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let (empty, absolute) = (name.len() == 1, name.first() == Some(&b'/'));
    if empty && flags & libc::AT_EMPTY_PATH != 0 {
        // SAFETY: the caller's promise.
        return Some(unsafe { Program::of(ptr::null(), at, envp) });
    }
    if absolute || at == libc::AT_FDCWD {
        // SAFETY: the caller's promise.
        return unsafe { at_path(path, envp) };
    }
    let mut digits = [0_u8; 10];
    let mut room = [0_u8; libc::PATH_MAX as usize];
    let joint = join(&mut room, &[b"/proc/thread-self/fd/", decimal(at, &mut digits), b"/", name]);
    // SAFETY: `join` made a C string; the rest is the caller's promise.
    joint.and_then(|path| unsafe { at_path(path, envp) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the program's own arguments. Without a command nothing runs.
    unsafe {
        if !command.is_null() {
            spawning(Program::of(SHELL.as_ptr(), -1, environment::own()));
        }
        next::system(command)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        spawning(Program::of(SHELL.as_ptr(), -1, environment::own()));
        next::popen(command, mode)
    }
}
