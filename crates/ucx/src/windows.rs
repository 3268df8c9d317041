//! The locks of Open MPI's windows lie in the segment, as the windows do.
//!
//! osc/ucx of Open MPI 4.1 keeps what ranks of a window tell each other (who has locked it, who
//! accumulates) within its own structure, which is on the heap, and has UCX register that. UCX
//! reaches such memory by messages, and the owner answers when it calls MPI next: an
//! `MPI_Accumulate` waits for that twice, while its data go directly.
//!
//! So the one `calloc` by which osc/ucx makes the structure ([`zeroed`]) places it so that this
//! part begins a page. When the part is registered ([`map`]) that page becomes one of the segment,
//! which UCX allocates as it does for windows. Ranks use no more of the part than a page but for
//! windows of `MPI_Win_create_dynamic`, which are left as they are. The page has words that are
//! counted and compared: no addresses, nothing private.
//!
//! It becomes one only where the window's own memory lies in the segment. Elsewhere data go by
//! messages, and osc/ucx gives a lock back without waiting for what it did under it
//! (`MPI_Compare_and_swap`, `MPI_Fetch_and_op`): behind them in a row of messages that is right,
//! and beside them it is not.
//!
//! Who waits for a lock is done at once with each try, and osc/ucx makes progress between two of
//! them on its own worker alone: messages of `MPI_Send` are pml/ucx's. Waiting for an answer Open
//! MPI makes progress on everything now and then, so [`progress`] does so here: else a rank that
//! has the lock, and waits in `MPI_Ssend` for the one that wants it, waits for ever.

use crate::abi::{MapParameters, OK, Status};
use crate::library::{self, MemoryMap, MemoryQuery, MemoryUnmap};
use crate::plt;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;

/// From how many bytes on it is the structure: with room for what dynamic windows say.
const STRUCTURE: usize = 16 << 10;

/// Where in the structure the part lies: as in Open MPI 4.1.4 of Debian 12, until another place is
/// seen.
static WITHIN: AtomicUsize = AtomicUsize::new(0x130);

/// A structure of osc/ucx: its map, and where it begins in it. Once a page of it is the segment's:
/// that page, and where UCX has allocated it. Others call it by its place in the structure.
#[derive(Clone, Copy)]
struct Structure {
    map: usize,
    map_len: usize,
    at: usize,
    shared: Option<Shared>,
}

#[derive(Clone, Copy)]
struct Shared {
    page: usize,
    allocated: usize,
}

impl Structure {
    fn has(&self, address: usize) -> bool {
        (self.map..self.map + self.map_len).contains(&address)
    }
}

static STRUCTURES: Mutex<Vec<Structure>> = Mutex::new(Vec::new());

thread_local! {
    /// What this thread had registered last, since it made a structure, lies in the segment: UCX
    /// has allocated it there.
    static IN_SEGMENT: Cell<bool> = const { Cell::new(false) };
}

fn note(is_in_segment: bool) {
    let _ = IN_SEGMENT.try_with(|it| it.set(is_in_segment));
}

/// This thread had UCX allocate memory in the segment.
pub fn allocated() {
    note(true);
}

fn structures() -> MutexGuard<'static, Vec<Structure>> {
    STRUCTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stands before osc/ucx's calls, where it is there.
pub fn stand_before() {
    let calls = [
        (c"calloc", zeroed as *const () as *mut c_void),
        (c"free", free as *const () as *mut c_void),
        (c"ucp_worker_progress", progress as *const () as *mut c_void),
    ];
    if library::progress_calls().is_none() {
        return;
    }
    // SAFETY: they have the types of the functions that they stand for, and do what those do.
    unsafe { plt::redirect(c"mca_osc_ucx.so", &calls) };
}

/// `calloc`, as osc/ucx calls it.
unsafe extern "C" fn zeroed(count: usize, size: usize) -> *mut c_void {
    if count == 1 && size >= STRUCTURE {
        let placed = place(size);
        if !placed.is_null() {
            note(false);
            return placed;
        }
    }
    // SAFETY: handed on as it came.
    unsafe { libc::calloc(count, size) }
}

/// Zeroed memory with a page's beginning where the part is to be. Null: there is none.
fn place(size: usize) -> *mut c_void {
    let within = WITHIN.load(Ordering::Relaxed);
    let map_len = PAGE + size.saturating_sub(within).next_multiple_of(PAGE);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new map.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), map_len, rights, flags, -1, 0) };
    if map == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let structure =
        Structure { map: map as usize, map_len, at: map as usize + PAGE - within, shared: None };
    structures().push(structure);
    structure.at as *mut c_void
}

/// `free`, as osc/ucx calls it.
unsafe extern "C" fn free(memory: *mut c_void) {
    let mut all = structures();
    let Some(found) = all.iter().position(|it| it.at == memory as usize) else {
        drop(all);
        // SAFETY: handed on as it came.
        return unsafe { libc::free(memory) };
    };
    let structure = all.swap_remove(found);
    drop(all);
    // SAFETY: made by `place`, and its user has no more use of it.
    unsafe { libc::munmap(structure.map as *mut c_void, structure.map_len) };
}

/// So many calls in vain, then everything makes progress.
const VAIN: u32 = 32;

thread_local! {
    /// Calls in vain of this thread since there was something. `None`: everything makes progress
    /// now.
    static IN_VAIN: Cell<Option<u32>> = const { Cell::new(Some(0)) };
}

