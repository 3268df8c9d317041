//! Functions of the UCX that is in the process, looked up by name: nothing of it is linked.

use crate::abi::{
    BaseInterface, Class, Function, InternalOps, MapParameters, MemoryAttributes, Status,
    WorkerParameters,
};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// A release of UCX whose layouts are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// 1.13
    R13,
    /// 1.18
    R18,
}

/// What is used of `libuct.so.0`.
pub struct Library {
    /// `None`: another one, in which this transport does not enter itself.
    pub release: Option<Release>,
    pub component_register: unsafe extern "C" fn(*mut c_void),
    pub tl_register: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub single_device: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        u32,
        u8,
        *mut *mut c_void,
        *mut u32,
    ) -> Status,
    pub base_iface_query: unsafe extern "C" fn(*mut BaseInterface, *mut c_void),
    pub base_iface_init: BaseInterfaceInit,
    pub base_iface_class: *const Class,
    pub progress_disable: unsafe extern "C" fn(*mut BaseInterface, u32),
    /// In 1.18 only.
    pub base_md_query: Option<unsafe extern "C" fn(*mut c_void)>,
    pub md_resource: Function,
    pub md_table: *mut c_void,
    pub iface_table: *mut c_void,
    pub progress_enable: Function,
    pub am_short_iov: Function,
    pub memory: SharedMemory,
    pub estimate_perf: Function,
    /// In 1.18 only.
    pub is_reachable: Function,
}

/// What UCX's own shared memory does with memory that lies in this process: a key is the distance
/// to it.
pub struct SharedMemory {
    pub put_short: Function,
    pub put_bcopy: Function,
    pub get_bcopy: Function,
    pub cswap64: Function,
    pub cswap32: Function,
    pub post32: Function,
    pub post64: Function,
    pub fetch32: Function,
    pub fetch64: Function,
    pub ep_fence: Function,
    pub iface_fence: Function,
}

/// `uct_base_iface_t`'s initialisation: the object, its class, how many of its classes were
/// initialised, two tables of functions, domain, worker, parameters, settings.
pub type BaseInterfaceInit = unsafe extern "C" fn(
    *mut BaseInterface,
    *const Class,
    *mut c_int,
    *const c_void,
    *const InternalOps,
    *mut c_void,
    *mut c_void,
    *const c_void,
    *const c_void,
) -> Status;

// SAFETY: addresses of a library's functions and tables, which stay.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The UCX of this process. `None`: there is none, or one whose functions have other names.
pub fn get() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(Library::find).as_ref()
}

/// `uct_query_components`
pub type QueryComponents = unsafe extern "C" fn(*mut *mut *mut c_void, *mut u32) -> Status;

/// The call before which this library stands.
pub fn query_components() -> Option<QueryComponents> {
    // SAFETY: UCX's function of this name has this type (uct/api/uct.h).
    unsafe { function(handle(c"libuct.so.0"), c"uct_query_components") }
}

/// `ucp_worker_create`
pub type WorkerCreate =
    unsafe extern "C" fn(*mut c_void, *const WorkerParameters, *mut c_void) -> Status;

/// The other call before which this library stands.
pub fn worker_create() -> Option<WorkerCreate> {
    // SAFETY: UCX's function of this name has this type (ucp/api/ucp.h).
    unsafe { function(handle(c"libucp.so.0"), c"ucp_worker_create") }
}

/// `ucp_mem_map`
pub type MemoryMap =
    unsafe extern "C" fn(*mut c_void, *const MapParameters, *mut *mut c_void) -> Status;

/// `ucp_mem_unmap`
pub type MemoryUnmap = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;

/// `ucp_mem_query`
pub type MemoryQuery = unsafe extern "C" fn(*mut c_void, *mut MemoryAttributes) -> Status;

/// The third call before which this library stands.
pub fn memory_map() -> Option<MemoryMap> {
    static FOUND: OnceLock<Option<MemoryMap>> = OnceLock::new();
    // SAFETY: UCX's function of this name has this type (ucp/api/ucp.h).
    *FOUND.get_or_init(|| unsafe { function(handle(c"libucp.so.0"), c"ucp_mem_map") })
}

/// What belongs to it.
pub fn memory_calls() -> Option<(MemoryUnmap, MemoryQuery)> {
    let library = handle(c"libucp.so.0");
    // SAFETY: UCX's functions of these names have these types (ucp/api/ucp.h).
    unsafe { Some((function(library, c"ucp_mem_unmap")?, function(library, c"ucp_mem_query")?)) }
}

