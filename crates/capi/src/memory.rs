//! `ginnel_memory_…`

use crate::error::Fail;
use crate::{answer, close, hand_out, handle, text};
use ginnel::{Memory, Segment};
use std::ffi::{c_char, c_int, c_void};

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_create(
    segment: *const Segment,
    name: *const c_char,
    size: u64,
    out: *mut *mut Memory,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(Memory::create(handle(segment)?, text(name)?, size)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Memory,
) -> c_int {
    // SAFETY: the header's promise.
    answer(unsafe { hand_out(out, || Ok(Memory::open(handle(segment)?, text(name)?)?)) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_open_or_create(
    segment: *const Segment,
    name: *const c_char,
    size: u64,
    out: *mut *mut Memory,
) -> c_int {
    let open = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        // SAFETY: as above.
        unsafe { hand_out(out, || Ok(Memory::open_or_create(segment, name, size)?)) }
    };
    answer(open())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_read(
    memory: *const Memory,
    at: usize,
    bytes: *mut c_void,
    len: usize,
) -> c_int {
    let read = || {
        // SAFETY: the header's promise: `bytes` is writable for `len` bytes.
        let (memory, bytes) = unsafe { (handle(memory)?, bytes_mut(bytes, len)?) };
        Ok(memory.read(at, bytes)?)
    };
    answer(read())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_write(
    memory: *const Memory,
    at: usize,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    let write = || {
        // SAFETY: the header's promise: `bytes` is readable for `len` bytes.
        let (memory, bytes) = unsafe { (handle(memory)?, bytes_of(bytes, len)?) };
        Ok(memory.write(at, bytes)?)
    };
    answer(write())
}

/// The caller's own bytes, to be read.
///
/// # Safety
/// `bytes` is readable for `len` bytes and the caller's own, for as long as the result is used.
pub unsafe fn bytes_of<'a>(bytes: *const c_void, len: usize) -> Result<&'a [u8], Fail> {
    if len == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() || isize::try_from(len).is_err() {
        return Err(Fail::null("a buffer"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
}

/// The caller's own bytes, to be written.
///
/// # Safety
/// `bytes` is writable for `len` bytes and the caller's own, for as long as the result is used.
pub unsafe fn bytes_mut<'a>(bytes: *mut c_void, len: usize) -> Result<&'a mut [u8], Fail> {
    if len == 0 {
        return Ok(&mut []);
    }
    if bytes.is_null() || isize::try_from(len).is_err() {
        return Err(Fail::null("a buffer"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(bytes.cast(), len) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_data(memory: *const Memory) -> *mut c_void {
    // SAFETY: the header's promise.
    unsafe { memory.as_ref() }.map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_size(memory: *const Memory) -> usize {
    // SAFETY: the header's promise.
    unsafe { memory.as_ref() }.map_or(0, Memory::len)
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memory_close(memory: *mut Memory) {
    // SAFETY: the header's promise.
    unsafe { close(memory) };
}
