//! Random commands on a store, against a plain map.

use crate::random::Random;
use ginnel_cache::memory::{Memory, WORD};
use ginnel_cache::reader::{Look, Reader, seconds};
use ginnel_cache::store::{Change, Delta, Limits, Mode, Put, Store, Stored};
use std::collections::HashMap;

/// What the map knows of a key.
#[derive(Clone)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expiry: u32,
}

/// Returns a value of a length that is often 0, or at a word's end, and now and then large.
fn value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(10) {
        0 => 0,
        1 => random.below(30_000),
        _ => random.below(40),
    };
    let first = random.below(256) as u8;
    (0..len).map(|at| first.wrapping_add(at as u8)).collect()
}

struct Both {
    store: Store,
    map: HashMap<Vec<u8>, Known>,
    reader: Reader,
    /// Reads the copy, as a reader in another machine does.
    far: Reader,
    /// Whether the store may have evicted what the map has.
    evicts: bool,
    hits: u64,
}

impl Both {
    fn new(limits: &Limits, evicts: bool) -> Self {
        let memory = || Memory::private(limits.total() / WORD).expect("memory");
        let copy = memory();
        let view = copy.view();
        let memory = memory().copied_to(copy).expect("as large");
        let store = Store::new(memory, limits, 1, [7, 11]);
        let reader = Reader::new(store.view()).expect("an honest header");
        let far = Reader::new(view).expect("an honest header");
        Self { store, map: HashMap::new(), reader, far, evicts, hits: 0 }
    }

    /// Takes out of the map what is expired, and what the store evicted.
    fn settle(&mut self, key: &[u8]) {
        let now = self.store.now();
        if self.map.get(key).is_some_and(|known| known.expiry != 0 && known.expiry <= now) {
            self.map.remove(key);
        }
        if self.evicts && self.map.contains_key(key) && self.store.find(key).is_none() {
            self.map.remove(key);
        }
    }

    fn put(&mut self, random: &mut Random, key: &[u8]) {
        let modes = [
            Mode::Set,
            Mode::Set,
            Mode::Add,
            Mode::Replace,
            Mode::Append,
            Mode::Prepend,
            Mode::Cas,
        ];
        let mode = modes[random.below(modes.len())];
        let known = self.map.get(key).cloned();
        let cas = match (mode, random.below(2)) {
            (Mode::Cas, 0) => known.as_ref().map_or(1, |known| known.cas),
            (Mode::Cas, _) => 1,
            _ => 0,
        };
        let value = value(random);
        let expiry =
            if random.below(3) == 0 { self.store.now() + random.below(20) as u32 } else { 0 };
        let flags = random.below(3) as u32;
        let put = Put { flags, expiry, mode, cas, ..Put::set(key, &value) };
        let stored = self.store.put(&put);
        let Stored::Stored(new) = stored else {
            let expected = match (mode, &known) {
                (Mode::Cas, None) => Stored::NotFound,
                (Mode::Cas, Some(known)) if known.cas != cas => Stored::Exists,
                (Mode::Add, Some(_)) => Stored::NotStored,
                (Mode::Replace | Mode::Append | Mode::Prepend, None) => Stored::NotStored,
                _ => panic!("{mode:?} of {key:?} gave {stored:?}"),
            };
            assert_eq!(stored, expected, "{mode:?} of {key:?}");
            return;
        };
        let old = known.clone().map_or(Vec::new(), |known| known.value);
        let (value, keeps) = match mode {
            Mode::Append => ([old, value].concat(), true),
            Mode::Prepend => ([value, old].concat(), true),
            _ => (value, false),
        };
        let before = known.filter(|_| keeps);
        let (flags, expiry) = before.map_or((flags, expiry), |known| (known.flags, known.expiry));
        self.map.insert(key.to_vec(), Known { value, flags, cas: new, expiry });
    }

