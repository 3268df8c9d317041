//! Making room: what of the oldest segment is kept, and how readers are told of the rest.
//!
//! The oldest segment is given back. Of its items those that were read since they were stored, or
//! since they were kept the last time, are copied into a segment for survivors: half of what was
//! given back over time, at most, and a whole segment where those before it kept little. So
//! evicting frees more than it fills. (First in, first out with a second chance, by segments; cf.
//! Segcache's merging eviction, and S3-FIFO, SOSP '23.)
//!
//! Order, for readers: each item is taken out of its bucket, or moved, with the bucket's version
//! changed; only when that is done for all is the segment free, and its words are written over.

use super::log::Class;
use super::{Spot, Store};
use crate::layout::{ITEM_WORDS, Item};
use crate::sync::Ordering;

/// A live item of the segment that is evicted.
struct Candidate {
    place: usize,
    hash: u64,
    item: Item,
}

/// Which live items of a segment outlive it.
#[derive(Debug, Clone, Copy)]
enum Keep {
    Nothing,
    /// Those that were read, up to so many words.
    Read(usize),
    All,
}

impl Store {
    /// Takes `words` words for a new item, and evicts what has to go for them.
    pub(super) fn allocate(&mut self, words: usize, expiry: u32) -> Option<usize> {
        if words > self.log.segment_words() {
            return None;
        }
        let left = (expiry != 0).then(|| expiry.saturating_sub(self.now));
        loop {
            if let Some(place) = self.log.take(Class::Fresh { left }, words, expiry) {
                return Some(place);
            }
            if self.limits.keep_all {
                self.compact()?;
            } else {
                self.evict()?;
            }
        }
    }

    /// Gives the oldest segment back.
    fn evict(&mut self) -> Option<()> {
        let (victim, may_keep) = self.log.victim()?;
        let segment = self.log.segment_words();
        self.credit = (self.credit + segment / 2).min(segment);
        let kept = self.drain(victim, Keep::Read(if may_keep { self.credit } else { 0 }));
        self.credit -= kept;
        Some(())
    }

    /// Gives back a segment of which most is what was written over or taken out since, and moves
    /// the rest: where nothing is evicted (`-M`), old values would fill the memory otherwise.
    ///
    /// Its items fit into what survivors have and one more segment, which are kept free for that.
    fn compact(&mut self) -> Option<()> {
        let segment = self.log.sparse()?;
        self.drain(segment, Keep::All);
        Some(())
    }

    /// Gives back every segment whose items are all expired.
    pub(super) fn drop_expired(&mut self) {
        while let Some(segment) = self.log.expired(self.now) {
            self.drain(segment, Keep::Nothing);
        }
    }

    /// Empties a segment, and gives it back. Returns how many words of items it kept.
    fn drain(&mut self, segment: usize, keep: Keep) -> usize {
        let mut kept = 0;
        let mut live = self.live_items(segment);
        live.sort_by_key(|one| std::cmp::Reverse((one.item.read, one.item.accessed)));
        for one in live {
            let words = one.item.total_words();
            let expired = one.item.is_expired(u64::from(self.now));
            let wanted = match keep {
                Keep::Nothing => false,
                Keep::Read(budget) => one.item.read > 0 && kept + words <= budget,
                Keep::All => true,
            };
            if wanted && !expired && self.keep(&one) {
                kept += words;
                continue;
            }
            if let Some(spot) = self.spot_of(one.hash, one.place) {
                self.unlink(spot, one.place, one.item);
            }
            self.counts.dropped(&one.item, expired);
        }
        self.log.give_back(segment);
        kept
    }

    /// Returns the segment's items that the index knows.
    fn live_items(&self, segment: usize) -> Vec<Candidate> {
        let (first, known) = self.log.segment(segment);
        let mut live = Vec::new();
        let (mut place, end) = (first, first + known.used);
        while place < end {
            let item = self.item_at(place);
            let hash = self.geometry.hash(&self.key_at(place, &item));
            if self.spot_of(hash, place).is_some() {
                live.push(Candidate { place, hash, item });
            }
            place += item.total_words();
        }
        live
    }

    /// Copies an item to where survivors are, and points its slot there.
    fn keep(&mut self, one: &Candidate) -> bool {
        let Some(spot) = self.spot_of(one.hash, one.place) else { return false };
        let words = one.item.total_words();
        let Some(place) = self.log.take(Class::Survivor, words, one.item.expiry) else {
            return false;
        };
        let item = Item { read: one.item.read.saturating_sub(1), ..one.item };
        let own = self.memory.words();
        for memory in self.memory.each() {
            for (at, word) in item.to_words().into_iter().enumerate() {
                memory[place + at].store(word, Ordering::Relaxed);
            }
            for at in ITEM_WORDS..words {
                let word = own[one.place + at].load(Ordering::Relaxed);
                memory[place + at].store(word, Ordering::Relaxed);
            }
        }
        self.point(spot, Self::slot(one.hash, place));
        self.log.forget(one.place, words);
        true
    }

    /// Returns the slot that points to `place` for a key with that hash.
    pub(super) fn spot_of(&self, hash: u64, place: usize) -> Option<Spot> {
        let wanted = Self::slot(hash, place);
        self.spots(hash).find(|&spot| self.slot_at(spot) == wanted)
    }
}