/// `ucp_worker_progress`, as osc/ucx calls it.
unsafe extern "C" fn progress(worker: *mut c_void) -> u32 {
    let Some((progress, all)) = library::progress_calls() else { return 0 };
    // SAFETY: handed on as it came.
    let done = unsafe { progress(worker) };
    let Ok(Some(vain)) = IN_VAIN.try_with(Cell::get) else { return done };
    let set = |vain| _ = IN_VAIN.try_with(|it| it.set(vain));
    if done > 0 || vain < VAIN {
        set(Some(if done > 0 { 0 } else { vain + 1 }));
        return done;
    }
    set(None);
    // SAFETY: Open MPI calls it wherever it waits, osc/ucx within its calls among others.
    unsafe { all() };
    set(Some(0));
    done
}

/// Does this lie in a structure?
fn is_within(address: usize) -> bool {
    let all = structures();
    let Some(structure) = all.iter().find(|it| it.has(address)) else { return false };
    let within = address - structure.at;
    if within < PAGE && within.is_multiple_of(16) {
        // The next one is placed by it.
        WITHIN.store(within, Ordering::Relaxed);
    }
    true
}

/// By which address others call memory that UCX has allocated here.
pub fn called(allocated: *mut u8) -> u64 {
    let all = structures();
    let shared = all.iter().filter_map(|it| it.shared);
    let page = shared.into_iter().find(|it| it.allocated == allocated as usize).map(|it| it.page);
    page.unwrap_or(allocated as usize) as u64
}

/// Memory that UCX has allocated here is given back.
pub fn forget(allocated: *mut u8) {
    for structure in structures().iter_mut() {
        structure.shared.take_if(|it| it.allocated == allocated as usize);
    }
}

/// `ucp_mem_map`, as whoever calls it.
///
/// # Safety
/// UCX's rules.
pub unsafe fn map(
    map: MemoryMap,
    context: *mut c_void,
    parameters: *const MapParameters,
    made: *mut *mut c_void,
) -> Status {
    const ADDRESS_AND_LENGTH: u64 = 3;
    // SAFETY: UCX's rules.
    let (mask, address, length) =
        unsafe { ((*parameters).field_mask, (*parameters).address, (*parameters).length) };
    if mask & ADDRESS_AND_LENGTH != ADDRESS_AND_LENGTH || !is_within(address as usize) {
        // Whoever allocates it within this call says otherwise.
        note(false);
    } else if (address as usize).is_multiple_of(PAGE)
        && length >= PAGE
        && IN_SEGMENT.try_with(Cell::get).unwrap_or(false)
        && let Some((unmap, query)) = library::memory_calls()
        // SAFETY: a page of a structure that is being made: nobody else knows of it yet.
        && let Some(handle) = unsafe { share(address, context, map, unmap, query) }
    {
        // SAFETY: UCX's rules.
        unsafe { made.write(handle) };
        return OK;
    }
    // SAFETY: handed on as it came.
    unsafe { map(context, parameters, made) }
}

/// Has UCX allocate a page, and puts it in the place of this one. `None`: UCX has none that others
/// share, and all is as it was.
///
/// # Safety
/// The page is private memory that nobody else uses now.
unsafe fn share(
    page: *mut c_void,
    context: *mut c_void,
    map: MemoryMap,
    unmap: MemoryUnmap,
    query: MemoryQuery,
) -> Option<*mut c_void> {
    let parameters = MapParameters::allocate(PAGE);
    let mut handle = std::ptr::null_mut();
    // SAFETY: UCX's rules; the context is the caller's.
    if unsafe { map(context, &raw const parameters, &raw mut handle) } != OK {
        return None;
    }
    // Address and length.
    let mut attributes = crate::abi::MemoryAttributes { field_mask: 3, ..Default::default() };
    // SAFETY: UCX's rules.
    let status = unsafe { query(handle, &raw mut attributes) };
    let at = attributes.address;
    let is_placed = status == OK && !at.is_null() && (at as usize).is_multiple_of(PAGE) && {
        // SAFETY: both have a page; the new one is nobody else's yet.
        unsafe { std::ptr::copy_nonoverlapping(page.cast::<u8>(), at.cast(), PAGE) };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // Of 0 bytes: a second map of what is shared stands there; of private memory there is none.
        // SAFETY: the page is the caller's, and has the same bytes then.
        let is_there = unsafe { libc::mremap(at, 0, PAGE, flags, page) == page };
        if !is_there {
            // SAFETY: as above.
            unsafe { put_back(page, at) };
        }
        is_there
    };
    if !is_placed {
        // SAFETY: made above.
        unsafe { unmap(context, handle) };
        return None;
    }
    let shared = Shared { page: page as usize, allocated: at as usize };
    if let Some(structure) = structures().iter_mut().find(|it| it.has(shared.page)) {
        structure.shared = Some(shared);
    }
    Some(handle)
}

/// Puts a page where one was. Linux 6.1 takes the place for what is to be mapped there before it
/// looks whether that may be (`mremap_to`; 6.18 looks first): memory of a device has no second map.
///
/// # Safety
/// The page is the caller's, and what was in it lies at `copy`.
unsafe fn put_back(page: *mut c_void, copy: *const c_void) {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the caller's promise.
    unsafe {
        if libc::mmap(page, PAGE, rights, flags, -1, 0) == page {
            std::ptr::copy_nonoverlapping(copy.cast::<u8>(), page.cast(), PAGE);
        }
    }
}
