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
use libc::c_int;
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
        Note { thread: AtomicUsize::new(0), word: AtomicU64::new(0), slots: AtomicPtr::new(null_mut()), slot: AtomicU32::new(0) }
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
        core::arch::asm!("mov {}, fs:0", out(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register that programs may read.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) at, options(nostack, preserves_flags, nomem));
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

/// A call that is not counted, and under way.
pub struct Call {
    note: &'static Note,
    slot: &'static Slot,
}

/// Notes that a call of this thread's on `fd` is about to go to the kernel. `None`: it is to be counted, or is none of ours.
///
/// Not inlined: after each system call the caches are full of the kernel's code, and this way there is one copy of it to be fetched.
#[inline(never)]
pub fn begins(fd: c_int) -> Option<Call> {
    let index = fds::uncounted(fd)?;
    let note = note(place());
    // Not in a handler that interrupted such a call.
    if note.thread.load(Relaxed) != thread() || note.slot.load(Relaxed) != 0 {
        return None;
    }
    let word = note.word.load(Acquire);
    if word == 0 {
        return None;
    }
    note.slot.store(index + 1, Relaxed);
    // For the processor `end` does it.
    compiler_fence(SeqCst);
    // SAFETY: a slot of the ledger, which is never unmapped: a number that once was one stands in the table of descriptors.
    let slot = unsafe { &*note.slots.load(Relaxed).add(index as usize) };
    if slot.goes_uncounted(word) {
        return Some(Call { note, slot });
    }
    note.slot.store(0, Relaxed);
    None
}

impl Call {
    /// It is over, and moved no bytes.
    #[inline]
    pub fn ends(self) {
        self.note.slot.store(0, Release);
    }

    /// It is over, and received `n` bytes if that is not below zero.
    #[inline]
    pub fn received(self, n: isize) -> isize {
        Slot::count(&self.slot.in_tcp, n.max(0).unsigned_abs() as u64);
        self.ends();
        n
    }

    /// It is over, and sent as many.
    #[inline]
    pub fn sent(self, n: isize) -> isize {
        Slot::count(&self.slot.out_tcp, n.max(0).unsigned_abs() as u64);
        self.ends();
        n
    }
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
