//! Processes: fork, exec, descriptors passed to others, io_uring.
use libc::{c_char, c_int};

/// The library was loaded (constructor), or a hook ran before that.
pub fn started() {}

/// Before `fork` (pthread_atfork prepare).
pub fn fork_prepare() {}
/// After `fork`, in the parent.
pub fn fork_parent() {}
/// After `fork`, in the child.
pub fn fork_child() {}

/// Before an `exec*` of `path` (null for fexecve of `fd`) with environment `envp`: where the new program will not have the shim (static, setuid, LD_PRELOAD gone),
/// sockets that survive the exec are handed over.
///
/// # Safety
/// As for `execve`.
pub unsafe fn executing(_path: *const c_char, _fd: c_int, _envp: *const *const c_char) {}

/// Before `posix_spawn`, `system`, `popen` of a program: likewise. `path` null: /bin/sh.
///
/// # Safety
/// As for `posix_spawn`.
pub unsafe fn spawning(_path: *const c_char, _envp: *const *const c_char) {}

/// `fds` are about to be sent as SCM_RIGHTS over the unix socket `over`.
pub fn sending_fds(_over: c_int, _fds: &[c_int]) {}
/// `fds` were just received as SCM_RIGHTS.
pub fn received_fds(_fds: &[c_int]) {}

/// The program sets up an io_uring: nothing is upgraded in this process from here on, and what was is handed over.
pub fn io_uring_used() {}

/// Is this the process that the shim's private memory belongs to? False in a vfork child: hooks pass straight through.
pub fn is_own_memory() -> bool {
    true
}
