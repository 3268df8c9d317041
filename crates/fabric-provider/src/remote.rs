//! Memory of other endpoints: reading and writing (fi_rma(3)), operations on it (fi_atomic(3)).

use crate::message::{one, pieces, with};
use crate::objects::endpoint as object;
use crate::state::{Bound, number_of};
use crate::{Table, b, error, fails};
use ginnel_fabric::endpoint::Message;
use ginnel_fabric::matching::Buffers;
use ginnel_fabric::memory::{self, Element};
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};

type Size = isize;
type In = *const c_void;
type Out = *mut c_void;
type Desc = *mut c_void;
type Descs = *mut *mut c_void;

pub static REMOTE: Table<b::fi_ops_rma> = Table(b::fi_ops_rma {
    size: size_of::<b::fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject_write),
    writedata: Some(writedata),
    injectdata: Some(inject_writedata),
});
pub static ATOMIC: Table<b::fi_ops_atomic> = Table(b::fi_ops_atomic {
    size: size_of::<b::fi_ops_atomic>(),
    write: Some(change),
    writev: Some(changev),
    writemsg: Some(changemsg),
    inject: Some(inject_change),
    readwrite: Some(fetch),
    readwritev: Some(fetchv),
    readwritemsg: Some(fetchmsg),
    compwrite: Some(compare),
    compwritev: Some(comparev),
    compwritemsg: Some(comparemsg),
    writevalid: Some(change_is_valid),
    readwritevalid: Some(change_is_valid),
    compwritevalid: Some(compare_is_valid),
});

/// Where an operation goes: address, its memory, by which key.
type To = (u64, u64, u64);

/// How an operation is called.
#[derive(Clone, Copy)]
struct Call {
    /// `None`: what the endpoint has.
    flags: Option<u64>,
    /// An injecting function: never told of, and its memory is the caller's when it returns.
    quiet: bool,
    token: usize,
}

impl Call {
    fn of(context: *mut c_void) -> Self {
        Self { flags: None, quiet: false, token: context as usize }
    }

    fn with(flags: u64, context: *mut c_void) -> Self {
        Self { flags: Some(flags), ..Self::of(context) }
    }

    const QUIET: Self = Self { flags: None, quiet: true, token: 0 };

    fn reports(self, bound: &Bound) -> bool {
        !self.quiet && bound.transmit.tells(self.flags(bound))
    }

    /// Is its memory the caller's when it returns?
    fn injects(self, bound: &Bound) -> bool {
        self.quiet || self.flags(bound) & u64::from(b::FI_INJECT) != 0
    }

    fn flags(self, bound: &Bound) -> u64 {
        self.flags.unwrap_or(bound.transmit.flags)
    }
}

/// Finds the endpoint and the way to another one, does something with them, and tells what has
/// ended.
///
/// # Safety
/// libfabric's rules for the endpoint.
unsafe fn go(
    ep: *mut b::fid_ep,
    to: u64,
    begin: impl FnOnce(&mut Bound, u32) -> Result<(), c_int>,
) -> Size {
    // SAFETY: the caller's promise.
    let object = unsafe { object(ep) };
    let mut held = object.shared.lock.lock();
    let done = held.way(object.at, to).and_then(|(bound, peer)| begin(bound, peer));
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
unsafe fn put(
    ep: *mut b::fid_ep,
    (to, address, key): To,
    buffers: Buffers,
    data: Option<u64>,
    call: Call,
) -> Size {
    let begin = |bound: &mut Bound, peer| {
        if call.injects(bound) && buffers.len() > bound.endpoint.eager() {
            return Err(error(b::FI_EMSGSIZE));
        }
        let (token, report) = (call.token, call.reports(bound));
        let message = Message { tag: None, data, buffers, token, report, delivered: true };
        // SAFETY: the caller's promise.
        unsafe { bound.endpoint.write(peer, key, address, message) }.map_err(number_of)
    };
    // SAFETY: the caller's promise.
    unsafe { go(ep, to, begin) }
}

/// # Safety
/// libfabric's rules for the buffers.
unsafe fn get(ep: *mut b::fid_ep, (from, address, key): To, buffers: Buffers, call: Call) -> Size {
    let begin = |bound: &mut Bound, peer| {
        let report = call.reports(bound);
        // SAFETY: the caller's promise.
        unsafe { bound.endpoint.read(peer, key, address, buffers, call.token, report) }
            .map_err(number_of)
    };
    // SAFETY: the caller's promise.
    unsafe { go(ep, from, begin) }
}

/// The one piece of another's memory that a message names, and where it is.
///
/// # Safety
/// `message` is libfabric's.
unsafe fn to(message: &b::fi_msg_rma) -> Option<To> {
    // SAFETY: the caller's promise: as many as it says.
    (message.rma_iov_count == 1)
        .then(|| unsafe { (message.addr, (*message.rma_iov).addr, (*message.rma_iov).key) })
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) = $body:expr;)*) => {
        $(unsafe extern "C" fn $name(ep: *mut b::fid_ep, $($argument: $type),*) -> Size {
            // SAFETY: libfabric's rules.
            unsafe { ($body)(ep) }
        })*
    };
}

