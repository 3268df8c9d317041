//! libmemcached 1.0 and 1.1: functions and types, as far as they are needed.
//!
//! The functions are looked up in the library by which the program itself calls, wherever it was
//! loaded from, so that this library neither needs it nor brings it into programs without it.
//! Declarations follow its headers (`libmemcached-1.0/*.h`).

use crate::Execute;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `memcached_st`, which only libmemcached looks into.
#[repr(C)]
#[derive(Debug)]
pub struct MemcachedSt([u8; 0]);
/// `memcached_st *`.
pub type Handle = *mut MemcachedSt;

/// `memcached_instance_st`, likewise.
#[repr(C)]
#[derive(Debug)]
pub struct Instance([u8; 0]);

/// `memcached_return_t`.
pub type Return = c_int;
pub const SUCCESS: Return = 0;
pub const FAILURE: Return = 1;
pub const MEMORY_ALLOCATION_FAILURE: Return = 17;
pub const SOME_ERRORS: Return = 19;
pub const END: Return = 21;

/// `memcached_behavior_t`: settings with which an acknowledged write may not have been executed, or
/// whose reads do not go where the key's hash says.
pub const UNORDERED: [c_int; 5] = [
    10, // MEMCACHED_BEHAVIOR_BUFFER_REQUESTS
    26, // MEMCACHED_BEHAVIOR_NOREPLY
    27, // MEMCACHED_BEHAVIOR_USE_UDP
    29, // MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS
    30, // MEMCACHED_BEHAVIOR_RANDOMIZE_REPLICA_READ
];
/// `MEMCACHED_CALLBACK_PREFIX_KEY`: what stands before every key.
pub const NAMESPACE: c_int = 0;

/// The beginning of `memcached_result_st`. [`Api::fill`] checks that it is laid out so.
#[repr(C)]
#[derive(Debug)]
pub struct MemcachedResult {
    flags: u32,
    expiration: libc::time_t,
    key_length: usize,
    cas: u64,
    root: Handle,
    /// `memcached_string_st`: its end, its start, and more.
    value: [usize; 5],
    numeric_value: u64,
    count: u64,
    /// `MEMCACHED_MAX_KEY` bytes.
    key: [u8; 251],
}

/// An item, as `memcached_fetch` and its like give it.
#[derive(Debug)]
pub struct Item {
    /// As the program asked for it.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// What was kept beside it.
    pub flags: u32,
    /// Its unique number.
    pub cas: u64,
}

/// What a function returns that is not there.
pub trait Absent {
    const ABSENT: Self;
}
impl Absent for () {
    const ABSENT: Self = ();
}
impl Absent for Return {
    const ABSENT: Self = FAILURE;
}
impl Absent for Handle {
    const ABSENT: Self = std::ptr::null_mut();
}

/// `memcached_stat_fn`.
pub type Stat = unsafe extern "C" fn(
    *const Instance,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *mut c_void,
) -> Return;
type Malloc = unsafe extern "C" fn(Handle, usize, *mut c_void) -> *mut c_void;

