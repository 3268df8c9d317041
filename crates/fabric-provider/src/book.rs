//! Address vectors (fi_av(3)). An address is a place in one; an endpoint's name is 24 bytes: a
//! mark, its segment's number, its own number there.

use crate::info::NAME_BYTES;
use crate::objects::Shared;
use crate::state::{Book, keep};
use crate::{ADDR_UNSPEC, Table, b, error, no_bind, no_control, operations, refuse};
use ginnel_fabric::EndpointId;
use std::collections::hash_map::Entry;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// The first bytes of an endpoint's name.
const MARK: [u8; 8] = *b"GINNELF1";

/// An endpoint's name.
pub fn encode(segment: u64, id: EndpointId) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    for (place, bytes) in
        name.chunks_exact_mut(8).zip([MARK, segment.to_le_bytes(), id.0.to_le_bytes()])
    {
        place.copy_from_slice(&bytes);
    }
    name
}

fn decode(name: &[u8; NAME_BYTES]) -> Option<(u64, EndpointId)> {
    let mut words =
        name.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
    (words.next() == Some(u64::from_le_bytes(MARK))).then_some(())?;
    Some((words.next()?, EndpointId(words.next()?)))
}

#[repr(C)]
struct Object {
    fid: b::fid_av,
    shared: Arc<Shared>,
    at: usize,
}

static FID: Table<b::fi_ops> = operations(close, no_bind, no_control);
static BOOK: Table<b::fi_ops_av> = Table(b::fi_ops_av {
    size: size_of::<b::fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(no_service),
    insertsym: Some(no_range),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: Some(no_set),
});

refuse! {
    no_service(*mut b::fid_av, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int;
    no_range(*mut b::fid_av, *const c_char, usize, *const c_char, usize, *mut u64, u64, *mut c_void) -> c_int;
    no_set(*mut b::fid_av, *mut b::fi_av_set_attr, *mut *mut b::fid_av_set, *mut c_void) -> c_int;
}

/// # Safety
/// `av` was made by [`open`], and is not closed.
unsafe fn object<'a>(av: *mut b::fid_av) -> &'a Object {
    // SAFETY: the caller's promise; the object begins with its `fid_av`.
    unsafe { &*av.cast::<Object>() }
}

/// Its place in its domain, if it is of this one.
///
/// # Safety
/// As for [`object`].
pub unsafe fn place(av: *mut b::fid, shared: &Arc<Shared>) -> Option<usize> {
    // SAFETY: the caller's promise.
    let object = unsafe { object(av.cast()) };
    Arc::ptr_eq(&object.shared, shared).then_some(object.at)
}

pub unsafe extern "C" fn open(
    domain: *mut b::fid_domain,
    attr: *mut b::fi_av_attr,
    av: *mut *mut b::fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's rules.
    let (shared, attr) = unsafe { (crate::objects::shared(domain), attr.as_mut()) };
    if let Some(attr) = attr {
        // Of several processes, or of what happens later: neither is here.
        if !attr.name.is_null() || attr.rx_ctx_bits != 0 || attr.flags & u64::from(b::FI_EVENT) != 0
        {
            return error(b::FI_ENOSYS);
        }
        if attr.type_ == b::FI_AV_UNSPEC {
            attr.type_ = b::FI_AV_TABLE;
        }
    }
    let at = keep(&mut shared.lock.lock().books, Book::default());
    let fid = b::fid { fclass: b::FI_CLASS_AV as usize, context, ops: FID.get() };
    let made = Box::new(Object { fid: b::fid_av { fid, ops: BOOK.get() }, shared, at });
    // SAFETY: libfabric's rules.
    unsafe { *av = Box::into_raw(made).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut b::fid) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(fid.cast()) };
    let mut held = object.shared.lock.lock();
    if held.bound.iter().flatten().any(|bound| bound.book == Some(object.at)) {
        return error(b::FI_EBUSY);
    }
    held.books[object.at] = None;
    drop(held);
    // SAFETY: libfabric's rules: closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Object>()) });
    0
}

