//! `libginnel_memcached.so`, to be preloaded: programs that use libmemcached read the items of a
//! ginnel-cache out of its memory.
//!
//! | module | part |
//! |---|---|
//! | this one | the functions that stand before libmemcached's |
//! | [`api`] | libmemcached's own functions, and its types as far as they are needed |
//! | [`handles`] | what is known of each `memcached_st`, and whether its server's memory may be read |
//! | [`connects`] | notices that a connection to a cache's port was made |
//!
//! Every function does libmemcached's part by calling it. Only a read whose items are all found in
//! the memory of the very server that libmemcached is connected to is answered here ([`handles`]
//! says how that is proved). Everything else goes on as if this library were not there.

mod api;
mod connects;
mod handles;

use api::{Api, Handle, MemcachedResult, Return};
use handles::Direct;
use std::ffi::{c_char, c_int, c_void};

/// `memcached_execute_fn`.
type Execute = unsafe extern "C" fn(Handle, *mut MemcachedResult, *mut c_void) -> Return;

/// Returns the caller's bytes.
///
/// # Safety
/// `start` is readable for `len` bytes as long as the result is used; if `len` is 0 it may be null.
unsafe fn bytes<'a>(start: *const c_char, len: usize) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// Writes through a pointer that the caller may have left out.
///
/// # Safety
/// `place` is null or writable.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Reads an item: `memcached_get(3)`.
///
/// # Safety
/// libmemcached's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_get(
    handle: Handle,
    key: *const c_char,
    key_length: usize,
    value_length: *mut usize,
    flags: *mut u32,
    error: *mut Return,
) -> *mut c_char {
    let none = (std::ptr::null(), 0);
    // SAFETY: the caller's promises are handed on.
    unsafe { get(handle, none, (key, key_length), value_length, flags, error) }
}

/// Reads an item of the server that `group_key` names: `memcached_get_by_key(3)`.
///
/// # Safety
/// libmemcached's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_get_by_key(
    handle: Handle,
    group_key: *const c_char,
    group_key_length: usize,
    key: *const c_char,
    key_length: usize,
    value_length: *mut usize,
    flags: *mut u32,
    error: *mut Return,
) -> *mut c_char {
    let group = (group_key, group_key_length);
    // SAFETY: the caller's promises are handed on.
    unsafe { get(handle, group, (key, key_length), value_length, flags, error) }
}

/// # Safety
/// That of `memcached_get_by_key`.
unsafe fn get(
    handle: Handle,
    group: (*const c_char, usize),
    key: (*const c_char, usize),
    value_length: *mut usize,
    flags: *mut u32,
    error: *mut Return,
) -> *mut c_char {
    let Some(api) = Api::get() else { return std::ptr::null_mut() };
    let read = |one: Direct<'_>| {
        // libmemcached answers an empty value by NULL: what that means, it shall say itself.
        let copy = api.copy(handle, one.value).filter(|_| !one.value.is_empty())?;
        // SAFETY: the caller's promises.
        unsafe {
            put(value_length, one.value.len());
            put(flags, one.flags);
            put(error, api::SUCCESS);
        }
        Some(copy)
    };
    // SAFETY: the caller's promises.
    let (route, wanted) = unsafe { (bytes(group.0, group.1), bytes(key.0, key.1)) };
    let route = if route.is_empty() { wanted } else { route };
    if let Some(copy) = handles::read(api, handle, route, wanted, read) {
        return copy;
    }
    // SAFETY: the caller's promises are handed on.
    unsafe { (api.get_by_key)(handle, group.0, group.1, key.0, key.1, value_length, flags, error) }
}

/// Asks for items, which `memcached_fetch` and its like give: `memcached_mget(3)`.
///
/// # Safety
/// libmemcached's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_mget(
    handle: Handle,
    keys: *const *const c_char,
    key_lengths: *const usize,
    count: usize,
) -> Return {
    // SAFETY: the caller's promises are handed on.
    unsafe { mget(handle, (std::ptr::null(), 0), keys, key_lengths, count) }
}

