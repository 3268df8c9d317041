//! The C entry points: the functions that the loader gives to the program instead of the C
//! library's.
//!
//! Each is a few lines. Signals of the thread wait until the call is over, but where it sleeps.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of each is the manual page of the C function it stands for"
)]

use crate::kernel::Result;
use crate::{memory, semaphores};
use ginnel::sysv;
use ginnel_region::sys::{SignalsBlocked, block_signals};
use libc::{c_int, c_void};

/// `value`, or −1 and `errno`.
fn answer<T>(result: Result<T>, failed: T) -> T {
    result.unwrap_or_else(|errno| {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = errno };
        failed
    })
}

/// Makes a call with the thread's signals waiting. The C library's `errno` is as before where it
/// succeeds. A handler that makes one ends the call in which its thread sleeps.
fn call<T>(failed: T, call: impl FnOnce(&SignalsBlocked) -> Result<T>) -> T {
    // SAFETY: the thread's own.
    let before = unsafe { *libc::__errno_location() };
    let signals = block_signals();
    sysv::interrupted();
    let result = call(&signals);
    drop(signals);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    answer(result, failed)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shmget(key: libc::key_t, size: usize, flags: c_int) -> c_int {
    call(-1, |_| memory::get(key, size, flags).map(|id| id as c_int))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
    call(usize::MAX, |_| memory::attach(id, at as usize, flags)) as *mut c_void
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shmdt(at: *const c_void) -> c_int {
    call(-1, |_| memory::detach(at as usize).map(|done| done as c_int))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn shmctl(
    id: c_int,
    command: c_int,
    buffer: *mut libc::shmid_ds,
) -> c_int {
    call(-1, |_| memory::control(id, command, buffer as usize).map(|done| done as c_int))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn semget(key: libc::key_t, count: c_int, flags: c_int) -> c_int {
    call(-1, |_| semaphores::get(key, count, flags).map(|id| id as c_int))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn semop(id: c_int, ops: *mut libc::sembuf, count: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { semtimedop(id, ops, count, std::ptr::null()) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn semtimedop(
    id: c_int,
    ops: *mut libc::sembuf,
    count: usize,
    time: *const libc::timespec,
) -> c_int {
    // SAFETY: the program's own arguments.
    let quick = || unsafe { semaphores::quick(id, ops) };
    if count == 1
        && time.is_null()
        && let Some(done) = quick()
    {
        return answer(done.map(|()| 0), -1);
    }
    call(-1, |signals| {
        // SAFETY: the program's own arguments.
        unsafe { semaphores::operate(id, ops, count, time, signals) }.map(|done| done as c_int)
    })
}

/// Variadic in C: the fourth argument, which some commands do without, comes in the same register.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn semctl(
    id: c_int,
    number: c_int,
    command: c_int,
    argument: usize,
) -> c_int {
    if let Some(value) = semaphores::quick_look(id, number, command) {
        return value;
    }
    call(-1, |signals| {
        // SAFETY: the program's own arguments.
        unsafe { semaphores::control(id, number, command, argument, signals) }
            .map(|done| done as c_int)
    })
}
