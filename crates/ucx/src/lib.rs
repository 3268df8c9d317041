//! `libuct_ginnel.so`: a transport that UCX uses like its own, by which programs on UCX (MPICH,
//! Open MPI's pml/ucx and osc/ucx) send messages through a segment of Ginnel's.
//!
//! UCX loads the transports of a list that is compiled into it, so this library is preloaded
//! instead. It stands before the one call by which UCX asks for its transports,
//! [`uct_query_components`], and enters itself in the list first. It also stands before
//! [`ucp_worker_create`], to know whose interfaces several threads use at once, and before
//! [`ucp_mem_map`], to have the locks of Open MPI's windows in the segment. In a program without
//! UCX it does nothing, and is linked with nothing of UCX.
//!
//! UCX calls a transport through tables of functions. Their layouts ([`abi`]) are those of 1.13 and
//! 1.18, the releases of Debian 12 and 13; where the two differ the library asks which one it is
//! in.
//!
//! | module | part |
//! |---|---|
//! | [`abi`] | UCX's structures and numbers, as far as a transport needs them |
//! | [`library`] | functions of the UCX that is there |
//! | [`component`] | what is entered in UCX's list: component, memory domain, transport |
//! | [`memory`] | memory in the segment, for puts, gets and operations without messages |
//! | [`windows`] | the locks of Open MPI's windows, which lie there, too |
//! | [`plt`] | calls of one library, led elsewhere |
//! | [`objects`] | an interface and an endpoint, and the requests that wait for room |
//! | [`iface`] | interfaces: opened, asked what they can do, making progress |
//! | [`ep`] | endpoints: messages |
//! | [`join`] | joining the segment, by the job's key |
//! | [`status`] | what UCX hears of what failed |
//! | [`refused`] | what a rank does about messages that are not taken |
//! | [`rest`] | what a thread does while nothing comes |
//!
//! The caller's promises, for every function in UCX's tables: pointers are to objects of the kind
//! that the table belongs to, made here and not closed yet; one thread at a time calls what belongs
//! to one interface; progress is not asked for within a message's handler. They are UCX's own rules
//! (`uct/api/uct.h`), and what each `SAFETY` here means by "UCX's rules".

mod abi;
mod component;
mod ep;
mod iface;
mod join;
mod library;
mod memory;
mod objects;
mod plt;
mod refused;
mod rest;
mod status;
mod windows;

use std::ffi::{CStr, c_void};

/// The transport's name, as in `UCX_TLS`, and its device's.
const NAME: &CStr = c"ginnel";

/// The call by which UCX's upper layers ask for all transports: enters this one first.
///
/// # Safety
/// UCX's rules: both are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_query_components(
    components: *mut *mut *mut c_void,
    count: *mut u32,
) -> abi::Status {
    let Some(query) = library::query_components() else { return abi::UNSUPPORTED };
    if let Some(library) = library::get() {
        component::register(library);
    }
    // SAFETY: handed on as it came.
    unsafe { query(components, count) }
}

/// The call by which a program makes a worker: tells its interfaces, which are opened within,
/// whether several threads will use it at once.
///
/// # Safety
/// UCX's rules: the parameters are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_create(
    context: *mut c_void,
    parameters: *const abi::WorkerParameters,
    made: *mut c_void,
) -> abi::Status {
    let Some(create) = library::worker_create() else { return abi::UNSUPPORTED };
    // SAFETY: the caller's promise.
    let mode = unsafe {
        (*parameters).field_mask & 1 != 0 && (*parameters).thread_mode == abi::THREADS_AT_ONCE
    };
    rest::opening(mode);
    windows::stand_before();
    // SAFETY: handed on as it came.
    let status = unsafe { create(context, parameters, made) };
    rest::opening(false);
    status
}

/// The call by which memory is registered: see [`windows`].
///
/// # Safety
/// UCX's rules: the parameters are readable, and the handle writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_mem_map(
    context: *mut c_void,
    parameters: *const abi::MapParameters,
    made: *mut *mut c_void,
) -> abi::Status {
    let Some(map) = library::memory_map() else { return abi::UNSUPPORTED };
    // SAFETY: the caller's promise.
    unsafe { windows::map(map, context, parameters, made) }
}