/// The same of the server that `group_key` names.
///
/// # Safety
/// libmemcached's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_mget_by_key(
    handle: Handle,
    group_key: *const c_char,
    group_key_length: usize,
    keys: *const *const c_char,
    key_lengths: *const usize,
    count: usize,
) -> Return {
    // SAFETY: the caller's promises are handed on.
    unsafe { mget(handle, (group_key, group_key_length), keys, key_lengths, count) }
}

/// # Safety
/// That of `memcached_mget_by_key`.
unsafe fn mget(
    handle: Handle,
    group: (*const c_char, usize),
    keys: *const *const c_char,
    key_lengths: *const usize,
    count: usize,
) -> Return {
    let Some(api) = Api::get() else { return api::FAILURE };
    // SAFETY: the caller's promise.
    let route = unsafe { bytes(group.0, group.1) };
    if !keys.is_null() && !key_lengths.is_null() {
        // SAFETY: the caller's promise, of each entry.
        let key = |at: usize| unsafe { bytes(*keys.add(at), *key_lengths.add(at)) };
        if handles::read_all(api, handle, route, (0..count).map(key)) {
            return api::SUCCESS;
        }
    }
    // SAFETY: the caller's promises are handed on.
    unsafe { (api.mget_by_key)(handle, group.0, group.1, keys, key_lengths, count) }
}

/// Gives the next item of the last `memcached_mget`: `memcached_fetch(3)`.
///
/// # Safety
/// libmemcached's: `key` has room for `MEMCACHED_MAX_KEY` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_fetch(
    handle: Handle,
    key: *mut c_char,
    key_length: *mut usize,
    value_length: *mut usize,
    flags: *mut u32,
    error: *mut Return,
) -> *mut c_char {
    let Some(api) = Api::get() else { return std::ptr::null_mut() };
    let Some(next) = handles::fetch(handle) else {
        // SAFETY: the caller's promises are handed on.
        return unsafe { (api.fetch)(handle, key, key_length, value_length, flags, error) };
    };
    let taken = next.as_ref().and_then(|item| Some((item, api.copy(handle, &item.value)?)));
    let Some((item, copy)) = taken else {
        // SAFETY: the caller's promises.
        unsafe {
            put(value_length, 0);
            put(error, if next.is_none() { api::END } else { api::MEMORY_ALLOCATION_FAILURE });
        }
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's promises; a key that was found is shorter than the longest one.
    unsafe {
        if !key.is_null() {
            std::ptr::copy_nonoverlapping(item.key.as_ptr(), key.cast(), item.key.len());
            key.add(item.key.len()).write(0);
        }
        put(key_length, item.key.len());
        put(value_length, item.value.len());
        put(flags, item.flags);
        put(error, api::SUCCESS);
    }
    copy
}

/// Gives the next item of the last `memcached_mget`: `memcached_fetch_result(3)`.
///
/// # Safety
/// libmemcached's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_fetch_result(
    handle: Handle,
    result: *mut MemcachedResult,
    error: *mut Return,
) -> *mut MemcachedResult {
    let Some(api) = Api::get() else { return std::ptr::null_mut() };
    let Some(next) = handles::fetch(handle) else {
        // SAFETY: the caller's promises are handed on.
        return unsafe { (api.fetch_result)(handle, result, error) };
    };
    let Some(item) = next else {
        // SAFETY: the caller's promise.
        unsafe { put(error, api::END) };
        return std::ptr::null_mut();
    };
    let result = if result.is_null() { handles::own_result(api, handle) } else { result };
    // SAFETY: the caller's result, or the handle's own.
    let is_filled = !result.is_null() && unsafe { api.fill(result, &item) };
    // SAFETY: the caller's promise.
    unsafe { put(error, if is_filled { api::SUCCESS } else { api::MEMORY_ALLOCATION_FAILURE }) };
    if is_filled { result } else { std::ptr::null_mut() }
}

