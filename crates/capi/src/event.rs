//! `ginnel_event_…`

use crate::error::{Fail, fail};
use crate::{Wait, answer, close, descriptor, hand_out, handle, text};
use ginnel::{Event, Reset, Segment};
use std::ffi::{c_char, c_int};

fn reset_of(number: c_int) -> Result<Reset, Fail> {
    match number {
        0 => Ok(Reset::Manual),
        1 => Ok(Reset::Auto),
        _ => Err(Fail::invalid("no such way to reset an event")),
    }
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_create(
    segment: *const Segment,
    name: *const c_char,
    reset: c_int,
    out: *mut *mut Event,
) -> c_int {
    let create = || {
        let reset = reset_of(reset)?;
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        // SAFETY: as above.
        unsafe { hand_out(out, || Ok(Event::create(segment, name, reset)?)) }
    };
    answer(create())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Event,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(Event::open(handle(segment)?, text(name)?)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_open_or_create(
    segment: *const Segment,
    name: *const c_char,
    reset: c_int,
    out: *mut *mut Event,
) -> c_int {
    let open = || {
        let reset = reset_of(reset)?;
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        // SAFETY: as above.
        unsafe { hand_out(out, || Ok(Event::open_or_create(segment, name, reset)?)) }
    };
    answer(open())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_set(event: *const Event) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { handle(event) }.and_then(|event| Ok(event.set()?)))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_reset(event: *const Event) -> c_int {
    // SAFETY: the header's promise.
    let reset = unsafe { handle(event) }.and_then(|event| Ok(event.reset()?));
    reset.map_or_else(fail, c_int::from)
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_wait(event: *const Event, time: i64) -> c_int {
    let wait = |event: &Event| match Wait::of(time) {
        Wait::Not => event.try_wait(),
        Wait::ForEver => event.wait(),
        Wait::For(time) => event.wait_timeout(time),
    };
    // SAFETY: the header's promise.
    answer(unsafe { handle(event) }.and_then(|event| Ok(wait(event)?)))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_is_set(event: *const Event) -> c_int {
    // SAFETY: the header's promise.
    unsafe { event.as_ref() }.map_or(0, |event| event.is_set().into())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_fd(event: *const Event) -> c_int {
    // SAFETY: the header's promise.
    descriptor(unsafe { handle(event) }.and_then(|event| Ok(event.descriptor()?)))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_event_close(event: *mut Event) {
    // SAFETY: the header's promise.
    unsafe { close(event) };
}