macro_rules! api {
    ($($field:ident = $name:literal: fn($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// libmemcached's functions.
        #[derive(Debug)]
        pub struct Api {
            $(pub $field: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Api {
            fn load() -> Option<Self> {
                $(
                    let $field = function($name)?;
                    // SAFETY: libmemcached's function of this name has this type.
                    let $field = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) $(-> $result)?>($field)
                    };
                )*
                Some(Self { $($field),* })
            }
        }
    };
}

api! {
    get_by_key = c"memcached_get_by_key": fn(Handle, *const c_char, usize, *const c_char, usize, *mut usize, *mut u32, *mut Return) -> *mut c_char;
    mget_by_key = c"memcached_mget_by_key": fn(Handle, *const c_char, usize, *const *const c_char, *const usize, usize) -> Return;
    mget_execute = c"memcached_mget_execute": fn(Handle, *const *const c_char, *const usize, usize, *const Execute, *mut c_void, u32) -> Return;
    fetch = c"memcached_fetch": fn(Handle, *mut c_char, *mut usize, *mut usize, *mut u32, *mut Return) -> *mut c_char;
    fetch_result = c"memcached_fetch_result": fn(Handle, *mut MemcachedResult, *mut Return) -> *mut MemcachedResult;
    fetch_execute = c"memcached_fetch_execute": fn(Handle, *const Execute, *mut c_void, u32) -> Return;
    behavior_set = c"memcached_behavior_set": fn(Handle, c_int, u64) -> Return;
    behavior_get = c"memcached_behavior_get": fn(Handle, c_int) -> u64;
    callback_set = c"memcached_callback_set": fn(Handle, c_int, *const c_void) -> Return;
    callback_get = c"memcached_callback_get": fn(Handle, c_int, *mut Return) -> *mut c_void;
    create = c"memcached_create": fn(Handle) -> Handle;
    clone = c"memcached_clone": fn(Handle, Handle) -> Handle;
    free = c"memcached_free": fn(Handle);
    set_encoding_key = c"memcached_set_encoding_key": fn(Handle, *const c_char, usize) -> Return;
    generate_hash = c"memcached_generate_hash": fn(Handle, *const c_char, usize) -> u32;
    server_count = c"memcached_server_count": fn(Handle) -> u32;
    instance = c"memcached_server_instance_by_position": fn(Handle, u32) -> *const Instance;
    server_name = c"memcached_server_name": fn(*const Instance) -> *const c_char;
    server_port = c"memcached_server_port": fn(*const Instance) -> u32;
    last_error = c"memcached_last_error": fn(Handle) -> Return;
    allocators = c"memcached_get_memory_allocators": fn(Handle, *mut Option<Malloc>, *mut *mut c_void, *mut *mut c_void, *mut *mut c_void);
    allocators_context = c"memcached_get_memory_allocators_context": fn(Handle) -> *mut c_void;
    stat_execute = c"memcached_stat_execute": fn(Handle, *const c_char, Stat, *mut c_void) -> Return;
    result_create = c"memcached_result_create": fn(Handle, *mut MemcachedResult) -> *mut MemcachedResult;
    result_free = c"memcached_result_free": fn(*mut MemcachedResult);
    result_reset = c"memcached_result_reset": fn(*mut MemcachedResult);
    result_set_value = c"memcached_result_set_value": fn(*mut MemcachedResult, *const c_char, usize) -> Return;
    result_key = c"memcached_result_key_value": fn(*const MemcachedResult) -> *const c_char;
    result_key_length = c"memcached_result_key_length": fn(*const MemcachedResult) -> usize;
    result_length = c"memcached_result_length": fn(*const MemcachedResult) -> usize;
    result_cas = c"memcached_result_cas": fn(*const MemcachedResult) -> u64;
    result_flags = c"memcached_result_flags": fn(*const MemcachedResult) -> u32;
}

/// Looks a function up in libmemcached.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a library's handle, or `RTLD_NEXT`, and a C string.
    let look = |library| unsafe { libc::dlsym(library, name.as_ptr()) };
    let library = library();
    let found = if library.is_null() { library } else { look(library) };
    let found = if found.is_null() { look(libc::RTLD_NEXT) } else { found };
    (!found.is_null()).then_some(found)
}

/// Returns the loader's handle of libmemcached, or null. It may be visible to one module of the
/// program alone, as in Python, and have a name of its own, as in Python's wheels.
fn library() -> *mut c_void {
    // SAFETY: a C string; nothing is loaded that is not there already.
    let open =
        |name: &CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let usual = open(c"libmemcached.so.11");
    if !usual.is_null() {
        return usual;
    }
    let mut named: Option<CString> = None;
    // SAFETY: the callback is given `named`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_name), (&raw mut named).cast()) };
    named.map_or(std::ptr::null_mut(), |name| open(&name))
}

/// Notes the name of a loaded object that is libmemcached.
///
/// # Safety
/// As dl_iterate_phdr(3) calls it; `data` is an `Option<CString>`.
unsafe extern "C" fn note_name(
    info: *mut libc::dl_phdr_info,
    _: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promises; a name is a C string or null.
    let (named, name) = unsafe {
        let name = (*info).dlpi_name;
        if name.is_null() {
            return 0;
        }
        (&mut *data.cast::<Option<CString>>(), CStr::from_ptr(name))
    };
    let file = name.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let is_it = file.starts_with(b"libmemcached-") || file.starts_with(b"libmemcached.so");
    if is_it {
        *named = Some(name.to_owned());
    }
    c_int::from(is_it)
}

impl Api {
    /// Returns libmemcached's functions, or nothing where it is not loaded.
    pub fn get() -> Option<&'static Self> {
        static API: OnceLock<Api> = OnceLock::new();
        if let Some(api) = API.get() {
            return Some(api);
        }
        // Not there yet is not looked for once only: a module may load it later.
        let loaded = Self::load()?;
        Some(API.get_or_init(|| loaded))
    }

    /// Returns whether results are laid out as this library fills them.
    pub fn fills(&self, handle: Handle) -> bool {
        static FILLS: OnceLock<bool> = OnceLock::new();
        *FILLS.get_or_init(|| {
            let item = Item { key: b"k".to_vec(), value: b"v".to_vec(), flags: 7, cas: 1 << 40 };
            // SAFETY: libmemcached makes the result; it is written to only where its own function
            // says that the key, the last of the fields, lies where it is believed to lie.
            unsafe {
                let result = (self.result_create)(handle, std::ptr::null_mut());
                if result.is_null() {
                    return false;
                }
                let key_at: *const c_char = (&raw const (*result).key).cast();
                // Without a length there is no key.
                (*result).key_length = 1;
                let is_so = (self.result_key_length)(result) == 1
                    && (self.result_key)(result) == key_at
                    && self.fill(result, &item)
                    && (self.result_cas)(result) == 1 << 40
                    && (self.result_length)(result) == item.value.len()
                    && (self.result_flags)(result) == 7;
                (self.result_free)(result);
                is_so
            }
        })
    }

    /// Fills a result.
    ///
    /// # Safety
    /// `result` is one that libmemcached made.
    pub unsafe fn fill(&self, result: *mut MemcachedResult, item: &Item) -> bool {
        // SAFETY: the caller's promise, and that the fields lie so was looked at (`fills`).
        unsafe {
            // Else the value would be appended to the last one.
            (self.result_reset)(result);
            let key = &mut (*result).key;
            let Some(room) = key.get_mut(..=item.key.len()) else { return false };
            if let Some((end, place)) = room.split_last_mut() {
                place.copy_from_slice(&item.key);
                *end = 0;
            }
            (*result).key_length = item.key.len();
            (*result).flags = item.flags;
            (*result).expiration = 0;
            (*result).cas = item.cas;
            (*result).count += 1;
            // Programs rely on the zero byte that libmemcached puts behind a value.
            let ended = [&item.value[..], &[0]].concat();
            if (self.result_set_value)(result, ended.as_ptr().cast(), ended.len()) != SUCCESS {
                return false;
            }
            let [end, start, ..] = &mut (*result).value;
            let is_whole = end.wrapping_sub(*start) == ended.len();
            *end -= usize::from(is_whole);
            is_whole
        }
    }

    /// Returns a copy of a value that the program can free as one of libmemcached's: it ends with a
    /// zero byte beyond its length.
    pub fn copy(&self, handle: Handle, value: &[u8]) -> Option<*mut c_char> {
        let (mut malloc, mut others): (Option<Malloc>, _) = (None, [std::ptr::null_mut(); 3]);
        let [free, realloc, calloc] = &mut others;
        // SAFETY: a handle that the program works with, and places for four functions; the memory
        // is as long as asked for.
        unsafe {
            (self.allocators)(handle, &raw mut malloc, free, realloc, calloc);
            let place: *mut u8 =
                malloc?(handle, value.len() + 1, (self.allocators_context)(handle)).cast();
            if place.is_null() {
                return None;
            }
            std::ptr::copy_nonoverlapping(value.as_ptr(), place, value.len());
            place.add(value.len()).write(0);
            Some(place.cast())
        }
    }
}
