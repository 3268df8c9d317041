//! Interfaces: opened, asked what they can do, making progress.

use crate::abi::{
    Addresses, BUSY, Bandwidth, BaseInterface, FETCHED, Function, IN_PROGRESS, IO_ERROR,
    InterfaceAttributes, InterfaceOps, InternalOps, NO_MEMORY, OK, POSTED, PROGRESS, Status,
    UNSUPPORTED, event, flag, nothing, unsupported,
};
use crate::ep;
use crate::join::join;
use crate::library::{self, Library, Release};
use crate::objects::{Interface, Waiting};
use crate::rest;
use ginnel_fabric::active::{Active, LONGEST, Taken};
use ginnel_region::sys;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many messages one call of progress hands on.
const TURN: u32 = 32;

/// The table of functions. UCX copies it into each interface.
fn ops(library: &Library) -> InterfaceOps {
    let no = unsupported as Function;
    InterfaceOps {
        ep_put_short: library.memory.put_short,
        ep_put_bcopy: library.memory.put_bcopy,
        ep_put_zcopy: no,
        ep_get_short: no,
        ep_get_bcopy: library.memory.get_bcopy,
        ep_get_zcopy: no,
        ep_am_short: ep::am_short as Function,
        ep_am_short_iov: library.am_short_iov,
        ep_am_bcopy: ep::am_bcopy as Function,
        ep_am_zcopy: no,
        ep_atomic_cswap64: library.memory.cswap64,
        ep_atomic_cswap32: library.memory.cswap32,
        ep_atomic32_post: library.memory.post32,
        ep_atomic64_post: library.memory.post64,
        ep_atomic32_fetch: library.memory.fetch32,
        ep_atomic64_fetch: library.memory.fetch64,
        ep_tag: [no; 6],
        iface_tag: [no; 2],
        ep_pending_add: ep::pending_add as Function,
        ep_pending_purge: ep::pending_purge as Function,
        ep_flush: ep::flush as Function,
        ep_fence: library.memory.ep_fence,
        ep_check: nothing as Function,
        ep_create: ep::create as Function,
        ep_connect: no,
        ep_disconnect: no,
        cm_ep_conn_notify: no,
        ep_destroy: ep::destroy as Function,
        ep_get_address: no,
        ep_connect_to_ep: no,
        iface_accept: no,
        iface_reject: no,
        iface_flush: flush as Function,
        iface_fence: library.memory.iface_fence,
        iface_progress_enable: library.progress_enable,
        iface_progress_disable: library.progress_disable as Function,
        iface_progress: progress as Function,
        iface_event_fd_get: event_fd as Function,
        iface_event_arm: event_arm as Function,
        iface_close: close as Function,
        iface_query: query as Function,
        iface_get_device_address: device_address as Function,
        iface_get_address: address as Function,
        iface_is_reachable: if library.is_reachable.is_null() {
            is_reachable as Function
        } else {
            library.is_reachable
        },
    }
}

/// Functions that UCX's own layers call. One table for the process.
fn internal_ops(library: &Library) -> *const InternalOps {
    struct Kept(InternalOps);
    // SAFETY: addresses of functions.
    unsafe impl Send for Kept {}
    // SAFETY: as above.
    unsafe impl Sync for Kept {}
    static KEPT: OnceLock<Kept> = OnceLock::new();
    let no = unsupported as Function;
    let kept = KEPT.get_or_init(|| {
        Kept(InternalOps {
            iface_estimate_perf: library.estimate_perf,
            iface_vfs_refresh: nothing as Function,
            ep_query: no,
            ep_invalidate: no,
            ep_connect_to_ep: no,
            iface_is_reachable: is_reachable_by as Function,
            ep_is_connected: ep::is_connected as Function,
        })
    });
    &raw const kept.0
}