    fn change(&mut self, random: &mut Random, key: &[u8]) {
        let delta = Delta { up: random.below(2) == 0, by: random.below(2000) as u64, cas: 0 };
        let changed = self.store.change(key, delta);
        let Some(known) = self.map.get_mut(key) else {
            assert_eq!(changed, Change::NotFound);
            return;
        };
        let text = known.value.clone();
        let Some(old) = ginnel_cache::number::unsigned(&text) else {
            assert_eq!(changed, Change::NotNumber, "{text:?}");
            return;
        };
        let new = if delta.up { old.wrapping_add(delta.by) } else { old.saturating_sub(delta.by) };
        let Change::Changed(now, cas) = changed else { panic!("{changed:?} of {text:?}") };
        assert_eq!(now, new);
        known.value = new.to_string().into_bytes();
        while known.value.len() < text.len() {
            known.value.push(b' ');
        }
        known.cas = cas;
    }

    /// Store and reader say the same as the map.
    fn compare(&mut self, key: &[u8]) {
        self.settle(key);
        let known = self.map.get(key);
        let found = self.store.find(key);
        assert_eq!(found.is_some(), known.is_some(), "{key:?}");
        self.reader.was_answered(seconds());
        let look = self.reader.look(key);
        self.far.was_answered(seconds());
        assert_eq!(self.far.look(key), look, "{key:?} in the copy");
        let (Some(known), Some(found)) = (known, found) else {
            assert_eq!(look, Look::Miss);
            return;
        };
        let mut value = Vec::new();
        self.store.append_value(&found, &mut value);
        let item = found.item;
        assert_eq!((item.flags, item.cas, item.expiry), (known.flags, known.cas, known.expiry));
        assert!(value == known.value, "{key:?}: {} bytes, not {}", value.len(), known.value.len());
        let Look::Hit(seen) = look else { panic!("the reader did not find {key:?}: {look:?}") };
        assert_eq!(seen, item);
        assert!(self.reader.value() == value, "the reader has another value of {key:?}");
        self.hits += 1;
    }

    fn step(&mut self, random: &mut Random, keys: usize) {
        let key = format!("key-{}", random.below(keys)).into_bytes();
        self.settle(&key);
        match random.below(100) {
            0..40 => self.put(random, &key),
            40..45 => {
                let number = random.below(3000).to_string();
                let Stored::Stored(cas) = self.store.put(&Put::set(&key, number.as_bytes())) else {
                    panic!("a set is stored");
                };
                let value = number.into_bytes();
                self.map.insert(key.clone(), Known { value, flags: 0, cas, expiry: 0 });
            }
            45..60 => self.change(random, &key),
            60..68 => {
                assert_eq!(self.store.delete(&key, 0).is_some(), self.map.remove(&key).is_some());
            }
            68..74 => {
                let expiry = self.store.now() + random.below(30) as u32;
                let touched = self.store.touch(&key, expiry);
                assert_eq!(touched.is_some(), self.map.contains_key(&key));
                if let Some(known) = self.map.get_mut(&key) {
                    known.expiry = expiry;
                }
            }
            74..78 => self.store.tick(self.store.now() + 1),
            78 if random.below(50) == 0 => {
                let mut next = Some(0);
                while let Some(from) = next {
                    next = self.store.flush_some(from);
                }
                self.store.flushed();
                self.map.clear();
            }
            _ => {
                self.store.get(&key);
            }
        }
        self.compare(&key);
    }
}

#[test]
fn a_store_is_a_map() {
    let limits = Limits { memory: 64 << 20, max_item: 1 << 20, ..Limits::default() };
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let mut both = Both::new(&limits, false);
        (0..30_000).for_each(|_| both.step(&mut random, 300));
        let live = live(&mut both, 300);
        assert_eq!(both.store.counts.items as usize, live, "seed {seed}");
        assert_eq!(both.store.counts.evictions, 0, "it was to evict nothing: seed {seed}");
        assert!(both.hits > 10_000, "seed {seed}: {} hits", both.hits);
    }
}

/// Returns how many items the map has, after each key was compared.
fn live(both: &mut Both, keys: usize) -> usize {
    (0..keys).for_each(|key| both.compare(format!("key-{key}").as_bytes()));
    both.map.len()
}

