//! What each descriptor number of this process stands for.
//!
//! One word a number, in private memory that is taken as it is touched. The hot path is one load.

mod entry;

pub use entry::{Entry, Young};

use crate::{quiet, thread};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ginnel_region::sys;
use ginnel_tcp::catchup;
use ginnel_tcp::ledger::{SLOTS, SlotBits};

/// Numbers that are kept track of; higher ones are none of ours.
pub const LIMIT: i32 = 1 << 20;

/// Changes what is known of `fd`, while it is [`Young`]. False where it is not.
pub fn change_young(fd: i32, change: impl Fn(Young) -> Young) -> bool {
    loop {
        let Entry::Young(young) = get(fd) else { return false };
        let new = change(young);
        if new == young || replace(fd, Entry::Young(young), Entry::Young(new)) {
            return true;
        }
    }
}

/// From now on another process may have what `fd` stands for, if that is a socket without a slot.
pub fn share(fd: i32) {
    match get(fd) {
        // Not so: another thread may just have used it for the first time.
        Entry::Tcp if !replace(fd, Entry::Tcp, Entry::Shared) => share(fd),
        Entry::Young(_) => drop(change_young(fd, Young::heir)),
        _ => {}
    }
}

/// In [`strangers`]: the constructor has not run yet.
pub const NOT_STARTED: u32 = 1 << 31;
/// In [`strangers`]: a child of `clone(CLONE_VM)` may use this memory.
pub const LENT: u32 = 1 << 30;

/// Whose calls may come here although their descriptors are not those that the table speaks of:
/// [`NOT_STARTED`], [`LENT`], and below them the number of vfork children. 0 nearly always.
#[must_use]
pub fn strangers() -> &'static AtomicU32 {
    &TABLE.strangers
}

/// Has the program ever cancelled a thread? (Here as every hook asks for this line.)
#[must_use]
#[inline]
pub fn cancels() -> &'static AtomicBool {
    &TABLE.cancels
}

/// The table, in one cache line, since every hook asks for it.
#[repr(align(64))]
struct Table {
    words: AtomicPtr<AtomicU64>,
    /// How many words there are; 0 before the start.
    len: AtomicU32,
    /// The highest number that stood for anything so far.
    highest: AtomicU32,
    /// See [`strangers`].
    strangers: AtomicU32,
    /// See [`cancels`].
    cancels: AtomicBool,
}

static TABLE: Table = Table {
    words: AtomicPtr::new(core::ptr::null_mut()),
    len: AtomicU32::new(0),
    highest: AtomicU32::new(0),
    strangers: AtomicU32::new(NOT_STARTED),
    cancels: AtomicBool::new(false),
};
static REFERENCES: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
/// For each slot a descriptor of this process that stands for it, plus one; 0 none.
static DESCRIPTORS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
/// One bit a slot: a descriptor of this process stood for it lately. What goes through all of them
/// has little to go through.
static USED: SlotBits = SlotBits::new();

/// Changes of the table that are under way, and whether a fork waits for them to end.
static CHANGES: AtomicU32 = AtomicU32::new(0);
static FORKING: AtomicU32 = AtomicU32::new(0);

/// A change that consists of several steps (a socket gets its slot, an endpoint is closed): no fork
/// falls into the middle of it.
#[must_use]
pub struct Change(());

/// Begins a [`Change`].
pub fn change() -> Change {
    loop {
        CHANGES.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 {
            return Change(());
        }
        CHANGES.fetch_sub(1, Ordering::SeqCst);
        sys::yield_now();
    }
}

/// Before a fork, or before the process leaves its segment: waits until no change is under way, and
/// lets none begin. For a moment only: a signal handler that forks may have interrupted one. False
/// where one is under way all the same.
pub fn hold_changes() -> bool {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let end = sys::monotonic_ns() + 10_000_000;
    while CHANGES.load(Ordering::SeqCst) != 0 && sys::monotonic_ns() < end {
        sys::yield_now();
    }
    CHANGES.load(Ordering::SeqCst) == 0
}

