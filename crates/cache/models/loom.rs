//! Every interleaving of a reader with a writer that stores, evicts and writes over, by `make
//! loom`; and that each rule of the order is needed: without it the model finds a wrong value.
#![cfg(loom)]

use ginnel_cache::seq;
use ginnel_cache::sync::{AtomicU64, Ordering, fence};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A bucket with one slot, and a log of two items of two words, which are the same if whole.
struct Memory {
    version: AtomicU64,
    slot: AtomicU64,
    items: [[AtomicU64; 2]; 2],
}

/// What is left out.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The writer changes slots under an even version.
    NoOddVersion,
    /// The writer does not fence after the odd version.
    NoWriteFence,
    /// The writer writes over an item before it takes it out.
    OverwritesFirst,
    /// The reader does not fence before it loads the version again.
    NoReadFence,
    /// The reader does not load the version again.
    NoSecondLook,
}

impl Memory {
    fn new() -> Self {
        let item = |value| [AtomicU64::new(value), AtomicU64::new(value)];
        Self { version: AtomicU64::new(0), slot: AtomicU64::new(1), items: [item(10), item(0)] }
    }

    fn put(&self, place: usize, value: u64) {
        self.items[place].iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn point(&self, slot: u64, fault: Fault) {
        let change = || self.slot.store(slot, Ordering::Relaxed);
        let before = self.version.load(Ordering::Relaxed);
        match fault {
            Fault::NoOddVersion => change(),
            Fault::NoWriteFence => {
                self.version.store(before + 1, Ordering::Relaxed);
                change();
                self.version.store(before + 2, Ordering::Release);
            }
            _ => seq::write(&self.version, change),
        }
    }

    /// Stores another value of the key in the second place, then uses the first for another.
    fn write(&self, fault: Fault) {
        self.put(1, 20);
        if fault == Fault::OverwritesFirst {
            self.put(0, 30);
        }
        self.point(2, fault);
        if fault != Fault::OverwritesFirst {
            self.put(0, 30);
        }
    }

    /// One try of a reader.
    fn read(&self, fault: Fault) -> Option<[u64; 2]> {
        let seen = seq::begin(&self.version)?;
        let place = self.slot.load(Ordering::Relaxed) as usize - 1;
        let copy = [0, 1].map(|at| self.items[place][at].load(Ordering::Relaxed));
        let whole = match fault {
            Fault::NoSecondLook => true,
            Fault::NoReadFence => self.version.load(Ordering::Relaxed) == seen,
            _ => seq::unchanged(&self.version, seen),
        };
        whole.then_some(copy)
    }
}

fn model(fault: Fault) {
    loom::model(move || {
        let memory = Arc::new(Memory::new());
        let writer = {
            let memory = memory.clone();
            thread::spawn(move || memory.write(fault))
        };
        if let Some([first, second]) = memory.read(fault) {
            assert_eq!(first, second, "a torn value");
            assert!(first == 10 || first == 20, "a value of another key");
        }
        writer.join().expect("it ends");
        assert_eq!(memory.read(Fault::None), Some([20, 20]), "what was acknowledged is seen");
        fence(Ordering::AcqRel);
    });
}

#[test]
fn no_reader_believes_a_mixture() {
    model(Fault::None);
}

#[test]
fn each_rule_is_needed() {
    for fault in [
        Fault::NoOddVersion,
        Fault::NoWriteFence,
        Fault::OverwritesFirst,
        Fault::NoReadFence,
        Fault::NoSecondLook,
    ] {
        let found = catch_unwind(AssertUnwindSafe(|| model(fault))).is_err();
        assert!(found, "the model does not see fault {}", fault as u8);
    }
}
