//! libginnel: the interface in C of [`ginnel`]'s named objects. `include/ginnel.h` describes every
//! function; what is here turns its arguments into those of the crate, and results into 0 or −1.
//!
//! Rules of this crate, which is all boundary:
//!
//! - A pointer that a caller gives is what the header says, or NULL where it says so. NULL
//!   elsewhere
//!   is refused with `GINNEL_EINVALID`, since it costs nothing to.
//! - A handle is a box; it lives from the call that gives it until the call that closes it.
//! - Nothing unwinds: release builds abort on a panic, and none is meant to come.

mod barrier;
mod error;
mod event;
mod memory;
mod mutex;
mod queue;
mod rwlock;
mod segment;
mod semaphore;
mod single;
mod stream;

use error::{Fail, fail};
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// What a call gives in C: 0, or −1 with the reason kept for the thread.
fn answer(result: Result<(), Fail>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(why) => fail(why),
    }
}

/// An object's descriptor, which stays its own; −1 where none can be made.
fn descriptor(made: Result<BorrowedFd<'_>, Fail>) -> c_int {
    number(made.map(as_number))
}

/// A descriptor's number alone, so that the handle need not be held for it.
fn as_number(fd: BorrowedFd<'_>) -> c_int {
    fd.as_raw_fd()
}

/// A descriptor's number, which stays the object's own; −1 where none can be made.
fn number(made: Result<c_int, Fail>) -> c_int {
    made.unwrap_or_else(fail)
}

/// A name, as C gives it.
///
/// # Safety
/// NULL, or a terminated string that lives as long as the result is used.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, Fail> {
    if name.is_null() {
        return Err(Fail::null("a name"));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| Fail::invalid("a name is UTF-8"))
}

/// What a handle stands for.
///
/// # Safety
/// NULL, or a handle of this kind that is open for as long as the result is used.
unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T, Fail> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Fail::null("a handle"))
}

/// Hands a new handle out, which is made only where there is room for it: an object that was made
/// would keep its name.
///
/// # Safety
/// `out` is NULL or writable.
unsafe fn hand_out<T>(
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Fail>,
) -> Result<(), Fail> {
    if out.is_null() {
        return Err(Fail::null("where the handle is to be put"));
    }
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: the caller's promise.
    unsafe { out.write(made) };
    Ok(())
}

/// Frees a handle; NULL is nothing.
///
/// # Safety
/// NULL, or a handle of this kind, which nobody uses any more.
unsafe fn close<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise; it came from `hand_out`.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// How long to wait.
enum Wait {
    Not,
    ForEver,
    For(Duration),
}

impl Wait {
    fn of(nanoseconds: i64) -> Self {
        match u64::try_from(nanoseconds) {
            Ok(0) => Self::Not,
            Ok(time) => Self::For(Duration::from_nanos(time)),
            Err(_) => Self::ForEver,
        }
    }
}

/// Copies a structure of options that begins with its size: what an older program does not know of
/// is zero, and what a newer one knows of must be.
///
/// # Safety
/// NULL, or readable for as many bytes as its first word says.
unsafe fn options<T: Default>(given: *const T) -> Result<T, Fail> {
    let mut options = T::default();
    if given.is_null() {
        return Ok(options);
    }
    // SAFETY: the caller's promise: it begins with its size.
    let size = unsafe { given.cast::<usize>().read() };
    if size < size_of::<usize>() || size > 4096 {
        return Err(Fail::invalid("options begin with their size, sizeof their struct"));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: readable for `size` bytes, the caller's promise; `T` is plain numbers (see its use),
    // of which any bytes are a valid value.
    unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut options).cast(), known) };
    let rest = known..size;
    // SAFETY: as above.
    let beyond = rest.into_iter().any(|at| unsafe { given.cast::<u8>().add(at).read() } != 0);
    if beyond { Err(Fail::invalid("options that this version does not know")) } else { Ok(options) }
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn ginnel_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no 0"),
        };
    VERSION.as_ptr()
}
