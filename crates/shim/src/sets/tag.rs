//! What the kernel returns with an event, and which registration that is of.
//!
//! The kernel has the program's own data, so that a set which another process shares (fork) or
//! inherits (exec) says what the program wrote there. Only where two registrations of a set have
//! the same data does it have a *tag* for the second: a number that no program is likely to use as
//! its data.
//!
//! A set that several processes have is told of in each of them. There the others must learn from a
//! tag what the program's data is: it names a place in a table that lies in memory which `fork`
//! leaves shared ([`prepare`]).

use super::{Inner, Set};
use crate::mix::GOLDEN;
use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use ginnel_region::sys;

/// Upper half of every tag: random, so that a program's own data is not taken for one.
static TAG: AtomicU64 = AtomicU64::new(0);
/// What the waiter's FIFO is registered with.
const FIFO: u32 = u32::MAX;
/// Below it: what the lines of pairs are registered with ([`super::doors`]).
const DOORS: u32 = 64;
/// In the lower half, of a tag that other processes may meet. Its place in the table is below it,
/// then its number.
const COMMON: u32 = 1 << 31;
/// Bits of that number.
const NUMBER: u32 = 19;
/// How many data the table has room for: those with which several registrations of one shared set
/// were ever made. The last place is left out, so that no tag is the FIFO's or a line's.
const PLACES: usize = (1 << (31 - NUMBER)) - 1;

