//! How the server hears which items its neighbours read out of its memory: a ring of hashes that
//! each client writes and the server reads.
//!
//! The ring loses what comes faster than the server looks: it is a sample, and only decides what is
//! evicted. A client that lies makes the server think well of items, and can do nothing else: an
//! entry is the hash of a key, which the server looks up in its own index, and a look at all rings
//! takes at most [`LOOK`] of them. So a thousand rings that are always full cost no more than two.

mod shared;

pub use shared::{SHARED_BYTES, Shared};

use crate::memory::{Memory, View};
use crate::sync::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Hashes that a ring holds, a power of two.
pub const ENTRIES: usize = 16 << 10;
/// Hashes that one look takes out of all rings together, at most.
pub const LOOK: usize = 32 << 10;
/// Where the first lies, words; the count of all so far is word 0.
const FIRST: usize = 512;
/// Bytes of a ring.
pub const RING_BYTES: usize = (FIRST + ENTRIES) * crate::memory::WORD;

/// Where a ring lies in its memory, words.
#[derive(Debug, Clone, Copy)]
struct Ring {
    /// How many hashes were written so far.
    count: usize,
    /// Their first place.
    first: usize,
    /// How many places there are, a power of two.
    entries: usize,
}

/// The ring that is alone in its memory.
const ALONE: Ring = Ring { count: 0, first: FIRST, entries: ENTRIES };

/// A client's end of a ring.
#[derive(Debug)]
pub struct Sink {
    memory: Memory,
    ring: Ring,
    count: u64,
    /// The number by which it holds one of [`Shared`]; 0 for a ring of its own.
    claim: u64,
}

impl Sink {
    /// Returns the writing end of a ring in `memory` of [`RING_BYTES`] zero bytes.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, ring: ALONE, count: 0, claim: 0 }
    }

    /// Tells that the item of a key with that hash was read.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the place in the ring is meant")]
    pub fn push(&mut self, hash: u64) {
        if self.claim != 0 && !self.holds() {
            return;
        }
        let words = self.memory.words();
        let place = self.ring.first + (self.count as usize & (self.ring.entries - 1));
        if let Some(entry) = words.get(place) {
            entry.store(hash, Ordering::Relaxed);
        }
        self.count = self.count.wrapping_add(1);
        // Pairs with the acquire load in `Source::drain`.
        words[self.ring.count].store(self.count, Ordering::Release);
    }
}

/// The server's end of a client's ring.
#[derive(Debug)]
pub struct Source {
    view: View,
    ring: Ring,
    seen: u64,
    over: Arc<AtomicBool>,
}

impl Source {
    /// Returns the reading end. It is dropped once `over` is set.
    #[must_use]
    pub fn new(view: View, over: Arc<AtomicBool>) -> Self {
        Self { view, ring: ALONE, seen: 0, over }
    }

    /// Returns whether the client is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns whether hashes came since the last look.
    fn has_news(&self) -> bool {
        self.view.load(self.ring.count, Ordering::Relaxed) != Some(self.seen)
    }

    /// Adds each hash to `into` that came since the last look and was not written over, but only
    /// the `most` newest.
    #[expect(clippy::cast_possible_truncation, reason = "places in the ring are meant")]
    pub fn drain(&mut self, most: usize, into: &mut Vec<u64>) {
        let Ring { count, first, entries } = self.ring;
        let Some(count) = self.view.load(count, Ordering::Acquire) else { return };
        let new = count.wrapping_sub(self.seen).min(most.min(entries) as u64);
        for at in 0..new {
            let place = first + (count.wrapping_sub(new - at) as usize & (entries - 1));
            into.push(self.view.load(place, Ordering::Relaxed).unwrap_or(0));
        }
        self.seen = count;
    }
}

/// The rings of all clients.
#[derive(Debug, Default)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// Looks at this client's ring, too, from now on.
    pub fn add(&mut self, source: Source) {
        self.0.push(source);
    }

    /// Adds what came since the last look to `into`: at most [`LOOK`] hashes, in equal shares.
    pub fn drain(&mut self, into: &mut Vec<u64>) {
        let most = LOOK / self.0.iter().filter(|source| source.has_news()).count().max(1);
        // A ring that has news by now, and had none when they were counted, may have to wait.
        let full = into.len() + LOOK;
        self.0.retain_mut(|source| {
            source.drain(most.min(full - into.len()), into);
            !source.is_over()
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring() -> (Sink, Source) {
        let memory = Memory::private(RING_BYTES / 8).expect("memory");
        let source = Source::new(memory.view(), Arc::default());
        (Sink::new(memory), source)
    }

    fn drained(source: &mut Source) -> Vec<u64> {
        let mut seen = Vec::new();
        source.drain(ENTRIES, &mut seen);
        seen
    }

    /// What rings cost has a bound, however many there are, and each has its share.
    #[test]
    fn full_rings_are_sampled_in_equal_shares() {
        let mut sources = Sources::default();
        let sinks: Vec<Sink> = (0..100)
            .map(|_| {
                let (sink, source) = ring();
                sources.add(source);
                sink
            })
            .collect();
        for _ in 0..3 {
            for (client, sink) in sinks.iter().enumerate() {
                let count = sink.memory.words()[0].load(Ordering::Relaxed);
                let entries = &sink.memory.words()[FIRST..FIRST + ENTRIES];
                entries.iter().for_each(|entry| entry.store(client as u64, Ordering::Relaxed));
                sink.memory.words()[0].store(count + ENTRIES as u64, Ordering::Relaxed);
            }
            let mut seen = Vec::new();
            sources.drain(&mut seen);
            assert!(seen.len() <= LOOK, "{}", seen.len());
            let of = |client| seen.iter().filter(|&&hash| hash == client).count();
            assert!((0..100).all(|client| of(client) == LOOK / 100));
        }
        let mut seen = Vec::new();
        sources.drain(&mut seen);
        assert!(seen.is_empty());
    }

    #[test]
    fn what_comes_is_seen_once_and_the_oldest_is_lost() {
        let (mut sink, mut source) = ring();
        (1..=3).for_each(|hash| sink.push(hash));
        assert_eq!(drained(&mut source), [1, 2, 3]);
        assert!(drained(&mut source).is_empty());
        let many = ENTRIES as u64 + 5;
        (0..many).for_each(|hash| sink.push(hash));
        assert_eq!(drained(&mut source), (5..many).collect::<Vec<_>>());
    }

    #[test]
    fn a_count_that_no_honest_client_writes_costs_one_round() {
        let (sink, mut source) = ring();
        for count in [u64::MAX, 0, 1 << 63, 7] {
            sink.memory.words()[0].store(count, Ordering::Relaxed);
            assert!(drained(&mut source).len() <= ENTRIES);
        }
    }
}
