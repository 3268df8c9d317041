//! How the server hears which items its neighbours read out of its memory: a ring of hashes that
//! each client writes and the server reads.
//!
//! The ring loses what comes faster than the server looks: it is a sample, and only decides what is
//! evicted. A client that lies makes the server think well of items, and can do nothing else: an
//! entry is the hash of a key, which the server looks up in its own index, and a look takes at
//! most [`ENTRIES`] of them.

use crate::memory::{Memory, View};
use crate::sync::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Hashes that a ring holds, a power of two.
pub const ENTRIES: usize = 16 << 10;
/// Where the first lies, words; the count of all so far is word 0.
const FIRST: usize = 512;
/// Bytes of a ring.
pub const RING_BYTES: usize = (FIRST + ENTRIES) * crate::memory::WORD;

/// A client's end of a ring.
#[derive(Debug)]
pub struct Sink {
    memory: Memory,
    count: u64,
}

impl Sink {
    /// Returns the writing end of a ring in `memory` of [`RING_BYTES`] zero bytes.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, count: 0 }
    }

    /// Tells that the item of a key with that hash was read.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the place in the ring is meant")]
    pub fn push(&mut self, hash: u64) {
        let words = self.memory.words();
        let place = FIRST + (self.count as usize & (ENTRIES - 1));
        if let Some(entry) = words.get(place) {
            entry.store(hash, Ordering::Relaxed);
        }
        self.count += 1;
        // Pairs with the acquire load in `Source::drain`.
        words[0].store(self.count, Ordering::Release);
    }
}

/// The server's end of a client's ring.
#[derive(Debug)]
pub struct Source {
    view: View,
    seen: u64,
    over: Arc<AtomicBool>,
}

impl Source {
    /// Returns the reading end. It is dropped once `over` is set.
    #[must_use]
    pub fn new(view: View, over: Arc<AtomicBool>) -> Self {
        Self { view, seen: 0, over }
    }

    /// Returns whether the client is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Hands on each hash that came since the last look and was not written over.
    #[expect(clippy::cast_possible_truncation, reason = "places in the ring are meant")]
    pub fn drain(&mut self, mut each: impl FnMut(u64)) {
        let Some(count) = self.view.load(0, Ordering::Acquire) else { return };
        let new = count.wrapping_sub(self.seen).min(ENTRIES as u64);
        for at in 0..new {
            let place = count.wrapping_sub(new - at) as usize & (ENTRIES - 1);
            each(self.view.load(FIRST + place, Ordering::Relaxed).unwrap_or(0));
        }
        self.seen = count;
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
        source.drain(|hash| seen.push(hash));
        seen
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
