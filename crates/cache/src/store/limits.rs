//! How much memory a cache has, and how it is parted.

use crate::layout::{self, BUCKET_WORDS, Geometry, HEADER_WORDS};
use crate::memory::WORD;

/// Sizes of a cache.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes for items, memcached's `-m`. The index comes on top of it.
    pub memory: usize,
    /// Bytes of the largest item as memcached counts them, its `-I`.
    pub max_item: usize,
    /// Bytes for the index; by default an eighth of `memory`.
    pub index: Option<usize>,
    /// Whether an item that has no room is refused, rather than old ones taken out (`-M`).
    pub keep_all: bool,
    /// Whether items have no unique numbers (`-C`).
    pub no_cas: bool,
}

impl Default for Limits {
    /// memcached's.
    fn default() -> Self {
        Self { memory: 64 << 20, max_item: 1 << 20, index: None, keep_all: false, no_cas: false }
    }
}

/// Bytes of a page, the unit in which memory is had.
pub(super) const PAGE: usize = 4096;
/// How many segments there are at least: one filling, one for survivors, one spare, and more.
const FEWEST_SEGMENTS: usize = 8;
/// How many segments there should be, so that evicting one takes little away.
const SEGMENTS: usize = 256;

impl Limits {
    /// Words that memcached's accounting of an item of `max_item` bytes can come to here.
    fn max_item_words(&self) -> usize {
        layout::item_words(layout::MAX_KEY, self.max_item)
    }

    /// Words of a segment: an item fits, and small items share one that is not too small.
    pub(super) fn segment_words(&self) -> usize {
        let wanted = (self.memory / SEGMENTS / WORD).min(self.max_item_words() * 4);
        wanted.max(self.max_item_words())
    }

    pub(super) fn segments(&self) -> usize {
        (self.memory / WORD / self.segment_words()).max(FEWEST_SEGMENTS)
    }

    fn buckets(&self) -> usize {
        let bytes = self.index.unwrap_or(self.memory / 8);
        let buckets = (bytes / (BUCKET_WORDS * WORD)).max(16);
        // The nearest power of two: an eighth of 64 MiB is one.
        if buckets.is_power_of_two() { buckets } else { buckets.next_power_of_two() / 2 }
    }

    pub(super) fn geometry(&self, generation: u64, hash_key: [u64; 2]) -> Geometry {
        let buckets = self.buckets();
        let log = (HEADER_WORDS + buckets * BUCKET_WORDS).next_multiple_of(PAGE / WORD);
        let words = log + self.segments() * self.segment_words();
        let max_item = self.max_item_words();
        let words = words.next_multiple_of(PAGE / WORD);
        Geometry { generation, words, buckets, log, max_item, hash_key }
    }

    /// Returns how many bytes of memory a cache of these limits takes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.geometry(0, [0; 2]).words * WORD
    }
}
