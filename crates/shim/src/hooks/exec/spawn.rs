//! `posix_spawn` and its kin.

use super::{at_path, by_loader, in_path};
use crate::hooks::path::with_program;
use crate::hooks::{bypass_process, environment, keeping_errno};
use crate::ops::program::Program;
use crate::{next, ops};
use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

/// A spawn of `program` with the environment `envp`, by `spawn` with the one that it is to have.
///
/// # Safety
/// `envp` is null or a null-terminated array of strings.
unsafe fn spawns<T>(
    program: Option<Program>,
    envp: *const *mut c_char,
    spawn: impl FnOnce(*const *mut c_char) -> T,
) -> T {
    let Some(program) = program.map(Program::itself) else { return spawn(envp) };
    spawning(program);
    // SAFETY: the caller's promise.
    unsafe { environment::for_program(program, envp.cast(), |envp| spawn(envp.cast())) }
}

/// Has the loader spawned in a program's place, where that is the way for it. False: the program is
/// to be spawned itself.
///
/// # Safety
/// As for `posix_spawn(3)`.
unsafe fn spawns_loader(
    program: &mut Option<Program>,
    path: *const c_char,
    envp: *const *mut c_char,
    spawn: impl FnOnce(*const c_char, *const *mut c_char) -> c_int,
) -> bool {
    let Some(found) = program.filter(|program| program.is_loaded()) else { return false };
    spawning(found);
    let start =
        |loader, envp: *const *const c_char| (spawn(loader, envp.cast()) == 0).then_some(());
    // SAFETY: the caller's promise.
    unsafe { by_loader(program, path, envp.cast(), start) }.is_some()
}

pub(super) fn spawning(program: Program) {
    if !bypass_process() {
        keeping_errno(|| ops::process::spawning(program));
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
        let mut program = at_path(path, envp.cast());
        let spawn = |path, envp: *const *mut c_char| {
            next::posix_spawn(pid, path, actions, attributes, argv, envp)
        };
        if spawns_loader(&mut program, path, envp, spawn) {
            return 0;
        }
        spawns(program, envp, |envp| spawn(path, envp))
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
        let mut program = in_path(file, envp.cast());
        let mut spawned = false;
        let spawn = |path, envp: *const *mut c_char| {
            next::posix_spawn(pid, path, actions, attributes, argv, envp)
        };
        if program.is_some_and(Program::is_loaded) {
            with_program(file, |path| spawned = spawns_loader(&mut program, path, envp, spawn));
        }
        if spawned {
            return 0;
        }
        spawns(program, envp, |envp| next::posix_spawnp(pid, file, actions, attributes, argv, envp))
    }
}

/// The one place where a spawn says which descriptor its child will have, whatever CLOEXEC says:
/// nearly always as standard input or output, where a socket is on TCP in any case.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut posix_spawn_file_actions_t,
    fd: c_int,
    new: c_int,
) -> c_int {
    if !bypass_process() {
        keeping_errno(|| {
            ops::io::offer(fd);
            crate::sets::lend(fd);
        });
    }
    // SAFETY: the program's own arguments.
    unsafe { next::posix_spawn_file_actions_adddup2(actions, fd, new) }
}
