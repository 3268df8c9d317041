//! libfabric (fabric(7), Debian's package `libfabric1`) as this switch uses it: connected endpoints
//! that carry messages, over TCP or InfiniBand's and RoCE's verbs.
//!
//! The library is opened when a fabric is configured, not linked: a switch for one host needs none.
//!
//! Rules of this module, which has all its unsafe code:
//!
//! - An object is closed once, by the `Drop` of the one structure that has it, before what it was
//!   opened in.
//! - A buffer is either ours or libfabric's. It is libfabric's from the call that sends it, or
//!   posts it to be received into, until the completion of that; nothing here touches it meanwhile.
//!   The memory of buffers is unmapped after the endpoint that may have them is closed.
//! - The same holds of machines' memory that is sent from where it is: the connection has the loan
//!   from the call that sends it until its completion, or until its endpoint is closed. Whatever
//!   the machine writes there meanwhile may be sent. Where a device must know memory, it is
//!   registered as long as a connection sends from it, and mapped as long as it is registered.
//! - Nothing that libfabric tells is used as an index, length or address unchecked: numbers come
//!   from other hosts through it.
//! - Everything is opened for use from several threads (FI_THREAD_SAFE), so that connections may be
//!   made by one thread and used by another.

mod address;
mod cache;
mod connection;
mod door;
mod fabric;
mod known;
mod send;
mod signals;

pub use cache::forget_registrations;
pub use connection::Connection;
pub use door::guard;
pub use fabric::{Event, Fabric, Info};

use ginnel_fabric_bindings as b;
use signals::Handlers;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The functions that the library exports.
#[derive(Debug, Clone, Copy)]
struct Library {
    getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const b::fi_info,
        *mut *mut b::fi_info,
    ) -> c_int,
    freeinfo: unsafe extern "C" fn(*mut b::fi_info),
    dupinfo: unsafe extern "C" fn(*const b::fi_info) -> *mut b::fi_info,
    fabric:
        unsafe extern "C" fn(*mut b::fi_fabric_attr, *mut *mut b::fid_fabric, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// Finds one function.
///
/// # Safety
/// The library's function of this name has the type `T`, which is a pointer to a function.
unsafe fn symbol<T: Copy>(library: *mut c_void, name: &CStr) -> Result<T, String> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: an open library, and a terminated name.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("libfabric has no {}: it is too old", name.to_string_lossy()));
    }
    // SAFETY: the caller's promise; both are addresses.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

/// Is the library installed?
///
/// # Errors
/// Why it cannot be used.
pub fn is_there() -> Result<(), String> {
    Library::get().map(drop)
}

impl Library {
    /// Opens the library, once. It stays open: providers may have threads in it. Where it is
    /// missing it may be installed by the next time.
    fn get() -> Result<&'static Self, String> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        match LIBRARY.get() {
            Some(library) => Ok(library),
            None => Self::open().map(|opened| LIBRARY.get_or_init(|| opened)),
        }
    }

    fn open() -> Result<Self, String> {
        static LOADING: Mutex<()> = Mutex::new(());
        // One at a time: another would take for its own what the constructors have set.
        let _alone = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        let handlers = Handlers::now();
        // SAFETY: a terminated name; libfabric's constructors are made to be loaded so.
        let library =
            unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        handlers.restore();
        if library.is_null() {
            // SAFETY: it gives null or a terminated text of this thread's.
            let why = unsafe { libc::dlerror().cast_const() };
            // SAFETY: as above; it is not null.
            let why = (!why.is_null()).then(|| unsafe { CStr::from_ptr(why) }.to_string_lossy());
            let why = why.unwrap_or_default();
            return Err(format!("libfabric is missing (Debian's package libfabric1): {why}"));
        }
        // SAFETY: types as rdma/fabric.h has them.
        unsafe {
            Ok(Self {
                getinfo: symbol(library, c"fi_getinfo")?,
                freeinfo: symbol(library, c"fi_freeinfo")?,
                dupinfo: symbol(library, c"fi_dupinfo")?,
                fabric: symbol(library, c"fi_fabric")?,
                strerror: symbol(library, c"fi_strerror")?,
            })
        }
    }

    /// What a number that libfabric gave means: negative, as it gives them, or not.
    fn error(&self, number: impl Into<i64>) -> String {
        let number = c_int::try_from(number.into().unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: it gives a terminated text that stays (fi_strerror(3)).
        let text = unsafe { CStr::from_ptr((self.strerror)(number)) };
        text.to_string_lossy().into_owned()
    }

    /// An error unless `number` is zero.
    fn check(&self, number: c_int, what: &str) -> Result<(), String> {
        if number == 0 { Ok(()) } else { Err(format!("{what}: {}", self.error(number))) }
    }
}

/// A function out of one of libfabric's tables, or that the provider has none.
fn has<T>(function: Option<T>) -> Result<T, String> {
    function.ok_or_else(|| "this provider cannot do what is needed".into())
}

/// Closes an object.
///
/// # Safety
/// It is open, nothing that was opened in it is, and nobody uses it again.
unsafe fn close(object: *mut b::fid) {
    // SAFETY: the caller's promise: every object has a table with this function.
    unsafe {
        if let Some(close) = (*(*object).ops).close {
            // What cannot be closed stays, and is not used again.
            close(object);
        }
    }
}

/// The descriptor that becomes readable when an object has something to say.
///
/// # Safety
/// The object is open, and was opened with FI_WAIT_FD.
unsafe fn descriptor(library: &Library, object: *mut b::fid) -> Result<c_int, String> {
    let mut number: c_int = -1;
    // SAFETY: the caller's promise; the request writes one number.
    unsafe {
        let control = has((*(*object).ops).control)?;
        let done = control(object, b::FI_GETWAIT as c_int, (&raw mut number).cast());
        library.check(done, "no descriptor to wait for")?;
    }
    if number < 0 { Err("no descriptor to wait for".into()) } else { Ok(number) }
}
