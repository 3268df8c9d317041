//! Completion queues (fi_cq(3)).

use crate::completion::Queue;
use crate::lock::Held;
use crate::objects::Shared;
use crate::state::{State, keep};
use crate::wait::{self, Until};
use crate::{ADDR_UNSPEC, Table, b, error, fails, no_bind, operations};
use ginnel_fabric::EndpointId;
use ginnel_fabric::endpoint::Failure;
use ginnel_region::sys::Fd;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

#[repr(C)]
struct Object {
    fid: b::fid_cq,
    shared: Arc<Shared>,
    at: usize,
}

static FID: Table<b::fi_ops> = operations(close, no_bind, control);
static QUEUE: Table<b::fi_ops_cq> = Table(b::fi_ops_cq {
    size: size_of::<b::fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
});

/// # Safety
/// `cq` was made by [`open`], and is not closed.
unsafe fn object<'a>(cq: *mut b::fid_cq) -> &'a Object {
    // SAFETY: the caller's promise; the object begins with its `fid_cq`.
    unsafe { &*cq.cast::<Object>() }
}

/// The queue's place in its domain, if it is of this one.
///
/// # Safety
/// As for [`object`].
pub unsafe fn place(cq: *mut b::fid, shared: &Arc<Shared>) -> Option<usize> {
    // SAFETY: the caller's promise.
    let object = unsafe { object(cq.cast()) };
    Arc::ptr_eq(&object.shared, shared).then_some(object.at)
}

/// What it shares, and its place there.
///
/// # Safety
/// As for [`object`].
unsafe fn shared<'a>(cq: *mut b::fid) -> (&'a Shared, usize) {
    // SAFETY: the caller's promise.
    let object = unsafe { object(cq.cast()) };
    (&object.shared, object.at)
}

