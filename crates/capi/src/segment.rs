//! `ginnel_open`, `ginnel_remove`, `ginnel_close`.

use crate::{answer, close, hand_out, handle, options, text};
use ginnel::{Options, Segment};
use std::ffi::{c_char, c_int};

/// `ginnel_options`: plain numbers.
#[repr(C)]
#[derive(Default)]
pub struct SegmentOptions {
    size: usize,
    segment_size: u64,
    existing: c_int,
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_open(
    name: *const c_char,
    given: *const SegmentOptions,
    out: *mut *mut Segment,
) -> c_int {
    let open = || {
        // SAFETY: the header's promise.
        let given = unsafe { options(given) }?;
        let mut options = Options::new().existing(given.existing != 0);
        if given.segment_size != 0 {
            options = options.size(given.segment_size);
        }
        let segment = if name.is_null() {
            options.own()
        } else {
            // SAFETY: the header's promise.
            options.open(unsafe { text(name) }?)
        };
        // SAFETY: the header's promise.
        unsafe { hand_out(out, || Ok(segment?)) }
    };
    answer(open())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_remove(segment: *const Segment, name: *const c_char) -> c_int {
    // SAFETY: the header's promise.
    answer((|| unsafe { Ok(handle(segment)?.remove(text(name)?)?) })())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_close(segment: *mut Segment) {
    // SAFETY: the header's promise.
    unsafe { close(segment) };
}
