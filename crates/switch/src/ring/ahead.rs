//! What the next chains need is fetched while this one is moved.
//!
//! A guest on another processor wrote its descriptors and its frames a moment ago, so that each
//! first look at one waits for that processor's cache. Asked for some frames before, several of
//! these come at once.

use super::memory::Memory;
use super::split::Ring;
use ginnel_ring::prefetch::{to_read, to_write};

/// So many entries before their turn descriptors are fetched …
const DESCRIPTORS: u16 = 32;
/// … and so many before, the bytes that they point to.
const BYTES: u16 = 8;
/// So many before, those of the used ring: two lines of them.
const USED: u16 = 16;
/// What a cache fetches at once, bytes.
const LINE: usize = 64;
/// How much of a frame is fetched, bytes: the rest follows in order, which a processor notices.
const FIRST: usize = 2 * LINE;

/// Up to which entries of the available ring that was done.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    descriptors: u16,
    bytes: u16,
}

impl Ring {
    /// The next entry is about to be taken: fetches what is read of those behind it.
    #[inline(always)]
    pub(super) fn fetch_ahead(&mut self, memory: &Memory) {
        self.fetch(memory, to_read);
    }

    /// The next entry is about to be filled: fetches what is written of those behind it.
    #[inline(always)]
    pub(super) fn fetch_ahead_to_write(&mut self, memory: &Memory) {
        self.fetch(memory, to_write);
    }

    /// (What is read here is a hint, and read again in its turn: rule 2 is about what is used.)
    #[inline(always)]
    fn fetch(&mut self, memory: &Memory, prefetch: impl Fn(*const u8)) {
        let Ahead { descriptors, bytes } = self.ahead;
        let descriptors = self.each_until(descriptors, DESCRIPTORS, |ring, head| {
            to_read(ring.place_of(head));
        });
        let bytes = self.each_until(bytes, BYTES, |ring, head| {
            if let Some(bytes) = memory.slice(ring.descriptor(head).address, FIRST as u64) {
                prefetch(bytes.start());
                prefetch(bytes.behind(LINE).start());
            }
        });
        to_write(self.place_of_used(self.done.wrapping_add(USED)));
        self.ahead = Ahead { descriptors, bytes };
    }

    /// Calls `work` with the heads that wait, from entry `from` on, or from the next where that was
    /// passed, until `far` behind the next. Returns the entry behind them.
    #[inline(always)]
    fn each_until(&self, from: u16, far: u16, work: impl Fn(&Self, u16)) -> u16 {
        let begun = from.wrapping_sub(self.next);
        let begun = if begun > far { 0 } else { begun };
        let end = self.seen.wrapping_sub(self.next).min(far).max(begun);
        for place in begun..end {
            if let Ok(head) = self.head(self.next.wrapping_add(place)) {
                work(self, head);
            }
        }
        self.next.wrapping_add(end)
    }
}
