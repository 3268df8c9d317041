//! What the provider can do, and whether that is what was asked for (fi_getinfo(3)).

use crate::{b, duplicate, error};
use ginnel_fabric::endpoint::Tuning;
use std::ffi::{CStr, c_char, c_int};

pub const NAME: &CStr = c"ginnel";
/// 0.1
pub const VERSION: u32 = 1;
/// Bytes of an endpoint's name.
pub const NAME_BYTES: usize = 24;
/// A format that is nobody else's.
const FORMAT: u32 = b::FI_PROV_SPECIFIC | 0x6769;
const PROTOCOL: u32 = b::FI_PROV_SPECIFIC | 0x6769;

const KINDS: u64 = (b::FI_MSG | b::FI_TAGGED | b::FI_RMA | b::FI_ATOMIC) as u64;
const DIRECTIONS: u64 =
    (b::FI_SEND | b::FI_RECV | b::FI_READ | b::FI_WRITE | b::FI_REMOTE_READ | b::FI_REMOTE_WRITE)
        as u64;
const MULTI_RECV: u64 = b::FI_MULTI_RECV as u64;
const BESIDES: u64 =
    MULTI_RECV | b::FI_SOURCE | b::FI_DIRECTED_RECV | b::FI_LOCAL_COMM | b::FI_REMOTE_COMM;
const ALL: u64 = KINDS | DIRECTIONS | BESIDES;
/// Messages of one sender are matched in the order of their sending. Of operations on memory those
/// that change it in place are done in order.
const ORDER: u64 = b::FI_ORDER_SAS as u64
    | b::FI_ORDER_ATOMIC_RAR
    | b::FI_ORDER_ATOMIC_RAW
    | b::FI_ORDER_ATOMIC_WAR
    | b::FI_ORDER_ATOMIC_WAW;
const OPERATION_FLAGS: u64 = (b::FI_COMPLETION
    | b::FI_INJECT
    | b::FI_INJECT_COMPLETE
    | b::FI_TRANSMIT_COMPLETE
    | b::FI_DELIVERY_COMPLETE
    | b::FI_MULTI_RECV) as u64;

/// What a mask of capabilities that was asked for (0: any) gets.
fn capabilities(asked: u64) -> u64 {
    if asked == 0 {
        return ALL;
    }
    let kinds = if asked & KINDS == 0 { KINDS } else { asked & KINDS };
    let one_sided = kinds & (b::FI_RMA | b::FI_ATOMIC) as u64 != 0;
    let messages = kinds & (b::FI_MSG | b::FI_TAGGED) as u64 != 0;
    let directions = if asked & DIRECTIONS != 0 {
        asked & DIRECTIONS
    } else {
        let (send, receive) = (u64::from(b::FI_SEND), u64::from(b::FI_RECV));
        let of = |yes, flags| if yes { flags } else { 0 };
        of(messages, send | receive) | of(one_sided, DIRECTIONS & !(send | receive))
    };
    // Only where it is asked for does a receive look at whose a message is.
    kinds | directions | asked & BESIDES | b::FI_SOURCE | b::FI_LOCAL_COMM | b::FI_REMOTE_COMM
}

/// Which of the ways to register memory a domain has.
fn registration(version: u32, asked: Option<c_int>) -> c_int {
    let (basic, scalable) = (b::FI_MR_BASIC as c_int, b::FI_MR_SCALABLE as c_int);
    let bits = (b::FI_MR_VIRT_ADDR | b::FI_MR_PROV_KEY | b::FI_MR_ALLOCATED) as c_int;
    match asked {
        Some(mode) if mode == basic || mode == scalable => mode,
        _ if version < 1 << 16 | 5 => scalable,
        Some(mode) => mode & bits,
        None => 0,
    }
}

/// Do others call memory by the address that it has here? And does the provider choose the keys?
pub fn registers_by_address(mode: c_int) -> (bool, bool) {
    let has = |bit: u32| mode & bit as c_int != 0;
    let basic = mode == b::FI_MR_BASIC as c_int;
    (basic || has(b::FI_MR_VIRT_ADDR), basic || has(b::FI_MR_PROV_KEY))
}

