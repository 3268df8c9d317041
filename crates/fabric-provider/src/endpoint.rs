//! Endpoints (fi_endpoint(3)): made, bound, enabled, named.

use crate::objects::{EndpointObject, endpoint as object};
use crate::state::{Bound, keep};
use crate::{
    Table, b, book, counter, error, fails, info, message, operations, queue, refuse, remote,
};
use ginnel_fabric::endpoint::Tuning;
use ginnel_fabric::{Endpoint, node};
use std::ffi::{c_int, c_void};

static FID: Table<b::fi_ops> = operations(close, bind, control);
static ENDPOINT: Table<b::fi_ops_ep> = Table(b::fi_ops_ep {
    size: size_of::<b::fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(no_transmit),
    rx_ctx: Some(no_receive),
    rx_size_left: Some(no_left),
    tx_size_left: Some(no_left),
});
static NAMES: Table<b::fi_ops_cm> = Table(b::fi_ops_cm {
    size: size_of::<b::fi_ops_cm>(),
    setname: Some(no_setname),
    getname: Some(getname),
    getpeer: Some(no_peer),
    connect: Some(no_connect),
    listen: Some(no_listen),
    accept: Some(no_accept),
    reject: Some(no_reject),
    shutdown: Some(no_shutdown),
    join: Some(no_join),
});

refuse! {
    no_transmit(*mut b::fid_ep, c_int, *mut b::fi_tx_attr, *mut *mut b::fid_ep, *mut c_void) -> c_int;
    no_receive(*mut b::fid_ep, c_int, *mut b::fi_rx_attr, *mut *mut b::fid_ep, *mut c_void) -> c_int;
    no_left(*mut b::fid_ep) -> isize;
    no_setname(*mut b::fid, *mut c_void, usize) -> c_int;
    no_peer(*mut b::fid_ep, *mut c_void, *mut usize) -> c_int;
    no_connect(*mut b::fid_ep, *const c_void, *const c_void, usize) -> c_int;
    no_listen(*mut b::fid_pep) -> c_int;
    no_accept(*mut b::fid_ep, *const c_void, usize) -> c_int;
    no_reject(*mut b::fid_pep, *mut b::fid, *const c_void, usize) -> c_int;
    no_shutdown(*mut b::fid_ep, u64) -> c_int;
    no_join(*mut b::fid_ep, *const c_void, u64, *mut *mut b::fid_mc, *mut c_void) -> c_int;
}

/// Joins the segment.
fn join() -> Result<Endpoint, c_int> {
    let joined = node::join_default(|path, config| Endpoint::open(path, config, Tuning::default()));
    joined.map_err(|why| why.map_or_else(|| error(b::FI_EACCES), crate::state::number_of))
}

