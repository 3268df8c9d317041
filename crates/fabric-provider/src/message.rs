//! Messages, without tags (fi_msg(3)) and with (fi_tagged(3)).

use crate::objects::endpoint as object;
use crate::state::number_of;
use crate::{Table, b, error, fails, info};
use ginnel_fabric::endpoint::Message;
use ginnel_fabric::matching::{Buffers, Posted};
use std::ffi::c_void;

type Size = isize;

pub static PLAIN: Table<b::fi_ops_msg> = Table(b::fi_ops_msg {
    size: size_of::<b::fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
});
pub static TAGGED: Table<b::fi_ops_tagged> = Table(b::fi_ops_tagged {
    size: size_of::<b::fi_ops_tagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(tsend),
    sendv: Some(tsendv),
    sendmsg: Some(tsendmsg),
    inject: Some(tinject),
    senddata: Some(tsenddata),
    injectdata: Some(tinjectdata),
});

/// Pieces of memory. `None`: more than an operation may have.
///
/// # Safety
/// `pieces` are as many as `count` says.
#[inline]
pub unsafe fn pieces(pieces: *const b::iovec, count: usize) -> Option<Buffers> {
    // SAFETY: the caller's promise.
    let piece =
        |at| unsafe { ((*pieces.add(at)).iov_base.cast::<u8>(), (*pieces.add(at)).iov_len) };
    match count {
        1 => {
            let (at, len) = piece(0);
            Some(Buffers::one(at, len))
        }
        ..=info::IOVS => Some(Buffers::of((0..count).map(piece))),
        _ => None,
    }
}

/// One piece of memory.
#[inline]
pub fn one(at: *const c_void, len: usize) -> Buffers {
    Buffers::one(at.cast::<u8>().cast_mut(), len)
}

/// Sends; `flags`: `None` for what a call without flags of its own has.
///
/// # Safety
/// libfabric's rules for the buffers.
#[inline]
unsafe fn put(
    ep: *mut b::fid_ep,
    (buffers, to): (Buffers, u64),
    (tag, data): (Option<u64>, Option<u64>),
    flags: Option<u64>,
    context: *mut c_void,
) -> Size {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(ep) };
    let mut held = object.shared.lock.lock();
    let done = held.way(object.at, to).and_then(|(bound, peer)| {
        // A call of an injecting function is never told of.
        let quiet = flags == INJECT;
        let flags = flags.filter(|_| !quiet).unwrap_or(bound.transmit.flags);
        let inject = quiet || flags & u64::from(b::FI_INJECT) != 0;
        if inject && buffers.len() > bound.endpoint.eager() {
            return Err(error(b::FI_EMSGSIZE));
        }
        let delivered = !quiet && flags & u64::from(b::FI_DELIVERY_COMPLETE) != 0;
        let report = !quiet && bound.transmit.tells(flags);
        let message = Message { tag, data, buffers, token: context as usize, report, delivered };
        // SAFETY: the caller's promise.
        unsafe { bound.endpoint.send(peer, message) }.map_err(number_of)
    });
    match done {
        Ok(()) => held.settle(object.at),
        // Where there is no room, some is made by taking what has come.
        Err(failed) if failed == error(b::FI_EAGAIN) => _ = held.progress(),
        Err(_) => {}
    }
    done.err().unwrap_or(0) as isize
}

/// # Safety
/// libfabric's rules for the buffers.
#[inline]
unsafe fn take(
    ep: *mut b::fid_ep,
    tagged: bool,
    (buffers, from): (Buffers, u64),
    (tag, ignore): (u64, u64),
    flags: Option<u64>,
    context: *mut c_void,
) -> Size {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(ep) };
    let mut held = object.shared.lock.lock();
    let state = &mut *held;
    let Some(bound) = state.bound[object.at].as_ref() else { return fails(b::FI_EINVAL) };
    let from = match state.source(bound, from) {
        Ok(from) => from,
        Err(failed) => return failed as isize,
    };
    let Some(bound) = state.bound[object.at].as_mut() else { return fails(b::FI_EINVAL) };
    let flags = flags.unwrap_or(bound.receive.flags);
    let has = |flag: u64| flags & flag != 0;
    let (peek, claim, discard) =
        (has(b::FI_PEEK.into()), tagged && has(b::FI_CLAIM), tagged && has(b::FI_DISCARD));
    let several = (has(b::FI_MULTI_RECV.into()) && !tagged).then_some(bound.least);
    let report = bound.receive.tells(flags);
    let posted = Posted { buffers, from, tag, ignore, token: context as usize, report, several };
    let done = if peek {
        // What has come, but was not taken yet, counts.
        bound.endpoint.progress(&state.memory);
        bound.endpoint.peek(tagged, &posted, claim, discard);
        0
    } else if claim || discard {
        // SAFETY: the caller's promise.
        unsafe { bound.endpoint.receive_claimed(tagged, posted, discard) }
            .map_or_else(number_of, |()| 0)
    } else {
        // SAFETY: the caller's promise.
        unsafe { bound.endpoint.receive(tagged, posted) };
        0
    };
    held.settle(object.at);
    done as isize
}