unsafe extern "C" fn insert(
    av: *mut b::fid_av,
    names: *const c_void,
    count: usize,
    addresses: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(av) };
    let mut held = object.shared.lock.lock();
    let here = held.bound.iter().flatten().map(|bound| bound.endpoint.segment_id()).next();
    let Some(book) = held.books[object.at].as_mut() else { return error(b::FI_EINVAL) };
    let (mut good, mut elsewhere) = (0, 0);
    for at in 0..count {
        // SAFETY: libfabric's rules: so many names.
        let name = unsafe { names.cast::<[u8; NAME_BYTES]>().add(at).read_unaligned() };
        let known = decode(&name).filter(|(segment, _)| {
            let same = here.is_none_or(|here| here == *segment);
            elsewhere += usize::from(!same);
            same
        });
        let address = known.map_or(ADDR_UNSPEC, |(_, id)| {
            let address = book.names.len() as u64;
            book.names.push(known);
            book.numbers.entry(id).or_default().push(address);
            good += 1;
            address
        });
        if !addresses.is_null() {
            // SAFETY: libfabric's rules: so many addresses.
            unsafe { *addresses.add(at) = address };
        }
        if flags & b::FI_SYNC_ERR != 0 && !context.is_null() {
            let failed = if address == ADDR_UNSPEC { b::FI_EHOSTUNREACH as c_int } else { 0 };
            // SAFETY: libfabric's rules: so many numbers.
            unsafe { *context.cast::<c_int>().add(at) = failed };
        }
    }
    drop(held);
    if elsewhere > 0 {
        eprintln!(
            "ginnel: {elsewhere} of {count} endpoints are in another segment, or of another build, and cannot be \
             reached from here: all processes of a job need one GINNEL_DIR, which each of their containers has \
             mounted, and one version of libginnel-fi.so"
        );
    }
    good
}

unsafe extern "C" fn remove(
    av: *mut b::fid_av,
    addresses: *mut u64,
    count: usize,
    _: u64,
) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(av) };
    let mut held = object.shared.lock.lock();
    for at in 0..count {
        // SAFETY: libfabric's rules: so many addresses.
        let Ok(place) = usize::try_from(unsafe { *addresses.add(at) }) else { continue };
        let Some(book) = held.books[object.at].as_mut() else { return error(b::FI_EINVAL) };
        if let Some((_, id)) = book.names.get_mut(place).and_then(Option::take)
            && let Entry::Occupied(mut numbers) = book.numbers.entry(id)
        {
            numbers.get_mut().retain(|number| *number != place as u64);
            if numbers.get().is_empty() {
                numbers.remove();
            }
        }
        for bound in held.bound.iter_mut().flatten().filter(|bound| bound.book == Some(object.at)) {
            bound.forget(place);
        }
    }
    0
}

unsafe extern "C" fn lookup(
    av: *mut b::fid_av,
    address: u64,
    name: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: libfabric's rules.
    let object = unsafe { object(av) };
    let held = object.shared.lock.lock();
    let book = held.books[object.at].as_ref();
    let found = usize::try_from(address).ok().and_then(|at| book?.names.get(at).copied().flatten());
    let Some((segment, id)) = found else { return error(b::FI_EINVAL) };
    // SAFETY: libfabric's rules.
    unsafe { give_name(&encode(segment, id), name, len) };
    0
}

/// Copies as much of a name as there is room for, and says how long it is.
///
/// # Safety
/// `into` has room for `*len` bytes.
pub unsafe fn give_name(name: &[u8; NAME_BYTES], into: *mut c_void, len: *mut usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let fits = (*len).min(NAME_BYTES);
        std::ptr::copy_nonoverlapping(name.as_ptr(), into.cast::<u8>(), fits);
        *len = NAME_BYTES;
        fits == NAME_BYTES
    }
}

unsafe extern "C" fn straddr(
    _: *mut b::fid_av,
    name: *const c_void,
    buffer: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: libfabric's rules: a name.
    let bytes = unsafe { name.cast::<[u8; NAME_BYTES]>().read_unaligned() };
    let text = decode(&bytes).map_or_else(
        || "none".to_owned(),
        |(segment, id)| format!("ginnel://{segment:016x}/{:016x}", id.0),
    );
    // SAFETY: libfabric's rules: so many bytes.
    unsafe {
        if *len > 0 {
            let fits = text.len().min(*len - 1);
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, fits);
            *buffer.add(fits) = 0;
        }
        *len = text.len() + 1;
    }
    buffer
}
