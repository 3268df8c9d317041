//! What is known of each handle, and which of its servers' memory may be read.
//!
//! A read out of a memory must give what the handle's own connection would: that of the server that
//! acknowledged the handle's writes. An address does not prove that, since servers come and go. So,
//! before the first such read, and whenever a connection to the server's port was made since
//! ([`connects`]), `stats` are asked for over libmemcached's own connection. They name the server's
//! start (`generation`), as the memory does. While the server lives and nobody connects, the
//! connection leads to it.
//!
//! A handle is left to libmemcached while its last call failed (so that what is told of errors is
//! its own word), while settings let writes be acknowledged before they are executed, and for ever
//! once values are encrypted.

use crate::api::{self, Api, Handle, Instance, Item, MemcachedResult, Return};
use crate::connects;
use ginnel_cache::client::Client;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A server that is no ginnel-cache of this user is asked again what it is after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// An item out of a memory.
pub struct Direct<'a> {
    pub value: &'a [u8],
    pub flags: u32,
}

/// What is known of a handle.
#[derive(Default)]
struct Known {
    settings: Option<Settings>,
    /// By libmemcached's number of the server.
    seats: HashMap<u32, Seat>,
    /// What the last `memcached_mget` found, and `memcached_fetch` has not given yet.
    fetched: Option<VecDeque<Item>>,
    /// What `memcached_fetch_result` gives where the caller brings none.
    result: Option<Own>,
}

/// A result of libmemcached's, which the handle's records own.
struct Own(*mut MemcachedResult);
// SAFETY: the lock of its record guards the pointer. What it points to is used by the one thread at
// a time that works with the handle, as libmemcached demands.
unsafe impl Send for Own {}

/// Settings of a handle that direct reads depend on.
struct Settings {
    /// Direct reads are out of the question.
    unordered: bool,
    /// What stands before every key.
    prefix: Vec<u8>,
}

/// A server of a handle.
struct Seat {
    name: Vec<u8>,
    port: u32,
    client: Option<Client>,
    /// The server's start, once it was seen over the handle's own connection, and the count of
    /// connections then.
    proof: Option<(u64, u64)>,
    tried: Option<(Instant, u64)>,
}

type Handles = HashMap<usize, Arc<Mutex<Known>>>;
static HANDLES: LazyLock<RwLock<Handles>> = LazyLock::new(RwLock::default);
static OFF: AtomicBool = AtomicBool::new(false);
static DIRECT: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);

fn find(handle: Handle) -> Option<Arc<Mutex<Known>>> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    handles.get(&handle.addr()).cloned()
}

