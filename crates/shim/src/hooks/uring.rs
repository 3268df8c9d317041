//! io_uring moves bytes and closes descriptors where no hook is. liburing makes its system calls itself, so its functions that set a ring
//! up are watched by name (the C library's `syscall` is watched in `raw`).
//!
//! Where liburing came with a plug-in it is not among the libraries after the shim, so these are not in `next`'s table: they are looked
//! for in liburing itself, when called.
use super::{bypass, keeping_errno};
use crate::next::{errno, set_errno};
use crate::ops;
use core::ffi::CStr;
use core::ptr::NonNull;
use libc::{c_int, c_uint, c_void};

/// A ring is about to be set up.
pub(super) fn used() {
    if !bypass() {
        keeping_errno(ops::process::io_uring_used);
    }
}

/// liburing's function of this name.
#[cold]
fn find(name: &CStr) -> Option<NonNull<c_void>> {
    let saved = errno();
    // SAFETY: the name is NUL-terminated.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    for library in [c"liburing.so.2", c"liburing.so.1"] {
        if found.is_null() {
            // SAFETY: loads nothing: finds the library only where the program has it. The handle is kept; the library stays.
            let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if !handle.is_null() {
                // SAFETY: a handle from dlopen, and a NUL-terminated name.
                found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            }
        }
    }
    set_errno(saved);
    NonNull::new(found)
}

macro_rules! watched {
    ($(fn $name:ident($($arg:ident : $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("checked when compiled"),
                };
                used();
                // liburing returns its errors.
                let Some(address) = find(NAME) else { return -libc::ENOSYS };
                // SAFETY: the function of this name in liburing.h has this type.
                let function: unsafe extern "C" fn($($type),*) -> c_int = unsafe { core::mem::transmute(address) };
                // SAFETY: the program's own arguments.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

watched! {
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: usize);
    fn io_uring_queue_init_try_nosqarr(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: usize
    );
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void);
}
