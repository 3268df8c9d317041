//! The memory domain: memory in the segment, which ranks of the job use directly. UCX asks for it
//! where the program leaves it to the library where memory lies (`MPI_Win_allocate`,
//! `shmem_malloc`). All other memory UCX puts to, gets from and computes on by messages.
//!
//! A remote key is the distance from where memory lies for its owner to where it lies here, as for
//! UCX's own shared memory: its functions for that are used.

use crate::NAME;
use crate::abi::{
    Domain, DomainAttributes, DomainAttributes2, DomainOps, Function, HOST_MEMORY, INVALID_PARAM,
    NO_MEMORY, OK, Status, UNREACHABLE, domain_flag, padded, unsupported,
};
use crate::join::join;
use crate::library;
use crate::status::status_of;
use crate::windows;
use ginnel_fabric::shared::{Piece, Place, Pool};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a packed key: segment, place in it, length, and where it lies for its owner.
const KEY: usize = 32;

/// All domains of the process are one: how many are open, and the pool, once it was needed.
#[derive(Default)]
struct Opened {
    domains: usize,
    pool: Option<Pool>,
}

static OPENED: Mutex<Opened> = Mutex::new(Opened { domains: 0, pool: None });

fn opened() -> MutexGuard<'static, Opened> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `ask` with the pool, which is opened where it is not.
fn with_pool<R>(ask: impl FnOnce(&Pool) -> Result<R, Status>) -> Result<R, Status> {
    let mut opened = opened();
    if opened.pool.is_none() {
        opened.pool = Some(join(|path, config, key| {
            Pool::open(path, config, ginnel_fabric::active::job_of(key.as_ref()))
        })?);
    }
    opened.pool.as_ref().map_or(Err(NO_MEMORY), ask)
}

pub fn ops(query: Function, pack: Function) -> DomainOps {
    let no = unsupported as Function;
    DomainOps {
        close: close as Function,
        query,
        mem_alloc: allocate as Function,
        mem_free: free as Function,
        mem_advise: no,
        mem_reg: no,
        mem_dereg: no,
        mem_query: no,
        mkey_pack: pack,
        accessible_or_attach: no,
        detect_memory_type: no,
    }
}

/// A domain is opened.
pub fn open() {
    opened().domains += 1;
}

unsafe extern "C" fn close(_: *mut Domain) {
    let mut opened = opened();
    opened.domains = opened.domains.saturating_sub(1);
    if opened.domains == 0
        && let Some(pool) = opened.pool.take()
    {
        pool.close();
    }
}

pub unsafe extern "C" fn query_13(_: *mut Domain, attributes: *mut DomainAttributes) -> Status {
    let all = DomainAttributes {
        max_alloc: u64::MAX,
        max_reg: 0,
        flags: domain_flag::ALLOC | domain_flag::NEED_RKEY,
        reg_mem_types: 0,
        detect_mem_types: 0,
        alloc_mem_types: HOST_MEMORY,
        access_mem_types: HOST_MEMORY,
        reg_cost: [0.0; 2],
        component_name: padded(NAME),
        rkey_packed_size: KEY,
        local_cpus: [u64::MAX; 16],
    };
    // SAFETY: UCX's rules.
    unsafe { attributes.write(all) };
    OK
}

pub unsafe extern "C" fn query_18(_: *mut Domain, attributes: *mut DomainAttributes2) -> Status {
    if let Some(fill) = library::get().and_then(|library| library.base_md_query) {
        // SAFETY: UCX's rules.
        unsafe { fill(attributes.cast()) };
    }
    // SAFETY: UCX's rules.
    let attributes = unsafe { &mut *attributes };
    attributes.max_alloc = u64::MAX;
    attributes.max_reg = 0;
    attributes.flags = domain_flag::ALLOC | domain_flag::NEED_RKEY;
    attributes.cache_mem_types = HOST_MEMORY;
    attributes.alloc_mem_types = HOST_MEMORY;
    attributes.access_mem_types = HOST_MEMORY;
    attributes.rkey_packed_size = KEY;
    OK
}

unsafe extern "C" fn allocate(
    _: *mut Domain,
    len: *mut usize,
    address: *mut *mut u8,
    _: u32,
    _: u32,
    _: *const i8,
    handle: *mut *mut Piece,
) -> Status {
    // SAFETY: UCX's rules.
    let wanted = unsafe { *len } as u64;
    let piece = match with_pool(|pool| pool.allocate(wanted).map_err(status_of)) {
        Ok(piece) => piece,
        Err(status) => return status,
    };
    windows::allocated();
    // SAFETY: UCX's rules.
    unsafe {
        *len = piece.place.len as usize;
        *address = piece.at;
        *handle = Box::into_raw(Box::new(piece));
    }
    OK
}

unsafe extern "C" fn free(_: *mut Domain, handle: *mut Piece) -> Status {
    // SAFETY: UCX's rules: freed once.
    let piece = unsafe { Box::from_raw(handle) };
    windows::forget(piece.at);
    if let Some(pool) = &opened().pool {
        pool.free(&piece);
    }
    OK
}

/// As 1.13 asks it.
pub unsafe extern "C" fn pack_13(
    _: *mut Domain,
    handle: *const Piece,
    _: *const c_void,
    to: *mut u8,
) -> Status {
    // SAFETY: UCX's rules.
    unsafe { pack(&*handle, to) }
}

/// As 1.18 asks it: of a part.
pub unsafe extern "C" fn pack_18(
    _: *mut Domain,
    handle: *const Piece,
    _: *const c_void,
    _: usize,
    _: *const c_void,
    to: *mut u8,
) -> Status {
    // SAFETY: UCX's rules.
    unsafe { pack(&*handle, to) }
}

/// # Safety
/// There is room for a key.
unsafe fn pack(piece: &Piece, to: *mut u8) -> Status {
    let Place { segment, offset, len } = piece.place;
    let words = [segment, offset, len, windows::called(piece.at)];
    // SAFETY: the caller's promise.
    unsafe { to.cast::<[u64; KEY / 8]>().write_unaligned(words) };
    OK
}

/// Another rank's memory: found in this process's own map of the segment, within its bounds.
pub unsafe extern "C" fn unpack(
    _: *mut c_void,
    from: *const u8,
    key: *mut u64,
    handle: *mut *mut c_void,
) -> Status {
    // SAFETY: UCX's rules: what a rank packed.
    let [segment, offset, len, theirs] = unsafe { from.cast::<[u64; KEY / 8]>().read_unaligned() };
    match with_pool(|pool| pool.find(&Place { segment, offset, len }).ok_or(UNREACHABLE)) {
        // SAFETY: UCX's rules.
        Ok(at) => unsafe {
            *key = (at as u64).wrapping_sub(theirs);
            *handle = std::ptr::null_mut();
            OK
        },
        Err(UNREACHABLE) => INVALID_PARAM,
        Err(status) => status,
    }
}
