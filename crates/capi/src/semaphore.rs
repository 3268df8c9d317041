//! `ginnel_semaphore_…`

use crate::error::Fail;
use crate::{Wait, answer, close, descriptor, hand_out, handle, text};
use ginnel::{Permit, Segment};
use std::ffi::{c_char, c_int};
use std::sync::{Mutex, MutexGuard};

/// A handle: C names no permit, so what was acquired through it is kept here.
pub struct Semaphore {
    semaphore: ginnel::Semaphore,
    places: Mutex<Vec<usize>>,
}

impl Semaphore {
    fn new(semaphore: ginnel::Semaphore) -> Self {
        Self { semaphore, places: Mutex::default() }
    }

    fn places(&self) -> MutexGuard<'_, Vec<usize>> {
        self.places.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    fn permit(&self) -> Result<Permit<'_>, Fail> {
        let place = self.places().pop();
        let place = place.ok_or_else(|| Fail::invalid("this handle has no permit"))?;
        Ok(Permit::from_place(&self.semaphore, place))
    }
}

/// What it has is given back.
impl Drop for Semaphore {
    fn drop(&mut self) {
        while let Ok(permit) = self.permit() {
            drop(permit);
        }
    }
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_create(
    segment: *const Segment,
    name: *const c_char,
    permits: u32,
    most: u32,
    out: *mut *mut Semaphore,
) -> c_int {
    let create = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        let made = || ginnel::Semaphore::create(segment, name, permits, most);
        // SAFETY: as above.
        unsafe { hand_out(out, || Ok(Semaphore::new(made()?))) }
    };
    answer(create())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Semaphore,
) -> c_int {
    let open = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        let opened = || ginnel::Semaphore::open(segment, name);
        // SAFETY: as above.
        unsafe { hand_out(out, || Ok(Semaphore::new(opened()?))) }
    };
    answer(open())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_open_or_create(
    segment: *const Segment,
    name: *const c_char,
    permits: u32,
    most: u32,
    out: *mut *mut Semaphore,
) -> c_int {
    let open = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        let opened = || ginnel::Semaphore::open_or_create(segment, name, permits, most);
        // SAFETY: as above.
        unsafe { hand_out(out, || Ok(Semaphore::new(opened()?))) }
    };
    answer(open())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_acquire(semaphore: *const Semaphore, time: i64) -> c_int {
    let acquire = || {
        // SAFETY: the header's promise.
        let of = unsafe { handle(semaphore) }?;
        let permit = match Wait::of(time) {
            Wait::Not => of.semaphore.try_acquire(),
            Wait::ForEver => of.semaphore.acquire(),
            Wait::For(time) => of.semaphore.acquire_timeout(time),
        };
        let place = permit?.into_place();
        of.places().push(place);
        Ok(())
    };
    answer(acquire())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_release(semaphore: *const Semaphore) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { handle(semaphore) }.and_then(Semaphore::permit).map(drop))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_use_up(semaphore: *const Semaphore) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { handle(semaphore) }.and_then(Semaphore::permit).map(Permit::use_up))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_add(semaphore: *const Semaphore, count: u32) -> c_int {
    // SAFETY: the header's promise.
    answer((|| Ok(unsafe { handle(semaphore) }?.semaphore.add(count)?))())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_available(semaphore: *const Semaphore) -> u32 {
    // SAFETY: the header's promise.
    unsafe { semaphore.as_ref() }.map_or(0, |of| of.semaphore.available())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_fd(semaphore: *const Semaphore) -> c_int {
    // SAFETY: the header's promise.
    descriptor(
        unsafe { handle(semaphore) }.and_then(|semaphore| Ok(semaphore.semaphore.descriptor()?)),
    )
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_semaphore_close(semaphore: *mut Semaphore) {
    // SAFETY: the header's promise.
    unsafe { close(semaphore) };
}