/// The data of tags that several processes meet. All zeroes: nothing in it.
#[repr(C)]
struct Table {
    /// Counts the tags.
    tags: AtomicU32,
    /// Each data plus one; 0: free. Places are taken from the first on and never given back.
    data: [AtomicU64; PLACES],
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
/// Counts the tags that are this process's alone.
static OWN: AtomicU32 = AtomicU32::new(0);

fn table() -> Option<&'static Table> {
    // SAFETY: null, or a map of that size, never unmapped; it holds nothing but atomics, for which
    // any bytes are valid values.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Before a fork: the child is to know the tags of sets that it has too, those that are yet to be
/// made among them.
pub(super) fn prepare() {
    let _ = base();
    if table().is_none()
        && let Ok(at) = sys::map_common(size_of::<Table>())
    {
        let fresh = at.cast::<Table>();
        let other = TABLE.compare_exchange(
            core::ptr::null_mut(),
            fresh,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if other.is_err() {
            // SAFETY: just mapped, and nobody has it.
            unsafe { sys::unmap(at, size_of::<Table>()) };
        }
    }
}

impl Table {
    /// The place of `data`, which is put there if it is in none. `None`: it is full.
    fn place(&self, data: u64) -> Option<u32> {
        let value = data.checked_add(1)?;
        let is_there = |place: &AtomicU64| match place.compare_exchange(
            0,
            value,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => true,
            Err(other) => other == value,
        };
        self.data.iter().position(is_there).and_then(|place| u32::try_from(place).ok())
    }

    fn data(&self, place: u32) -> Option<u64> {
        self.data.get(place as usize)?.load(Ordering::Acquire).checked_sub(1)
    }
}

fn base() -> u64 {
    let known = TAG.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // Not an address, not a small number.
    let fresh = (0xA500_0000 | (sys::random_u64() >> 8 & 0xff_ffff)) << 32;
    match TAG.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => fresh,
        Err(other) => other,
    }
}

/// The data with which the waiter's FIFO is registered.
pub(super) fn fifo_tag() -> u64 {
    base() | u64::from(FIFO)
}

/// The data with which the line of a set's door is registered; `number` is below 64.
pub(super) fn door_tag(number: u32) -> u64 {
    base() | u64::from(FIFO - 1 - number % DOORS)
}

/// Which door this is the data of.
pub(super) fn door_of(data: u64) -> Option<u32> {
    let low = data as u32;
    (is_tag(data) && (FIFO - DOORS..FIFO).contains(&low)).then(|| FIFO - 1 - low)
}

/// Is it a tag of ours, not a program's own data?
pub(super) fn is_tag(data: u64) -> bool {
    data & 0xffff_ffff_0000_0000 == base()
}

/// The program's data behind a tag that another process may have made. `None`: it is none of those.
pub(super) fn data_behind(known: u64) -> Option<u64> {
    let low = known as u32;
    let common = is_tag(known) && low & COMMON != 0 && low != FIFO;
    table().filter(|_| common)?.data((low & !COMMON) >> NUMBER)
}

/// A tag that no registration of `inner` has.
fn fresh_tag(set: &Set, inner: &Inner, data: u64) -> u64 {
    let common = table().filter(|_| set.shared.load(Ordering::Relaxed));
    let common = common.and_then(|table| Some((table, table.place(data)?)));
    loop {
        let low = match common {
            Some((table, place)) => {
                let number = table.tags.fetch_add(1, Ordering::Relaxed) % (1 << NUMBER);
                COMMON | place << NUMBER | number
            }
            None => OWN.fetch_add(1, Ordering::Relaxed) & !COMMON,
        };
        let tag = base() | u64::from(low);
        if !inner.by_data.contains_key(&tag) {
            return tag;
        }
    }
}

/// Which registrations were found by their data lately: a guess, at a place that the data gives, so
/// that few of a wait's events are looked up.
pub(super) struct Lately([Cell<u32>; 256]);

impl Default for Lately {
    fn default() -> Self {
        Self([const { Cell::new(0) }; 256])
    }
}

impl Lately {
    pub(super) fn of(&self, data: u64) -> &Cell<u32> {
        // The upper bits of the product depend on all of the data's.
        let place = data.wrapping_mul(GOLDEN) >> 56;
        // SAFETY: eight bits are below 256.
        unsafe { self.0.get_unchecked(place as usize) }
    }
}

/// The registration's data is nobody's from now on.
pub(super) fn forget_data(inner: &mut Inner, index: u32) {
    let known = inner.registrations.get(index as usize).map(|entry| entry.known);
    if let Some(known) = known
        && inner.by_data.get(&known) == Some(&index)
    {
        inner.by_data.remove(&known);
    }
}

/// Gives a registration its data: the kernel is to have the program's own, or a tag where that is
/// taken. One that has a tag for this data keeps it, though the data may be free by now: a process
/// that has the set too, and does not know that, would give the kernel the tag again.
pub(super) fn name(set: &Set, inner: &mut Inner, index: u32, data: u64) {
    let before = inner.registrations.get(index as usize).map(|entry| (entry.data, entry.known));
    forget_data(inner, index);
    let known = match before {
        Some((same, known)) if same == data && known != data => known,
        _ if is_free(inner, data) => data,
        _ => fresh_tag(set, inner, data),
    };
    is_known(inner, index, data, known);
}

/// May the kernel have this data as it is? Then events tell whose it is.
fn is_free(inner: &Inner, data: u64) -> bool {
    !inner.by_data.contains_key(&data) && !is_tag(data)
}

/// The kernel has a registration's `data` as `known`.
pub(super) fn is_known(inner: &mut Inner, index: u32, data: u64, known: u64) {
    inner.by_data.insert(known, index);
    inner.alike |= known != data;
    if let Some(entry) = inner.registrations.get_mut(index as usize) {
        (entry.data, entry.known) = (data, known);
    }
}

/// Another process gave a registration its data: `known` is what the kernel has.
pub(super) fn learn(set: &Set, inner: &mut Inner, index: u32, known: u64) {
    if !is_tag(known) {
        forget_data(inner, index);
        return match is_free(inner, known) {
            true => is_known(inner, index, known, known),
            false => name(set, inner, index, known),
        };
    }
    if let Some(data) = data_behind(known) {
        forget_data(inner, index);
        is_known(inner, index, data, known);
    }
}

/// The registration that an event of the kernel's speaks of.
pub(super) fn resolve(inner: &Inner, known: u64) -> Option<u32> {
    let lately = inner.lately.of(known);
    let is_it = |entry: &super::Registration| entry.used && entry.known == known;
    if inner.registrations.get(lately.get() as usize).is_some_and(is_it) {
        return Some(lately.get());
    }
    inner.by_data.get(&known).inspect(|&&index| lately.set(index)).copied()
}
