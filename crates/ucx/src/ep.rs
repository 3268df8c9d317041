//! Endpoints: messages.

use crate::abi::{
    BUSY, EndpointParameters, INVALID_PARAM, NO_RESOURCE, OK, Pending, Status, UNREACHABLE,
};
use crate::objects::{End, Interface};
use crate::status::status_of;
use ginnel_fabric::EndpointId;
use std::ffi::c_void;

/// # Safety
/// UCX's rules.
#[inline]
unsafe fn parts<'a>(end: *mut End) -> (&'a End, &'a Interface) {
    // SAFETY: UCX's rules.
    unsafe { (&*end, Interface::of((*end).base)) }
}

pub unsafe extern "C" fn create(
    parameters: *const EndpointParameters,
    made: *mut *mut End,
) -> Status {
    // SAFETY: UCX's rules.
    let parameters = unsafe { &*parameters };
    const DEVICE_AND_INTERFACE: u64 = 1 << 2 | 1 << 3;
    if parameters.field_mask & DEVICE_AND_INTERFACE != DEVICE_AND_INTERFACE {
        return INVALID_PARAM;
    }
    // SAFETY: UCX's rules: what another's interface said of itself.
    let (segment, id) = unsafe {
        (
            parameters.dev_addr.cast::<u64>().read_unaligned(),
            parameters.iface_addr.cast::<u64>().read_unaligned(),
        )
    };
    // SAFETY: UCX's rules.
    let active = unsafe { &mut *Interface::of(parameters.iface).active() };
    if segment != active.segment_id() {
        return UNREACHABLE;
    }
    let id = EndpointId(id);
    let end = End { base: parameters.iface, id, way: active.way(id) };
    // SAFETY: UCX's rules.
    unsafe { *made = Box::into_raw(Box::new(end)) };
    OK
}

pub unsafe extern "C" fn destroy(end: *mut End) {
    // SAFETY: UCX's rules.
    let (this, interface) = unsafe { parts(end) };
    drop(interface.waiting.take_all(this.way, end));
    // SAFETY: UCX's rules: destroyed once.
    drop(unsafe { Box::from_raw(end) });
}

pub unsafe extern "C" fn am_short(
    end: *mut End,
    handler: u8,
    header: u64,
    payload: *const u8,
    len: u32,
) -> Status {
    // SAFETY: UCX's rules.
    let (end, interface) = unsafe { parts(end) };
    if interface.waiting.stands_before(end.way) {
        return NO_RESOURCE;
    }
    let header = header.to_ne_bytes();
    let parts = [(header.as_ptr(), header.len()), (payload, len as usize)];
    let parts = if len == 0 { &parts[..1] } else { &parts[..] };
    // SAFETY: UCX's rules: so many bytes are readable.
    match unsafe { (*interface.active()).send(end.way, handler, parts) } {
        Ok(()) => {
            interface.waiting.has_sent(end.way);
            OK
        }
        Err(error) => status_of(error),
    }
}

pub unsafe extern "C" fn am_bcopy(
    end: *mut End,
    handler: u8,
    pack: unsafe extern "C" fn(*mut c_void, *mut c_void) -> usize,
    argument: *mut c_void,
    _: u32,
) -> isize {
    // SAFETY: UCX's rules.
    let (end, interface) = unsafe { parts(end) };
    if interface.waiting.stands_before(end.way) {
        return NO_RESOURCE.into();
    }
    // SAFETY: UCX's rules: it writes no more than `query` said, and calls nothing of this
    // interface.
    match unsafe {
        (*interface.active()).send_packed(end.way, handler, |to| pack(to.cast(), argument))
    } {
        Ok(len) => {
            interface.waiting.has_sent(end.way);
            len.cast_signed()
        }
        Err(error) => status_of(error).into(),
    }
}

/// A request is to be called when there is room again; refused where there is some.
pub unsafe extern "C" fn pending_add(end: *mut End, request: *mut Pending, _: u32) -> Status {
    // SAFETY: UCX's rules.
    let (this, interface) = unsafe { parts(end) };
    if !interface.waiting.stands_before(this.way)
        // SAFETY: UCX's rules.
        && unsafe { (*interface.active()).has_room(this.way) } != Ok(false)
    {
        return BUSY;
    }
    interface.waiting.with(this.way, |queue| queue.push_back((end, request)));
    OK
}

pub unsafe extern "C" fn pending_purge(
    end: *mut End,
    each: Option<unsafe extern "C" fn(*mut Pending, *mut c_void)>,
    argument: *mut c_void,
) {
    // SAFETY: UCX's rules.
    let (this, interface) = unsafe { parts(end) };
    for request in interface.waiting.take_all(this.way, end) {
        if let Some(each) = each {
            // SAFETY: UCX's rules.
            unsafe { each(request, argument) };
        }
    }
}

/// What was sent is in the ring, whose reader has it whenever it looks.
pub unsafe extern "C" fn flush(end: *mut End, _: u32, _: *mut c_void) -> Status {
    // SAFETY: UCX's rules.
    let (end, interface) = unsafe { parts(end) };
    if interface.waiting.stands_before(end.way) { NO_RESOURCE } else { OK }
}

/// Does it lead to the interface with these addresses? As 1.18 asks it.
pub unsafe extern "C" fn is_connected(
    end: *mut End,
    addresses: *const crate::abi::Addresses,
) -> i32 {
    // SAFETY: UCX's rules: both are there.
    unsafe {
        let ((end, interface), addresses) = (parts(end), &*addresses);
        if addresses.field_mask & 3 != 3 {
            return 0;
        }
        let segment = addresses.device.cast::<u64>().read_unaligned();
        let id = addresses.iface.cast::<u64>().read_unaligned();
        i32::from(segment == (*interface.active()).segment_id() && id == end.id.0)
    }
}
