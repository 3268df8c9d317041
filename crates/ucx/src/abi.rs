//! UCX's structures and numbers, as far as a transport fills or reads them: those of its releases
//! 1.13 and 1.18, which agree but where a constant says so. Written from the binary interface;
//! UCX's own names for them are in the comments. Structures that UCX makes are only read through
//! pointers, and so may go on behind what stands here.

mod map;

pub use map::{MapParameters, MemoryAttributes};
use std::ffi::{CStr, c_char, c_void};

/// `ucs_status_t`, a packed enumeration.
pub type Status = i8;
pub const OK: Status = 0;
pub const IN_PROGRESS: Status = 1;
pub const NO_RESOURCE: Status = -2;
pub const IO_ERROR: Status = -3;
pub const NO_MEMORY: Status = -4;
pub const INVALID_PARAM: Status = -5;
pub const UNREACHABLE: Status = -6;
pub const BUSY: Status = -15;
pub const UNSUPPORTED: Status = -22;
pub const CONNECTION_RESET: Status = -25;

/// The beginning of `ucp_worker_params_t`. The mask's first bit says that the mode is there.
#[repr(C)]
pub struct WorkerParameters {
    pub field_mask: u64,
    pub thread_mode: u32,
}

/// `UCS_THREAD_MODE_MULTI`
pub const THREADS_AT_ONCE: u32 = 2;

/// The address of any function.
pub type Function = *const c_void;

/// `ucs_list_link_t`
#[repr(C)]
pub struct Link {
    pub previous: *mut Link,
    pub next: *mut Link,
}

/// `ucs_config_global_list_entry_t`: 1.18 has flags behind it.
#[repr(C)]
pub struct Table<const FLAGS: usize> {
    pub name: *const c_char,
    pub prefix: *const c_char,
    pub fields: *mut c_void,
    pub size: usize,
    pub list: Link,
    pub flags: [u64; FLAGS],
}

/// `uct_component_t`: 1.18 compares keys.
#[repr(C)]
pub struct Component<const FLAGS: usize, const COMPARES: usize> {
    pub name: [u8; 16],
    pub query_md_resources: Function,
    pub md_open: Function,
    pub cm_open: Function,
    pub rkey_unpack: Function,
    pub rkey_ptr: Function,
    pub rkey_release: Function,
    pub rkey_compare: [Function; COMPARES],
    pub md_config: Table<FLAGS>,
    pub cm_config: Table<FLAGS>,
    pub transports: Link,
    pub list: Link,
    pub flags: u64,
    pub md_vfs_init: Function,
}

/// `uct_tl_t`
#[repr(C)]
pub struct Transport<const FLAGS: usize> {
    pub name: [u8; 10],
    pub query_devices: Function,
    pub iface_open: Function,
    pub config: Table<FLAGS>,
    pub list: Link,
}

/// `uct_md_ops_t`. Where 1.13 asks whether a socket's address may be reached, 1.18 attaches memory.
#[repr(C)]
pub struct DomainOps {
    pub close: Function,
    pub query: Function,
    pub mem_alloc: Function,
    pub mem_free: Function,
    pub mem_advise: Function,
    pub mem_reg: Function,
    pub mem_dereg: Function,
    pub mem_query: Function,
    pub mkey_pack: Function,
    pub accessible_or_attach: Function,
    pub detect_memory_type: Function,
}

/// `uct_md_t`
#[repr(C)]
pub struct Domain {
    pub ops: *const DomainOps,
    pub component: *mut c_void,
}

/// The beginning of `uct_md_attr_t` (1.13).
#[repr(C)]
pub struct DomainAttributes {
    pub max_alloc: u64,
    pub max_reg: usize,
    pub flags: u64,
    pub reg_mem_types: u64,
    pub detect_mem_types: u64,
    pub alloc_mem_types: u64,
    pub access_mem_types: u64,
    pub reg_cost: [f64; 2],
    pub component_name: [u8; 16],
    pub rkey_packed_size: usize,
    pub local_cpus: [u64; 16],
}