calls! {
    read(at: Out, len: usize, _d: Desc, from: u64, address: u64, key: u64, context: Out) =
        |ep| get(ep, (from, address, key), one(at, len), Call::of(context));
    readv(iov: *const b::iovec, _d: Descs, count: usize, from: u64, address: u64, key: u64, context: Out) =
        |ep| with(pieces(iov, count), |buffers| get(ep, (from, address, key), buffers, Call::of(context)));
    readmsg(message: *const b::fi_msg_rma, flags: u64) = |ep| {
        let message = &*message;
        let Some(from) = to(message) else { return fails(b::FI_EINVAL) };
        let call = Call::with(flags, message.context);
        with(pieces(message.msg_iov, message.iov_count), |buffers| get(ep, from, buffers, call))
    };
    write(at: In, len: usize, _d: Desc, to: u64, address: u64, key: u64, context: Out) =
        |ep| put(ep, (to, address, key), one(at, len), None, Call::of(context));
    writev(iov: *const b::iovec, _d: Descs, count: usize, to: u64, address: u64, key: u64, context: Out) =
        |ep| with(pieces(iov, count), |buffers| put(ep, (to, address, key), buffers, None, Call::of(context)));
    writemsg(message: *const b::fi_msg_rma, flags: u64) = |ep| {
        let message = &*message;
        let Some(to) = to(message) else { return fails(b::FI_EINVAL) };
        let data = (flags & u64::from(b::FI_REMOTE_CQ_DATA) != 0).then_some(message.data);
        let call = Call::with(flags, message.context);
        with(pieces(message.msg_iov, message.iov_count), |buffers| put(ep, to, buffers, data, call))
    };
    inject_write(at: In, len: usize, to: u64, address: u64, key: u64) =
        |ep| put(ep, (to, address, key), one(at, len), None, Call::QUIET);
    writedata(at: In, len: usize, _d: Desc, data: u64, to: u64, address: u64, key: u64, context: Out) =
        |ep| put(ep, (to, address, key), one(at, len), Some(data), Call::of(context));
    inject_writedata(at: In, len: usize, data: u64, to: u64, address: u64, key: u64) =
        |ep| put(ep, (to, address, key), one(at, len), Some(data), Call::QUIET);
}

/// The operands of an operation on memory: with what, and what to compare with.
#[derive(Clone, Copy)]
struct Operands<'a> {
    with: &'a [b::fi_ioc],
    compare: &'a [b::fi_ioc],
    kind: b::fi_datatype,
    operation: b::fi_op,
}

impl Operands<'_> {
    /// The payload that says so to the other end; `None`: what this provider does not do.
    ///
    /// # Safety
    /// Each piece is readable for its elements.
    unsafe fn payload(&self, elements: usize) -> Option<SmallVec<[u8; 128]>> {
        let element = Element::of(self.kind)?;
        let count = u32::try_from(elements).ok()?;
        if !memory::is_known(self.operation, element)
            || memory::compares(self.operation) == self.compare.is_empty()
        {
            return None;
        }
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
        bytes.extend([self.operation as u8, self.kind as u8, 0, 0]);
        bytes.extend(count.to_le_bytes());
        let wanted = elements * element.size();
        for pieces in [self.with, self.compare].into_iter().filter(|pieces| !pieces.is_empty()) {
            let before = bytes.len();
            for piece in pieces.iter().filter(|piece| !piece.addr.is_null()) {
                // SAFETY: the caller's promise.
                bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(
                        piece.addr.cast::<u8>(),
                        piece.count * element.size(),
                    )
                });
            }
            // A read has no operand.
            if self.operation == memory::op::READ {
                bytes.resize(before + wanted, 0);
            }
            if bytes.len() - before != wanted {
                return None;
            }
        }
        Some(bytes)
    }
}

