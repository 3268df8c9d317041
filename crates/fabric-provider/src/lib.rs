//! `libginnel-fi.so`: a provider that libfabric loads, by which programs on libfabric send
//! messages, read and write each other's memory through a segment of Ginnel's.
//!
//! libfabric's functions are inline in its headers and call through tables of functions, which the
//! objects here carry: each begins with libfabric's own structure (`fid_ep`, `fid_cq`, …), behind
//! which lies what this provider knows of it. The tables are laid out as in libfabric 1.17, Debian
//! 12's; each says how long it is, which is how later versions know what it lacks.
//!
//! | module | part |
//! |---|---|
//! | [`info`] | what the provider can do, and which of it was asked for |
//! | [`fabric`], [`domain`] | the objects that others are made in |
//! | [`objects`] | what everything in a domain shares, and where it finds that |
//! | [`state`] | endpoints, queues and counters of a domain, and what passes between them |
//! | [`endpoint`], [`message`], [`remote`] | endpoints; messages; memory of others |
//! | [`completion`], [`queue`], [`counter`], [`wait`] | completions, and waiting for them |
//! | [`book`], [`region`], [`events`] | address vectors, registered memory, event queues |
//!
//! The caller's promises, for every function that libfabric's tables name: pointers are to objects
//! of the kind that the table belongs to, made here and not closed yet; memory of an operation
//! stays until the operation ends. They are libfabric's own rules (fi_endpoint(3)), and what each
//! `SAFETY` here means by "libfabric's rules".

mod book;
mod completion;
mod counter;
mod domain;
mod endpoint;
mod events;
mod fabric;
mod info;
mod lock;
mod message;
mod objects;
mod queue;
mod region;
mod remote;
mod state;
mod wait;

use ginnel_fabric_bindings as b;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Not in `bindings`: bindgen cannot evaluate the cast.
const ADDR_UNSPEC: u64 = u64::MAX;

/// A function of libfabric's by name: of the library that loaded this one, which may have loaded it
/// for itself alone.
fn of_libfabric(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: terminated names; the library is there already, and is not loaded anew.
    unsafe {
        let library = libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        let handle = if library.is_null() { libc::RTLD_DEFAULT } else { library };
        libc::dlsym(handle, name.as_ptr())
    }
}

/// A new information structure as this libfabric has it, a copy of `info` or empty. Null: there is
/// no memory.
///
/// # Safety
/// `info` is null or libfabric's.
unsafe fn duplicate(info: *const b::fi_info) -> *mut b::fi_info {
    static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function.is_null() {
        function = of_libfabric(c"fi_dupinfo");
        FUNCTION.store(function, Ordering::Relaxed);
    }
    if function.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: libfabric's function of this name has this type (rdma/fabric.h).
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const b::fi_info) -> *mut b::fi_info>(
            function,
        )
    };
    // SAFETY: the caller's promise.
    unsafe { function(info) }
}

/// libfabric's own version, which a provider is to have, too.
fn version() -> u32 {
    let function = of_libfabric(c"fi_version");
    if function.is_null() {
        return b::FI_MAJOR_VERSION << 16 | b::FI_MINOR_VERSION;
    }
    // SAFETY: libfabric's function of this name has this type (rdma/fabric.h).
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(function)() }
}

/// Nothing is left when the last object is closed.
unsafe extern "C" fn cleanup() {}

/// What libfabric calls when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut b::fi_provider {
    let provider = b::fi_provider {
        version: info::VERSION,
        fi_version: version(),
        context: b::fi_context { internal: [std::ptr::null_mut(); 4] },
        name: info::NAME.as_ptr(),
        getinfo: Some(info::getinfo),
        fabric: Some(fabric::open),
        cleanup: Some(cleanup),
    };
    // Once for a process, and libfabric writes to it.
    Box::into_raw(Box::new(provider))
}

/// A table of functions that never changes: libfabric only reads it, though its pointers are not
/// const.
struct Table<T>(T);

// SAFETY: numbers and addresses of functions.
unsafe impl<T> Sync for Table<T> {}

impl<T> Table<T> {
    const fn get(&'static self) -> *mut T {
        (&raw const self.0).cast_mut()
    }
}

/// libfabric's negative error numbers.
const fn error(number: u32) -> c_int {
    -(number as c_int)
}

/// The same for functions that give a size.
const fn fails(number: u32) -> isize {
    -(number as isize)
}

/// Defines functions that say that this provider does not do what they are for.
macro_rules! refuse {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(unsafe extern "C" fn $name($(_: $argument),*) -> $result { -(ginnel_fabric_bindings::FI_ENOSYS as $result) })*
    };
}
use refuse;

/// `struct fi_ops` of an object that is only closed, bound and controlled.
const fn operations(
    close: unsafe extern "C" fn(*mut b::fid) -> c_int,
    bind: unsafe extern "C" fn(*mut b::fid, *mut b::fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut b::fid, c_int, *mut c_void) -> c_int,
) -> Table<b::fi_ops> {
    Table(b::fi_ops {
        size: size_of::<b::fi_ops>(),
        close: Some(close),
        bind: Some(bind),
        control: Some(control),
        ops_open: Some(no_ops_open),
        tostr: None,
        ops_set: None,
    })
}

refuse! {
    no_bind(*mut b::fid, *mut b::fid, u64) -> c_int;
    no_control(*mut b::fid, c_int, *mut c_void) -> c_int;
    no_ops_open(*mut b::fid, *const std::ffi::c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
}
