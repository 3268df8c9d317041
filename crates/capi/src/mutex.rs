//! `ginnel_mutex_…`

use crate::error::{Fail, fail};
use crate::{Wait, answer, close, hand_out, handle, text};
use ginnel::{LockError, Mutex, Segment};
use std::ffi::{c_char, c_int};

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_mutex_create(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Mutex,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(Mutex::create(handle(segment)?, text(name)?)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_mutex_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Mutex,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(Mutex::open(handle(segment)?, text(name)?)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_mutex_open_or_create(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Mutex,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(Mutex::open_or_create(handle(segment)?, text(name)?)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_mutex_lock(mutex: *const Mutex, time: i64) -> c_int {
    // SAFETY: the header's promise.
    let mutex = match unsafe { handle(mutex) } {
        Ok(mutex) => mutex,
        Err(why) => return fail(why),
    };
    let locked = match Wait::of(time) {
        Wait::Not => mutex.try_lock(),
        Wait::ForEver => mutex.lock(),
        Wait::For(time) => mutex.lock_timeout(time),
    };
    // C has no guards: `ginnel_mutex_unlock` gives it back.
    match locked {
        Ok(guard) => {
            std::mem::forget(guard);
            0
        }
        Err(LockError::HolderDied(guard)) => {
            std::mem::forget(guard);
            1
        }
        Err(LockError::Failed(error)) => fail(error.into()),
    }
}

fn held(done: bool) -> Result<(), Fail> {
    if done { Ok(()) } else { Err(Fail::invalid("this thread does not hold the lock")) }
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_mutex_mark_consistent(mutex: *const Mutex) -> c_int {
    // SAFETY: the header's promise.
    answer((|| held(unsafe { handle(mutex) }?.mark_consistent()))())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_mutex_unlock(mutex: *const Mutex) -> c_int {
    // SAFETY: the header's promise.
    answer((|| held(unsafe { handle(mutex) }?.unlock()))())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_mutex_close(mutex: *mut Mutex) {
    // SAFETY: the header's promise.
    unsafe { close(mutex) };
}