/// Is a name that was asked for ours?
///
/// # Safety
/// `asked` is null or a terminated string.
unsafe fn is_ours(asked: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    asked.is_null() || unsafe { CStr::from_ptr(asked) } == NAME
}

/// Can the provider do what these hints ask for?
///
/// # Safety
/// `hints` is libfabric's.
unsafe fn fits(hints: &b::fi_info, tuning: &Tuning) -> bool {
    // SAFETY: libfabric's rules: each is null or its structure.
    let (tx, rx, ep, domain, fabric) = unsafe {
        (
            hints.tx_attr.as_ref(),
            hints.rx_attr.as_ref(),
            hints.ep_attr.as_ref(),
            hints.domain_attr.as_ref(),
            hints.fabric_attr.as_ref(),
        )
    };
    let format = [b::FI_FORMAT_UNSPEC, FORMAT].contains(&hints.addr_format);
    let tx = tx.is_none_or(|tx| {
        let sizes = tx.inject_size <= tuning.eager
            && tx.size <= SIZE
            && tx.iov_limit <= IOVS
            && tx.rma_iov_limit <= 1;
        sizes
            && tx.caps & !ALL == 0
            && tx.msg_order & !ORDER == 0
            && tx.comp_order == 0
            && tx.op_flags & !OPERATION_FLAGS == 0
    });
    let rx = rx.is_none_or(|rx| {
        let sizes = rx.size <= SIZE && rx.iov_limit <= IOVS;
        sizes
            && rx.caps & !ALL == 0
            && rx.msg_order & !ORDER == 0
            && rx.comp_order == 0
            && rx.op_flags & !OPERATION_FLAGS == 0
    });
    let ep = ep.is_none_or(|ep| {
        let kind = [b::FI_EP_UNSPEC, b::FI_EP_RDM].contains(&ep.type_)
            && [0, PROTOCOL].contains(&ep.protocol);
        kind && ep.max_msg_size <= LONGEST
            && ep.msg_prefix_size == 0
            && ep.auth_key_size == 0
            && ep.tx_ctx_cnt <= 1
            && ep.rx_ctx_cnt <= 1
    });
    let domain = domain.is_none_or(|domain| {
        // SAFETY: libfabric's rules.
        let name = unsafe { is_ours(domain.name) };
        let progress = domain.data_progress != b::FI_PROGRESS_AUTO;
        name && progress
            && domain.cq_data_size <= 8
            && domain.mr_key_size <= 8
            && domain.auth_key_size == 0
    });
    // SAFETY: libfabric's rules.
    let fabric = fabric.is_none_or(|fabric| unsafe { is_ours(fabric.name) });
    format && hints.caps & !ALL == 0 && tx && rx && ep && domain && fabric
}

/// Operations that may be under way.
const SIZE: usize = 1 << 16;
/// Pieces that memory of an operation may have.
pub const IOVS: usize = 8;
/// The longest message, bytes.
const LONGEST: usize = 1 << 40;

/// Tells what the provider does of what is asked for.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const b::fi_info,
    info: *mut *mut b::fi_info,
) -> c_int {
    let tuning = Tuning::default();
    // A name of another host's means nothing here, and one's own can only be this one.
    if !node.is_null() && flags & b::FI_SOURCE == 0 {
        return error(b::FI_ENODATA);
    }
    // SAFETY: libfabric's rules.
    let hints = unsafe { hints.as_ref() };
    // SAFETY: as above.
    if hints.is_some_and(|hints| !unsafe { fits(hints, &tuning) }) {
        return error(b::FI_ENODATA);
    }
    if let Err(why) = ginnel_fabric::node::default_path() {
        eprintln!("ginnel: {why}");
        return error(b::FI_ENODATA);
    }
    // SAFETY: null asks for an empty one.
    let made = unsafe { duplicate(std::ptr::null()) };
    // SAFETY: libfabric made it, with all of its parts.
    let done =
        unsafe { made.as_mut() }.is_some_and(|made| unsafe { fill(made, version, hints, &tuning) });
    if !done {
        return error(b::FI_ENOMEM);
    }
    // SAFETY: libfabric's rules.
    unsafe { *info = made };
    0
}

