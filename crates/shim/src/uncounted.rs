//! Calls on connections whose other end seems to have no shim: straight to the kernel, and not counted in the ledger (see [`ginnel_channel::uncounted`]).
//!
//! Which of them are under way stands in a note of each thread, which only that thread writes: two stores, where the ledger takes three locked additions. A thread's note is found by the address
//! of its thread control block, without memory of its own (a thread-local variable might take some when it is first asked for, in a signal handler perhaps).

use crate::{fds, runtime};
use core::ptr::{self, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, compiler_fence};
use ginnel_channel::settle::Endpoint;
use ginnel_channel::uncounted::word;
use ginnel_channel::{Attachment, Slot};
use ginnel_region::sys;
use libc::{c_int, c_void};
use syscalls::Sysno;

/// One thread's note, and what each of its calls needs to know.
#[repr(align(64))]
struct Note {
    /// Whose it is; 0: nobody's yet.
    thread: AtomicUsize,
    /// What stands in a slot whose calls this process does not count; 0: not known yet.
    word: AtomicU64,
    /// The ledger's first slot.
    slots: AtomicPtr<Slot>,
    /// The slot of the connection on which the thread is in the kernel, and 1; 0: on none.
    slot: AtomicU32,
    /// What calls return that move no bytes is added up here.
    nothing: AtomicU64,
}

/// Notes; threads for whom there is no room, or another thread has theirs, count their calls.
const NOTES: usize = 1024;

/// All notes. In a copy of this memory, however the child was made, they are blank: what its threads do stands nowhere yet.
#[repr(align(4096))]
struct Notes {
    each: [Note; NOTES],
    /// One bit a note: somebody has it.
    taken: [AtomicU64; NOTES / 64],
}

static NOTEBOOK: Notes = Notes {
    each: [const {
        Note {
            thread: AtomicUsize::new(0),
            word: AtomicU64::new(0),
            slots: AtomicPtr::new(null_mut()),
            slot: AtomicU32::new(0),
            nothing: AtomicU64::new(0),
        }
    }; NOTES],
    taken: [const { AtomicU64::new(0) }; NOTES / 64],
};
/// Can all threads be made to pass a barrier?
static AVAILABLE: AtomicBool = AtomicBool::new(false);

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the call that announces it (`linux/membarrier.h`, Linux 4.14).
const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

fn membarrier(command: usize) -> bool {
    // SAFETY: no memory is passed.
    unsafe { sys::raw(Sysno::membarrier, [command, 0, 0, 0, 0, 0]) }.is_ok()
}

/// At the start, and in a fork child, while there is one thread: with more the kernel takes its time.
pub fn start() {
    let at = ptr::from_ref(&NOTEBOOK).cast_mut().cast();
    AVAILABLE.store(sys::wipe_on_fork(at, size_of::<Notes>()).is_ok() && membarrier(REGISTER_PRIVATE_EXPEDITED), Relaxed);
}

/// Another process is about to use this very memory, perhaps with this thread's control block: all calls are counted from here on.
pub fn stop() {
    AVAILABLE.store(false, Relaxed);
    for note in taken() {
        note.word.store(0, Relaxed);
    }
}

/// The address of this thread's control block: what other threads of the process cannot have while it lives.
#[inline]
fn thread() -> usize {
    let at: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the word that the ABI puts there: the block's own address (System V ABI, TLS, variant II).
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) at, options(pure, nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register that programs may read.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) at, options(pure, nostack, preserves_flags, nomem));
    }
    at
}

/// Where this thread's note is, if it has one.
#[inline]
fn place() -> usize {
    // Blocks lie at the ends of stacks, which lie whole pages apart, or in one program's heap.
    let mixed = (thread() >> 6) as u64;
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % NOTES
}

#[inline]
fn note(place: usize) -> &'static Note {
    // SAFETY: there are as many notes.
    unsafe { NOTEBOOK.each.get_unchecked(place % NOTES) }
}

fn taken() -> impl Iterator<Item = &'static Note> {
    let words = NOTEBOOK.taken.iter().zip(NOTEBOOK.each.chunks(64));
    words.flat_map(|(bits, notes)| {
        let bits = bits.load(SeqCst);
        notes.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, note)| note)
    })
}

/// Is no thread in an uncounted call on this slot's connection, as far as can be seen? One that was cancelled in such a call, or left it by `siglongjmp`, seems to be in it for ever: what has that slot
/// then stays on TCP.
fn none_in(slot: u32) -> bool {
    taken().all(|note| note.slot.load(Acquire) != slot + 1)
}

/// Makes this thread's note one that says all that its calls need to know. False where another thread has it.
fn take_note(attachment: &Attachment) -> bool {
    let (place, me) = (place(), thread());
    let note = note(place);
    let mine = note.thread.compare_exchange(0, me, AcqRel, Relaxed).map_or_else(|other| other == me, |_| true);
    if mine {
        // Before the word, whoever has taken it: a handler may have interrupted this.
        if let Some(bits) = NOTEBOOK.taken.get(place / 64) {
            bits.fetch_or(1 << (place % 64), SeqCst);
        }
        note.slots.store(ptr::from_ref(attachment.ledger.slot(0)).cast_mut(), Relaxed);
        note.word.store(word(attachment.ticket()), Release);
    }
    mine
}

