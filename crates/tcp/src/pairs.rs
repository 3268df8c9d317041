//! Memory that this process shares with one other process only, and which of its connections meet
//! there.
//!
//! A process has its own segment ([`Attachment::node`]) and, beside that, one for each process of
//! another user or container with which the broker made it a pair ([`crate::broker`]). A connection
//! whose slot has [`flag::PAIR`] is in one of those: [`Attachment::joined_of`] says in which.
//! Everything else is as in the own segment, but for three things.
//!
//! - The two ends meet under a number that the broker drew, not under their addresses, which may
//!   have been translated between them.
//! - Nobody proves anything: the broker has seen both proofs, and a third process has no way in.
//! - The other process is a stranger, whose FIFOs this one does not open: the two wake each other by
//!   lines ([`ginnel_node::wake::line`]), which came with the memory, or over TCP (tokens).
//!
//! What a process has of pairs is its own and its fork children's, which have copies of the maps.
//! It is not in the ledger: a program that another one becomes by exec has none of it.

mod places;

use crate::attach::Attachment;
use crate::endpoint::Endpoint;
use crate::ledger::{Ledger, Reason, SLOTS, Slot, Stage, Tuple, flag};
use crate::rendezvous::{Entry, state};
use ginnel_node::joined::Joined;
use ginnel_node::processes::ProcessFlags;
use ginnel_node::wake::line::Lines;
use ginnel_region::Error;
pub use places::MOST;
use places::{Rest, Table};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, fence};

/// What this process has of one pair. It stays in memory for threads that are late, as a [`Joined`]
/// does, and is another pair's only when nobody can be late any more.
pub struct Pair {
    /// The pair's memory.
    pub joined: Joined,
    /// Its number, among those of one broker.
    pub id: u64,
    /// Which of the brokers that this process has asked: it counts them.
    pub broker: u64,
    /// The other process has gone, or the broker has: nothing new begins there.
    pub ended: AtomicBool,
    /// How many looks in a row found no connection of this process there.
    pub idle: AtomicU32,
    rest: Rest,
}

/// Where one connection meets its other end.
struct Meeting {
    pair: AtomicPtr<Pair>,
    /// The broker's number, whose lowest bit is this end's side.
    number: AtomicU64,
    /// The use of the slot that it holds for.
    generation: AtomicU64,
}

impl Meeting {
    fn pair(&self) -> Option<&Pair> {
        // SAFETY: null, or from a leaked box.
        unsafe { self.pair.load(Acquire).as_ref() }
    }
}

/// All pairs of this process.
#[derive(Default)]
pub struct Pairs {
    /// Null until there is a pair.
    table: AtomicPtr<Table>,
}

impl Pairs {
    fn table(&self) -> Option<&Table> {
        // SAFETY: null, or a map of that size, zeroed, which is a valid one, and stays.
        unsafe { self.table.load(Acquire).as_ref() }
    }

    /// Adds a pair, whose memory and lines the broker gave. One thread's at a time.
    ///
    /// # Errors
    /// What is wrong with the memory; [`Error::Full`] where this process has as many as it may have.
    pub fn add(&self, memory: i32, lines: Lines, id: u64, broker: u64) -> Result<&Pair, Error> {
        if self.table.load(Acquire).is_null() {
            self.table.store(Table::map()?, Release);
        }
        self.table().ok_or(Error::Full)?.add(memory, lines, id, broker)
    }

    /// Was there any, ever?
    #[must_use]
    #[inline]
    pub fn are_there(&self) -> bool {
        !self.table.load(Relaxed).is_null()
    }

    /// Every pair.
    pub fn all(&self) -> impl Iterator<Item = &Pair> {
        self.table().into_iter().flat_map(Table::all)
    }