/// The beginning of `uct_md_attr_v2_t` (1.18). What stands behind it, `uct_md_base_md_query` fills.
#[repr(C)]
pub struct DomainAttributes2 {
    pub field_mask: u64,
    pub max_alloc: u64,
    pub max_reg: usize,
    pub flags: u64,
    pub reg_mem_types: u64,
    pub reg_nonblock_mem_types: u64,
    pub cache_mem_types: u64,
    pub gva_mem_types: u64,
    pub detect_mem_types: u64,
    pub alloc_mem_types: u64,
    pub access_mem_types: u64,
    pub dmabuf_mem_types: u64,
    pub reg_cost: [f64; 2],
    pub component_name: [u8; 16],
    pub rkey_packed_size: usize,
}

/// `UCT_MD_FLAG_…`
pub mod domain_flag {
    pub const ALLOC: u64 = 1 << 0;
    pub const NEED_RKEY: u64 = 1 << 3;
}

/// `uct_iface_ops_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InterfaceOps {
    pub ep_put_short: Function,
    pub ep_put_bcopy: Function,
    pub ep_put_zcopy: Function,
    pub ep_get_short: Function,
    pub ep_get_bcopy: Function,
    pub ep_get_zcopy: Function,
    pub ep_am_short: Function,
    pub ep_am_short_iov: Function,
    pub ep_am_bcopy: Function,
    pub ep_am_zcopy: Function,
    pub ep_atomic_cswap64: Function,
    pub ep_atomic_cswap32: Function,
    pub ep_atomic32_post: Function,
    pub ep_atomic64_post: Function,
    pub ep_atomic32_fetch: Function,
    pub ep_atomic64_fetch: Function,
    pub ep_tag: [Function; 6],
    pub iface_tag: [Function; 2],
    pub ep_pending_add: Function,
    pub ep_pending_purge: Function,
    pub ep_flush: Function,
    pub ep_fence: Function,
    pub ep_check: Function,
    pub ep_create: Function,
    pub ep_connect: Function,
    pub ep_disconnect: Function,
    pub cm_ep_conn_notify: Function,
    pub ep_destroy: Function,
    pub ep_get_address: Function,
    pub ep_connect_to_ep: Function,
    pub iface_accept: Function,
    pub iface_reject: Function,
    pub iface_flush: Function,
    pub iface_fence: Function,
    pub iface_progress_enable: Function,
    pub iface_progress_disable: Function,
    pub iface_progress: Function,
    pub iface_event_fd_get: Function,
    pub iface_event_arm: Function,
    pub iface_close: Function,
    pub iface_query: Function,
    pub iface_get_device_address: Function,
    pub iface_get_address: Function,
    pub iface_is_reachable: Function,
}

/// `uct_iface_internal_ops_t`: 1.13 has the first four.
#[repr(C)]
pub struct InternalOps {
    pub iface_estimate_perf: Function,
    pub iface_vfs_refresh: Function,
    pub ep_query: Function,
    pub ep_invalidate: Function,
    pub ep_connect_to_ep: Function,
    pub iface_is_reachable: Function,
    pub ep_is_connected: Function,
}

/// `uct_am_handler_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handler {
    pub function: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u32) -> Status>,
    pub argument: *mut c_void,
    pub flags: u32,
}

/// `uct_base_iface_t`, whose last part is UCX's own: less than this.
#[repr(C)]
pub struct BaseInterface {
    pub ops: InterfaceOps,
    pub internal_ops: *const InternalOps,
    pub md: *mut Domain,
    pub worker: *mut c_void,
    pub handlers: [Handler; 32],
    pub rest: [u64; 128],
}

/// What an interface can do of puts or gets.
#[repr(C)]
pub struct Limits {
    pub max_short: usize,
    pub max_bcopy: usize,
    pub min_zcopy: usize,
    pub max_zcopy: usize,
    pub opt_zcopy_align: usize,
    pub align_mtu: usize,
    pub max_iov: usize,
}