/// After [`hold_changes`], on both sides of a fork. `child`: the threads that were changing
/// something are not there.
pub fn release_changes(child: bool) {
    if child {
        CHANGES.store(0, Ordering::SeqCst);
        FORKING.store(0, Ordering::SeqCst);
    } else {
        FORKING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        CHANGES.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes the tables; `false` where there is no address space for them.
pub fn start() -> bool {
    let table = sys::map_private(LIMIT as usize * 8);
    let references = sys::map_private(SLOTS as usize * 4);
    let descriptors = sys::map_private(SLOTS as usize * 4);
    match (table, references, descriptors) {
        (Ok(table), Ok(references), Ok(descriptors)) => {
            DESCRIPTORS.store(descriptors.cast(), Ordering::Release);
            REFERENCES.store(references.cast(), Ordering::Release);
            TABLE.words.store(table.cast(), Ordering::Relaxed);
            TABLE.len.store(LIMIT.unsigned_abs(), Ordering::Release);
            true
        }
        _ => false,
    }
}

/// Where the largest of the tables lies; nearly all of it is never touched.
#[must_use]
pub fn memory() -> core::ops::Range<usize> {
    let table = TABLE.words.load(Ordering::Relaxed) as usize;
    table..table + LIMIT as usize * 8
}

#[inline]
fn word(fd: i32) -> Option<&'static AtomicU64> {
    // A negative number is above all of them. Acquire: the words are there.
    if fd.cast_unsigned() >= TABLE.len.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: it is there before `len` is more than 0.
    let words = unsafe { NonNull::new_unchecked(TABLE.words.load(Ordering::Relaxed)) };
    // SAFETY: inside the table, which is never unmapped; zeroes are valid atomics.
    Some(unsafe { words.add(fd.cast_unsigned() as usize).as_ref() })
}

/// [`word`], where the call is surely one of this process's.
#[inline]
fn own_word(fd: i32) -> Option<&'static AtomicU64> {
    if TABLE.strangers.load(Ordering::Relaxed) == 0 { word(fd) } else { None }
}

/// What `fd` stands for.
#[inline]
#[must_use]
pub fn get(fd: i32) -> Entry {
    word(fd).map_or(Entry::Plain, |word| Entry::of(word.load(Ordering::Acquire)))
}

/// A descriptor was just made that is of no further interest: says so, in the usual case that its
/// number stood for nothing. False where it is another case.
#[inline]
#[must_use]
pub fn becomes_plain(fd: i32) -> bool {
    let Some(word) = own_word(fd) else { return false };
    let before = word.load(Ordering::Relaxed);
    if before == Entry::Unknown.word() {
        note_highest(fd);
        word.store(Entry::Plain.word(), Ordering::Release);
    }
    is_plain_word(before)
}

/// A descriptor is about to be closed: forgets it, in the usual case that it was of no interest.
/// False where it is another case.
#[inline]
#[must_use]
pub fn forget_plain(fd: i32) -> bool {
    let Some(word) = own_word(fd) else { return false };
    let before = word.load(Ordering::Relaxed);
    // Others are not written to: the memory of numbers that never stood for anything is not to be
    // taken.
    if before == Entry::Plain.word() {
        word.store(Entry::Unknown.word(), Ordering::Release);
    }
    is_plain_word(before)
}

/// Is it the word of a number that is of no interest?
#[inline]
fn is_plain_word(word: u64) -> bool {
    word <= Entry::Plain.word()
}

/// Does `fd` stand for nothing that a ring could carry, as far as is known?
#[inline]
#[must_use]
pub fn is_plain(fd: i32) -> bool {
    word(fd).is_some_and(|word| is_plain_word(word.load(Ordering::Acquire)))
}

/// Says what `fd` stands for from now on. References of slots are the caller's business.
pub fn set(fd: i32, entry: Entry) {
    if let Some(word) = word(fd) {
        // Before the number can be used: who goes through all of them is to find it.
        note_highest(fd);
        heed_end_of(fd, Entry::of(word.swap(entry.word(), Ordering::AcqRel)));
    }
}

/// Marks a descriptor of another library's, which stands for [`Entry::Own`], too.
const SPARED: u64 = Entry::Own.word() | 1 << 8;

/// `fd` is another library's: the program does not close it.
pub fn spare(fd: i32) {
    set(fd, Entry::Own);
    if let Some(word) = word(fd) {
        let _ =
            word.compare_exchange(Entry::Own.word(), SPARED, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Is it another library's?
#[must_use]
pub fn is_spared(fd: i32) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Acquire) == SPARED)
}

/// `fd` stood for `before` until now.
fn heed_end_of(fd: i32, before: Entry) {
    if matches!(before, Entry::Endpoint(_)) {
        quiet::changed(fd);
    }
}

#[inline]
fn note_highest(fd: i32) {
    // Of a number that has a word: not below zero.
    if TABLE.highest.load(Ordering::Relaxed) < fd.cast_unsigned() {
        TABLE.highest.fetch_max(fd.cast_unsigned(), Ordering::Relaxed);
    }
}

