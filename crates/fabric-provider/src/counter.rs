//! Counters (fi_cntr(3)).

use crate::objects::Shared;
use crate::state::Count;
use crate::wait::{self, Until};
use crate::{Table, b, error, no_bind, no_control, operations};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[repr(C)]
struct Object {
    fid: b::fid_cntr,
    shared: Arc<Shared>,
    count: Arc<Count>,
}

static FID: Table<b::fi_ops> = operations(close, no_bind, no_control);
static COUNTER: Table<b::fi_ops_cntr> = Table(b::fi_ops_cntr {
    size: size_of::<b::fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
});

/// # Safety
/// `counter` was made by [`open`], and is not closed.
unsafe fn object<'a>(counter: *mut b::fid_cntr) -> &'a Object {
    // SAFETY: the caller's promise; the object begins with its `fid_cntr`.
    unsafe { &*counter.cast::<Object>() }
}

/// What it counts into.
///
/// # Safety
/// As for [`object`].
pub unsafe fn count(fid: *mut b::fid) -> Arc<Count> {
    // SAFETY: the caller's promise.
    unsafe { object(fid.cast()) }.count.clone()
}

pub unsafe extern "C" fn open(
    domain: *mut b::fid_domain,
    _attr: *mut b::fi_cntr_attr,
    counter: *mut *mut b::fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's rules.
    let shared = unsafe { crate::objects::shared(domain) };
    let fid = b::fid { fclass: b::FI_CLASS_CNTR as usize, context, ops: FID.get() };
    let made = Box::new(Object {
        fid: b::fid_cntr { fid, ops: COUNTER.get() },
        shared,
        count: Arc::default(),
    });
    // SAFETY: libfabric's rules.
    unsafe { *counter = Box::into_raw(made).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules: closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Object>()) });
    0
}

unsafe extern "C" fn read(counter: *mut b::fid_cntr) -> u64 {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(counter) };
    let before = object.count.done.load(Relaxed);
    let mut held = object.shared.lock.lock();
    held.progress();
    if object.count.done.load(Relaxed) == before {
        wait::rest(&object.shared, held);
    }
    object.count.done.load(Relaxed)
}

unsafe extern "C" fn readerr(counter: *mut b::fid_cntr) -> u64 {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(counter) };
    object.shared.lock.lock().progress();
    object.count.failed.load(Relaxed)
}

unsafe extern "C" fn add(counter: *mut b::fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe { object(counter) }.count.done.fetch_add(value, Relaxed);
    0
}

unsafe extern "C" fn set(counter: *mut b::fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe { object(counter) }.count.done.store(value, Relaxed);
    0
}

unsafe extern "C" fn adderr(counter: *mut b::fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe { object(counter) }.count.failed.fetch_add(value, Relaxed);
    0
}

unsafe extern "C" fn seterr(counter: *mut b::fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe { object(counter) }.count.failed.store(value, Relaxed);
    0
}

unsafe extern "C" fn wait(counter: *mut b::fid_cntr, threshold: u64, ms: c_int) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(counter) };
    let (until, failed) = (Until::of(ms), object.count.failed.load(Relaxed));
    loop {
        let mut held = object.shared.lock.lock();
        held.progress();
        if object.count.done.load(Relaxed) >= threshold {
            return 0;
        }
        if object.count.failed.load(Relaxed) != failed {
            return error(b::FI_EAVAIL);
        }
        if !wait::sleep(&object.shared, held, &until) {
            return error(b::FI_ETIMEDOUT);
        }
    }
}