/// `uct_iface_attr_t`
#[repr(C)]
pub struct InterfaceAttributes {
    pub put: Limits,
    pub get: Limits,
    /// Its last is the longest header of a message that is not copied …
    pub am: Limits,
    /// … and this is `max_iov`.
    pub am_max_iov: usize,
    pub tag: [usize; 11],
    pub atomic32: [u64; 2],
    pub atomic64: [u64; 2],
    pub flags: u64,
    pub event_flags: u64,
    pub device_addr_len: usize,
    pub iface_addr_len: usize,
    pub ep_addr_len: usize,
    pub max_conn_priv: usize,
    pub listen_sockaddr: [u64; 16],
    pub overhead: f64,
    pub bandwidth: Bandwidth,
    /// Seconds, and more for each endpoint.
    pub latency: [f64; 2],
    pub priority: u8,
    pub max_num_eps: usize,
    pub dev_num_paths: u32,
}

/// `uct_ppn_bandwidth_t`, bytes a second.
#[repr(C)]
pub struct Bandwidth {
    pub dedicated: f64,
    pub shared: f64,
}

/// `UCT_IFACE_FLAG_…`
pub mod flag {
    pub const AM_SHORT: u64 = 1 << 0;
    pub const AM_BCOPY: u64 = 1 << 1;
    pub const PENDING: u64 = 1 << 3;
    pub const PUT_SHORT: u64 = 1 << 4;
    pub const PUT_BCOPY: u64 = 1 << 5;
    pub const GET_BCOPY: u64 = 1 << 9;
    /// Operations on memory agree with those of the processor.
    pub const ATOMIC_CPU: u64 = 1 << 30;
    pub const CONNECT_TO_IFACE: u64 = 1 << 40;
    pub const CB_SYNC: u64 = 1 << 44;
    /// Since 1.14: it reaches what UCX takes for another node.
    pub const INTER_NODE: u64 = 1 << 54;
}

/// `UCS_BIT(UCT_ATOMIC_OP_…)`: add, and, or, xor; and those that give what was there: swap, compare
/// and swap, too.
pub const POSTED: u64 = 0xf;
pub const FETCHED: u64 = 0x3f;

/// `UCT_IFACE_FLAG_EVENT_…`
pub mod event {
    pub const SEND_COMP: u64 = 1 << 0;
    pub const RECV: u64 = 1 << 1;
    pub const FD: u64 = 1 << 3;
}

/// `UCT_PROGRESS_SEND | UCT_PROGRESS_RECV`
pub const PROGRESS: u32 = 3;

/// `UCT_DEVICE_TYPE_NET`
pub const DEVICE_NET: u32 = 0;
/// `UCS_SYS_DEVICE_ID_UNKNOWN`
pub const DEVICE_UNKNOWN: u8 = u8::MAX;
/// `UCS_BIT(UCS_MEMORY_TYPE_HOST)`
pub const HOST_MEMORY: u64 = 1;

/// The beginning of `uct_ep_params_t`.
#[repr(C)]
pub struct EndpointParameters {
    pub field_mask: u64,
    pub iface: *mut BaseInterface,
    pub user_data: *mut c_void,
    pub dev_addr: *const u8,
    pub iface_addr: *const u8,
}

/// The beginning of `uct_iface_is_reachable_params_t` and of `uct_ep_is_connected_params_t` (1.18).
#[repr(C)]
pub struct Addresses {
    pub field_mask: u64,
    pub device: *const u8,
    pub iface: *const u8,
}

/// `uct_pending_req_t`
#[repr(C)]
pub struct Pending {
    pub function: unsafe extern "C" fn(*mut Pending) -> Status,
    pub private: [u8; 40],
}

/// `ucs_class_t`
#[repr(C)]
pub struct Class {
    pub name: *const c_char,
    pub size: usize,
    pub superclass: *const Class,
    pub init: Function,
    pub cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// A name as UCX has it in a structure: zeroes behind it.
pub fn padded<const N: usize>(name: &CStr) -> [u8; N] {
    let mut padded = [0; N];
    padded.iter_mut().zip(name.to_bytes()).for_each(|(to, from)| *to = *from);
    padded
}

/// Whatever is asked for is not done. Arguments are left alone, whatever they are.
pub unsafe extern "C" fn unsupported() -> Status {
    UNSUPPORTED
}

/// Whatever is asked for needs nothing. Arguments are left alone.
pub unsafe extern "C" fn nothing() -> Status {
    OK
}
