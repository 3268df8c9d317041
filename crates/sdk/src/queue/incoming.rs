//! A lane as its receiver takes messages from it.

use super::lane::Lane;
use super::layout::{Cell, Content, TURNS};
use crate::raw::Area;
use std::cell::Cell as Slot;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// A lane as the receiver sees it.
pub(super) struct Incoming {
    pub number: u32,
    pub lane: Lane,
    /// The next position to be taken.
    pub next: u64,
    /// Messages that the program holds.
    pub held: u32,
}

/// What a look at a lane found.
pub(super) enum Found {
    Message { buffer: u32, area: Area, position: u64 },
    Nothing,
    Nonsense,
}

impl Incoming {
    pub fn has_more(&self) -> bool {
        let cell = Cell::of(self.lane.cell(self.next).load(Acquire));
        let in_turn = cell.turn == self.lane.geometry.turn_of(self.next);
        !in_turn || matches!(cell.content, Content::Full { .. })
    }

    /// Takes the oldest message of the lane.
    #[inline]
    pub fn take(&mut self, lost: &Slot<u64>) -> Found {
        // An honest sender drops messages for as long as it likes while this looks; in a bounded
        // number of looks one is found, or the rest is left to the next call.
        for _ in 0..64 {
            let geometry = self.lane.geometry;
            let turn = geometry.turn_of(self.next);
            let word = self.lane.cell(self.next).load(Acquire);
            let cell = Cell::of(word);
            let ahead = cell.turn.wrapping_sub(turn) & TURNS;
            match (ahead, cell.content) {
                (0, Content::Full { buffer, len }) => {
                    self.lane.will_read(buffer, len);
                    let after = Cell { turn: turn + 1, content: Content::Empty }.word();
                    // Acquire pairs with the sender's Release: the message is there.
                    if self
                        .lane
                        .cell(self.next)
                        .compare_exchange(word, after, AcqRel, Relaxed)
                        .is_ok()
                    {
                        let position = self.next;
                        self.next = self.next.wrapping_add(1);
                        let area = self.lane.buffer(buffer, len as usize);
                        return area.map_or(Found::Nonsense, |area| Found::Message {
                            buffer,
                            area,
                            position,
                        });
                    }
                }
                (0, _) => return Found::Nothing,
                // The sender has dropped this one, and perhaps more after it.
                (1.., _) if ahead <= TURNS / 2 => {
                    let gone = (ahead - 1) * u64::from(geometry.cells) + 1;
                    lost.set(lost.get() + gone);
                    self.next = self.next.wrapping_add(gone);
                }
                _ => return Found::Nonsense,
            }
        }
        Found::Nothing
    }
}
