//! `ginnel_rwlock_…`

use crate::error::{Fail, fail};
use crate::{Wait, answer, close, hand_out, handle, text};
use ginnel::{LockError, LockResult, RwLock, Segment};
use std::ffi::{c_char, c_int};

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_create(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut RwLock,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(RwLock::create(handle(segment)?, text(name)?)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut RwLock,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(RwLock::open(handle(segment)?, text(name)?)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_open_or_create(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut RwLock,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(RwLock::open_or_create(handle(segment)?, text(name)?)?)) })
}

/// C has no guards: `ginnel_rwlock_unlock` gives it back.
fn locked<G>(result: LockResult<G>) -> c_int {
    match result {
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

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_read(lock: *const RwLock, time: i64) -> c_int {
    // SAFETY: the header's promise.
    let lock = match unsafe { handle(lock) } {
        Ok(lock) => lock,
        Err(why) => return fail(why),
    };
    locked(match Wait::of(time) {
        Wait::Not => lock.try_read(),
        Wait::ForEver => lock.read(),
        Wait::For(time) => lock.read_timeout(time),
    })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_write(lock: *const RwLock, time: i64) -> c_int {
    // SAFETY: the header's promise.
    let lock = match unsafe { handle(lock) } {
        Ok(lock) => lock,
        Err(why) => return fail(why),
    };
    locked(match Wait::of(time) {
        Wait::Not => lock.try_write(),
        Wait::ForEver => lock.write(),
        Wait::For(time) => lock.write_timeout(time),
    })
}

fn held(done: bool) -> Result<(), Fail> {
    if done { Ok(()) } else { Err(Fail::invalid("this thread does not hold the lock so")) }
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_mark_consistent(lock: *const RwLock) -> c_int {
    // SAFETY: the header's promise.
    answer((|| held(unsafe { handle(lock) }?.mark_consistent()))())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_unlock(lock: *const RwLock) -> c_int {
    // SAFETY: the header's promise.
    answer((|| held(unsafe { handle(lock) }?.unlock()))())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_rwlock_close(lock: *mut RwLock) {
    // SAFETY: the header's promise.
    unsafe { close(lock) };
}