/// Writes what the provider is. False: a part is missing.
///
/// # Safety
/// `info` is libfabric's, empty and whole; `hints` is libfabric's.
unsafe fn fill(
    info: &mut b::fi_info,
    version: u32,
    hints: Option<&b::fi_info>,
    tuning: &Tuning,
) -> bool {
    // SAFETY: the caller's promise.
    let parts = unsafe {
        (
            info.tx_attr.as_mut(),
            info.rx_attr.as_mut(),
            info.ep_attr.as_mut(),
            info.domain_attr.as_mut(),
            info.fabric_attr.as_mut(),
        )
    };
    let (Some(tx), Some(rx), Some(ep), Some(domain), Some(fabric)) = parts else { return false };
    // SAFETY: libfabric's rules: each of the hints' is null or its structure.
    let (asked_tx, asked_rx, asked_domain) = unsafe {
        (
            hints.and_then(|hints| hints.tx_attr.as_ref()),
            hints.and_then(|hints| hints.rx_attr.as_ref()),
            hints.and_then(|hints| hints.domain_attr.as_ref()),
        )
    };
    info.caps = capabilities(hints.map_or(0, |hints| hints.caps));
    info.mode = 0;
    info.addr_format = FORMAT;
    let receives =
        u64::from(b::FI_RECV | b::FI_REMOTE_READ | b::FI_REMOTE_WRITE | b::FI_MULTI_RECV)
            | b::FI_SOURCE
            | b::FI_DIRECTED_RECV;
    let sends = u64::from(b::FI_SEND | b::FI_READ | b::FI_WRITE);
    tx.caps = info.caps & !receives;
    tx.op_flags = asked_tx.map_or(0, |tx| tx.op_flags);
    tx.msg_order = ORDER;
    tx.inject_size = tuning.eager;
    (tx.size, tx.iov_limit, tx.rma_iov_limit) = (1024, IOVS, 1);
    rx.caps = info.caps & !sends;
    rx.op_flags = asked_rx.map_or(0, |rx| rx.op_flags);
    rx.msg_order = ORDER;
    (rx.size, rx.iov_limit) = (1024, IOVS);
    (ep.type_, ep.protocol, ep.protocol_version) = (b::FI_EP_RDM, PROTOCOL, 1);
    ep.max_msg_size = LONGEST;
    ep.mem_tag_format = 0xaaaa_aaaa_aaaa_aaaa;
    (ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (1, 1);
    let threading = asked_domain.map_or(b::FI_THREAD_UNSPEC, |domain| domain.threading);
    domain.threading = if threading == b::FI_THREAD_UNSPEC { b::FI_THREAD_SAFE } else { threading };
    domain.control_progress = b::FI_PROGRESS_AUTO;
    domain.data_progress = b::FI_PROGRESS_MANUAL;
    domain.resource_mgmt = b::FI_RM_ENABLED;
    domain.av_type = asked_domain.map_or(b::FI_AV_UNSPEC, |domain| domain.av_type);
    domain.mr_mode = registration(version, asked_domain.map(|domain| domain.mr_mode));
    (domain.mr_key_size, domain.cq_data_size) = (8, 8);
    (domain.cq_cnt, domain.ep_cnt, domain.cntr_cnt, domain.mr_cnt) = (1024, 1024, 1024, SIZE);
    (domain.tx_ctx_cnt, domain.rx_ctx_cnt, domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) =
        (1024, 1024, 1, 1);
    domain.mr_iov_limit = 1;
    domain.caps = b::FI_LOCAL_COMM | b::FI_REMOTE_COMM;
    // libfabric frees both with the structure.
    // SAFETY: a terminated name.
    unsafe {
        (domain.name, fabric.name) = (libc::strdup(NAME.as_ptr()), libc::strdup(NAME.as_ptr()))
    };
    !domain.name.is_null() && !fabric.name.is_null()
}