pub unsafe extern "C" fn open(
    domain: *mut c_void,
    worker: *mut c_void,
    parameters: *const c_void,
    settings: *const c_void,
    opened: *mut *mut BaseInterface,
) -> Status {
    let Some(library) = library::get() else { return NO_MEMORY };
    let active = match join(Active::open) {
        Ok(active) => active,
        Err(failed) => return failed,
    };
    let made = Box::into_raw(Box::new(Interface {
        // SAFETY: numbers and addresses, and functions that may be null.
        base: UnsafeCell::new(unsafe { std::mem::zeroed() }),
        active: UnsafeCell::new(active),
        waiting: Waiting::default(),
        within: Cell::new(false),
        armed: AtomicBool::new(false),
        owner: AtomicU64::new(0),
        at_once: rest::is_opening_at_once(),
    }));
    let table = ops(library);
    let mut initialised = 1;
    // SAFETY: UCX's rules; the tables are laid out as this release has them, and `base` has room
    // for its structure.
    let status = unsafe {
        (library.base_iface_init)(
            made.cast(),
            library.base_iface_class,
            &raw mut initialised,
            (&raw const table).cast(),
            internal_ops(library),
            domain,
            worker,
            parameters,
            settings,
        )
    };
    if status != OK {
        // SAFETY: made above, and nobody knows of it.
        unsafe { Box::from_raw(made) }.active.into_inner().close();
        return status;
    }
    // SAFETY: made above.
    rest::enter(unsafe { &*made });
    // SAFETY: UCX's rules.
    unsafe { *opened = made.cast() };
    OK
}

unsafe extern "C" fn close(base: *mut BaseInterface) {
    if let Some(library) = library::get() {
        // SAFETY: UCX's rules. What the base has of UCX's own needs no more: the release builds
        // keep no statistics.
        unsafe { (library.progress_disable)(base, PROGRESS) };
    }
    // SAFETY: UCX's rules.
    rest::leave(unsafe { Interface::of(base) });
    // SAFETY: UCX's rules: closed once, with nothing of it in use.
    unsafe { Box::from_raw(base.cast::<Interface>()) }.active.into_inner().close();
}

/// The longest message that UCX may send. UCX copies by the C library's memcpy, which takes one
/// string instruction (`rep movsb`) for more than 8 KiB where there is AVX: an emulated processor
/// does that byte by byte, and takes six times as long for it.
fn longest() -> usize {
    const EMULATED: usize = 8 << 10;
    if sys::is_emulated() { EMULATED } else { LONGEST }
}

unsafe extern "C" fn query(
    base: *mut BaseInterface,
    attributes: *mut InterfaceAttributes,
) -> Status {
    let Some(library) = library::get() else { return IO_ERROR };
    // SAFETY: UCX's rules.
    let attributes = unsafe {
        (library.base_iface_query)(base, attributes.cast());
        &mut *attributes
    };
    attributes.flags =
        flag::AM_SHORT | flag::AM_BCOPY | flag::PENDING | flag::CONNECT_TO_IFACE | flag::CB_SYNC;
    attributes.flags |= flag::PUT_SHORT | flag::PUT_BCOPY | flag::GET_BCOPY | flag::ATOMIC_CPU;
    if library.release == Some(Release::R18) {
        attributes.flags |= flag::INTER_NODE;
    }
    attributes.event_flags = event::SEND_COMP | event::RECV | event::FD;
    attributes.am.max_short = longest();
    attributes.am.max_bcopy = longest();
    attributes.am.opt_zcopy_align = 1;
    attributes.am.align_mtu = 1;
    attributes.am_max_iov = usize::MAX;
    attributes.put.max_short = u32::MAX as usize;
    attributes.put.max_bcopy = usize::MAX;
    attributes.put.max_iov = 1;
    attributes.put.opt_zcopy_align = 1;
    attributes.put.align_mtu = 1;
    attributes.get.max_bcopy = usize::MAX;
    attributes.get.max_iov = 1;
    attributes.get.opt_zcopy_align = 1;
    attributes.get.align_mtu = 1;
    attributes.atomic32 = [POSTED, FETCHED];
    attributes.atomic64 = [POSTED, FETCHED];
    attributes.device_addr_len = size_of::<u64>();
    attributes.iface_addr_len = size_of::<u64>();
    // About what UCX says of its own shared memory.
    attributes.overhead = 10e-9;
    attributes.bandwidth = Bandwidth { dedicated: 12e9, shared: 0.0 };
    attributes.latency = [80e-9, 0.0];
    OK
}

/// The segment's number: who has the same can be reached.
unsafe extern "C" fn device_address(base: *mut BaseInterface, to: *mut u8) -> Status {
    // SAFETY: UCX's rules: as many bytes as `query` says.
    unsafe { to.cast::<u64>().write_unaligned((*Interface::of(base).active()).segment_id()) };
    OK
}

