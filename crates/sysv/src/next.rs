//! The functions that this library's stand for: those that the loader would have given to the
//! program.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One of them, by its name.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<libc::c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Looks for it. No program calls what its C library does not have: null then.
    pub fn find(&self) -> *mut libc::c_void {
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: a terminated name.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Release);
        }
        found
    }
}