    /// Where memory of pairs is mapped, or zeroes in the place of such as were given up.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.table().into_iter().flat_map(Table::ranges)
    }

    /// Bytes of all that.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges().map(|range| range.len() as u64).sum()
    }

    /// The same, with one pair more whose memory is of `size` bytes.
    #[must_use]
    pub fn bytes_with(&self, size: u64) -> u64 {
        let takes_more = self.table().is_none_or(|table| table.takes_more(usize::try_from(size).unwrap_or(usize::MAX)));
        self.bytes().saturating_add(if takes_more { size } else { 0 })
    }

    /// Gives the memory of a pair up, in which no connection of this process is, and its lines, on
    /// which nobody sleeps: zeroes take its place.
    pub fn let_go(&self, pair: &Pair) {
        if let Some(table) = self.table() {
            table.let_go(pair);
        }
    }

    /// Gives the memory of all up.
    pub fn let_go_of_all(&self) {
        for pair in self.all() {
            self.let_go(pair);
        }
    }

    /// In a child of fork: the lines are its parent's.
    pub fn forget_parent(&self) {
        self.all().for_each(|pair| pair.joined.lines.forget_parent());
    }

    /// Looks after the places of pairs that were given up, so that others may come there. For the
    /// thread that adds pairs, every few seconds. `me`: this process's ticket.
    pub fn look(&self, ledger: &Ledger, me: u32) {
        if let Some(table) = self.table() {
            table.look(ledger, me);
        }
    }

    fn meeting(&self, index: u32) -> Option<&Meeting> {
        self.table()?.meetings.get((index % SLOTS) as usize)
    }

    /// In which pair the connection of a slot is, and under which number it meets its other end
    /// there.
    fn of(&self, index: u32, slot: &Slot) -> Option<(&Pair, u64)> {
        let meeting = self.meeting(index)?;
        let number = meeting.number.load(Acquire);
        let pair = meeting.pair()?;
        (meeting.generation.load(Acquire) == slot.generation.load(Relaxed)).then_some((pair, number))
    }
}

impl Attachment {
    /// What this process has of the segment in which a slot's connection is, or may come to be.
    /// `None`: it is in the memory of a pair that this process is not in.
    #[must_use]
    #[inline]
    pub fn joined_of(&self, slot: &Slot) -> Option<&Joined> {
        if slot.has(flag::PAIR) { self.joined_of_pair(slot) } else { Some(self.node.joined()) }
    }

    #[cold]
    fn joined_of_pair(&self, slot: &Slot) -> Option<&Joined> {
        self.pair_of(slot).map(|pair| &pair.joined)
    }

    /// The pair in whose memory a slot's connection is to be; `None`: it is in the own segment.
    #[must_use]
    pub fn pair_of(&self, slot: &Slot) -> Option<&Pair> {
        if !slot.has(flag::PAIR) {
            return None;
        }
        self.pairs.of(self.ledger.index(slot), slot).map(|(pair, _)| pair)
    }

    /// Is a slot's connection in the memory of a pair that this process is not in?
    #[must_use]
    pub fn is_of_foreign_pair(&self, slot: &Slot) -> bool {
        // (One that it gave up holds zeroes: the process had no descriptor of the socket then.)
        slot.has(flag::PAIR) && self.pair_of(slot).is_none_or(|pair| pair.rest.has_begun())
    }
}