/// The endpoint's name in the segment.
unsafe extern "C" fn address(base: *mut BaseInterface, to: *mut u8) -> Status {
    // SAFETY: UCX's rules: as many bytes as `query` says.
    unsafe { to.cast::<u64>().write_unaligned((*Interface::of(base).active()).id().0) };
    OK
}

unsafe extern "C" fn is_reachable(
    base: *mut BaseInterface,
    device: *const u8,
    _: *const u8,
) -> i32 {
    // SAFETY: UCX's rules: what another's `device_address` wrote.
    let theirs = (!device.is_null()).then(|| unsafe { device.cast::<u64>().read_unaligned() });
    // SAFETY: UCX's rules.
    i32::from(theirs == Some(unsafe { (*Interface::of(base).active()).segment_id() }))
}

/// The same as 1.18 asks it.
unsafe extern "C" fn is_reachable_by(base: *mut BaseInterface, addresses: *const Addresses) -> i32 {
    // SAFETY: UCX's rules.
    let addresses = unsafe { &*addresses };
    if addresses.field_mask & 1 == 0 {
        0
    } else {
        // SAFETY: UCX's rules: the first bit says that it is there.
        unsafe { is_reachable(base, addresses.device, addresses.iface) }
    }
}

/// Hands on what has come, and sends what waits for room. How much was done.
unsafe extern "C" fn progress(base: *mut BaseInterface) -> u32 {
    // SAFETY: UCX's rules.
    let interface = unsafe { Interface::of(base) };
    if interface.within.replace(true) {
        return 0;
    }
    rest::own(interface);
    if interface.is_armed() {
        interface.armed.store(false, Ordering::Relaxed);
        // SAFETY: UCX's rules.
        unsafe { (*interface.active()).node().awake() };
    }
    let mut done = 0;
    // SAFETY: UCX's rules; the engine is let go of before a handler is called.
    let take = || unsafe { (*interface.active()).take() };
    while done < TURN
        && let Some(taken) = take()
    {
        // SAFETY: UCX's rules.
        unsafe { hand_on(interface, &taken) };
        done += 1;
    }
    if !interface.waiting.is_empty() {
        // SAFETY: UCX's rules.
        done += unsafe { interface.waiting.dispatch(interface) };
    }
    interface.within.set(false);
    if done == 0 {
        // SAFETY: UCX's rules.
        if let Some(refused) = unsafe { (*interface.active()).refused() } {
            crate::refused::told(refused);
        }
        // SAFETY: UCX's rules.
        unsafe { rest::rest(interface) };
    } else {
        rest::reset();
    }
    done
}

/// Calls a message's handler, which copies what it keeps: the memory is used again.
///
/// # Safety
/// UCX's rules; the message was taken from this interface last.
#[inline]
unsafe fn hand_on(interface: &Interface, taken: &Taken) {
    // SAFETY: UCX's rules: it writes the table in calls only, of which none is under way; its
    // structure is laid out so.
    let handler = unsafe {
        (&raw const (*interface.base()).handlers)
            .cast::<crate::abi::Handler>()
            .add(taken.handler.into())
            .read()
    };
    if let Some(function) = handler.function {
        // SAFETY: UCX's rules: the handler is for messages of this interface.
        unsafe { function(handler.argument, taken.at.cast(), taken.len, 0) };
    }
}

/// Has all been sent that was asked for? UCX takes what waits for room into account here only.
unsafe extern "C" fn flush(base: *mut BaseInterface, _: u32, completion: *mut c_void) -> Status {
    if !completion.is_null() {
        return UNSUPPORTED;
    }
    // SAFETY: UCX's rules.
    if unsafe { Interface::of(base) }.is_busy() { IN_PROGRESS } else { OK }
}

/// The descriptor that becomes readable when the interface is woken.
unsafe extern "C" fn event_fd(base: *mut BaseInterface, fd: *mut i32) -> Status {
    // SAFETY: UCX's rules.
    unsafe { *fd = (*Interface::of(base).active()).node().fifo() };
    OK
}

/// The caller is about to poll the descriptor, unless there is something already.
unsafe extern "C" fn event_arm(base: *mut BaseInterface, _: u32) -> Status {
    // SAFETY: UCX's rules.
    let (interface, active) = unsafe { (Interface::of(base), &*Interface::of(base).active()) };
    rest::own(interface);
    active.node().sleeping();
    if active.has_news() || interface.is_busy() {
        active.node().awake();
        return BUSY;
    }
    interface.armed.store(true, Ordering::Relaxed);
    OK
}