/// Replaces `old`, if that is still what `fd` stands for.
pub fn replace(fd: i32, old: Entry, new: Entry) -> bool {
    word(fd).is_some_and(|word| {
        note_highest(fd);
        let replaced = word
            .compare_exchange(old.word(), new.word(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if replaced {
            heed_end_of(fd, old);
        }
        replaced
    })
}

/// Takes what `fd` stood for: it is unknown afterwards.
pub fn take(fd: i32) -> Entry {
    let entry = word(fd).map_or(Entry::Plain, |word| Entry::of(word.swap(0, Ordering::AcqRel)));
    heed_end_of(fd, entry);
    entry
}

/// The highest number that stood for anything so far.
#[must_use]
pub fn highest() -> u32 {
    TABLE.highest.load(Ordering::Relaxed)
}

/// All numbers that stand for something.
pub fn all() -> impl Iterator<Item = (i32, Entry)> {
    let highest = i32::try_from(highest()).unwrap_or(0);
    (0..=highest).map(|fd| (fd, get(fd))).filter(|(_, entry)| *entry != Entry::Unknown)
}

fn entry_of(table: &AtomicPtr<AtomicU32>, slot: u32) -> &'static AtomicU32 {
    static NONE: AtomicU32 = AtomicU32::new(0);
    let table = table.load(Ordering::Relaxed);
    if table.is_null() {
        return &NONE;
    }
    // SAFETY: the remainder keeps it inside the table, which is never unmapped.
    unsafe { &*table.add((slot % SLOTS) as usize) }
}

/// One more descriptor of this process, `fd`, stands for `slot`.
pub fn refer(slot: u32, fd: i32) {
    if entry_of(&REFERENCES, slot).fetch_add(1, Ordering::AcqRel) == 0 {
        catchup::came();
    }
    // After the count: whoever takes the bit away looks at that once more.
    USED.set(slot);
    entry_of(&DESCRIPTORS, slot).store(fd.unsigned_abs() + 1, Ordering::Release);
}

/// By which thread ([`thread::me`]) the numbers of a slot are being counted; 0 by none.
static COUNTING: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Runs a few steps on how many numbers stand for `slot`, and whether this process holds it: one
/// thread's at a time. They take no lock and make no call, so that nobody is in there for long:
/// whoever is, was left there by `siglongjmp`, and is waited for no longer than a moment.
pub fn counting<T>(slot: u32, steps: impl FnOnce() -> T) -> T {
    const PATIENCE: u64 = 1_000_000_000;
    let (counting, me) = (COUNTING.get(slot as usize % COUNTING.len()), thread::me());
    let is_taken = |counting: &AtomicUsize| {
        counting.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err()
    };
    if counting.is_some_and(|counting| counting.load(Ordering::Relaxed) == me) {
        // A signal handler that interrupted this very thread in here goes through.
        return steps();
    }
    let (mut taken, mut end) = (counting.is_some_and(is_taken), None);
    while taken && end.is_none_or(|end| sys::monotonic_ns() < end) {
        end = end.or_else(|| Some(sys::monotonic_ns() + PATIENCE));
        sys::yield_now();
        taken = counting.is_some_and(is_taken);
    }
    let result = steps();
    if let Some(counting) = counting {
        let _ = counting.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed);
    }
    result
}

/// In a fork child: the threads that were counting are not there.
pub fn forget_parent() {
    for counting in &COUNTING {
        counting.store(0, Ordering::Relaxed);
    }
}

/// `fd` no longer stands for `slot`. Returns how many descriptors are left.
pub fn unrefer(slot: u32, fd: i32) -> u32 {
    let before =
        entry_of(&REFERENCES, slot)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    let left = before.map_or(0, |before| before - 1);
    if before == Ok(1) {
        catchup::went();
    }
    let known = entry_of(&DESCRIPTORS, slot);
    if known.load(Ordering::Acquire) == fd.unsigned_abs() + 1 {
        let other = if left == 0 {
            None
        } else {
            all().find(|(_, entry)| matches!(entry, Entry::Endpoint(of) | Entry::Inherited(of) if *of == slot))
        };
        known.store(other.map_or(0, |(other, _)| other.unsigned_abs() + 1), Ordering::Release);
    }
    left
}

/// The slots that descriptors of this process stand for, from `first` on.
pub fn slots(first: u32) -> impl Iterator<Item = u32> {
    USED.ones(first).filter(|&slot| {
        USED.unset_if_free(slot, || count(slot) == 0);
        count(slot) != 0
    })
}

/// How many descriptors of this process stand for `slot`.
pub fn count(slot: u32) -> u32 {
    entry_of(&REFERENCES, slot).load(Ordering::Acquire)
}

/// A descriptor of this process that stands for `slot`.
pub fn of_slot(slot: u32) -> Option<i32> {
    entry_of(&DESCRIPTORS, slot)
        .load(Ordering::Acquire)
        .checked_sub(1)
        .and_then(|fd| i32::try_from(fd).ok())
}
