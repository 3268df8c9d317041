//! Which numbers have calls that go uncounted, and which such calls are under way.
//!
//! Whether a number's calls go uncounted stands in private memory ([`Quiet`]), which says so only
//! after the ledger does, and says no more before the process counts. Which of them are under way
//! stands in a note of each thread, which only that thread writes: two stores, where the ledger
//! takes three locked additions. A thread's note is found by the address of its thread control
//! block, without memory of its own (a thread-local variable might take some when it is first asked
//! for, in a signal handler perhaps).
//!
//! [`crate::uncounted`] makes these calls, and begins and ends that a connection's go uncounted.
//! Here is what the table of descriptors needs of that: it says so when a number stands for
//! something else ([`changed`]).

use crate::mix::GOLDEN;
use crate::thread;
use core::ptr::{self, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
use ginnel_tcp::Slot;
use ginnel_tcp::uncounted::LOOKS;
use libc::c_int;

/// One thread's note.
#[repr(align(64))]
pub struct Note {
    /// Whose it is; 0: nobody's yet.
    pub thread: AtomicUsize,
    /// The slot of the connection on which the thread is in the kernel, and 1; 0: on none.
    pub slot: AtomicU32,
}

impl Note {
    const fn new() -> Self {
        Self { thread: AtomicUsize::new(0), slot: AtomicU32::new(0) }
    }
}

/// A number whose calls are not counted: all that such a call needs.
#[repr(C, align(32))]
pub struct Quiet {
    /// The slot of its connection, and 1; 0: its calls are counted.
    pub slot: AtomicU32,
    /// In the upper half: after so many calls one is counted, and looks. In the lower, `slot` once
    /// more: what was stored late, of a connection before, is not taken for this one's.
    pub left: AtomicU32,
    /// What calls have returned since: bytes received, bytes sent, and of calls that move none.
    pub returned: [AtomicU64; 3],
}

/// One call, in [`Quiet::left`].
pub const CALL: u32 = 1 << 16;
const _: () = assert!(LOOKS < CALL && ginnel_tcp::ledger::SLOTS < CALL);

/// Notes; threads for whom there is no room, or another thread has theirs, count their calls.
const NOTES: usize = 1024;
/// This number and higher ones have their calls counted.
pub const NUMBERS: usize = 1 << 14;

/// All of it. In a copy of this memory, however the child was made, it is blank: nothing that its
/// threads do goes uncounted, or stands noted.
///
/// What the calls of a program with one thread and few connections need lies in one page: after a
/// system call each page more is one more that the processor has to find anew.
#[repr(C, align(4096))]
pub struct Notes {
    /// The note of the thread that the process began with, and which most have no others than.
    pub first: Note,
    pub quiet: [Quiet; NUMBERS],
    each: [Note; NOTES],
    /// One bit a note: somebody has it.
    taken: [AtomicU64; NOTES / 64],
}

pub static NOTEBOOK: Notes = Notes {
    first: Note::new(),
    quiet: [const {
        Quiet {
            slot: AtomicU32::new(0),
            left: AtomicU32::new(0),
            returned: [const { AtomicU64::new(0) }; 3],
        }
    }; NUMBERS],
    each: [const { Note::new() }; NOTES],
    taken: [const { AtomicU64::new(0) }; NOTES / 64],
};
/// The ledger's first slot.
pub static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(null_mut());
/// What a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// It receives so many.
    In = 0,
    /// It sends so many.
    Out = 1,
    /// It moves none.
    None = 2,
}

/// Where the note of a thread is that is not the first.
fn place(thread: usize) -> usize {
    // Blocks lie at the ends of stacks, which lie whole pages apart, or in one program's heap.
    (((thread >> 6) as u64).wrapping_mul(GOLDEN) >> 32) as usize % NOTES
}

/// This thread's note, or another's that is where its own would be.
#[inline]
pub fn note(thread: usize) -> &'static Note {
    if NOTEBOOK.first.thread.load(Relaxed) == thread {
        return &NOTEBOOK.first;
    }
    // SAFETY: there are as many notes.
    unsafe { NOTEBOOK.each.get_unchecked(place(thread)) }
}

fn taken() -> impl Iterator<Item = &'static Note> {
    let words = NOTEBOOK.taken.iter().zip(NOTEBOOK.each.chunks(64));
    let others = words.flat_map(|(bits, notes)| {
        let bits = bits.load(SeqCst);
        notes.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, note)| note)
    });
    core::iter::once(&NOTEBOOK.first).chain(others)
}

/// Is no thread in an uncounted call on this slot's connection, as far as can be seen? One that was
/// cancelled in such a call, or left it by `siglongjmp`, seems to be in it for ever: what has that
/// slot then stays on TCP.
pub fn none_in(slot: u32) -> bool {
    taken().all(|note| note.slot.load(Acquire) != slot + 1)
}

/// Has this thread a note, from now on at least? False where another thread has it.
pub fn take_note() -> bool {
    let me = thread::me();
    let note = note(me);
    if !ptr::eq(note, &raw const NOTEBOOK.first) {
        // Before the note is anybody's: a handler that interrupts this may make a call that goes
        // uncounted.
        let place = place(me);
        if let Some(bits) = NOTEBOOK.taken.get(place / 64) {
            bits.fetch_or(1 << (place % 64), SeqCst);
        }
    }
    note.thread.compare_exchange(0, me, AcqRel, Relaxed).map_or_else(|other| other == me, |_| true)
}

/// What is known of the calls on `fd`; of a number that is too high nothing.
#[inline]
pub fn quiet(fd: c_int) -> Option<&'static Quiet> {
    NOTEBOOK.quiet.get(fd.cast_unsigned() as usize)
}

/// May calls on `fd`, of this slot's socket, go uncounted? Then no ring carries it.
#[inline]
pub fn goes(fd: c_int, slot: u32) -> bool {
    quiet(fd).is_some_and(|quiet| quiet.slot.load(SeqCst) == slot + 1)
}

impl Quiet {
    /// Where it is counted what calls return that return this.
    #[inline]
    pub fn returned(&self, bytes: Bytes) -> &AtomicU64 {
        // SAFETY: there are three kinds.
        unsafe { self.returned.get_unchecked(bytes as usize) }
    }

    /// Adds what was returned so far to the counters of its connection, if it has one.
    pub fn report(&self) {
        let (slots, slot) = (SLOTS.load(Acquire), self.slot.load(Relaxed));
        if slot == 0 || slots.is_null() {
            return;
        }
        // SAFETY: a slot of the ledger, which is never unmapped; the number's own, until it stands
        // for something else.
        let slot = unsafe { &*slots.add(slot as usize - 1) };
        let [received, sent, _] =
            self.returned.each_ref().map(|returned| returned.swap(0, Relaxed));
        slot.in_tcp.fetch_add(received, Relaxed);
        slot.out_tcp.fetch_add(sent, Relaxed);
    }
}

/// `fd` stands for something else from now on, or its calls are counted.
pub fn changed(fd: c_int) {
    // Whoever says meanwhile that its calls are not counted finds that something has changed, or is
    // found here.
    fence(SeqCst);
    if let Some(quiet) = quiet(fd)
        && quiet.slot.load(SeqCst) != 0
    {
        quiet.report();
        quiet.slot.store(0, SeqCst);
    }
}