fn find_or_make(handle: Handle) -> Arc<Mutex<Known>> {
    find(handle).unwrap_or_else(|| {
        let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
        handles.entry(handle.addr()).or_default().clone()
    })
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends direct reads in this process.
pub fn never_again() {
    OFF.store(true, Ordering::SeqCst);
}

/// Returns how many reads were direct, and how many went to libmemcached.
pub fn counts() -> (u64, u64) {
    (DIRECT.load(Ordering::Relaxed), ASKED.load(Ordering::Relaxed))
}

/// Forgets what is known of a handle: its settings change.
pub fn forget(handle: Handle) {
    if let Some(known) = find(handle) {
        let mut known = lock(&known);
        known.settings = None;
        known.fetched = None;
        known.seats.clear();
    }
}

/// The handle's place is another's from now on.
pub fn gone(api: &Api, handle: Handle) {
    let known = HANDLES.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
    if let Some(Own(result)) = known.and_then(|known| lock(&known).result.take()) {
        // SAFETY: `own_result` made it, and it is not used after the handle.
        unsafe { (api.result_free)(result) };
    }
}

/// Returns the handle's own result, or null where there is no memory.
pub fn own_result(api: &Api, handle: Handle) -> *mut MemcachedResult {
    let known = find_or_make(handle);
    // SAFETY: the program's handle; libmemcached makes room for the result.
    let make = || Own(unsafe { (api.result_create)(handle, std::ptr::null_mut()) });
    lock(&known).result.get_or_insert_with(make).0
}

/// Reads an item out of the memory of the server to which `route` leads, and hands it to `with`.
/// Nothing where libmemcached is to read it.
pub fn read<R>(
    api: &Api,
    handle: Handle,
    route: &[u8],
    key: &[u8],
    with: impl FnOnce(Direct<'_>) -> Option<R>,
) -> Option<R> {
    let read = read_with(api, handle, |known| {
        known.look(api, handle, route, key, |found| {
            with(Direct { value: found.value, flags: found.flags })
        })
    });
    let counter = if read.is_some() { &DIRECT } else { &ASKED };
    counter.fetch_add(1, Ordering::Relaxed);
    read
}

/// Reads all these items, for [`fetch`] to give. Says no where libmemcached is to read them.
pub fn read_all<'a>(
    api: &Api,
    handle: Handle,
    route: &[u8],
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
) -> bool {
    let count = keys.len() as u64;
    let read = read_with(api, handle, |known| {
        if !api.fills(handle) {
            return None;
        }
        let mut found = VecDeque::with_capacity(keys.len());
        for key in keys {
            let route = if route.is_empty() { key } else { route };
            found.push_back(known.look(api, handle, route, key, |one| {
                // An empty value is libmemcached's to tell.
                let (value, flags, cas) = (one.value.to_vec(), one.flags, one.cas);
                (!value.is_empty()).then(|| Item { key: key.to_vec(), value, flags, cas })
            })?);
        }
        known.fetched = (!found.is_empty()).then_some(found);
        known.fetched.as_ref().map(drop)
    });
    let counter = if read.is_some() { &DIRECT } else { &ASKED };
    counter.fetch_add(count, Ordering::Relaxed);
    read.is_some()
}

/// Takes the next item: nothing where libmemcached has them, and no item behind the last.
#[expect(clippy::option_option, reason = "there may be nothing to take from, or nothing left")]
pub fn fetch(handle: Handle) -> Option<Option<Item>> {
    let known = find(handle)?;
    let mut known = lock(&known);
    let next = known.fetched.as_mut()?.pop_front();
    if next.is_none() {
        known.fetched = None;
    }
    Some(next)
}

fn read_with<R>(
    api: &Api,
    handle: Handle,
    read: impl FnOnce(&mut Known) -> Option<R>,
) -> Option<R> {
    if handle.is_null() || OFF.load(Ordering::Relaxed) {
        return None;
    }
    let known = find_or_make(handle);
    let mut known = lock(&known);
    known.fetched = None;
    // SAFETY: the program's handle.
    if unsafe { (api.last_error)(handle) } != api::SUCCESS {
        return None;
    }
    read(&mut known)
}

impl Known {
    /// Looks a key up in the memory of the server to which `route` leads.
    fn look<R>(
        &mut self,
        api: &Api,
        handle: Handle,
        route: &[u8],
        key: &[u8],
        with: impl FnOnce(ginnel_cache::client::Found<'_>) -> Option<R>,
    ) -> Option<R> {
        let settings = self.settings.get_or_insert_with(|| Settings::of(api, handle));
        if settings.unordered || key.is_empty() {
            return None;
        }
        let (at, instance) = server_of(api, handle, route)?;
        let (name, port) = address_of(api, instance)?;
        if self.seats.get(&at).is_none_or(|seat| seat.name != name || seat.port != port) {
            self.seats.insert(at, Seat::of(name, port));
        }
        let client = self.seats.get_mut(&at)?.proven(api, handle, instance)?;
        let found = if settings.prefix.is_empty() {
            client.get_direct(key)
        } else {
            client.get_direct(&[&settings.prefix[..], key].concat())
        };
        with(found?)
    }
}

impl Settings {
    fn of(api: &Api, handle: Handle) -> Self {
        // SAFETY: the program's handle.
        let is_set = |&which: &i32| unsafe { (api.behavior_get)(handle, which) } != 0;
        let mut said = api::SUCCESS;
        // SAFETY: as above; what it gives is a C string of the handle's, or null.
        let prefix = unsafe {
            let start: *mut c_char =
                (api.callback_get)(handle, api::NAMESPACE, &raw mut said).cast();
            if start.is_null() { Vec::new() } else { CStr::from_ptr(start).to_bytes().to_vec() }
        };
        Self { unordered: api::UNORDERED.iter().any(is_set), prefix }
    }
}

/// Returns number and instance of the server to which a key leads.
fn server_of(api: &Api, handle: Handle, route: &[u8]) -> Option<(u32, *const Instance)> {
    // SAFETY: the program's handle, and a key with its length.
    unsafe {
        let at = match (api.server_count)(handle) {
            0 => return None,
            1 => 0,
            _ => (api.generate_hash)(handle, route.as_ptr().cast(), route.len()),
        };
        let instance = (api.instance)(handle, at);
        (!instance.is_null()).then_some((at, instance))
    }
}

fn address_of<'a>(api: &Api, instance: *const Instance) -> Option<(&'a [u8], u32)> {
    // SAFETY: an instance of the program's handle; its name is a C string that lasts until the
    // handle's servers are changed, which is not before this call returns to the program.
    unsafe {
        let name = (api.server_name)(instance);
        let port = (api.server_port)(instance);
        (!name.is_null()).then(|| (CStr::from_ptr(name).to_bytes(), port))
    }
}

impl Seat {
    fn of(name: &[u8], port: u32) -> Self {
        Self { name: name.to_vec(), port, client: None, proof: None, tried: None }
    }

    /// Returns the client whose memory is that of the server that the handle is connected to.
    fn proven(
        &mut self,
        api: &Api,
        handle: Handle,
        instance: *const Instance,
    ) -> Option<&mut Client> {
        let made = connects::made();
        let holds = self.proof.is_some_and(|(generation, at)| {
            at == made
                && self.client.as_ref().is_some_and(|one| one.generation() == Some(generation))
        });
        if !holds {
            self.proof = None;
            if self.tried.is_some_and(|(when, at)| at == made && when.elapsed() < AGAIN) {
                return None;
            }
            self.proof = self.prove(api, handle, instance);
            self.tried = self.proof.is_none().then(|| (Instant::now(), connects::made()));
            self.proof?;
        }
        self.client.as_mut()
    }

    fn prove(
        &mut self,
        api: &Api,
        handle: Handle,
        instance: *const Instance,
    ) -> Option<(u64, u64)> {
        let address = self.address()?;
        if self.client.as_ref().is_none_or(|client| client.generation().is_none()) {
            self.client = Client::connect(&address).ok().filter(Client::is_neighbour);
        }
        let own = self.client.as_ref()?.generation()?;
        // Asking may connect, after which is asked again.
        for _ in 0..3 {
            let made = connects::made();
            let theirs = generation_of(api, handle, instance);
            if connects::made() == made {
                if theirs == Some(own) {
                    return Some((own, made));
                }
                break;
            }
        }
        // The address is another server's by now: the next read begins anew.
        self.client = None;
        None
    }

    /// Returns the address as the client takes it, and has connections to it counted.
    fn address(&self) -> Option<String> {
        let name = std::str::from_utf8(&self.name).ok()?;
        if name.contains('/') {
            connects::watch(connects::UNIX);
            return Some(name.to_owned());
        }
        connects::watch(usize::from(u16::try_from(self.port).ok()?));
        let host = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        Some(format!("{host}:{}", self.port))
    }
}

/// What `stats` said of one server.
struct Said {
    wanted: *const Instance,
    generation: Option<u64>,
}

/// Asks over the handle's own connections for the number of a server's start.
fn generation_of(api: &Api, handle: Handle, wanted: *const Instance) -> Option<u64> {
    let mut said = Said { wanted, generation: None };
    // SAFETY: the program's handle, within a call that may use its connections; the callback gets
    // `said`, which outlives the call.
    unsafe { (api.stat_execute)(handle, std::ptr::null(), note, (&raw mut said).cast()) };
    said.generation
}

/// Notes the generation among a server's statistics.
///
/// # Safety
/// As [`api::Stat`]: key and value are readable for their lengths; the context is a [`Said`].
unsafe extern "C" fn note(
    instance: *const Instance,
    key: *const c_char,
    key_length: usize,
    value: *const c_char,
    value_length: usize,
    context: *mut c_void,
) -> Return {
    // SAFETY: the caller's promises.
    let (said, key, value) = unsafe {
        let said = &mut *context.cast::<Said>();
        (said, crate::bytes(key, key_length), crate::bytes(value, value_length))
    };
    if std::ptr::eq(instance, said.wanted) && key == b"generation" {
        let text = std::str::from_utf8(value).ok();
        said.generation =
            text.and_then(|hex| u64::from_str_radix(hex.trim_end_matches('\0'), 16).ok());
    }
    api::SUCCESS
}
