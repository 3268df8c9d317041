//! How a function of the C library is found: once, when it is first called.

use super::{errno, set_errno};
use crate::symbols;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::c_void;

/// In [`FOUND`]: looked for, and not there. Not an address that a function can have.
const MISSING: *mut c_void = ptr::without_provenance_mut(1);

/// The function's address, which is what is `called` from now on, or `None` where the C library
/// lacks it.
pub(super) fn get(
    at: &AtomicPtr<c_void>,
    called: &AtomicPtr<c_void>,
    name: &'static CStr,
) -> Option<*mut c_void> {
    let address = at.load(Ordering::Acquire);
    let found = if address.addr() > MISSING.addr() { Some(address) } else { resolve(at, name) };
    if let Some(function) = found.filter(|&function| function != called.load(Ordering::Relaxed)) {
        called.store(function, Ordering::Release);
    }
    found
}

fn resolve(at: &AtomicPtr<c_void>, name: &'static CStr) -> Option<*mut c_void> {
    if at.load(Ordering::Relaxed) == MISSING {
        return None;
    }
    let saved = errno();
    let mut found = symbols::next(name);
    if found.is_null() {
        // SAFETY: the name is NUL-terminated, and RTLD_NEXT is judged by this call's place in the
        // shim.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    }
    if found.is_null() && cfg!(target_env = "musl") {
        found = without_64(name);
    }
    if found.is_null() {
        // SAFETY: takes our failure out of dlerror's hands, so that the program does not read it as
        // its own.
        unsafe { libc::dlerror() };
        found = MISSING;
    }
    at.store(found, Ordering::Release);
    set_errno(saved);
    (found != MISSING).then_some(found)
}

/// musl's functions are of 64 bits by their plain names, and newer ones have no others.
fn without_64(name: &CStr) -> *mut c_void {
    let mut plain = [0; 32];
    let (Some(stem), true) =
        (name.to_bytes().strip_suffix(b"64"), name.count_bytes() < plain.len())
    else {
        return ptr::null_mut();
    };
    for (to, from) in plain.iter_mut().zip(stem) {
        *to = *from;
    }
    // SAFETY: as in `resolve`; the rest of the array is zeroes.
    unsafe { libc::dlsym(libc::RTLD_NEXT, plain.as_ptr().cast()) }
}
