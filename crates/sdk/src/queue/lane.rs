//! A lane's words: cells and the states of buffers, and what follows from them for whoever takes a
//! dead one's place.

use super::layout::{Cell, Content, FREE, Geometry, LENT, TURNS, sent_at};
use crate::object::Object;
use crate::raw::{self, Area};
use ginnel_region::{Extent, PAGE};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// How often the cells are read until they are in order.
const LOOKS: u32 = 100;

/// The pages of one lane, which belong to the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    pub geometry: Geometry,
    area: Area,
}

impl Lane {
    /// `None` unless the pages are the queue's own, and as many as its measures need. `pages`: the
    /// first one (bits 0–31) and their number; with bit 63 they are more than any lane has.
    pub fn new(object: &Object, geometry: Geometry, pages: u64) -> Option<Self> {
        let extent = Extent { page: pages as u32, pages: (pages >> 32) as u32 };
        let segment = object.presence().segment();
        if Some(extent.pages) != geometry.pages()
            || !segment.is_of_group(extent, object.head.page())
            || extent.page == object.head.page()
        {
            return None;
        }
        let area = Area::new(segment, extent.offset(), u64::from(extent.pages) * PAGE)?;
        Some(Self { geometry, area })
    }

    #[inline]
    pub fn cell(self, position: u64) -> &'static AtomicU64 {
        self.area.word(self.geometry.cell_of(position))
    }

    /// The state of a buffer, below the number of buffers.
    #[inline]
    pub fn state(self, buffer: u32) -> &'static AtomicU64 {
        self.area.word(self.geometry.state_at(buffer))
    }

    /// Has the cache lines brought here that the next message is written to, while the other end
    /// looks at this one.
    #[inline]
    pub fn will_write(self, position: u64, buffer: u32) {
        raw::will_write(self.cell(position));
        raw::will_write(self.state(buffer));
        if let Some(bytes) = self.buffer(buffer, 0) {
            bytes.will_write();
        }
    }

    /// Likewise those of a message of `len` bytes that is about to be taken, and no more: the next
    /// buffer's line may be the sender's, which is about to write it.
    #[inline]
    pub fn will_read(self, buffer: u32, len: u32) {
        if let Some(bytes) = self.buffer(buffer, len as usize) {
            bytes.will_read();
            raw::will_write(self.state(buffer));
        }
    }

    /// `len` bytes of a buffer; `None` where there is no such buffer, or it is not so long.
    #[inline]
    pub fn buffer(self, buffer: u32, len: usize) -> Option<Area> {
        if buffer >= self.geometry.buffers() || len as u64 > self.geometry.message {
            return None;
        }
        let at = self.geometry.buffers_at() + buffer as usize * self.geometry.stride() as usize;
        self.area.part(at, len)
    }

    /// The position that comes next to be sent, by the cells. Those of one turn come before those
    /// that are still in the turn before: where the two meet is the end. `None`: nonsense.
    ///
    /// The cells are read from the last to the first, while a sender goes the other way: so what is
    /// read is in order unless it comes round in between, and then it is read again.
    pub fn tail(self) -> Option<u64> {
        let cells = u64::from(self.geometry.cells);
        let next = |position| {
            let cell = Cell::of(self.cell(position).load(Acquire));
            let full = u64::from(matches!(cell.content, Content::Full { .. }));
            (cell.turn + full) & TURNS
        };
        let read = |_| {
            let turns: Vec<u64> = (0..cells).rev().map(next).collect();
            let turn = *turns.first()?;
            let behind = turns.iter().take_while(|&&its| its == turn).count();
            let rest = turns.get(behind..)?.iter().all(|&its| its == ((turn + 1) & TURNS));
            rest.then_some(turn * cells + (cells - behind as u64))
        };
        (0..LOOKS).find_map(read)
    }

    /// The oldest position that is not taken yet: its tail, where none is left.
    fn oldest(self, tail: u64) -> u64 {
        let geometry = self.geometry;
        let is_full = |&position: &u64| {
            let cell = Cell::of(self.cell(position).load(Acquire));
            matches!(cell.content, Content::Full { .. }) && cell.turn == geometry.turn_of(position)
        };
        let before = |back: u64| geometry.wrapped(tail.wrapping_sub(back));
        (1..=u64::from(geometry.cells)).rev().map(before).find(is_full).unwrap_or(tail)
    }

    /// What a new sender finds of the one that died: frees buffers that it was writing, that it had
    /// written and not put into a cell, or had taken back. Returns the next position.
    pub fn inherit_as_sender(self) -> Option<u64> {
        let tail = self.tail()?;
        for buffer in 0..self.geometry.buffers() {
            let state = self.state(buffer).load(Acquire);
            let is_its_own = state == LENT
                || sent_at(state).is_some_and(|position| {
                    let cell = Cell::of(self.cell(position).load(Acquire));
                    let unpublished = position == tail && cell.turn == self.geometry.turn_of(tail);
                    let dropped = cell.content == Content::Dropped { buffer }
                        && cell.turn == ((self.geometry.turn_of(position) + 1) & TURNS);
                    unpublished || dropped
                });
            if is_its_own {
                let _ = self.state(buffer).compare_exchange(state, FREE, AcqRel, Relaxed);
            }
        }
        Some(tail)
    }

    /// What a new receiver finds of the one that died: frees buffers of messages that were taken.
    /// Returns the position of the oldest that was not.
    pub fn inherit_as_receiver(self) -> Option<u64> {
        let tail = self.tail()?;
        for buffer in 0..self.geometry.buffers() {
            let state = self.state(buffer).load(Acquire);
            let Some(position) = sent_at(state) else { continue };
            let cell = Cell::of(self.cell(position).load(Acquire));
            let in_turn = cell.turn == self.geometry.turn_of(position);
            let waits = matches!(cell.content, Content::Full { buffer: its, .. } if its == buffer);
            // Written, and not in its cell yet: its sender is about to put it there.
            let comes = !matches!(cell.content, Content::Full { .. });
            if !(in_turn && (waits || comes)) {
                let _ = self.state(buffer).compare_exchange(state, FREE, AcqRel, Relaxed);
            }
        }
        Some(self.oldest(tail))
    }
}