/// In memory that is far too small, and in an index that is: what is there is right.
#[test]
fn what_is_not_evicted_is_right() {
    let small = Limits { memory: 1 << 20, max_item: 64 << 10, ..Limits::default() };
    let few_slots =
        Limits { memory: 8 << 20, max_item: 64 << 10, index: Some(4 << 10), ..Limits::default() };
    for (limits, seed) in
        [(small.clone(), 10), (small, 11), (few_slots.clone(), 12), (few_slots, 13)]
    {
        let mut random = Random::new(seed);
        let mut both = Both::new(&limits, true);
        (0..40_000).for_each(|_| both.step(&mut random, 5000));
        assert!(both.store.counts.evictions > 100, "{:?}", both.store.counts);
        assert!(both.hits > 1000, "seed {seed}: {} hits", both.hits);
        let live = live(&mut both, 5000);
        assert_eq!(both.store.counts.items as usize, live, "seed {seed}");
    }
}

/// What is read again and again outlives a flood of what is read never.
#[test]
fn what_is_read_survives() {
    let limits = Limits { memory: 8 << 20, max_item: 64 << 10, ..Limits::default() };
    let mut store = Store::private(&limits).expect("memory");
    let hot: Vec<String> = (0..100).map(|at| format!("hot-{at}")).collect();
    hot.iter().for_each(|key| {
        store.put(&Put::set(key.as_bytes(), &[1; 500]));
    });
    for cold in 0..100_000 {
        store.put(&Put::set(format!("cold-{cold}").as_bytes(), &[2; 500]));
        store.get(hot[cold % hot.len()].as_bytes());
    }
    assert!(store.counts.evictions > 50_000);
    let left = hot.iter().filter(|key| store.find(key.as_bytes()).is_some()).count();
    assert_eq!(left, hot.len());
}

/// With `-M`: an index without a free slot refuses an item rather than take another out.
#[test]
fn nothing_is_taken_out_where_that_is_not_allowed() {
    let index = Some(1 << 10);
    let limits =
        Limits { memory: 8 << 20, max_item: 4 << 10, index, keep_all: true, ..Limits::default() };
    let mut store = Store::private(&limits).expect("memory");
    let keys: Vec<String> = (0..1000).map(|at| format!("key-{at}")).collect();
    let put =
        |key: &&String| matches!(store.put(&Put::set(key.as_bytes(), b"value")), Stored::Stored(_));
    let stored: Vec<&String> = keys.iter().filter(put).collect();
    assert!((50..=112).contains(&stored.len()), "{} of 112 slots", stored.len());
    assert!(stored.iter().all(|key| store.find(key.as_bytes()).is_some()));
    assert_eq!(store.counts.items, stored.len() as u64);
    // One that is there can have another value all the same.
    assert!(matches!(store.put(&Put::set(stored[0].as_bytes(), b"other")), Stored::Stored(_)));
}

/// With `-M`: what old values took is used again, while items that live side by side stay.
#[test]
fn old_values_do_not_fill_memory_that_is_never_evicted() {
    let limits =
        Limits { memory: 8 << 20, max_item: 64 << 10, keep_all: true, ..Limits::default() };
    let mut both = Both::new(&limits, false);
    let mut random = Random::new(21);
    for round in 0..20_000 {
        // Some that stay lie among the many that are written over.
        let (key, len) = match round % 6 {
            0 if round < 6000 => (format!("stays-{round}"), 100),
            _ => (format!("key-{}", random.below(250)), random.below(20_000)),
        };
        let (key, value) = (key.into_bytes(), vec![round as u8; len]);
        let Stored::Stored(cas) = both.store.put(&Put::set(&key, &value)) else {
            panic!("no room in round {round}");
        };
        both.map.insert(key.clone(), Known { value, flags: 0, cas, expiry: 0 });
        both.compare(&key);
    }
    let keys: Vec<Vec<u8>> = both.map.keys().cloned().collect();
    assert!(keys.len() > 1000, "{}", keys.len());
    keys.iter().for_each(|key| both.compare(key));
    assert_eq!(both.store.counts.evictions, 0);
}
