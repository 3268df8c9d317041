//! The fabric object: domains and event queues are made in it.

use crate::{Table, b, domain, error, events, no_bind, no_control, operations, queue, refuse};
use std::ffi::{c_int, c_void};

#[repr(C)]
struct Fabric {
    fid: b::fid_fabric,
}

static FID: Table<b::fi_ops> = operations(close, no_bind, no_control);
static FABRIC: Table<b::fi_ops_fabric> = Table(b::fi_ops_fabric {
    size: size_of::<b::fi_ops_fabric>(),
    domain: Some(domain::open),
    passive_ep: Some(no_passive),
    eq_open: Some(events::open),
    wait_open: Some(no_wait),
    trywait: Some(queue::trywait),
    domain2: None,
});

refuse! {
    no_passive(*mut b::fid_fabric, *mut b::fi_info, *mut *mut b::fid_pep, *mut c_void) -> c_int;
    no_wait(*mut b::fid_fabric, *mut b::fi_wait_attr, *mut *mut b::fid_wait) -> c_int;
}

pub unsafe extern "C" fn open(
    attr: *mut b::fi_fabric_attr,
    fabric: *mut *mut b::fid_fabric,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || fabric.is_null() {
        return error(b::FI_EINVAL);
    }
    // SAFETY: libfabric's rules.
    let version = unsafe { (*attr).api_version };
    let fid = b::fid { fclass: b::FI_CLASS_FABRIC as usize, context, ops: FID.get() };
    let made =
        Box::new(Fabric { fid: b::fid_fabric { fid, ops: FABRIC.get(), api_version: version } });
    // SAFETY: libfabric's rules. The fabric begins with its `fid_fabric`.
    unsafe { *fabric = Box::into_raw(made).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules: made by `open`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Fabric>()) });
    0
}