/// # Safety
/// libfabric's rules for operands and results.
unsafe fn apply(
    ep: *mut b::fid_ep,
    (to, address, key): To,
    operands: Operands<'_>,
    results: Option<&[b::fi_ioc]>,
    call: Call,
) -> Size {
    let size = Element::of(operands.kind).map_or(0, Element::size);
    let elements = match results {
        Some(results) => results.iter().map(|piece| piece.count).sum(),
        None => operands.with.iter().map(|piece| piece.count).sum(),
    };
    let answer = results.map(|results| {
        Buffers::of(results.iter().map(|piece| (piece.addr.cast::<u8>(), piece.count * size)))
    });
    // SAFETY: the caller's promise.
    let Some(payload) = (unsafe { operands.payload(elements) }) else {
        return fails(b::FI_EOPNOTSUPP);
    };
    let begin = |bound: &mut Bound, peer| {
        let how = (call.token, call.reports(bound));
        // SAFETY: the caller's promise.
        unsafe { bound.endpoint.apply(peer, (key, address), &payload, answer, how) }
            .map_err(number_of)
    };
    // SAFETY: the caller's promise.
    unsafe { go(ep, to, begin) }
}

/// One piece of operands.
fn operand(at: In, count: usize) -> [b::fi_ioc; 1] {
    [b::fi_ioc { addr: at.cast_mut(), count }]
}

/// # Safety
/// As many pieces as `count` says.
unsafe fn several<'a>(pieces: *const b::fi_ioc, count: usize) -> &'a [b::fi_ioc] {
    if pieces.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pieces, count) }
}

/// The message form: where to, and what with.
///
/// # Safety
/// `message` is libfabric's.
unsafe fn of_message(message: &b::fi_msg_atomic) -> Option<(To, &[b::fi_ioc])> {
    // SAFETY: the caller's promise: as many as it says.
    (message.rma_iov_count == 1).then(|| unsafe {
        let memory = &*message.rma_iov;
        ((message.addr, memory.addr, memory.key), several(message.msg_iov, message.iov_count))
    })
}

type Ioc = *const b::fi_ioc;

