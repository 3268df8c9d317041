//! Endpoints: messages, and requests that wait for room.

use crate::abi::{
    BUSY, BaseInterface, CONNECTION_RESET, EndpointParameters, IN_PROGRESS, INVALID_PARAM, IO_ERROR, NO_MEMORY, NO_RESOURCE, OK,
    Pending, Status, UNREACHABLE,
};
use crate::iface::Interface;
use ginnel_fabric::{EndpointId, Error};
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An endpoint. UCX knows it by its first word.
#[repr(C)]
pub struct End {
    base: *mut BaseInterface,
    id: EndpointId,
    way: u32,
}

/// Requests that wait for room, in order, with their endpoints.
type Queue = VecDeque<(*mut End, *mut Pending)>;

/// Such a queue for each way.
#[derive(Default)]
pub struct Waiting {
    queues: UnsafeCell<Vec<Queue>>,
    /// How many requests all of them have.
    count: AtomicUsize,
    /// A request is being tried on this way, and has not sent yet: what it sends does not queue. What
    /// is sent after that, by whoever is told that a message is done, does.
    trying: Cell<Option<u32>>,
}

impl Waiting {
    /// Calls `look` with a way's queue.
    #[inline]
    fn with<R>(&self, way: u32, look: impl FnOnce(&mut Queue) -> R) -> R {
        // SAFETY: one thread at a time, by UCX's rules; nothing that is called here comes back to
        // it.
        let queues = unsafe { &mut *self.queues.get() };
        if queues.len() <= way as usize {
            queues.resize_with(way as usize + 1, Queue::new);
        }
        let queue = &mut queues[way as usize];
        let before = queue.len();
        let done = look(queue);
        // One thread at a time writes it; another may look.
        self.count.store(self.count.load(Ordering::Relaxed) + queue.len() - before, Ordering::Relaxed);
        done
    }

    /// Are there none?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Does something wait on this way, before which nothing else may be sent there?
    #[inline]
    fn stands_before(&self, way: u32) -> bool {
        !self.is_empty() && self.trying.get() != Some(way) && self.with(way, |queue| !queue.is_empty())
    }

    /// A message was sent on this way.
    #[inline]
    fn has_sent(&self, way: u32) {
        if self.trying.get() == Some(way) {
            self.trying.set(None);
        }
    }

    /// Takes an endpoint's requests out.
    fn take_all(&self, way: u32, end: *mut End) -> Vec<*mut Pending> {
        let mut taken = Vec::new();
        let mut keep = |(other, request): &(*mut End, *mut Pending)| {
            if *other == end {
                taken.push(*request);
            }
            *other != end
        };
        self.with(way, |queue| queue.retain(&mut keep));
        taken
    }

    /// Tries what waits, each way until it is full again. How much was done.
    ///
    /// # Safety
    /// UCX's rules.
    #[cold]
    pub unsafe fn dispatch(&self, interface: &Interface) -> u32 {
        // SAFETY: as in `with`.
        let ways = unsafe { (&*self.queues.get()).len() } as u32;
        let mut done = 0;
        for way in 0..ways {
            while let Some((end, request)) = self.with(way, Queue::pop_front) {
                // SAFETY: UCX's rules.
                if !unsafe { try_one(interface, way, request, &mut done) } {
                    self.with(way, |queue| queue.push_front((end, request)));
                    break;
                }
            }
        }
        done
    }
}

/// Calls a request's function until it is done, or there is no room. True: it is done.
///
/// # Safety
/// UCX's rules.
unsafe fn try_one(interface: &Interface, way: u32, request: *mut Pending, done: &mut u32) -> bool {
    loop {
        // SAFETY: UCX's rules; the engine is let go of before the request is called.
        if unsafe { (*interface.active()).has_room(way) } == Ok(false) {
            return false;
        }
        interface.waiting.trying.set(Some(way));
        // SAFETY: UCX's rules: the request stays until it is done or purged.
        let status = unsafe { ((*request).function)(request) };
        interface.waiting.trying.set(None);
        match status {
            OK => {
                *done += 1;
                return true;
            }
            IN_PROGRESS => *done += 1,
            _ => return false,
        }
    }
}

/// UCX and the library above say "out of memory" at most.
#[cold]
fn say_full() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "ginnel: the segment has no room left for what this rank asks of it: GINNEL_SIZE (bytes) makes a larger one, once \
             no job uses this one"
        );
    });
}

pub fn status_of(error: Error) -> Status {
    match error {
        Error::Again => NO_RESOURCE,
        Error::Gone => CONNECTION_RESET,
        Error::NoMemory => {
            say_full();
            NO_MEMORY
        }
        Error::TooLong | Error::Invalid => INVALID_PARAM,
        Error::NoMessage | Error::System(..) => IO_ERROR,
    }
}

/// # Safety
/// UCX's rules.
#[inline]
unsafe fn parts<'a>(end: *mut End) -> (&'a End, &'a Interface) {
    // SAFETY: UCX's rules.
    unsafe { (&*end, Interface::of((*end).base)) }
}

pub unsafe extern "C" fn create(parameters: *const EndpointParameters, made: *mut *mut End) -> Status {
    // SAFETY: UCX's rules.
    let parameters = unsafe { &*parameters };
    const DEVICE_AND_INTERFACE: u64 = 1 << 2 | 1 << 3;
    if parameters.field_mask & DEVICE_AND_INTERFACE != DEVICE_AND_INTERFACE {
        return INVALID_PARAM;
    }
    // SAFETY: UCX's rules: what another's interface said of itself.
    let (segment, id) =
        unsafe { (parameters.dev_addr.cast::<u64>().read_unaligned(), parameters.iface_addr.cast::<u64>().read_unaligned()) };
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

pub unsafe extern "C" fn am_short(end: *mut End, handler: u8, header: u64, payload: *const u8, len: u32) -> Status {
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
    match unsafe { (*interface.active()).send_packed(end.way, handler, |to| pack(to.cast(), argument)) } {
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
    // SAFETY: UCX's rules.
    if !interface.waiting.stands_before(this.way) && unsafe { (*interface.active()).has_room(this.way) } != Ok(false) {
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
pub unsafe extern "C" fn is_connected(end: *mut End, addresses: *const crate::abi::Addresses) -> i32 {
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