const INJECT: Option<u64> = Some(b::FI_INJECT as u64);
const EMPTY: *mut c_void = std::ptr::null_mut();

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) = $body:expr;)*) => {
        $(unsafe extern "C" fn $name(ep: *mut b::fid_ep, $($argument: $type),*) -> Size {
            // SAFETY: libfabric's rules.
            unsafe { ($body)(ep) }
        })*
    };
}

type In = *const c_void;
type Out = *mut c_void;
type Desc = *mut c_void;
type Descs = *mut *mut c_void;

calls! {
    send(at: In, len: usize, _d: Desc, to: u64, context: Out) =
        |ep| put(ep, (one(at, len), to), (None, None), None, context);
    senddata(at: In, len: usize, _d: Desc, data: u64, to: u64, context: Out) =
        |ep| put(ep, (one(at, len), to), (None, Some(data)), None, context);
    inject(at: In, len: usize, to: u64) =
        |ep| put(ep, (one(at, len), to), (None, None), INJECT, EMPTY);
    injectdata(at: In, len: usize, data: u64, to: u64) =
        |ep| put(ep, (one(at, len), to), (None, Some(data)), INJECT, EMPTY);
    tsend(at: In, len: usize, _d: Desc, to: u64, tag: u64, context: Out) =
        |ep| put(ep, (one(at, len), to), (Some(tag), None), None, context);
    tsenddata(at: In, len: usize, _d: Desc, data: u64, to: u64, tag: u64, context: Out) =
        |ep| put(ep, (one(at, len), to), (Some(tag), Some(data)), None, context);
    tinject(at: In, len: usize, to: u64, tag: u64) =
        |ep| put(ep, (one(at, len), to), (Some(tag), None), INJECT, EMPTY);
    tinjectdata(at: In, len: usize, data: u64, to: u64, tag: u64) =
        |ep| put(ep, (one(at, len), to), (Some(tag), Some(data)), INJECT, EMPTY);
    sendv(iov: *const b::iovec, _d: Descs, count: usize, to: u64, context: Out) =
        |ep| with(pieces(iov, count), |buffers| put(ep, (buffers, to), (None, None), None, context));
    tsendv(iov: *const b::iovec, _d: Descs, count: usize, to: u64, tag: u64, context: Out) =
        |ep| with(pieces(iov, count), |buffers| put(ep, (buffers, to), (Some(tag), None), None, context));
    sendmsg(message: *const b::fi_msg, flags: u64) = |ep| {
        let message = &*message;
        let data = (flags & u64::from(b::FI_REMOTE_CQ_DATA) != 0).then_some(message.data);
        with(pieces(message.msg_iov, message.iov_count), |buffers| {
            put(ep, (buffers, message.addr), (None, data), Some(flags | QUIET_NOT), message.context)
        })
    };
    tsendmsg(message: *const b::fi_msg_tagged, flags: u64) = |ep| {
        let message = &*message;
        let data = (flags & u64::from(b::FI_REMOTE_CQ_DATA) != 0).then_some(message.data);
        with(pieces(message.msg_iov, message.iov_count), |buffers| {
            put(ep, (buffers, message.addr), (Some(message.tag), data), Some(flags | QUIET_NOT), message.context)
        })
    };
    recv(at: Out, len: usize, _d: Desc, from: u64, context: Out) =
        |ep| take(ep, false, (one(at, len), from), (0, 0), None, context);
    recvv(iov: *const b::iovec, _d: Descs, count: usize, from: u64, context: Out) =
        |ep| with(pieces(iov, count), |buffers| take(ep, false, (buffers, from), (0, 0), None, context));
    recvmsg(message: *const b::fi_msg, flags: u64) = |ep| {
        let message = &*message;
        with(pieces(message.msg_iov, message.iov_count), |buffers| {
            take(ep, false, (buffers, message.addr), (0, 0), Some(flags), message.context)
        })
    };
    trecv(at: Out, len: usize, _d: Desc, from: u64, tag: u64, ignore: u64, context: Out) =
        |ep| take(ep, true, (one(at, len), from), (tag, ignore), None, context);
    trecvv(iov: *const b::iovec, _d: Descs, count: usize, from: u64, tag: u64, ignore: u64, context: Out) =
        |ep| with(pieces(iov, count), |buffers| take(ep, true, (buffers, from), (tag, ignore), None, context));
    trecvmsg(message: *const b::fi_msg_tagged, flags: u64) = |ep| {
        let message = &*message;
        with(pieces(message.msg_iov, message.iov_count), |buffers| {
            take(ep, true, (buffers, message.addr), (message.tag, message.ignore), Some(flags), message.context)
        })
    };
}

/// A flag of nobody's, by which a call with flags of its own is told from one of an injecting
/// function.
const QUIET_NOT: u64 = 1 << 63;

/// Goes on with the pieces of an operation's memory, if they are not too many.
pub fn with(buffers: Option<Buffers>, go_on: impl FnOnce(Buffers) -> Size) -> Size {
    buffers.map_or(fails(b::FI_EINVAL), go_on)
}
