//! Where everything lies in a queue and its lanes, and what their words mean.

use crate::Result;
use crate::object::Object;
use ginnel_region::{PAGE, Untrusted};

/// So many messages of one sender at once, at most.
pub(super) const MOST_CELLS: u32 = 1024;
/// So many senders.
pub(super) const MOST_LANES: u32 = 64;
/// So many messages that one receiver holds of one sender.
pub(super) const MOST_LOANS: u32 = 1024;
/// Bytes of a message.
pub(super) const MOST_LEN: u64 = 1 << 30;

/// Each cell and each state has a cache line to itself: what one end writes next lies in none that
/// the other is at.
const LINE: usize = 64;

/// In the first page: the receiver's party …
pub(super) const RECEIVER: usize = 0x40;
/// … and its wish to be woken.
pub(super) const WANT_DATA: usize = 0x80;
/// One bit for each lane that ever was in use.
pub(super) const IN_USE: usize = 0xc0;
/// The lanes.
const LANES: usize = 0x400;
const LANE: usize = 32;
/// In the receiver's word: it has left.
pub(super) const LEFT: u64 = 1 << 63;

/// Offsets of a lane's words in the first page.
pub(super) fn sender_at(lane: u32) -> usize {
    LANES + lane as usize * LANE
}

pub(super) fn pages_at(lane: u32) -> usize {
    sender_at(lane) + 8
}

pub(super) fn want_space_at(lane: u32) -> usize {
    sender_at(lane) + 16
}

const _: () = assert!(LANES + MOST_LANES as usize * LANE <= PAGE as usize);

/// The measures of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Cells of a lane: a power of two.
    pub cells: u32,
    /// Bytes of the largest message.
    pub message: u64,
    pub lanes: u32,
    /// Buffers beyond the cells: what a receiver may hold; one more is for the sender.
    pub loans: u32,
}

impl Geometry {
    /// Of an object, whose numbers a peer may have written.
    pub fn of(object: &Object) -> Result<Self> {
        let [counts, message, lanes] = object.numbers.map(Untrusted::new);
        let read = || {
            let counts = counts.checked(|_| true).ok()?;
            let low =
                Untrusted::new(counts & 0xffff_ffff).power_of_two(1, MOST_CELLS.into()).ok()?;
            let high = Untrusted::new(counts >> 32).within(1, MOST_LOANS.into()).ok()?;
            let message = message.within(1, MOST_LEN).ok()?;
            let lanes = lanes.within(1, MOST_LANES.into()).ok()?;
            let small = |number| u32::try_from(number).ok();
            Some(Self { cells: small(low)?, message, lanes: small(lanes)?, loans: small(high)? })
        };
        read().ok_or_else(|| object.corrupt())
    }

    pub fn numbers(self) -> [u64; 3] {
        [u64::from(self.loans) << 32 | u64::from(self.cells), self.message, self.lanes.into()]
    }

    /// Buffers of a lane: for every cell, for every message that the receiver holds, and one that
    /// the sender writes.
    pub fn buffers(self) -> u32 {
        self.cells + self.loans + 1
    }

    /// From one buffer to the next: whole cache lines, or whole pages where messages are large.
    pub fn stride(self) -> u64 {
        self.message.next_multiple_of(if self.message >= PAGE { PAGE } else { 64 })
    }

    pub fn states_at(self) -> usize {
        self.cells as usize * LINE
    }

    pub fn state_at(self, buffer: u32) -> usize {
        self.states_at() + buffer as usize * LINE
    }

    pub fn buffers_at(self) -> usize {
        let end = self.states_at() + self.buffers() as usize * LINE;
        end.next_multiple_of(if self.message >= PAGE { PAGE as usize } else { 64 })
    }

    /// Pages of a lane; `None` where there cannot be so many.
    pub fn pages(self) -> Option<u32> {
        let bytes = self.stride().checked_mul(self.buffers().into())?;
        u32::try_from(bytes.checked_add(self.buffers_at() as u64)?.div_ceil(PAGE)).ok()
    }

    /// Bytes of a lane, for `ginnel ls`.
    pub fn bytes(self) -> u64 {
        u64::from(self.pages().unwrap_or(u32::MAX)) * PAGE
    }

