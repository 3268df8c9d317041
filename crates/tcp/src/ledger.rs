//! The ledger: what the processes of one user on one kernel share about their own sockets. A file
//! beside the process table, never in a segment: a peer must not be able to forge it. Its readers
//! trust each other as threads of one program do.
//!
//! A socket is found by `SO_COOKIE`, which is the same across dup, fork, exec and SCM_RIGHTS. Who
//! holds it is told by entries of the process table ([`ginnel_node::processes`]).

mod bits;
mod directions;
mod holders;
mod large;
mod slot;
mod stage;

pub use crate::tuple::Tuple;
pub use bits::{attention, flag};
pub use directions::{Receive, Send};
pub use slot::{DRY_AT, Slot, TAKEN, TOLD};
pub use stage::{Reason, Stage};

use ginnel_node::bits::Bits;
use ginnel_node::processes::{Holdings, Lock, Processes};
use ginnel_node::table::{Kind, Table};
use ginnel_region::Error;
use large::{PERMITS, Permit};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"GINLEDGR");
const VERSION: u32 = 9;

/// Name of the ledger in its directory; the number is its version.
pub const LEDGER: &str = "sockets-9";

/// Is it the name of a ledger, of this version or another?
#[must_use]
pub fn is_ledger(name: &str) -> bool {
    name == "sockets" || name.starts_with("sockets-")
}

/// How many sockets a ledger holds: both ends of 10,000 connections of one user, and a third as
/// many again, so that each finds a place near its own.
pub const SLOTS: u32 = 32768;
/// A bit for each slot.
pub type SlotBits = Bits<{ SLOTS as usize / 64 }>;

/// How far from its hashed place a slot may lie.
const REACH: u32 = 64;
/// The slots in three parts: a socket gets its place in the first, or where there is no room near
/// its place there in the next. So few sockets at a time, though one follows another, use few slots
/// again and again, which stay in the caches.
const PARTS: [Part; 3] = [
    Part { first: 0, count: 256 },
    Part { first: 256, count: 3840 },
    Part { first: 4096, count: SLOTS - 4096 },
];

const TAGS_AT: usize = size_of::<Header>();
const SLOTS_AT: usize = TAGS_AT + SLOTS as usize * size_of::<AtomicU16>();
const SIZE: usize = SLOTS_AT + SLOTS as usize * size_of::<Slot>();

/// Bytes that have memory behind them from the beginning on: all but the slots of later parts.
const AT_FIRST: usize = SLOTS_AT + PARTS[0].count as usize * size_of::<Slot>();

static KIND: Kind =
    Kind { name: "use ledger", magic: MAGIC, version: VERSION, size: SIZE, at_first: AT_FIRST };

/// Slots in a page of memory.
const SLOTS_OF_PAGE: u64 = 4096 / size_of::<Slot>() as u64;

const STRIPES: usize = 64;

#[repr(C, align(4096))]
struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    generation: AtomicU64,
    large: [Permit; PERMITS],
    stripes: [Lock; STRIPES],
    /// Counts changes of [`Slot::registered`].
    registered: AtomicU32,
    /// Into how many of [`PARTS`] sockets have come so far.
    parts: AtomicU32,
    /// A bit for each slot that is in use, and for some that were: see [`Ledger::slots`].
    used: SlotBits,
}

const _: () = assert!(size_of::<Header>() == 8192 && SLOTS_AT.is_multiple_of(4096));

/// The mapped ledger.
pub struct Ledger(Table);

impl Holdings for Ledger {
    fn names(&self, index: u32) -> bool {
        self.slots().any(|slot| slot.held_by().any(|process| process == index))
    }

    fn began_anew(&self, index: u32) {
        // What the program before was about to close when it became this one.
        for slot in self.slots().filter(|slot| slot.has(flag::ENDING)) {
            slot.let_go(index);
        }
    }
}

