//! Taking all items out, some buckets at a time: whoever has the store's lock meanwhile keeps all
//! others waiting, and the index of a large cache is large.
//!
//! What is stored in a bucket that was emptied stays; in one that was not yet, it goes with the
//! rest. Either stands for an order of that store and the flush: neither was acknowledged before
//! the other began. memcached parts them by whole seconds.

use super::Store;
use crate::layout::{BUCKET_WORDS, HEADER_WORDS, Slot};

/// Buckets that are looked at at a time: 2 MiB.
const BUCKETS: usize = 32 << 10;
/// Items that are taken out at a time, and those of one bucket more.
const ITEMS: usize = 4 << 10;

impl Store {
    /// Takes the items of some buckets out, from the one numbered `from` on. Returns which bucket
    /// is the next, or nothing behind the last.
    pub fn flush_some(&mut self, from: usize) -> Option<usize> {
        let (mut bucket, mut items) = (from, 0);
        let until = (from + BUCKETS).min(self.geometry.buckets);
        while bucket < until && items < ITEMS {
            for spot in self.spots_in(HEADER_WORDS + bucket * BUCKET_WORDS) {
                let Some(slot) = Slot::from_word(self.slot_at(spot)) else { continue };
                let place = slot.place as usize;
                self.unlink(spot, place, self.item_at(place));
                items += 1;
            }
            bucket += 1;
        }
        (bucket < self.geometry.buckets).then_some(bucket)
    }

    /// All items are out that were there when the flush began.
    pub fn flushed(&mut self) {
        self.log.close_empty();
        // As memcached does: what comes after has a higher number than the flush.
        self.next_cas();
    }

    /// Has all items taken out at second `at` of the clock, or at none.
    pub fn flush_at(&mut self, at: Option<u32>) {
        self.flush_at = at;
    }

    /// Takes some items out where a second that was named has come. Says whether there are more.
    pub fn flush_due(&mut self) -> bool {
        let Some(from) = self.flushing else { return false };
        self.flushing = self.flush_some(from);
        if self.flushing.is_none() {
            self.log.close_empty();
        }
        self.flushing.is_some()
    }
}
