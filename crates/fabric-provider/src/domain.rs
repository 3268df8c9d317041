//! The domain object: what is made in it.

use crate::lock::Lock;
use crate::objects::{Domain, Shared};
use crate::state::State;
use crate::{
    Table, b, book, counter, endpoint, error, info, no_bind, no_control, operations, queue, refuse,
    region, remote,
};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID: Table<b::fi_ops> = operations(close, no_bind, no_control);
static DOMAIN: Table<b::fi_ops_domain> = Table(b::fi_ops_domain {
    size: size_of::<b::fi_ops_domain>(),
    av_open: Some(book::open),
    cq_open: Some(queue::open),
    endpoint: Some(endpoint::open),
    scalable_ep: Some(no_scalable),
    cntr_open: Some(counter::open),
    poll_open: Some(no_poll),
    stx_ctx: Some(no_shared_transmit),
    srx_ctx: Some(no_shared_receive),
    query_atomic: Some(remote::query),
    query_collective: Some(no_collective),
    endpoint2: None,
});

refuse! {
    no_scalable(*mut b::fid_domain, *mut b::fi_info, *mut *mut b::fid_ep, *mut c_void) -> c_int;
    no_poll(*mut b::fid_domain, *mut b::fi_poll_attr, *mut *mut b::fid_poll) -> c_int;
    no_shared_transmit(*mut b::fid_domain, *mut b::fi_tx_attr, *mut *mut b::fid_stx, *mut c_void) -> c_int;
    no_shared_receive(*mut b::fid_domain, *mut b::fi_rx_attr, *mut *mut b::fid_ep, *mut c_void) -> c_int;
    no_collective(*mut b::fid_domain, b::fi_collective_op, *mut b::fi_collective_attr, u64) -> c_int;
}

pub unsafe extern "C" fn open(
    _: *mut b::fid_fabric,
    info: *mut b::fi_info,
    domain: *mut *mut b::fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's rules.
    let Some(attr) = (unsafe { info.as_ref().and_then(|info| info.domain_attr.as_ref()) }) else {
        return error(b::FI_EINVAL);
    };
    let shared = Shared {
        lock: Lock::new(State::default(), attr.threading == b::FI_THREAD_DOMAIN),
        registers: info::registers_by_address(attr.mr_mode),
    };
    let fid = b::fid { fclass: b::FI_CLASS_DOMAIN as usize, context, ops: FID.get() };
    let made = Domain {
        fid: b::fid_domain { fid, ops: DOMAIN.get(), mr: region::REGIONS.get() },
        shared: Arc::new(shared),
    };
    // SAFETY: libfabric's rules.
    unsafe { *domain = Box::into_raw(Box::new(made)).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules.
    let domain = unsafe { &*fid.cast::<Domain>() };
    if Arc::strong_count(&domain.shared) > 1 {
        return error(b::FI_EBUSY);
    }
    // SAFETY: libfabric's rules: closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Domain>()) });
    0
}
