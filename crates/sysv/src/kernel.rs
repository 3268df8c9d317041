//! The kernel's own calls: for what is not in a segment, and cannot be.

use libc::{c_int, c_long, c_void};

/// What a call gives: a value, or an `errno`.
pub(crate) type Result<T> = std::result::Result<T, c_int>;

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

fn answer(value: c_long) -> Result<c_long> {
    if value == -1 { Err(errno()) } else { Ok(value) }
}

pub(crate) fn shmget(key: c_int, size: usize, flags: c_int) -> Result<c_long> {
    // SAFETY: no memory is passed.
    answer(unsafe { libc::syscall(libc::SYS_shmget, key, size, flags) })
}

pub(crate) fn shmat(id: c_int, at: usize, flags: c_int) -> Result<c_long> {
    // SAFETY: as the program asked for it.
    answer(unsafe { libc::syscall(libc::SYS_shmat, id, at, flags) })
}

pub(crate) fn shmdt(at: usize) -> Result<c_long> {
    // SAFETY: as the program asked for it.
    answer(unsafe { libc::syscall(libc::SYS_shmdt, at) })
}

pub(crate) fn shmctl(id: c_int, command: c_int, buffer: usize) -> Result<c_long> {
    // SAFETY: the program's own arguments.
    answer(unsafe { libc::syscall(libc::SYS_shmctl, id, command, buffer) })
}

pub(crate) fn semget(key: c_int, count: c_int, flags: c_int) -> Result<c_long> {
    // SAFETY: no memory is passed.
    answer(unsafe { libc::syscall(libc::SYS_semget, key, count, flags) })
}

pub(crate) fn semtimedop(
    id: c_int,
    ops: *const libc::sembuf,
    count: usize,
    time: *const c_void,
) -> Result<c_long> {
    // SAFETY: the program's own arguments.
    answer(unsafe { libc::syscall(libc::SYS_semtimedop, id, ops, count, time) })
}

pub(crate) fn semctl(id: c_int, number: c_int, command: c_int, argument: usize) -> Result<c_long> {
    // SAFETY: the program's own arguments.
    answer(unsafe { libc::syscall(libc::SYS_semctl, id, number, command, argument) })
}
