//! liburing's functions. It makes its system calls itself, so those that set a ring up and those
//! that submit what lies in it are watched by name (the C library's `syscall` is watched in `raw`).
//!
//! Where liburing came with a plug-in it is not among the libraries after the shim, so these are
//! not in `next`'s table: they are looked for in liburing itself, when first called.
use super::{bypass, keeping_errno};
use crate::fds::{self, Entry};
use crate::next::{errno, set_errno};
use crate::ops::uring::{self, Ring};
use core::ffi::CStr;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{c_int, c_uint, c_void};

/// A ring is about to be set up whose submissions are not looked at.
pub(super) fn used() {
    if !bypass() {
        keeping_errno(uring::used);
    }
}

/// The program submits to the ring `fd` by a system call of its own.
pub(super) fn submitting(fd: c_int, flags: c_uint) {
    /// `IORING_ENTER_REGISTERED_RING`: the number is one of the ring's own table.
    const REGISTERED_RING: c_uint = 1 << 4;
    if !bypass() && (flags & REGISTERED_RING != 0 || fds::get(fd) == Entry::Uring) {
        used();
    }
}

/// The program calls `io_uring_register` with this operation.
pub(super) fn registering(operation: c_uint) {
    if uring::registers_files(operation) {
        used();
    }
}

/// What lies in `ring` is about to be submitted.
///
/// # Safety
/// The ring is liburing's, or null.
unsafe fn submitted(ring: *const Ring) {
    // SAFETY: the caller's promise.
    if let Some(ring) = unsafe { ring.as_ref() }.filter(|_| !bypass()) {
        // SAFETY: as above.
        keeping_errno(|| unsafe { uring::look(ring) });
    }
}

/// The library of this name, if the program has it. Its handle is kept; it stays.
fn library(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: loads nothing: finds the library only where the program has it.
    NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) })
}

/// liburing's function of this name.
#[cold]
fn find(name: &CStr) -> Option<NonNull<c_void>> {
    let saved = errno();
    // Held also where it is found without them: what is found is remembered.
    let libraries = [c"liburing.so.2", c"liburing.so.1"].map(library);
    let inside = |library: NonNull<c_void>| {
        // SAFETY: a handle from dlopen, and a NUL-terminated name.
        NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
    };
    // SAFETY: the name is NUL-terminated.
    let next = NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) });
    let found = next.or_else(|| libraries.into_iter().flatten().find_map(inside));
    set_errno(saved);
    found
}

/// Is the program's liburing one whose rings look as [`Ring`] says, and whose ways to submit are
/// all below? The first had another form; a later one may have other ways.
fn is_known() -> bool {
    /// The newest that was looked at.
    const NEWEST: (c_int, c_int) = (2, 12);
    let number = |name: &CStr| {
        // SAFETY: both are functions without arguments that return an int, since liburing 2.4.
        find(name).map(|found| unsafe {
            core::mem::transmute::<NonNull<c_void>, extern "C" fn() -> c_int>(found)()
        })
    };
    let version = number(c"io_uring_major_version").zip(number(c"io_uring_minor_version"));
    library(c"liburing.so.1").is_none()
        && version.is_none_or(|version| version.0 == 2 && version <= NEWEST)
}

/// Calls liburing's function `$name`, which is remembered once it is found.
macro_rules! liburing {
    ($name:ident($($arg:ident : $type:ty),*)) => {{
        static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("checked when compiled"),
        };
        let known = NonNull::new(FOUND.load(Ordering::Acquire));
        match known.or_else(|| find(NAME).inspect(|found| FOUND.store(found.as_ptr(), Ordering::Release))) {
            Some(address) => {
                // SAFETY: the function of this name in liburing.h has this type.
                let function: unsafe extern "C" fn($($type),*) -> c_int = unsafe { core::mem::transmute(address) };
                // SAFETY: the program's own arguments.
                unsafe { function($($arg),*) }
            }
            // liburing returns its errors.
            None => -libc::ENOSYS,
        }
    }};
}

/// Those that set up `$ring` with the flags `$flags`.
macro_rules! sets_up {
    ($(fn $name:ident($($arg:ident : $type:ty),*) $ring:ident, $flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let watched = !bypass() && uring::may_watch($flags) && is_known();
            if !watched {
                used();
            }
            let done = liburing!($name($($arg: $type),*));
            if watched && done == 0 {
                // SAFETY: liburing has just filled it in.
                keeping_errno(|| uring::watch(unsafe { &*$ring }));
            }
            done
        }
    )*};
}

/// The flags of a ring's parameters, the program's own (`struct io_uring_params`: the sizes of two
/// queues, flags …).
fn flags_of(parameters: *const c_uint) -> c_uint {
    // SAFETY: the program's own argument; the third word of ten and more.
    if parameters.is_null() { c_uint::MAX } else { unsafe { parameters.add(2).read() } }
}

