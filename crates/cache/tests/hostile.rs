//! A writer that means harm: whatever it writes, a reader ends, and reads nothing outside.

use crate::random::Random;
use ginnel_cache::layout::{self, BUCKET_WORDS, HEADER_WORDS, Item, Slot, header};
use ginnel_cache::reader::{Look, Reader};
use ginnel_cache::store::{Limits, Put, Store};
use std::sync::atomic::{AtomicBool, Ordering};

/// A word that a reader might take for something: places at every edge, lengths, versions.
fn word(random: &mut Random, words: usize) -> u64 {
    let edges = [0, 1, HEADER_WORDS, words - 5, words - 4, words - 1, words, words + 1];
    let place = edges[random.below(edges.len())].max(random.below(words) * random.below(2));
    let item = Item {
        value_len: [0, 1, 8, 4096, u32::MAX, u32::MAX - 7][random.below(6)],
        key_len: [0, 3, 5, 250, 255][random.below(5)],
        ..Item::default()
    };
    match random.below(4) {
        0 => random.next(),
        1 => Slot { tag: random.next() as u16, place: place as u64 }.to_word(),
        2 => item.to_words()[2],
        _ => random.below(8) as u64,
    }
}

#[test]
fn a_reader_bears_whatever_is_written() {
    let limits =
        Limits { memory: 256 << 10, max_item: 4 << 10, index: Some(1 << 10), ..Limits::default() };
    let mut store = Store::private(&limits).expect("memory");
    let mut reader = Reader::new(store.view()).expect("an honest header");
    let (words, stop) = (store.view().len(), AtomicBool::new(false));
    let keys: Vec<String> = (0..50).map(|at| format!("k-{at}")).collect();
    keys.iter().for_each(|key| {
        let _ = store.put(&Put::set(key.as_bytes(), &[7; 100]));
    });
    let index = 16 * BUCKET_WORDS;
    let mut counts = [0; 3];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(5);
            while !stop.load(Ordering::Relaxed) {
                // Slots of every key that lead to every word, among others.
                let at = match random.below(3) {
                    0 => HEADER_WORDS + random.below(index),
                    1 => 8 + random.below(HEADER_WORDS),
                    _ => random.below(words - HEADER_WORDS) + HEADER_WORDS,
                };
                let value = match random.below(3) {
                    0 => {
                        let key = keys[random.below(keys.len())].as_bytes();
                        let tag = (reader_hash(&store, key) >> 48) as u16;
                        Slot { tag, place: word(&mut random, words) & 0xff_ffff }.to_word()
                    }
                    _ => word(&mut random, words),
                };
                store.forge(at, value);
            }
        });
        for round in 0..300_000 {
            let look = reader.look(keys[round % keys.len()].as_bytes());
            let kind = match look {
                Look::Hit(item) => {
                    assert_eq!(reader.value().len(), item.value_len as usize);
                    assert!(reader.value().len() <= 8 << 10);
                    0
                }
                Look::Miss => 1,
                Look::Unknown => 2,
            };
            counts[kind] += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{counts:?} hits, misses, unknown");
    assert!(counts[1] > 0 && counts[2] > 0, "it met nothing: {counts:?}");
}

fn reader_hash(store: &Store, key: &[u8]) -> u64 {
    Reader::new(store.view()).map_or(0, |reader| reader.hash(key))
}

/// A version that changes all the time, or stays odd, costs a bounded number of tries.
#[test]
fn a_bucket_that_is_never_at_rest_is_given_up() {
    let limits =
        Limits { memory: 256 << 10, max_item: 4 << 10, index: Some(1 << 10), ..Limits::default() };
    let mut store = Store::private(&limits).expect("memory");
    store.put(&Put::set(b"key", b"value"));
    let mut reader = Reader::new(store.view()).expect("an honest header");
    assert!(matches!(reader.look(b"key"), Look::Hit(_)));
    for bucket in 0..16 {
        store.forge(HEADER_WORDS + bucket * BUCKET_WORDS, 7);
    }
    assert_eq!(reader.look(b"key"), Look::Unknown);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 0.. {
                (0..16).for_each(|at| store.forge(HEADER_WORDS + at * BUCKET_WORDS, version));
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        (0..10_000).for_each(|_| {
            let _ = reader.look(b"key");
        });
        stop.store(true, Ordering::Relaxed);
    });
}

/// An owner who announces items of any length would have a reader allocate as much.
#[test]
fn an_item_is_at_most_as_long_as_the_largest_that_can_be_asked_for() {
    const WORDS: usize = 1 << 29;
    let (memory, _) = ginnel_cache::memory::create("hostile", WORDS * 8).expect("memory");
    let gigabyte = layout::item_words(layout::MAX_KEY, 1 << 30);
    let accepts = |max_item: usize| {
        for (at, word) in [
            (header::MAGIC, layout::MAGIC),
            (header::VERSION, layout::VERSION),
            (header::WORDS, WORDS as u64),
            (header::BUCKETS, 16),
            (header::LOG, 512),
            (header::MAX_ITEM, max_item as u64),
        ] {
            memory.words()[at].store(word, Ordering::Relaxed);
        }
        Reader::new(memory.view()).is_ok()
    };
    assert!(accepts(gigabyte));
    assert!(!accepts(gigabyte + 1));
    assert!(!accepts(1 << 28));
}