calls! {
    change(at: In, count: usize, _d: Desc, to: u64, address: u64, key: u64, kind: b::fi_datatype, operation: b::fi_op, context: Out) =
        |ep| apply(ep, (to, address, key), Operands { with: &operand(at, count), compare: &[], kind, operation }, None, Call::of(context));
    inject_change(at: In, count: usize, to: u64, address: u64, key: u64, kind: b::fi_datatype, operation: b::fi_op) =
        |ep| apply(ep, (to, address, key), Operands { with: &operand(at, count), compare: &[], kind, operation }, None, Call::QUIET);
    changev(iov: Ioc, _d: Descs, count: usize, to: u64, address: u64, key: u64, kind: b::fi_datatype, operation: b::fi_op, context: Out) =
        |ep| apply(ep, (to, address, key), Operands { with: several(iov, count), compare: &[], kind, operation }, None, Call::of(context));
    changemsg(message: *const b::fi_msg_atomic, flags: u64) = |ep| {
        let message = &*message;
        let Some((to, with)) = of_message(message) else { return fails(b::FI_EINVAL) };
        let operands = Operands { with, compare: &[], kind: message.datatype, operation: message.op };
        apply(ep, to, operands, None, Call::with(flags, message.context))
    };
    fetch(at: In, count: usize, _d: Desc, result: Out, _rd: Desc, to: u64, address: u64, key: u64,
          kind: b::fi_datatype, operation: b::fi_op, context: Out) =
        |ep| apply(ep, (to, address, key), Operands { with: &operand(at, count), compare: &[], kind, operation },
                   Some(&operand(result, count)), Call::of(context));
    fetchv(iov: Ioc, _d: Descs, count: usize, results: *mut b::fi_ioc, _rd: Descs, result_count: usize, to: u64, address: u64, key: u64,
           kind: b::fi_datatype, operation: b::fi_op, context: Out) =
        |ep| apply(ep, (to, address, key), Operands { with: several(iov, count), compare: &[], kind, operation },
                   Some(several(results, result_count)), Call::of(context));
    fetchmsg(message: *const b::fi_msg_atomic, results: *mut b::fi_ioc, _rd: Descs, result_count: usize, flags: u64) = |ep| {
        let message = &*message;
        let Some((to, with)) = of_message(message) else { return fails(b::FI_EINVAL) };
        let operands = Operands { with, compare: &[], kind: message.datatype, operation: message.op };
        apply(ep, to, operands, Some(several(results, result_count)), Call::with(flags, message.context))
    };
    compare(at: In, count: usize, _d: Desc, against: In, _cd: Desc, result: Out, _rd: Desc, to: u64, address: u64, key: u64,
            kind: b::fi_datatype, operation: b::fi_op, context: Out) =
        |ep| apply(ep, (to, address, key), Operands { with: &operand(at, count), compare: &operand(against, count), kind, operation },
                   Some(&operand(result, count)), Call::of(context));
    comparev(iov: Ioc, _d: Descs, count: usize, against: Ioc, _cd: Descs, against_count: usize,
             results: *mut b::fi_ioc, _rd: Descs, result_count: usize, to: u64, address: u64, key: u64,
             kind: b::fi_datatype, operation: b::fi_op, context: Out) =
        |ep| apply(ep, (to, address, key),
                   Operands { with: several(iov, count), compare: several(against, against_count), kind, operation },
                   Some(several(results, result_count)), Call::of(context));
    comparemsg(message: *const b::fi_msg_atomic, against: Ioc, _cd: Descs, against_count: usize,
               results: *mut b::fi_ioc, _rd: Descs, result_count: usize, flags: u64) = |ep| {
        let message = &*message;
        let Some((to, with)) = of_message(message) else { return fails(b::FI_EINVAL) };
        let operands = Operands { with, compare: several(against, against_count), kind: message.datatype, operation: message.op };
        apply(ep, to, operands, Some(several(results, result_count)), Call::with(flags, message.context))
    };
}

/// How many elements one operation may have, and how large they are; `None`: there is no such
/// operation.
fn valid(kind: b::fi_datatype, operation: b::fi_op) -> Option<(usize, usize)> {
    let element = Element::of(kind).filter(|element| memory::is_known(operation, *element))?;
    let sets = if memory::compares(operation) { 2 } else { 1 };
    let most = ginnel_fabric::endpoint::Tuning::default().eager - 8;
    Some((most / sets / element.size(), element.size()))
}

/// # Safety
/// `count` is a number's place.
unsafe fn say(found: Option<(usize, usize)>, count: *mut usize) -> c_int {
    let Some((most, _)) = found else { return error(b::FI_EOPNOTSUPP) };
    // SAFETY: the caller's promise.
    unsafe { *count = most };
    0
}

unsafe extern "C" fn change_is_valid(
    _: *mut b::fid_ep,
    kind: b::fi_datatype,
    operation: b::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe { say(valid(kind, operation).filter(|_| !memory::compares(operation)), count) }
}

unsafe extern "C" fn compare_is_valid(
    _: *mut b::fid_ep,
    kind: b::fi_datatype,
    operation: b::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: libfabric's rules.
    unsafe { say(valid(kind, operation).filter(|_| memory::compares(operation)), count) }
}

pub unsafe extern "C" fn query(
    _: *mut b::fid_domain,
    kind: b::fi_datatype,
    operation: b::fi_op,
    attr: *mut b::fi_atomic_attr,
    _: u64,
) -> c_int {
    let Some((count, size)) = valid(kind, operation) else { return error(b::FI_EOPNOTSUPP) };
    // SAFETY: libfabric's rules.
    unsafe { *attr = b::fi_atomic_attr { count, size } };
    0
}