sets_up! {
    fn io_uring_queue_init(entries: c_uint, ring: *mut Ring, flags: c_uint) ring, flags;
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut Ring, parameters: *mut c_uint)
        ring, flags_of(parameters);
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut Ring, parameters: *mut c_uint, buffer: *mut c_void, size: usize
    ) ring, flags_of(parameters);
    fn io_uring_queue_init_try_nosqarr(
        entries: c_uint, ring: *mut Ring, parameters: *mut c_uint, buffer: *mut c_void, size: usize
    ) ring, flags_of(parameters);
}

/// A ring of the program's own, by liburing's wrapper of the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    used();
    liburing!(io_uring_setup(entries: c_uint, parameters: *mut c_void))
}

/// Those that submit what lies in a ring. (Those that wait do so with kernels before 5.11, which
/// take a time limit as a request.)
macro_rules! submits {
    ($(fn $name:ident(ring $(, $arg:ident : $type:ty)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(ring: *mut Ring $(, $arg: $type)*) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe { submitted(ring) };
            liburing!($name(ring: *mut Ring $(, $arg: $type)*))
        }
    )*};
}

submits! {
    fn io_uring_submit(ring);
    fn io_uring_submit_and_wait(ring, wait: c_uint);
    fn io_uring_submit_and_wait_timeout(ring, done: *mut c_void, wait: c_uint, limit: *mut c_void, signals: *mut c_void);
    fn io_uring_submit_and_wait_min_timeout(
        ring, done: *mut c_void, wait: c_uint, limit: *mut c_void, least: c_uint, signals: *mut c_void
    );
    fn io_uring_submit_and_wait_reg(ring, done: *mut c_void, wait: c_uint, region: c_int);
    fn io_uring_submit_and_get_events(ring);
    fn io_uring_wait_cqes(ring, done: *mut c_void, wait: c_uint, limit: *mut c_void, signals: *mut c_void);
    fn io_uring_wait_cqes_min_timeout(
        ring, done: *mut c_void, wait: c_uint, limit: *mut c_void, least: c_uint, signals: *mut c_void
    );
    fn io_uring_wait_cqe_timeout(ring, done: *mut c_void, limit: *mut c_void);
    fn __io_uring_get_cqe(ring, done: *mut c_void, submit: c_uint, wait: c_uint, signals: *mut c_void);
}

/// liburing's wrappers of the system call, which name a descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_enter(
    fd: c_uint,
    submit: c_uint,
    wait: c_uint,
    flags: c_uint,
    signals: *mut c_void,
) -> c_int {
    used();
    liburing!(io_uring_enter(fd: c_uint, submit: c_uint, wait: c_uint, flags: c_uint, signals: *mut c_void))
}

/// See [`io_uring_enter`].
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_enter2(
    fd: c_uint,
    submit: c_uint,
    wait: c_uint,
    flags: c_uint,
    argument: *mut c_void,
    size: usize,
) -> c_int {
    used();
    liburing!(io_uring_enter2(fd: c_uint, submit: c_uint, wait: c_uint, flags: c_uint, argument: *mut c_void, size: usize))
}

/// Those by which a ring gets descriptors.
macro_rules! gives_files {
    ($(fn $name:ident(ring $(, $arg:ident : $type:ty)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(ring: *mut Ring $(, $arg: $type)*) -> c_int {
            used();
            liburing!($name(ring: *mut Ring $(, $arg: $type)*))
        }
    )*};
}

gives_files! {
    fn io_uring_register_files(ring, files: *const c_int, count: c_uint);
    fn io_uring_register_files_tags(ring, files: *const c_int, tags: *const u64, count: c_uint);
    fn io_uring_register_files_update(ring, from: c_uint, files: *const c_int, count: c_uint);
    fn io_uring_register_files_update_tag(ring, from: c_uint, files: *const c_int, tags: *const u64, count: c_uint);
}

/// liburing's wrapper of the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_register(
    fd: c_uint,
    operation: c_uint,
    argument: *const c_void,
    count: c_uint,
) -> c_int {
    registering(operation);
    liburing!(io_uring_register(fd: c_uint, operation: c_uint, argument: *const c_void, count: c_uint))
}

/// The ring's descriptor is closed by a system call of liburing's own.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_queue_exit(ring: *mut Ring) {
    // SAFETY: the program's own argument.
    if let Some(ring) = unsafe { ring.as_ref() }.filter(|_| !bypass()) {
        uring::forget(ring);
    }
    liburing!(io_uring_queue_exit(ring: *mut Ring));
}

/// As [`io_uring_queue_exit`], while the ring goes on by a number of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_close_ring_fd(ring: *mut Ring) -> c_int {
    // SAFETY: the program's own argument.
    if let Some(ring) = unsafe { ring.as_ref() }.filter(|_| !bypass()) {
        uring::forget(ring);
    }
    liburing!(io_uring_close_ring_fd(ring: *mut Ring))
}