    /// A position as both ends count it, whenever they began to: they go round after 2^19 turns.
    pub fn wrapped(self, position: u64) -> u64 {
        position & (u64::from(self.cells) * (TURNS + 1) - 1)
    }

    pub fn turn_of(self, position: u64) -> u64 {
        // A power of two: no division, which costs as much as an exchange.
        (position >> self.cells.trailing_zeros()) & TURNS
    }

    pub fn turn_before(self, turn: u64) -> u64 {
        turn.wrapping_sub(1) & TURNS
    }

    pub fn cell_of(self, position: u64) -> usize {
        (position & u64::from(self.cells - 1)) as usize * LINE
    }
}

const TURN_AT: u32 = 45;
pub(super) const TURNS: u64 = (1 << 19) - 1;
const FULL: u64 = 1 << 44;
const BUFFER_AT: u32 = 32;
const BUFFERS: u64 = 0xfff;

const _: () = assert!((MOST_CELLS + MOST_LOANS + 1) as u64 <= BUFFERS);

/// What a cell says: bits 45–63 turn, 44 full, 32–43 buffer, 0–31 bytes. An empty one with a length
/// other than 0 was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub turn: u64,
    pub content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Empty,
    Full { buffer: u32, len: u32 },
    Dropped { buffer: u32 },
}

impl Cell {
    pub fn of(word: u64) -> Self {
        let (buffer, len) = ((word >> BUFFER_AT & BUFFERS) as u32, word as u32);
        let content = match (word & FULL != 0, len) {
            (true, len) => Content::Full { buffer, len },
            (false, 0) => Content::Empty,
            (false, _) => Content::Dropped { buffer },
        };
        Self { turn: word >> TURN_AT, content }
    }

    pub fn word(self) -> u64 {
        let turn = (self.turn & TURNS) << TURN_AT;
        turn | match self.content {
            Content::Empty => 0,
            Content::Full { buffer, len } => FULL | u64::from(buffer) << BUFFER_AT | u64::from(len),
            Content::Dropped { buffer } => u64::from(buffer) << BUFFER_AT | 1,
        }
    }
}

/// A buffer's state: free, …
pub(super) const FREE: u64 = 0;
/// … being written by the sender, …
pub(super) const LENT: u64 = 1 << 62;
/// … or sent, at the position in the other bits.
const SENT: u64 = 1 << 63;

pub(super) fn sent(geometry: Geometry, position: u64) -> u64 {
    SENT | geometry.wrapped(position)
}

/// The position at which a buffer was sent.
pub(super) fn sent_at(state: u64) -> Option<u64> {
    (state & SENT != 0).then_some(state & (LENT - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_read_as_it_was_written() {
        let contents = [
            Content::Empty,
            Content::Full { buffer: 0, len: 0 },
            Content::Full { buffer: 2048, len: 1 << 30 },
            Content::Dropped { buffer: 7 },
        ];
        for content in contents {
            for turn in [0, 1, TURNS] {
                assert_eq!(Cell::of(Cell { turn, content }.word()), Cell { turn, content });
            }
        }
        let geometry = Geometry { cells: 4, message: 1, lanes: 1, loans: 1 };
        assert_eq!(sent_at(sent(geometry, 77)), Some(77));
        assert_eq!(sent_at(sent(geometry, 77 + (4 << 19))), Some(77), "positions wrap");
        assert_eq!((sent_at(FREE), sent_at(LENT)), (None, None));
    }

    #[test]
    fn whatever_the_measures_are_a_lane_has_room_for_them() {
        for (cells, message, loans) in [(1, 1, 1), (1024, 1 << 20, 1024), (2, 4096, 3), (8, 65, 1)]
        {
            let geometry = Geometry { cells, message, lanes: 1, loans };
            let bytes = u64::from(geometry.pages().expect("few")) * PAGE;
            let last = u64::from(geometry.buffers() - 1) * geometry.stride() + message;
            assert!(geometry.buffers_at() as u64 + last <= bytes);
            assert!(geometry.state_at(geometry.buffers()) <= geometry.buffers_at());
        }
        let huge = Geometry { cells: 1024, message: MOST_LEN, lanes: 1, loans: 1024 };
        assert!(huge.pages().is_some());
    }
}
