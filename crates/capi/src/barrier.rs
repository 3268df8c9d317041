//! `ginnel_barrier_…`

use crate::error::fail;
use crate::single::Single;
use crate::{Wait, answer, close, hand_out, handle, text};
use ginnel::Segment;
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// A handle.
pub type Barrier = Single<ginnel::Barrier>;

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_barrier_create(
    segment: *const Segment,
    name: *const c_char,
    parties: u32,
    out: *mut *mut Barrier,
) -> c_int {
    let create = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        // SAFETY: as above.
        unsafe {
            hand_out(out, || Ok(Single::new(ginnel::Barrier::create(segment, name, parties)?)))
        }
    };
    answer(create())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_barrier_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Barrier,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe {
        hand_out(out, || Ok(Single::new(ginnel::Barrier::open(handle(segment)?, text(name)?)?)))
    })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_barrier_open_or_create(
    segment: *const Segment,
    name: *const c_char,
    parties: u32,
    out: *mut *mut Barrier,
) -> c_int {
    let open = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        // SAFETY: as above.
        unsafe {
            hand_out(out, || {
                Ok(Single::new(ginnel::Barrier::open_or_create(segment, name, parties)?))
            })
        }
    };
    answer(open())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_barrier_wait(barrier: *mut Barrier, time: i64) -> c_int {
    let wait = || {
        // SAFETY: the header's promise.
        let mut turn = unsafe { handle(barrier.cast_const()) }?.turn()?;
        let barrier = turn.get();
        Ok(match Wait::of(time) {
            Wait::Not => barrier.wait_timeout(Duration::ZERO),
            Wait::ForEver => barrier.wait(),
            Wait::For(time) => barrier.wait_timeout(time),
        }?)
    };
    wait().map_or_else(fail, c_int::from)
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_barrier_close(barrier: *mut Barrier) {
    // SAFETY: the header's promise.
    unsafe { close(barrier) };
}