impl Ledger {
    /// Opens the ledger in `directory`, or makes it where there is none. Memory is taken for few
    /// sockets at first, and for more as they come.
    ///
    /// # Errors
    /// As for a segment: a file of another version, foreign, or no memory.
    pub fn open_or_create(directory: &Path) -> Result<Self, Error> {
        Table::open_or_create(&directory.join(LEDGER), &KIND).map(Self)
    }

    /// Opens a ledger that is there, to look on: root does so with other users' too.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(directory: &Path, writable: bool) -> Result<Self, Error> {
        Table::open(&directory.join(LEDGER), &KIND, writable).map(Self)
    }

    fn header(&self) -> &Header {
        // SAFETY: the map begins with a header, all atomics.
        unsafe { &*self.0.base().cast::<Header>() }
    }

    /// Could this process open it anew, for reading and writing, under the same name?
    #[must_use]
    pub fn can_be_opened(&self) -> bool {
        self.0.can_be_opened()
    }

    /// Gives the memory up: zeroes of this process's own stand in its place from here on.
    pub fn let_go(&self) {
        self.0.let_go();
    }

    /// Counts changes of every [`Slot::registered`].
    #[must_use]
    pub fn registered(&self) -> &AtomicU32 {
        &self.header().registered
    }

    /// Where it is mapped.
    #[must_use]
    pub fn memory(&self) -> std::ops::Range<usize> {
        self.0.memory()
    }

    /// The slot `index`.
    #[must_use]
    #[inline]
    pub fn slot(&self, index: u32) -> &Slot {
        // SAFETY: the remainder keeps it inside the map; all fields are atomics.
        unsafe { &*self.0.base().add(SLOTS_AT).cast::<Slot>().add((index % SLOTS) as usize) }
    }

    /// A piece of the cookie that slot `index` has, or had last, 0 where it had none yet: sockets
    /// that are not there are found not to be in two cache lines, instead of in a line of each slot
    /// where they could be.
    fn tag(&self, index: u32) -> &AtomicU16 {
        // SAFETY: the remainder keeps it inside the map; all of it are atomics.
        unsafe { &*self.0.base().add(TAGS_AT).cast::<AtomicU16>().add((index % SLOTS) as usize) }
    }

    /// The number of a slot of this ledger.
    #[must_use]
    pub fn index(&self, slot: &Slot) -> u32 {
        let at = std::ptr::from_ref(slot) as usize - (self.0.base() as usize + SLOTS_AT);
        (at / size_of::<Slot>()) as u32
    }

    /// Every slot in use.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.not_free().filter(|slot| slot.is_in_use())
    }

    /// Every slot that somebody seized who has died since, and the word that stands for that.
    pub fn abandoned<'a>(
        &'a self,
        processes: &'a Processes,
    ) -> impl Iterator<Item = (&'a Slot, u64)> {
        let seized = self.not_free().map(|slot| (slot, slot.cookie.load(Ordering::Acquire)));
        seized.filter(|(_, cookie)| {
            *cookie >= slot::TAKEN
                && !processes.is_still(u32::try_from(cookie & !slot::TAKEN).unwrap_or(u32::MAX))
        })
    }

    fn not_free(&self) -> impl Iterator<Item = &Slot> {
        self.header().used.ones(0).map(|index| {
            let slot = self.slot(index);
            if self.0.is_writable() {
                self.unmark(slot, index);
            }
            slot
        })
    }

    /// Finds the slot of a socket.
    #[must_use]
    pub fn find(&self, cookie: u64) -> Option<&Slot> {
        let tag = tag_of(cookie);
        // Acquire pairs with the Release of whoever claimed the slot: who can ask for a socket's
        // slot has seen the socket after that.
        let parts = PARTS.iter().take(self.header().parts.load(Ordering::Acquire) as usize);
        let tagged = parts
            .flat_map(|part| part.near(part.place(cookie)))
            .filter(|&index| self.tag(index).load(Ordering::Acquire) == tag);
        tagged
            .map(|index| self.slot(index))
            .find(|slot| slot.cookie.load(Ordering::Acquire) == cookie)
    }

    /// Finds the slot of a socket or takes a free one for it; `true` if it was taken. `me`: this
    /// process's ticket. `fill` says of a new one what is known of the socket, before anybody finds
    /// it.
    #[must_use]
    pub fn find_or_claim(
        &self,
        processes: &Processes,
        cookie: u64,
        me: u32,
        fill: impl FnOnce(&Slot),
    ) -> Option<(&Slot, bool)> {
        if let Some(slot) = self.find(cookie) {
            return Some((slot, false));
        }
        let stripe = self.header().stripes.get(PARTS[0].place(cookie) as usize % STRIPES)?;
        let _held = stripe.lock_unless_interrupted(processes, me).ok()?;
        if let Some(slot) = self.find(cookie) {
            return Some((slot, false));
        }
        let used = &self.header().used;
        for (parts, part) in (1..).zip(&PARTS) {
            for index in self.unmarked(part, part.place(cookie)) {
                let slot = self.slot(index);
                if parts > 1 && !self.make_real(slot) {
                    return None;
                }
                // Before, as who seizes it may die; and after, as [`Self::unmark`] takes back the
                // mark of one that it finds free.
                used.set(index);
                if slot.seize(0, me) {
                    used.set(index);
                    self.header().parts.fetch_max(parts, Ordering::AcqRel);
                    self.tag(index).store(tag_of(cookie), Ordering::Release);
                    slot.clear(self.next_generation());
                    fill(slot);
                    slot.cookie.store(cookie, Ordering::Release);
                    return Some((slot, true));
                }
            }
        }
        None
    }

    /// Makes the page of a slot real before anybody touches it: there may be no memory left for it.
    fn make_real(&self, slot: &Slot) -> bool {
        self.0.make_real(std::ptr::from_ref(slot) as usize - self.0.base() as usize)
    }

    /// Slots of a part, from its place `start` on, that are not marked as used: without a look at
    /// each.
    fn unmarked(&self, part: &'static Part, start: u32) -> impl Iterator<Item = u32> {
        let word = |place| u128::from(self.header().used.word(part.index(place)));
        let bits = word(start) | word(start + 64) << 64;
        let free = !((bits >> (start % 64)) as u64);
        part.near(start)
            .enumerate()
            .filter(move |(step, _)| free >> step & 1 == 1)
            .map(|(_, index)| index)
    }

    /// Gives a slot back, which the caller has seized.
    pub fn free(&self, slot: &Slot) {
        slot.free();
        self.unmark(slot, self.index(slot));
    }

    /// Takes the mark of a slot back that was found free.
    fn unmark(&self, slot: &Slot, index: u32) {
        self.header().used.unset_if_free(index, || slot.cookie.load(Ordering::SeqCst) == 0);
    }

    fn next_generation(&self) -> u64 {
        self.header().generation.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Slots that lie together; whole words of [`Header::used`].
struct Part {
    first: u32,
    count: u32,
}

impl Part {
    /// Where a socket's slot is looked for first.
    const fn place(&self, cookie: u64) -> u32 {
        // Cookies count up: spread them, but for neighbours, which are one program's mostly and
        // share a page so.
        let page = mixed(cookie / SLOTS_OF_PAGE) as u32 % (self.count / SLOTS_OF_PAGE as u32);
        page * SLOTS_OF_PAGE as u32 + (cookie % SLOTS_OF_PAGE) as u32
    }

    /// The slots where one may be whose place is `start`.
    fn near(&self, start: u32) -> impl Iterator<Item = u32> {
        (start..start + REACH).map(|place| self.index(place))
    }

    /// The slot at a place, or as far beyond the end.
    const fn index(&self, place: u32) -> u32 {
        self.first + if place >= self.count { place - self.count } else { place }
    }
}

/// Not 0, which stands for slots that no socket had yet: they may have no memory behind them.
fn tag_of(cookie: u64) -> u16 {
    ((mixed(cookie) >> 8) as u16).max(1)
}

const fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}

#[cfg(test)]
mod tests;