impl<'a> Endpoint<'a> {
    /// What this process has of the segment in which the connection is, or may come to be.
    #[inline]
    pub fn joined(self) -> &'a Joined {
        // (A connection of a pair that is foreign is no endpoint here: see the shim's `try_adopt`.)
        self.attachment.joined_of(self.slot()).unwrap_or_else(|| self.attachment.node.joined())
    }

    /// Is the connection in the memory of a pair, or to be there?
    #[must_use]
    #[inline]
    pub fn is_in_pair(self) -> bool {
        self.slot().has(flag::PAIR)
    }

    /// Must whoever waits for bytes be woken by a token? Others may read it whom no bell reaches,
    /// or nobody is rung in its memory.
    #[must_use]
    pub fn wakes_by_token(self) -> bool {
        self.slot().has(flag::SHARED) || self.slot().has_several_holders() || self.is_in_pair() && !self.joined().rings()
    }

    /// Under which addresses the two ends find each other: `own` in the own segment; in a pair's
    /// the number that the broker drew, in the shape of addresses.
    pub(crate) fn meets_at(self, own: &Tuple) -> Tuple {
        let known = if self.is_in_pair() { self.attachment.pairs.of(self.index(), self.slot()) } else { None };
        let Some((_, number)) = known else { return *own };
        let [mine, other] = if number & 1 == 0 { [0, 1] } else { [1, 0] };
        Tuple { label: number & !1, local: [mine; 16], local_port: mine.into(), remote: [other; 16], remote_port: other.into() }
    }

    /// May the broker be asked for the other end? It is published, and nobody has come; and no
    /// other process has the socket, nor had it: that one would have no way into a pair's memory.
    #[must_use]
    pub fn may_meet_by_broker(self) -> bool {
        let slot = self.slot();
        slot.stage() == Stage::Published && slot.is_alone() && !slot.has(flag::HOLD | flag::LEAVING | flag::PAIR | flag::SEVERAL)
    }

    /// Is it in the memory of a pair, also after a step into one that another thread is taking just
    /// now? What the caller has said of the slot before (that a program which is started has it,
    /// too) is seen by whoever takes such a step later.
    #[must_use]
    pub fn comes_to_pair(self) -> bool {
        if !self.is_in_pair() && self.slot().stage() == Stage::Published {
            // That step is taken under this lock, and is none that this very thread is taking.
            drop(self.slot().tx.lock.lock_unless_interrupted(&self.attachment.node.processes, self.ticket()));
        }
        self.is_in_pair()
    }

    /// Has the connection meet its other end in the memory of `pair`, under `number`, as this
    /// `side`. `false`: not now, or not any more.
    ///
    /// A fork may be under way in another thread: its child has a copy of what stands here, and no
    /// other way to learn where the connection is. So that stands here before it is asked whether
    /// this process is alone: a fork that is not seen then copies it.
    #[must_use]
    pub fn meet_in(self, pair: &'static Pair, number: u64, side: u8) -> bool {
        let (slot, pairs) = (self.slot(), &self.attachment.pairs);
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return false };
        // Also where calls are not counted: they are to be counted first.
        if !self.may_meet_by_broker() || slot.uncounted.load(Relaxed) != 0 || pair.rest.has_begun() {
            return false;
        }
        let Some(meeting) = pairs.meeting(self.index()) else { return false };
        meeting.pair.store(std::ptr::from_ref(pair).cast_mut(), Release);
        meeting.number.store(number & !1 | u64::from(side), Release);
        meeting.generation.store(slot.generation.load(Relaxed), Release);
        fence(SeqCst);
        let entry = Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        // Otherwise somebody has come there at this moment.
        let leaves = || entry.step(state::PUBLISHED, state::FREE) || entry.state() == state::FREE;
        if !self.may_meet_by_broker() || self.begins_anew() || !leaves() {
            meeting.generation.store(0, Release);
            return false;
        }
        self.start_over_in(true);
        slot.set_reason(Reason::NoPeer);
        true
    }

    /// Has it look for its other end in a pair's memory, or in the own segment again.
    fn start_over_in(self, pair: bool) {
        let slot = self.slot();
        // What was left where it has been is given back while it is known to be there.
        crate::lifetime::release_left(self.attachment, slot);
        slot.segment.store(0, Relaxed);
        slot.set(flag::PAIR, pair);
        slot.attempts.store(0, Relaxed);
        self.start_over();
    }

    /// Has a connection come back to its own segment that waits in a pair's memory for an end that
    /// did not come: its process may have ended just before it was told. `false`: not now, or not any
    /// more. Whoever comes there at this moment finds nobody, and comes back as well.
    #[must_use]
    pub fn come_back(self) -> bool {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return false };
        let waits = slot.stage() == Stage::Published && slot.has(flag::PAIR) && slot.is_alone();
        if !waits || slot.has(flag::SEVERAL | flag::HOLD | flag::LEAVING) || slot.uncounted.load(Relaxed) != 0 {
            return false;
        }
        let entry = Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        if !entry.step(state::PUBLISHED, state::FREE) && entry.state() != state::FREE {
            return false;
        }
        self.start_over_in(false);
        true
    }

    /// Is this process about to become another program, which will have nothing of any pair?
    fn begins_anew(self) -> bool {
        self.attachment.node.processes.process(self.me()).has(ProcessFlags::Executing)
    }
}

#[cfg(test)]
mod tests;