/// An argument: a pointer, or a number in its low part.
pub type Word = *mut c_void;
/// A function that takes a descriptor and up to four more arguments, as these all are.
pub type Function = unsafe extern "C" fn(c_int, Word, Word, Word, Word) -> isize;

/// Which counter of a connection's takes what a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// It receives so many.
    In,
    /// It sends so many.
    Out,
    /// It moves none.
    None,
}

/// A function of the C library's that is called often, and what is called in its place where a call is not one that goes uncounted.
pub struct Direct {
    /// That function, once it is found.
    libc: AtomicPtr<c_void>,
    otherwise: Function,
    bytes: Bytes,
}

impl Direct {
    /// Not found yet.
    #[must_use]
    pub const fn new(otherwise: Function, bytes: Bytes) -> Self {
        Self { libc: AtomicPtr::new(otherwise as *mut c_void), otherwise, bytes }
    }

    /// The C library's function is there.
    pub fn found(&self, address: Option<*mut c_void>) {
        if let Some(address) = address {
            self.libc.store(address, Release);
        }
    }
}

/// Calls the C library's function as the program made the call, if that need not be counted; else what stands in for it.
///
/// After each system call the processor's caches are full of the kernel's code, and what a hook costs is above all how much of its own has to be fetched anew: so all of these calls come through
/// here, and what is rare is elsewhere.
///
/// # Safety
/// The arguments are the program's own, for the function of `direct`.
#[inline(never)]
pub unsafe extern "C" fn call(fd: c_int, a: Word, b: Word, c: Word, d: Word, direct: &Direct) -> isize {
    if fds::may_go_uncounted(fd) {
        // SAFETY: the caller's promise.
        unsafe { noted(fd, a, b, c, d, direct) }
    } else {
        // SAFETY: as above.
        unsafe { (direct.otherwise)(fd, a, b, c, d) }
    }
}

/// [`call`] where it may be one that goes uncounted. Not inlined: other calls do without the registers that this one saves.
///
/// # Safety
/// As for [`call`], after that look.
#[inline(never)]
unsafe extern "C" fn noted(fd: c_int, a: Word, b: Word, c: Word, d: Word, direct: &Direct) -> isize {
    // SAFETY: the caller has just asked whether it may.
    if let Some(index) = unsafe { fds::uncounted(fd) } {
        let note = note(place());
        let word = note.word.load(Acquire);
        // Not in a handler that interrupted such a call.
        if note.thread.load(Relaxed) == thread() && note.slot.load(Relaxed) == 0 && word != 0 {
            note.slot.store(index + 1, Relaxed);
            // For the processor `end` does it.
            compiler_fence(SeqCst);
            // SAFETY: a slot of the ledger, which is never unmapped: a number that once was one stands in the table of descriptors.
            let slot = unsafe { &*note.slots.load(Relaxed).add(index as usize) };
            if slot.goes_uncounted(word) {
                let counter = match direct.bytes {
                    Bytes::In => &slot.in_tcp,
                    Bytes::Out => &slot.out_tcp,
                    Bytes::None => &note.nothing,
                };
                // SAFETY: a function of the C library's with no more arguments than these, each a word at most. On both machines they are in registers, in which a function looks for no
                // more than it takes.
                let libc = unsafe { core::mem::transmute::<*mut c_void, Function>(direct.libc.load(Relaxed)) };
                // SAFETY: the caller's promise.
                let result = unsafe { libc(fd, a, b, c, d) };
                Slot::count(counter, result.max(0).unsigned_abs() as u64);
                note.slot.store(0, Release);
                return result;
            }
            note.slot.store(0, Relaxed);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { (direct.otherwise)(fd, a, b, c, d) }
}

/// After a look at which nobody had come: the next calls need not be counted, if that has been so for long.
pub fn begin(endpoint: Endpoint<'static>) {
    // Also where they are not counted already: by another number of the socket's perhaps.
    if AVAILABLE.load(Relaxed) && (endpoint.is_uncounted() || endpoint.begin_uncounted()) && take_note(endpoint.attachment) {
        fds::set_uncounted(endpoint.fd(), endpoint.index());
    }
}

/// Before the next step towards a channel: the process counts its calls again, if it did not and something has changed. False while it may still be in one that was not.
pub fn end(endpoint: Endpoint<'static>) -> bool {
    if !endpoint.is_to_count() {
        return true;
    }
    endpoint.count_again();
    // What can be seen without a barrier needs none.
    let slot = endpoint.index();
    none_in(slot) && membarrier(PRIVATE_EXPEDITED) && endpoint.end_uncounted(|| none_in(slot))
}

/// Before a fork: all calls are counted from here on, so that the child, which this process may leave its connections to, can move them.
pub fn end_all() {
    let uncounted = || {
        fds::slots(0).filter_map(|slot| runtime::endpoint(fds::of_slot(slot)?, slot)).filter(|endpoint| endpoint.does_not_count())
    };
    if uncounted().next().is_some() {
        uncounted().for_each(Endpoint::count_again);
        if membarrier(PRIVATE_EXPEDITED) {
            for endpoint in uncounted() {
                let _ = endpoint.end_uncounted(|| none_in(endpoint.index()));
            }
        }
    }
}
