//! The items: one writer's side of the cache's memory.
//!
//! | module | part |
//! |---|---|
//! | this one | making the memory; finding, linking and unlinking an item |
//! | [`limits`] | how much memory, and how it is parted |
//! | [`log`] | books of the segments in which items lie |
//! | [`evict`] | making room |
//! | [`flush`] | taking all items out |
//! | [`commands`] | what memcached's commands do to an item |
//! | [`counts`] | what `stats` tells |
//!
//! There is one `Store` for a memory, behind one lock of the server. Whatever a command changes is
//! visible to readers before the command returns, so before it is acknowledged. An item never moves
//! between its two buckets: a reader that finds it in neither saw a moment at which it was not
//! there.

mod commands;
mod counts;
mod evict;
mod flush;
mod limits;
mod log;

pub use commands::{Change, Delta, Mode, Put, Stored};
pub use counts::Counts;
pub use limits::Limits;
use limits::PAGE;

use crate::layout::{self, BUCKET_WORDS, Geometry, ITEM_WORDS, Item, Slot, header};
use crate::memory::{Memory, View, WORD};
use crate::sync::{AtomicU64, Ordering};
use log::Log;
use std::io;
use std::ops::Range;

/// A slot of a bucket, by the words at which they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    bucket: usize,
    slot: usize,
}

/// An item that the index knows.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    spot: Spot,
    place: usize,
    /// What is known of it.
    pub item: Item,
}

/// The items of one server.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    geometry: Geometry,
    log: Log,
    limits: Limits,
    /// Words of items that evicting may keep.
    credit: usize,
    /// The unique number that was given last.
    cas: u64,
    /// Seconds of the server's clock.
    now: u32,
    /// Second at which all items go, if flush_all named one.
    flush_at: Option<u32>,
    /// The bucket up to which they are gone, when it is time.
    flushing: Option<usize>,
    /// Key and value of an item that is being made.
    scratch: Vec<u8>,
    /// What happened so far.
    pub counts: Counts,
}