/// Hands all items of the last `memcached_mget` to callbacks: `memcached_fetch_execute(3)`.
///
/// # Safety
/// libmemcached's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_fetch_execute(
    handle: Handle,
    callbacks: *const Execute,
    context: *mut c_void,
    count: u32,
) -> Return {
    let Some(api) = Api::get() else { return api::FAILURE };
    let Some(mut next) = handles::fetch(handle) else {
        // SAFETY: the caller's promises are handed on.
        return unsafe { (api.fetch_execute)(handle, callbacks, context, count) };
    };
    let mut said = api::SUCCESS;
    while let Some(item) = next {
        let result = handles::own_result(api, handle);
        // SAFETY: the handle's own result.
        if result.is_null() || !unsafe { api.fill(result, &item) } {
            return api::MEMORY_ALLOCATION_FAILURE;
        }
        // SAFETY: the caller's promise: so many callbacks, which take such a result.
        let call = |at: usize| unsafe { (*callbacks.add(at))(handle, result, context) };
        // As there: an item whose callback fails is shown to no further one.
        if (0..count as usize).map(call).any(|answer| answer != api::SUCCESS) {
            said = api::SOME_ERRORS;
        }
        next = handles::fetch(handle).flatten();
    }
    said
}

/// Functions after which nothing that was known of a handle holds, what it was to fetch included.
macro_rules! forgets {
    ($($name:ident => $next:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// libmemcached's function of this name, after which nothing is known of the handle.
        ///
        /// # Safety
        /// libmemcached's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: Handle, $($arg: $type),*) -> $result {
            handles::forget(handle);
            let Some(api) = Api::get() else { return api::Absent::ABSENT };
            // SAFETY: the caller's promises are handed on.
            unsafe { (api.$next)(handle, $($arg),*) }
        }
    )*};
}

forgets! {
    memcached_mget_execute => mget_execute(
        keys: *const *const c_char,
        key_lengths: *const usize,
        count: usize,
        callbacks: *const Execute,
        context: *mut c_void,
        callback_count: u32
    ) -> Return;
    memcached_behavior_set => behavior_set(which: c_int, data: u64) -> Return;
    memcached_callback_set => callback_set(which: c_int, data: *const c_void) -> Return;
}

/// A handle is made where perhaps another lay: [`handles::gone`] before libmemcached's function.
macro_rules! begins_or_ends {
    ($($name:ident => $next:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// libmemcached's function of this name, before which the handle is forgotten.
        ///
        /// # Safety
        /// libmemcached's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: Handle, $($arg: $type),*) -> $result {
            let Some(api) = Api::get() else { return api::Absent::ABSENT };
            handles::gone(api, handle);
            // SAFETY: the caller's promises are handed on.
            unsafe { (api.$next)(handle, $($arg),*) }
        }
    )*};
}

begins_or_ends! {
    memcached_create => create() -> Handle;
    memcached_clone => clone(source: Handle) -> Handle;
    memcached_free => free() -> ();
}

/// From here on values are encrypted before they are stored: none is read past libmemcached.
///
/// # Safety
/// libmemcached's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcached_set_encoding_key(
    handle: Handle,
    key: *const c_char,
    length: usize,
) -> Return {
    handles::never_again();
    let Some(api) = Api::get() else { return api::FAILURE };
    // SAFETY: the caller's promises are handed on.
    unsafe { (api.set_encoding_key)(handle, key, length) }
}

/// connect(2), which notes that a connection to a cache's address was made.
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's promises are handed on.
    unsafe {
        connects::note(address, length);
        connects::next(socket, address, length)
    }
}

/// How many reads were answered out of a memory, and how many by a server, in this process.
///
/// # Safety
/// Both are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_memcached_counts(direct: *mut u64, asked: *mut u64) {
    let counts = handles::counts();
    // SAFETY: the caller's promises.
    unsafe {
        put(direct, counts.0);
        put(asked, counts.1);
    }
}

/// With `GINNEL_MEMCACHED_REPORT` set, says at the program's end which way its reads took.
extern "C" fn report() {
    if std::env::var_os("GINNEL_MEMCACHED_REPORT").is_none() || Api::get().is_none() {
        return;
    }
    let (direct, asked) = handles::counts();
    use std::io::Write;
    // Nobody may be there to read it any more.
    let _ = writeln!(
        std::io::stderr(),
        "ginnel: {direct} reads out of the memory, {asked} by libmemcached"
    );
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = report;
