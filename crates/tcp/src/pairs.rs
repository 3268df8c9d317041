//! Memory that this process shares with one other process only. Which of its connections meet
//! there:
//! [`crate::meet`].
//!
//! A process has its own segment ([`crate::Attachment::node`]) and, beside that, one for each
//! process of another user or container with which the broker made it a pair ([`crate::broker`]). A
//! connection whose slot has [`crate::ledger::flag::PAIR`] is in one of those:
//! [`crate::Attachment::joined_of`] says in which.
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

use crate::ledger::{Ledger, SLOTS, Slot};
use ginnel_node::joined::Joined;
use ginnel_node::wake::line::Lines;
use ginnel_region::Error;
pub use places::MOST;
use places::{Rest, Table};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

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

impl Pair {
    /// Was it given up?
    pub(crate) fn is_given_up(&self) -> bool {
        self.rest.has_begun()
    }
}

/// Where one connection meets its other end.
pub(crate) struct Meeting {
    pub pair: AtomicPtr<Pair>,
    /// The broker's number, whose lowest bit is this end's side.
    pub number: AtomicU64,
    /// The use of the slot that it holds for.
    pub generation: AtomicU64,
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
    /// What is wrong with the memory; [`Error::Full`] where this process has as many as it may
    /// have.
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
        let takes_more = self
            .table()
            .is_none_or(|table| table.takes_more(usize::try_from(size).unwrap_or(usize::MAX)));
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

    pub(crate) fn meeting(&self, index: u32) -> Option<&Meeting> {
        self.table()?.meetings.get((index % SLOTS) as usize)
    }

    /// In which pair the connection of a slot is, and under which number it meets its other end
    /// there.
    pub(crate) fn of(&self, index: u32, slot: &Slot) -> Option<(&Pair, u64)> {
        let meeting = self.meeting(index)?;
        let number = meeting.number.load(Acquire);
        let pair = meeting.pair()?;
        (meeting.generation.load(Acquire) == slot.generation.load(Relaxed))
            .then_some((pair, number))
    }
}

#[cfg(test)]
mod tests;