/// `ucp_worker_progress`
pub type Progress = unsafe extern "C" fn(*mut c_void) -> u32;

/// `opal_progress`
pub type ProgressOfAll = unsafe extern "C" fn();

/// A worker's progress, and that of everything in Open MPI.
pub fn progress_calls() -> Option<(Progress, ProgressOfAll)> {
    static FOUND: OnceLock<Option<(Progress, ProgressOfAll)>> = OnceLock::new();
    // SAFETY: the functions of these names have these types (ucp/api/ucp.h,
    // opal/runtime/opal_progress.h).
    *FOUND.get_or_init(|| unsafe {
        let all = function(handle(c"libopen-pal.so.40"), c"opal_progress")?;
        Some((function(handle(c"libucp.so.0"), c"ucp_worker_progress")?, all))
    })
}

/// A library that is there already; else what comes behind this one.
fn handle(name: &CStr) -> *mut c_void {
    // SAFETY: a terminated name; nothing is loaded anew.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() { libc::RTLD_NEXT } else { library }
}

fn find(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a library that is there, and a terminated name.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// A function of this name, as what the caller's type says. `None`: there is none.
///
/// # Safety
/// `T` is a pointer to a function of the type that UCX's function of this name has.
unsafe fn function<T>(library: *mut c_void, name: &CStr) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    let found = find(library, name);
    // SAFETY: the caller's promise; an address is as large as a pointer to a function.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

fn release() -> Option<Release> {
    type GetVersion = unsafe extern "C" fn(*mut u32, *mut u32, *mut u32);
    // SAFETY: UCX's function of this name has this type (ucp/api/ucp.h).
    let get: GetVersion = unsafe { function(handle(c"libucp.so.0"), c"ucp_get_version") }?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three numbers' room.
    unsafe { get(&raw mut major, &raw mut minor, &raw mut patch) };
    match (major, minor) {
        (1, 13) => Some(Release::R13),
        (1, 18) => Some(Release::R18),
        _ => {
            eprintln!(
                "ginnel: UCX {major}.{minor}.{patch} is none that libuct_ginnel.so knows (1.13 and 1.18): it is left alone"
            );
            None
        }
    }
}

impl Library {
    fn find() -> Option<Self> {
        let library = handle(c"libuct.so.0");
        let symbol = |name: &CStr| Some(find(library, name)).filter(|found| !found.is_null());
        // SAFETY: UCX's functions of these names have these types (uct/base/uct_iface.h and
        // others).
        unsafe {
            Some(Self {
                release: release(),
                component_register: function(library, c"uct_component_register")?,
                tl_register: function(library, c"uct_tl_register")?,
                single_device: function(library, c"uct_single_device_resource")?,
                base_iface_query: function(library, c"uct_base_iface_query")?,
                base_iface_init: function(library, c"uct_base_iface_t_init")?,
                base_iface_class: symbol(c"uct_base_iface_t_class")?.cast(),
                progress_disable: function(library, c"uct_base_iface_progress_disable")?,
                base_md_query: function(library, c"uct_md_base_md_query"),
                md_resource: symbol(c"uct_md_query_single_md_resource")?,
                md_table: symbol(c"uct_md_config_table")?,
                iface_table: symbol(c"uct_iface_config_table")?,
                progress_enable: symbol(c"uct_base_iface_progress_enable")?,
                am_short_iov: symbol(c"uct_base_ep_am_short_iov")?,
                memory: SharedMemory {
                    put_short: symbol(c"uct_sm_ep_put_short")?,
                    put_bcopy: symbol(c"uct_sm_ep_put_bcopy")?,
                    get_bcopy: symbol(c"uct_sm_ep_get_bcopy")?,
                    cswap64: symbol(c"uct_sm_ep_atomic_cswap64")?,
                    cswap32: symbol(c"uct_sm_ep_atomic_cswap32")?,
                    post32: symbol(c"uct_sm_ep_atomic32_post")?,
                    post64: symbol(c"uct_sm_ep_atomic64_post")?,
                    fetch32: symbol(c"uct_sm_ep_atomic32_fetch")?,
                    fetch64: symbol(c"uct_sm_ep_atomic64_fetch")?,
                    ep_fence: symbol(c"uct_sm_ep_fence")?,
                    iface_fence: symbol(c"uct_sm_iface_fence")?,
                },
                estimate_perf: symbol(c"uct_base_iface_estimate_perf")?,
                is_reachable: find(library, c"uct_base_iface_is_reachable"),
            })
        }
    }
}
