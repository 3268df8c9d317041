//! The client of `ginnel-cache` for C: what `include/ginnel-cache.h` says.
//!
//! Each function is a few lines over [`ginnel_cache::client`]. Pointers are the caller's promise,
//! as the header says: a handle that `ginnel_cache_open` gave and `ginnel_cache_close` has not
//! taken back, used by one thread at a time; keys and values readable for their lengths; items
//! writable.

use ginnel_cache::client::{Client, Found, Owned};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

/// A handle.
#[derive(Debug)]
pub struct GinnelCache {
    client: Client,
    /// What the last `mget` read.
    read: Vec<Option<Owned>>,
}

/// An item as C sees it.
#[repr(C)]
#[derive(Debug)]
pub struct GinnelCacheItem {
    value: *const c_void,
    length: usize,
    cas: u64,
    flags: u32,
}

impl GinnelCacheItem {
    const NONE: Self = Self { value: std::ptr::null(), length: 0, cas: 0, flags: 0 };

    fn of(found: &Found<'_>) -> Self {
        let value = found.value.as_ptr().cast();
        Self { value, length: found.value.len(), cas: found.cas, flags: found.flags }
    }
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

fn note(words: &str) {
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    ERROR.with(|error| *error.borrow_mut() = words);
}

/// Returns 1 or 0, or notes the error and returns -1.
fn said(result: io::Result<bool>) -> c_int {
    match result {
        Ok(yes) => c_int::from(yes),
        Err(error) => {
            note(&error.to_string());
            -1
        }
    }
}

/// Returns the caller's bytes.
///
/// # Safety
/// `start` is readable for `len` bytes as long as the result is used; if `len` is 0 it may be null.
unsafe fn bytes<'a>(start: *const c_void, len: usize) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// Connects.
///
/// # Safety
/// `address` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_open(address: *const c_char) -> *mut GinnelCache {
    if address.is_null() {
        note("no address");
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let address = unsafe { CStr::from_ptr(address) }.to_string_lossy();
    match Client::connect(&address) {
        Ok(client) => {
            note(client.why());
            Box::into_raw(Box::new(GinnelCache { client, read: Vec::new() }))
        }
        Err(error) => {
            note(&format!("{address}: {error}"));
            std::ptr::null_mut()
        }
    }
}

/// Closes a handle.
///
/// # Safety
/// `cache` is a handle, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_close(cache: *mut GinnelCache) {
    if !cache.is_null() {
        // SAFETY: the handle is one that `ginnel_cache_open` boxed, and is not used again.
        drop(unsafe { Box::from_raw(cache) });
    }
}

/// Reads an item.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_get(
    cache: *mut GinnelCache,
    key: *const c_void,
    key_length: usize,
    item: *mut GinnelCacheItem,
) -> c_int {
    // SAFETY: the caller's promises.
    let (cache, key) = unsafe { (&mut *cache, bytes(key, key_length)) };
    let (found, is_there) = match cache.client.get(key) {
        Ok(Some(found)) => (GinnelCacheItem::of(&found), Ok(true)),
        Ok(None) => (GinnelCacheItem::NONE, Ok(false)),
        Err(error) => (GinnelCacheItem::NONE, Err(error)),
    };
    // SAFETY: the caller's promise.
    unsafe { item.write(found) };
    said(is_there)
}

/// Reads several items.
///
/// # Safety
/// As the module says; `keys`, `key_lengths` and `items` have `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_mget(
    cache: *mut GinnelCache,
    keys: *const *const c_void,
    key_lengths: *const usize,
    count: usize,
    items: *mut GinnelCacheItem,
) -> isize {
    // SAFETY: the caller's promise.
    let cache = unsafe { &mut *cache };
    // SAFETY: as above, for each of the entries.
    let key = |at: usize| unsafe { bytes(*keys.add(at), *key_lengths.add(at)) };
    let keys: Vec<&[u8]> = (0..count).map(key).collect();
    let result = cache.client.mget(&keys);
    let failed = result.as_ref().err().map(ToString::to_string);
    cache.read = result.unwrap_or_default();
    for at in 0..count {
        let read = cache.read.get(at).and_then(Option::as_ref);
        let item = read.map_or(GinnelCacheItem::NONE, |read| {
            let Owned { value, flags, cas } = read;
            GinnelCacheItem::of(&Found { value, flags: *flags, cas: *cas })
        });
        // SAFETY: the caller's promise.
        unsafe { items.add(at).write(item) };
    }
    if let Some(error) = failed {
        note(&error);
        return -1;
    }
    cache.read.iter().flatten().count().cast_signed()
}

/// Stores an item.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_set(
    cache: *mut GinnelCache,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    length: usize,
    flags: u32,
    exptime: i32,
) -> c_int {
    // SAFETY: the caller's promises.
    let (cache, key, value) =
        unsafe { (&mut *cache, bytes(key, key_length), bytes(value, length)) };
    said(cache.client.set(key, value, flags, exptime))
}

/// Stores an item in the place of a known one.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_cas(
    cache: *mut GinnelCache,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    length: usize,
    flags: u32,
    exptime: i32,
    cas: u64,
) -> c_int {
    // SAFETY: the caller's promises.
    let (cache, key, value) =
        unsafe { (&mut *cache, bytes(key, key_length), bytes(value, length)) };
    said(cache.client.cas(key, value, flags, exptime, cas))
}

/// Deletes an item.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_delete(
    cache: *mut GinnelCache,
    key: *const c_void,
    key_length: usize,
) -> c_int {
    // SAFETY: the caller's promises.
    let (cache, key) = unsafe { (&mut *cache, bytes(key, key_length)) };
    said(cache.client.delete(key))
}

/// Returns whether items are read out of the memory, and notes why not.
///
/// # Safety
/// `cache` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_is_neighbour(cache: *const GinnelCache) -> c_int {
    // SAFETY: the caller's promise.
    let client = &unsafe { &*cache }.client;
    if !client.is_neighbour() {
        note(client.why());
    }
    c_int::from(client.is_neighbour())
}

/// Tells how many reads came from where.
///
/// # Safety
/// `cache` is a handle, the others are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_cache_counts(
    cache: *const GinnelCache,
    direct: *mut u64,
    asked: *mut u64,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let counts = (*cache).client.counts();
        direct.write(counts.direct);
        asked.write(counts.asked);
    }
}

/// Returns why the last call failed.
#[unsafe(no_mangle)]
pub extern "C" fn ginnel_cache_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}
