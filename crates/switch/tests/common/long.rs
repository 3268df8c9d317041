//! A guest that sends long frames, each in a few long pieces, and writes over them as soon as they
//! come back to it.

use ginnel_switch::front_end::{BUFFER, FrontEnd};
use ginnel_switch::wire::HEADER;

/// Bytes of a place for one frame.
const SLOT: usize = 66 << 10;
/// Places for frames at once.
pub const SLOTS: u16 = 7;
/// Descriptors of each.
const PIECES: u16 = 10;
/// What is written over what has come back.
const OVER: u8 = 0xdd;

/// Which places are free.
pub struct Long(Vec<u16>);

impl Long {
    pub fn new() -> Self {
        Self((0..SLOTS).rev().collect())
    }

    fn place(guest: &FrontEnd, slot: u16) -> u64 {
        guest.queues[1].base + (64 << 10) + SLOT as u64 * u64::from(slot)
    }

    /// Is every place free?
    pub fn is_free(&self) -> bool {
        self.0.len() == usize::from(SLOTS)
    }

    /// Takes what has come back. How many chains?
    pub fn done(&mut self, guest: &mut FrontEnd) -> usize {
        let mut done = 0;
        while let Some((head, _)) = guest.used(1) {
            let slot = head / PIECES;
            assert!(slot < SLOTS && !self.0.contains(&slot), "{head} has come back already");
            let at = Self::place(guest, slot);
            for part in 0..SLOT as u64 / BUFFER {
                guest.write(at + part * BUFFER, &[OVER; BUFFER as usize]);
            }
            self.0.push(slot);
            done += 1;
        }
        done
    }

    /// Sends a frame in so many pieces. False: no place is free.
    pub fn send(&mut self, guest: &mut FrontEnd, frame: &[u8], pieces: usize) -> bool {
        let Some(slot) = self.0.pop() else { return false };
        let at = Self::place(guest, slot);
        let bytes = [&[0; HEADER][..], frame].concat();
        guest.write(at, &bytes);
        let each = bytes.len().div_ceil(pieces.min(PIECES.into()));
        let count = bytes.len().div_ceil(each);
        for piece in 0..count {
            let (from, last) = (piece * each, piece + 1 == count);
            let (len, index) = (each.min(bytes.len() - from), slot * PIECES + piece as u16);
            guest.describe(1, index, at + from as u64, len as u32, u16::from(!last), index + 1);
        }
        guest.offer(1, slot * PIECES);
        true
    }

    /// Writes over all that is being sent.
    pub fn scribble(&self, guest: &FrontEnd, byte: u8) {
        for slot in (0..SLOTS).filter(|slot| !self.0.contains(slot)) {
            guest.write(Self::place(guest, slot), &vec![byte; SLOT]);
        }
    }

    /// Has the pages of all frames go away.
    pub fn punch(&self, guest: &FrontEnd) {
        use rustix::fs::{FallocateFlags, fallocate};
        let begin = Self::place(guest, 0) - ginnel_switch::front_end::GUEST;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&guest.file, flags, begin, SLOT as u64 * u64::from(SLOTS)).expect("punched");
    }
}
