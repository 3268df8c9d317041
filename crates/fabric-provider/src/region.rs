//! Registered memory (fi_mr(3)).

use crate::objects::Shared;
use crate::{Table, b, error, operations};
use ginnel_fabric::memory::Region;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

#[repr(C)]
struct Object {
    fid: b::fid_mr,
    shared: Arc<Shared>,
}

static FID: Table<b::fi_ops> = operations(close, bind, control);
pub static REGIONS: Table<b::fi_ops_mr> = Table(b::fi_ops_mr {
    size: size_of::<b::fi_ops_mr>(),
    reg: Some(reg),
    regv: Some(regv),
    regattr: Some(regattr),
});

/// Bound to endpoints and counters where the caller wants it; it is the whole domain's here.
unsafe extern "C" fn bind(_: *mut b::fid, _: *mut b::fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn control(_: *mut b::fid, command: c_int, _: *mut c_void) -> c_int {
    if command == b::FI_ENABLE as c_int { 0 } else { error(b::FI_ENOSYS) }
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules: made by `register`, and closed once.
    let object = unsafe { Box::from_raw(fid.cast::<Object>()) };
    object.shared.lock.lock().memory.remove(object.fid.key);
    0
}

unsafe extern "C" fn reg(
    fid: *mut b::fid,
    buffer: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut b::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe { register(fid, (buffer, len), access, key, context, region) }
}

unsafe extern "C" fn regv(
    fid: *mut b::fid,
    pieces: *const b::iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut b::fid_mr,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return error(b::FI_ENOSYS);
    }
    // SAFETY: libfabric's rules: as many pieces.
    unsafe {
        register(
            fid,
            ((*pieces).iov_base.cast_const(), (*pieces).iov_len),
            access,
            key,
            context,
            region,
        )
    }
}

unsafe extern "C" fn regattr(
    fid: *mut b::fid,
    attr: *const b::fi_mr_attr,
    flags: u64,
    region: *mut *mut b::fid_mr,
) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe {
        let attr = &*attr;
        if attr.iface != b::FI_HMEM_SYSTEM && flags != 0 {
            return error(b::FI_ENOSYS);
        }
        regv(
            fid,
            attr.mr_iov,
            attr.iov_count,
            attr.access,
            0,
            attr.requested_key,
            0,
            region,
            attr.context,
        )
    }
}

/// # Safety
/// `fid` is a domain's; `region` a pointer's place.
unsafe fn register(
    fid: *mut b::fid,
    (buffer, len): (*const c_void, usize),
    access: u64,
    key: u64,
    context: *mut c_void,
    region: *mut *mut b::fid_mr,
) -> c_int {
    // SAFETY: the caller's promise.
    let shared = unsafe { crate::objects::shared(fid.cast()) };
    let (by_address, by_provider) = shared.registers;
    let base = buffer.cast::<u8>().cast_mut();
    let has = |flag: u32| access & u64::from(flag) != 0;
    let part = Region {
        base,
        len: len as u64,
        origin: if by_address { base as u64 } else { 0 },
        readable: has(b::FI_REMOTE_READ),
        writable: has(b::FI_REMOTE_WRITE),
    };
    // Nobody guesses one that the provider chooses.
    let key = if by_provider { ginnel_region::sys::random_u64() } else { key };
    // SAFETY: libfabric's rules: the memory stays until the region is closed, and may be used as
    // `access` says.
    if !unsafe { shared.lock.lock().memory.insert(key, part) } {
        return error(b::FI_ENOKEY);
    }
    let fid = b::fid { fclass: b::FI_CLASS_MR as usize, context, ops: FID.get() };
    let made = Box::into_raw(Box::new(Object {
        fid: b::fid_mr { fid, mem_desc: std::ptr::null_mut(), key },
        shared,
    }));
    // SAFETY: just made; the caller's promise.
    unsafe {
        (*made).fid.mem_desc = made.cast();
        *region = made.cast();
    }
    0
}
