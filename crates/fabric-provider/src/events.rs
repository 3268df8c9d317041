//! Event queues, of which programs on connectionless endpoints have one and read nothing from it:
//! nothing here happens later.

use crate::{Table, b, fails, no_bind, no_control, operations};
use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
struct Events {
    fid: b::fid_eq,
}

static FID: Table<b::fi_ops> = operations(close, no_bind, no_control);
static EVENTS: Table<b::fi_ops_eq> = Table(b::fi_ops_eq {
    size: size_of::<b::fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
});

pub unsafe extern "C" fn open(
    _: *mut b::fid_fabric,
    _: *mut b::fi_eq_attr,
    eq: *mut *mut b::fid_eq,
    context: *mut c_void,
) -> c_int {
    let fid = b::fid { fclass: b::FI_CLASS_EQ as usize, context, ops: FID.get() };
    let made = Box::new(Events { fid: b::fid_eq { fid, ops: EVENTS.get() } });
    // SAFETY: libfabric's rules.
    unsafe { *eq = Box::into_raw(made).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules: made by `open`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Events>()) });
    0
}

unsafe extern "C" fn read(
    _: *mut b::fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    _: u64,
) -> isize {
    fails(b::FI_EAGAIN)
}

unsafe extern "C" fn readerr(_: *mut b::fid_eq, _: *mut b::fi_eq_err_entry, _: u64) -> isize {
    fails(b::FI_EAGAIN)
}

unsafe extern "C" fn write(_: *mut b::fid_eq, _: u32, _: *const c_void, _: usize, _: u64) -> isize {
    fails(b::FI_ENOSYS)
}

unsafe extern "C" fn sread(
    _: *mut b::fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    ms: c_int,
    _: u64,
) -> isize {
    if ms < 0 {
        // For ever would be for ever.
        return fails(b::FI_ENOSYS);
    }
    ginnel_region::sys::sleep_ms(ms);
    fails(b::FI_EAGAIN)
}

unsafe extern "C" fn strerror(
    _: *mut b::fid_eq,
    _: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: usize,
) -> *const c_char {
    c"no error".as_ptr()
}
