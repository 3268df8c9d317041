//! Rings of readers in other machines, who can hand over none of their own: the server keeps some
//! in the segment, and a reader takes one by writing its number there.
//!
//! Anybody of the segment can write them, and does no more harm by that than by a ring of his own.
//! A reader that was silent for [`SILENT`] seconds, or died, loses its ring to others; when it
//! reads again it takes another. Where all are taken, what it reads is not told.

use super::{Ring, Sink, Source};
use crate::memory::Memory;
use crate::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// How many rings there are.
const RINGS: usize = 64;
/// Hashes that one holds, a power of two.
const ENTRIES: usize = 512;
/// Words of one before its hashes, a cache line: the count, then whose it is.
const HEAD: usize = 8;
const OWNER: usize = 1;
/// Bytes of all rings.
pub const SHARED_BYTES: usize = RINGS * (HEAD + ENTRIES) * crate::memory::WORD;
/// For so long a reader keeps its ring without reading, seconds.
const SILENT: u32 = 60;
/// How many reads pass before a reader without a ring looks again whether one is free.
const AGAIN: u64 = 64;

fn ring(at: usize) -> Ring {
    let count = at * (HEAD + ENTRIES);
    Ring { count, first: count + HEAD, entries: ENTRIES }
}

fn owner(memory: &Memory, ring: Ring) -> &AtomicU64 {
    &memory.words()[ring.count + OWNER]
}

fn give(memory: &Memory, ring: Ring, from: u64, to: u64) -> bool {
    let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
    owner(memory, ring).compare_exchange(from, to, set, failed).is_ok()
}

impl Sink {
    /// Returns the writing end of whichever ring in `memory`, of [`SHARED_BYTES`], is free, for a
    /// reader whose number is `claim`: not 0, and nobody else's.
    #[must_use]
    pub fn shared(memory: Memory, claim: u64) -> Self {
        let mut sink = Self { memory, ring: ring(0), count: 0, claim: claim.max(1) };
        sink.take();
        sink
    }

    /// Returns whether its ring is still its own, or another is by now.
    pub(super) fn holds(&mut self) -> bool {
        if owner(&self.memory, self.ring).load(Ordering::Relaxed) == self.claim {
            return true;
        }
        self.count = self.count.wrapping_add(1);
        self.count.is_multiple_of(AGAIN) && self.take()
    }

    fn take(&mut self) -> bool {
        let free = (0..RINGS).map(ring).find(|&ring| give(&self.memory, ring, 0, self.claim));
        if let Some(ring) = free {
            self.ring = ring;
            self.count = self.memory.words()[ring.count].load(Ordering::Relaxed);
        }
        free.is_some()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.claim != 0 {
            // In a child of fork this is the parent's ring, which then takes one anew.
            give(&self.memory, self.ring, self.claim, 0);
        }
    }
}

/// The server's end of all rings.
#[derive(Debug)]
pub struct Shared {
    memory: Memory,
    /// Of each ring: whose it was at the last look, its count, and the second since which it is so.
    seen: [(u64, u64, u32); RINGS],
}

impl Shared {
    /// Returns the rings in `memory`, which has [`SHARED_BYTES`] zero bytes.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, seen: [(0, 0, 0); RINGS] }
    }

    /// Returns the reading ends.
    pub fn sources(&self) -> impl Iterator<Item = Source> {
        let source =
            |at| Source { view: self.memory.view(), ring: ring(at), seen: 0, over: Arc::default() };
        (0..RINGS).map(source)
    }

    /// Returns how many readers have a ring.
    #[must_use]
    pub fn readers(&self) -> usize {
        let has = |&at: &usize| owner(&self.memory, ring(at)).load(Ordering::Relaxed) != 0;
        (0..RINGS).filter(has).count()
    }

    /// Takes rings away from readers that were silent for long, at second `now`.
    pub fn tidy(&mut self, now: u32) {
        for (at, seen) in self.seen.iter_mut().enumerate() {
            let ring = ring(at);
            let whose = owner(&self.memory, ring).load(Ordering::Relaxed);
            let count = self.memory.words()[ring.count].load(Ordering::Relaxed);
            if whose == 0 || (whose, count) != (seen.0, seen.1) {
                *seen = (whose, count, now);
            } else if now.saturating_sub(seen.2) >= SILENT {
                give(&self.memory, ring, whose, 0);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn rings() -> (Memory, Shared) {
        let memory = Memory::private(SHARED_BYTES / 8).expect("memory");
        (memory.keep(), Shared::new(memory))
    }

    #[test]
    fn each_reader_has_a_ring_and_gives_it_back() {
        let (memory, shared) = rings();
        let mut sources: Vec<Source> = shared.sources().collect();
        let mut sinks: Vec<Sink> =
            (1..=RINGS as u64 + 1).map(|claim| Sink::shared(memory.keep(), claim)).collect();
        assert_eq!(shared.readers(), RINGS);
        (100..).zip(&mut sinks).for_each(|(hash, sink)| sink.push(hash));
        let drained = |sources: &mut Vec<Source>| {
            let mut hashes = Vec::new();
            sources.iter_mut().for_each(|source| source.drain(ENTRIES, &mut hashes));
            hashes
        };
        assert_eq!(drained(&mut sources), (100..100 + RINGS as u64).collect::<Vec<_>>());
        let mut late = sinks.pop().expect("one without a ring");
        sinks.remove(3);
        assert_eq!(shared.readers(), RINGS - 1);
        (0..2 * AGAIN).for_each(|_| late.push(7));
        let seen = drained(&mut sources);
        assert!(!seen.is_empty() && seen.iter().all(|&hash| hash == 7), "{seen:?}");
        drop((late, sinks));
        assert_eq!(shared.readers(), 0);
    }

    #[test]
    fn a_silent_reader_loses_its_ring_and_takes_another() {
        let (memory, mut shared) = rings();
        let (mut silent, mut other) = (Sink::shared(memory.keep(), 1), Sink::shared(memory, 2));
        for now in 0..=SILENT {
            other.push(1);
            shared.tidy(now);
        }
        assert_eq!(shared.readers(), 1, "the silent one's is free");
        (0..2 * AGAIN).for_each(|_| silent.push(7));
        assert_eq!(shared.readers(), 2);
    }
}