/// The server's clock begins here, as memcached's does: seconds after 0 are all in its past.
pub const CLOCK_START: u32 = 62;
impl Store {
    /// Returns an empty store in memory that only this process has.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn private(limits: &Limits) -> io::Result<Self> {
        let memory = Memory::private(limits.total() / WORD)?;
        Ok(Self::new(memory, limits, 1, [7, 11]))
    }

    /// Returns an empty store in `memory`, which is zeroed and has the limits' size.
    ///
    /// # Panics
    /// If the memory is smaller than that.
    #[must_use]
    pub fn new(memory: Memory, limits: &Limits, generation: u64, hash_key: [u64; 2]) -> Self {
        let geometry = limits.geometry(generation, hash_key);
        assert!(memory.words().len() >= geometry.words, "memory of another size");
        let log = Log::new(geometry.log, limits.segment_words(), limits.segments());
        let limits = limits.clone();
        let (now, cas) = (CLOCK_START, 0);
        let store = Self {
            credit: log.segment_words(),
            memory,
            geometry,
            log,
            limits,
            cas,
            now,
            flush_at: None,
            flushing: None,
            scratch: Vec::new(),
            counts: Counts::default(),
        };
        store.write_header();
        store
    }

    fn write_header(&self) {
        let Geometry { generation, words, buckets, log, max_item, hash_key } = self.geometry;
        let put = |at: usize, value: u64| self.memory.store(at, value, Ordering::Relaxed);
        put(header::VERSION, layout::VERSION);
        put(header::GENERATION, generation);
        put(header::WORDS, words as u64);
        put(header::BUCKETS, buckets as u64);
        put(header::LOG, log as u64);
        put(header::MAX_ITEM, max_item as u64);
        put(header::HASH_KEY, hash_key[0]);
        put(header::HASH_KEY + 1, hash_key[1]);
        put(header::CLOCK, u64::from(self.now));
        self.memory.store(header::MAGIC, layout::MAGIC, Ordering::Release);
    }

    /// Returns what a reader of this store sees.
    #[must_use]
    pub fn view(&self) -> View {
        self.memory.view()
    }

    /// Returns the number of this start of the server.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.geometry.generation
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Writes any word of the memory: for tests of readers, who must bear it.
    #[doc(hidden)]
    pub fn forge(&self, at: usize, word: u64) {
        self.memory.store(at, word, Ordering::Relaxed);
    }

    /// Returns seconds of the server's clock.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Returns (all segments, free ones, bytes of a segment).
    #[must_use]
    pub fn segments(&self) -> (usize, usize, usize) {
        let (all, free) = self.log.counts();
        (all, free, self.log.segment_words() * WORD)
    }

    /// Returns the words of which most are in use, or were: those of the log that was filled so
    /// far, and those of the index once it has as many items as pages, which hashes strew over it.
    #[must_use]
    pub fn in_use(&self) -> Range<usize> {
        let log = self.log.reached();
        let pages = self.geometry.log * WORD / PAGE;
        if self.counts.items >= pages as u64 { 0..log.end } else { log }
    }

    /// Sets the clock, `now` seconds of it, and does what is due by then.
    pub fn tick(&mut self, now: u32) {
        if now == self.now {
            return;
        }
        self.now = now;
        self.memory.store(header::CLOCK, u64::from(now), Ordering::Release);
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            self.flushing = Some(0);
        }
        self.drop_expired();
    }

    /// Counts a client's read, out of the memory, of the item of a key with that hash, if there is
    /// one.
    pub fn was_read(&mut self, hash: u64) {
        self.counts.direct_hits += 1;
        let tag = self.geometry.home_of(hash).tag;
        let place = self.spots(hash).find_map(|spot| {
            Slot::from_word(self.slot_at(spot))
                .filter(|slot| slot.tag == tag)
                .map(|slot| slot.place)
        });
        if let Some(place) = place.and_then(|place| usize::try_from(place).ok()) {
            let item = self.item_at(place);
            self.note_read(place, item);
        }
    }

    /// Notes at the item itself that it was read.
    fn note_read(&self, place: usize, item: Item) {
        let read = (item.read + 1).min(Item::MOST_READ);
        let bits = item.bits | layout::bits::FETCHED;
        self.rewrite(place, Item { read, bits, accessed: self.now, ..item });
    }

    /// Writes an item's words but the first, the unique number, whose change a reader must see
    /// together with the value's.
    fn rewrite(&self, place: usize, item: Item) {
        for (at, word) in item.to_words().into_iter().enumerate().skip(1) {
            self.memory.store(place + at, word, Ordering::Relaxed);
        }
    }

    /// Finds a key's item. One that is expired is taken out, and not found.
    pub fn find(&mut self, key: &[u8]) -> Option<Found> {
        let hash = self.geometry.hash(key);
        let tag = self.geometry.home_of(hash).tag;
        let found = self.spots(hash).find_map(|spot| {
            let slot = Slot::from_word(self.slot_at(spot)).filter(|slot| slot.tag == tag)?;
            let place = slot.place as usize;
            let item = self.item_at(place);
            let same = usize::from(item.key_len) == key.len() && self.is_key_at(place, key);
            same.then_some(Found { spot, place, item })
        })?;
        if found.item.is_expired(u64::from(self.now)) {
            self.counts.get_expired += 1;
            self.counts.dropped(&found.item, true);
            self.remove(&found);
            return None;
        }
        Some(found)
    }

    /// Takes an item out.
    pub fn remove(&mut self, found: &Found) {
        self.unlink(found.spot, found.place, found.item);
    }

    /// Appends the item's value to `out`.
    pub fn append_value(&self, found: &Found, out: &mut Vec<u8>) {
        let (key, value) = (usize::from(found.item.key_len), found.item.value_len as usize);
        let body = self.body_of(found.place, &found.item);
        let (skip, mut rest) = (key / WORD, key % WORD);
        let mut left = value;
        for word in &body[skip..] {
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            let take = (WORD - rest).min(left);
            out.extend_from_slice(&bytes[rest..rest + take]);
            left -= take;
            rest = 0;
        }
    }

    /// Makes the item of `scratch`, which has key and value, and lets it take the place of the one
    /// of that key, if there is one. Nothing if it has no room at all.
    fn link(&mut self, item: Item) -> Option<()> {
        let key_len = usize::from(item.key_len);
        let hash = self.geometry.hash(&self.scratch[..key_len]);
        let words = item.total_words();
        let place = self.allocate(words, item.expiry)?;
        for memory in self.memory.each() {
            let item_words = &memory[place..place + words];
            for (word, value) in item_words.iter().zip(item.to_words()) {
                word.store(value, Ordering::Relaxed);
            }
            fill(&item_words[ITEM_WORDS..], &self.scratch);
        }
        let key = std::mem::take(&mut self.scratch);
        // Asked only now: making room may have moved the old item, or taken it out.
        if let Some(old) = self.find(&key[..key_len]) {
            self.point(old.spot, Self::slot(hash, place));
            self.log.forget(old.place, old.item.total_words());
            self.counts.unlinked(&old.item);
        } else if let Some(spot) = self.free_spot(hash) {
            self.point(spot, Self::slot(hash, place));
        } else {
            self.log.forget(place, words);
            self.scratch = key;
            return None;
        }
        self.scratch = key;
        self.counts.linked(&item);
        Some(())
    }

    /// Returns an empty slot for a key with that hash, and makes one where all are taken, if that
    /// is allowed.
    fn free_spot(&mut self, hash: u64) -> Option<Spot> {
        let [first, second] = self.geometry.home_of(hash).buckets.map(|bucket| {
            let free = self.spots_in(bucket).filter(|&spot| self.slot_at(spot) == 0);
            (free.clone().count(), free.clone().next())
        });
        // The first as long as it has room: a reader looks there first.
        let prefer_first = first.0 >= 2 || first.0 >= second.0;
        let spot = if prefer_first { first.1.or(second.1) } else { second.1.or(first.1) };
        match spot {
            None if self.limits.keep_all => None,
            None => Some(self.displace(hash)),
            some => some,
        }
    }

    /// Takes the oldest item of a key's two buckets out, which are full.
    fn displace(&mut self, hash: u64) -> Spot {
        let place =
            |spot: Spot| Slot::from_word(self.slot_at(spot)).map_or(0, |slot| slot.place as usize);
        let oldest = self.spots(hash).map(|spot| (spot, place(spot)));
        let oldest = oldest.min_by_key(|&(_, place)| self.log.age(place));
        let (spot, place) = oldest.expect("two buckets have slots");
        let item = self.item_at(place);
        self.unlink(spot, place, item);
        self.counts.dropped(&item, false);
        self.counts.displaced += 1;
        spot
    }

    fn unlink(&mut self, spot: Spot, place: usize, item: Item) {
        self.point(spot, 0);
        self.log.forget(place, item.total_words());
        self.counts.unlinked(&item);
    }

    /// Sets a slot, with its bucket's version changed around it.
    fn point(&self, spot: Spot, slot: u64) {
        self.memory.change(spot.bucket, |words| words[spot.slot].store(slot, Ordering::Relaxed));
    }

    fn slot(hash: u64, place: usize) -> u64 {
        Slot { tag: (hash >> 48) as u16, place: place as u64 }.to_word()
    }

    fn slot_at(&self, spot: Spot) -> u64 {
        self.memory.words()[spot.slot].load(Ordering::Relaxed)
    }

    fn spots_in(&self, bucket: usize) -> impl Iterator<Item = Spot> + Clone + use<> {
        (1..BUCKET_WORDS).map(move |at| Spot { bucket, slot: bucket + at })
    }

    fn spots(&self, hash: u64) -> impl Iterator<Item = Spot> + Clone + use<> {
        let [first, second] = self.geometry.home_of(hash).buckets;
        self.spots_in(first).chain(self.spots_in(second))
    }

    fn item_at(&self, place: usize) -> Item {
        let words = &self.memory.words()[place..place + ITEM_WORDS];
        Item::from_words(std::array::from_fn(|at| words[at].load(Ordering::Relaxed)))
    }

    /// Words of an item's key and value.
    fn body_of(&self, place: usize, item: &Item) -> &[AtomicU64] {
        &self.memory.words()[place + ITEM_WORDS..place + item.total_words()]
    }

    fn key_at(&self, place: usize, item: &Item) -> Vec<u8> {
        let key_len = usize::from(item.key_len);
        let body = self.body_of(place, item).iter().take(key_len.div_ceil(WORD));
        let mut key: Vec<u8> =
            body.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        key.truncate(key_len);
        key
    }

    /// Returns whether `key` is the key of the item at `place`, which has one of that length.
    fn is_key_at(&self, place: usize, key: &[u8]) -> bool {
        let body = &self.memory.words()[place + ITEM_WORDS..];
        key.chunks(WORD)
            .zip(body)
            .all(|(part, word)| word.load(Ordering::Relaxed).to_ne_bytes()[..part.len()] == *part)
    }
}

/// Stores key and value of an item into words.
fn fill(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks(WORD)) {
        let mut padded = [0; WORD];
        padded[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
    }
}