pub unsafe extern "C" fn open(
    domain: *mut b::fid_domain,
    attr: *mut b::fi_cq_attr,
    cq: *mut *mut b::fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's rules.
    let (shared, attr) = unsafe { (crate::objects::shared(domain), attr.as_ref()) };
    let format = attr.map_or(b::FI_CQ_FORMAT_UNSPEC, |attr| attr.format);
    let size = match format {
        b::FI_CQ_FORMAT_UNSPEC | b::FI_CQ_FORMAT_CONTEXT => size_of::<b::fi_cq_entry>(),
        b::FI_CQ_FORMAT_MSG => size_of::<b::fi_cq_msg_entry>(),
        b::FI_CQ_FORMAT_DATA => size_of::<b::fi_cq_data_entry>(),
        b::FI_CQ_FORMAT_TAGGED => size_of::<b::fi_cq_tagged_entry>(),
        _ => return error(b::FI_EINVAL),
    };
    let set = match attr.map_or(b::FI_WAIT_NONE, |attr| attr.wait_obj) {
        b::FI_WAIT_NONE | b::FI_WAIT_UNSPEC | b::FI_WAIT_YIELD => None,
        b::FI_WAIT_FD => {
            // SAFETY: no memory is passed.
            let set = Fd(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
            if set.0 < 0 {
                return error(b::FI_EMFILE);
            }
            Some(set)
        }
        _ => return error(b::FI_ENOSYS),
    };
    let queue = Queue { entries: VecDeque::with_capacity(256), size, set, signalled: false };
    let at = keep(&mut shared.lock.lock().queues, queue);
    let fid = b::fid { fclass: b::FI_CLASS_CQ as usize, context, ops: FID.get() };
    let made = Box::new(Object { fid: b::fid_cq { fid, ops: QUEUE.get() }, shared, at });
    // SAFETY: libfabric's rules.
    unsafe { *cq = Box::into_raw(made).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let mut held = object.shared.lock.lock();
    let used = |bound: &&crate::state::Bound| {
        [bound.transmit.queue, bound.receive.queue].contains(&Some(object.at))
    };
    if held.bound.iter().flatten().map(|bound| &**bound).any(|bound| used(&bound)) {
        return error(b::FI_EBUSY);
    }
    held.queues[object.at] = None;
    drop(held);
    // SAFETY: libfabric's rules: closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Object>()) });
    0
}

unsafe extern "C" fn control(fid: *mut b::fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let held = object.shared.lock.lock();
    let set = held.queues[object.at].as_ref().and_then(|queue| queue.set.as_ref());
    match (u32::try_from(command).unwrap_or(u32::MAX), set) {
        (b::FI_GETWAIT, Some(set)) => {
            // SAFETY: libfabric's rules: a number's place.
            unsafe { *argument.cast::<c_int>() = set.0 };
            0
        }
        (b::FI_GETWAITOBJ, set) => {
            let object = if set.is_some() { b::FI_WAIT_FD } else { b::FI_WAIT_UNSPEC };
            // SAFETY: libfabric's rules: an enumeration's place.
            unsafe { *argument.cast::<b::fi_wait_obj>() = object };
            0
        }
        _ => error(b::FI_ENOSYS),
    }
}

/// Takes what is there, at most `count`. `None`: nothing.
///
/// # Safety
/// `buffer` has room for `count` entries of the queue's format, `from` for as many addresses or is
/// null.
#[inline(always)]
unsafe fn take(
    held: &mut Held<'_, State>,
    at: usize,
    buffer: *mut c_void,
    count: usize,
    from: *mut u64,
) -> Option<isize> {
    let mut taken = 0;
    loop {
        let queue = held.queues.get_mut(at)?.as_mut()?;
        let Some(next) = queue.entries.front() else { break };
        if next.failure.is_some() {
            return Some(if taken == 0 { fails(b::FI_EAVAIL) } else { taken });
        }
        if taken as usize == count {
            break;
        }
        let size = queue.size;
        // SAFETY: the caller's promise.
        unsafe { next.write(buffer.cast::<u8>().add(taken as usize * size), size) };
        let (id, book) = (next.from, next.book);
        queue.entries.pop_front();
        if !from.is_null() {
            let address = if id == EndpointId(0) { ADDR_UNSPEC } else { held.address_of(book, id) };
            // SAFETY: the caller's promise.
            unsafe { *from.add(taken as usize) = address };
        }
        taken += 1;
    }
    (taken > 0).then_some(taken)
}

unsafe extern "C" fn read(cq: *mut b::fid_cq, buffer: *mut c_void, count: usize) -> isize {
    // SAFETY: libfabric's rules.
    unsafe { readfrom(cq, buffer, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut b::fid_cq,
    buffer: *mut c_void,
    count: usize,
    from: *mut u64,
) -> isize {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(cq) };
    let mut held = object.shared.lock.lock();
    wait::heard(&mut held);
    held.progress();
    // SAFETY: libfabric's rules.
    match unsafe { take(&mut held, object.at, buffer, count, from) } {
        Some(taken) => taken,
        None => {
            wait::rest(&object.shared, held);
            fails(b::FI_EAGAIN)
        }
    }
}

unsafe extern "C" fn sread(
    cq: *mut b::fid_cq,
    buffer: *mut c_void,
    count: usize,
    condition: *const c_void,
    ms: c_int,
) -> isize {
    // SAFETY: libfabric's rules.
    unsafe { sreadfrom(cq, buffer, count, std::ptr::null_mut(), condition, ms) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut b::fid_cq,
    buffer: *mut c_void,
    count: usize,
    from: *mut u64,
    _condition: *const c_void,
    ms: c_int,
) -> isize {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(cq) };
    let until = Until::of(ms);
    loop {
        let mut held = object.shared.lock.lock();
        held.progress();
        // SAFETY: libfabric's rules.
        if let Some(taken) = unsafe { take(&mut held, object.at, buffer, count, from) } {
            return taken;
        }
        let signalled = held.queues[object.at]
            .as_mut()
            .is_some_and(|queue| std::mem::take(&mut queue.signalled));
        if signalled || !wait::sleep(&object.shared, held, &until) {
            return fails(b::FI_EAGAIN);
        }
    }
}

unsafe extern "C" fn signal(cq: *mut b::fid_cq) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(cq) };
    let mut held = object.shared.lock.lock();
    if let Some(queue) = held.queues[object.at].as_mut() {
        queue.signalled = true;
    }
    held.wake_own();
    0
}

/// May the caller sleep on the descriptors of these (queues)?
pub unsafe extern "C" fn trywait(
    _: *mut b::fid_fabric,
    fids: *mut *mut b::fid,
    count: c_int,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: libfabric's rules: so many objects.
    for fid in (0..count).map(|at| unsafe { *fids.add(at) }) {
        // SAFETY: libfabric's rules.
        if unsafe { (*fid).fclass } != b::FI_CLASS_CQ as usize {
            continue;
        }
        // SAFETY: as above.
        let (shared, at) = unsafe { shared(fid) };
        let mut held = shared.lock.lock();
        if !held.polled {
            held.polled = true;
            held.fall_asleep();
        }
        held.progress();
        if held.queues[at].as_ref().is_some_and(|queue| !queue.is_empty()) {
            wait::heard(&mut held);
            return error(b::FI_EAGAIN);
        }
    }
    0
}

/// libfabric's number for a failure, and by how much a message was too long.
fn failed(failure: Failure) -> (u32, usize) {
    match failure {
        Failure::Truncated(by) => (b::FI_ETRUNC, by),
        Failure::Cancelled => (b::FI_ECANCELED, 0),
        Failure::NoMessage => (b::FI_ENOMSG, 0),
        Failure::Gone => (b::FI_ECONNRESET, 0),
        Failure::Refused => (b::FI_EACCES, 0),
    }
}

unsafe extern "C" fn readerr(cq: *mut b::fid_cq, into: *mut b::fi_cq_err_entry, _: u64) -> isize {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(cq) };
    let mut held = object.shared.lock.lock();
    let Some(queue) = held.queues[object.at].as_mut() else { return fails(b::FI_EINVAL) };
    let Some(failure) = queue.entries.front().and_then(|next| next.failure) else {
        return fails(b::FI_EAGAIN);
    };
    let Some(entry) = queue.entries.pop_front() else { return fails(b::FI_EAGAIN) };
    let (wide, (number, over)) = (entry.wide, failed(failure));
    // SAFETY: libfabric's rules. What follows these in later versions is the caller's.
    unsafe {
        (*into).op_context = wide.op_context;
        (*into).flags = wide.flags;
        (*into).len = wide.len;
        (*into).buf = wide.buf;
        (*into).data = wide.data;
        (*into).tag = wide.tag;
        (*into).olen = over;
        (*into).err = number as c_int;
        (*into).prov_errno = number as c_int;
        (*into).err_data_size = 0;
    }
    1
}

unsafe extern "C" fn strerror(
    _: *mut b::fid_cq,
    number: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    let text: &CStr = match u32::try_from(number).unwrap_or(0) {
        b::FI_ETRUNC => c"the message was longer than its receive",
        b::FI_ECANCELED => c"the operation was cancelled",
        b::FI_ENOMSG => c"no such message has come",
        b::FI_ECONNRESET => c"the other endpoint is gone",
        b::FI_EACCES => c"the other endpoint has no such memory, or not for this",
        _ => c"unknown error",
    };
    if !buffer.is_null() && len > 0 {
        // SAFETY: libfabric's rules: so many bytes.
        unsafe {
            libc::strncpy(buffer, text.as_ptr(), len - 1);
            *buffer.add(len - 1) = 0;
        }
    }
    text.as_ptr()
}