pub unsafe extern "C" fn open(
    domain: *mut b::fid_domain,
    info: *mut b::fi_info,
    ep: *mut *mut b::fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's rules.
    let (shared, info) = unsafe { (crate::objects::shared(domain), &*info) };
    let endpoint = match join() {
        Ok(endpoint) => endpoint,
        Err(failed) => return failed,
    };
    let mut bound = Bound::new(endpoint, info.caps & b::FI_DIRECTED_RECV != 0);
    // SAFETY: libfabric's rules: each is null or its structure.
    unsafe {
        bound.transmit.flags = info.tx_attr.as_ref().map_or(0, |tx| tx.op_flags);
        bound.receive.flags = info.rx_attr.as_ref().map_or(0, |rx| rx.op_flags);
    }
    let at = keep(&mut shared.lock.lock().bound, Box::new(bound));
    let fid = b::fid { fclass: b::FI_CLASS_EP as usize, context, ops: FID.get() };
    let made = EndpointObject {
        fid: b::fid_ep {
            fid,
            ops: ENDPOINT.get(),
            cm: NAMES.get(),
            msg: message::PLAIN.get(),
            rma: remote::REMOTE.get(),
            tagged: message::TAGGED.get(),
            atomic: remote::ATOMIC.get(),
            collective: std::ptr::null_mut(),
        },
        shared,
        at,
    };
    // SAFETY: libfabric's rules.
    unsafe { *ep = Box::into_raw(Box::new(made)).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules: closed once.
    let object = unsafe { Box::from_raw(fid.cast::<EndpointObject>()) };
    let bound = object.shared.lock.lock().bound[object.at].take();
    if let Some(bound) = bound {
        bound.endpoint.close();
    }
    0
}

unsafe extern "C" fn bind(fid: *mut b::fid, other: *mut b::fid, flags: u64) -> c_int {
    // SAFETY: libfabric's rules.
    let (object, class) = unsafe { (object(fid.cast()), (*other).fclass) };
    // SAFETY: as above: of this class.
    let place = unsafe {
        match u32::try_from(class).unwrap_or(0) {
            b::FI_CLASS_CQ => queue::place(other, &object.shared),
            b::FI_CLASS_AV => book::place(other, &object.shared),
            b::FI_CLASS_CNTR | b::FI_CLASS_EQ => Some(0),
            _ => return error(b::FI_EINVAL),
        }
    };
    let Some(place) = place else { return error(b::FI_EINVAL) };
    let mut held = object.shared.lock.lock();
    let state = &mut *held;
    let Some(bound) = state.bound[object.at].as_mut() else { return error(b::FI_EINVAL) };
    match u32::try_from(class).unwrap_or(0) {
        b::FI_CLASS_CQ => {
            let selective = flags & b::FI_SELECTIVE_COMPLETION != 0;
            for (flag, side) in
                [(b::FI_TRANSMIT, &mut bound.transmit), (b::FI_RECV, &mut bound.receive)]
            {
                if flags & u64::from(flag) != 0 {
                    (side.queue, side.selective) = (Some(place), selective);
                }
            }
            if let Some(queue) = &state.queues[place] {
                queue.watch(bound.endpoint.node().fifo());
            }
        }
        b::FI_CLASS_AV => bound.book = Some(place),
        b::FI_CLASS_CNTR => {
            // SAFETY: libfabric's rules: a counter.
            bound.counts.push((flags, unsafe { counter::count(other) }));
            bound.endpoint.count_all();
        }
        _ => {}
    }
    0
}

unsafe extern "C" fn control(fid: *mut b::fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let mut held = object.shared.lock.lock();
    let Some(bound) = held.bound[object.at].as_mut() else { return error(b::FI_EINVAL) };
    match u32::try_from(command).unwrap_or(u32::MAX) {
        b::FI_ENABLE if bound.book.is_none() => error(b::FI_ENOAV),
        b::FI_ENABLE => {
            bound.enabled = true;
            0
        }
        which @ (b::FI_GETOPSFLAG | b::FI_SETOPSFLAG) => {
            let flags = argument.cast::<u64>();
            // SAFETY: libfabric's rules: flags' place.
            let asked = unsafe { *flags };
            let sides = u64::from(b::FI_TRANSMIT | b::FI_RECV);
            let side = if asked & u64::from(b::FI_RECV) != 0 {
                &mut bound.receive
            } else {
                &mut bound.transmit
            };
            if which == b::FI_SETOPSFLAG {
                side.flags = asked & !sides;
            } else {
                // SAFETY: as above.
                unsafe { *flags = side.flags };
            }
            0
        }
        _ => error(b::FI_ENOSYS),
    }
}

unsafe extern "C" fn getname(fid: *mut b::fid, name: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let held = object.shared.lock.lock();
    let Some(bound) = held.bound[object.at].as_ref() else { return error(b::FI_EINVAL) };
    let own: [u8; info::NAME_BYTES] =
        book::encode(bound.endpoint.segment_id(), bound.endpoint.id());
    // SAFETY: libfabric's rules.
    if unsafe { book::give_name(&own, name, len) } { 0 } else { error(b::FI_ETOOSMALL) }
}

unsafe extern "C" fn cancel(fid: *mut b::fid, context: *mut c_void) -> isize {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let mut held = object.shared.lock.lock();
    let Some(bound) = held.bound[object.at].as_mut() else { return fails(b::FI_EINVAL) };
    let found = bound.endpoint.cancel(context as usize);
    held.settle(object.at);
    if found { 0 } else { fails(b::FI_ENOENT) }
}

unsafe extern "C" fn getopt(
    fid: *mut b::fid,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let held = object.shared.lock.lock();
    let Some(bound) = held.bound[object.at].as_ref() else { return error(b::FI_EINVAL) };
    if level != b::FI_OPT_ENDPOINT as c_int || option != b::FI_OPT_MIN_MULTI_RECV as c_int {
        return error(b::FI_ENOPROTOOPT);
    }
    // SAFETY: libfabric's rules: room for a size.
    unsafe {
        *value.cast::<usize>() = bound.least;
        *len = size_of::<usize>();
    }
    0
}

unsafe extern "C" fn setopt(
    fid: *mut b::fid,
    level: c_int,
    option: c_int,
    value: *const c_void,
    _: usize,
) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let mut held = object.shared.lock.lock();
    let Some(bound) = held.bound[object.at].as_mut() else { return error(b::FI_EINVAL) };
    if level != b::FI_OPT_ENDPOINT as c_int || option != b::FI_OPT_MIN_MULTI_RECV as c_int {
        return error(b::FI_ENOPROTOOPT);
    }
    // SAFETY: libfabric's rules: a size.
    bound.least = unsafe { *value.cast::<usize>() };
    0
}
