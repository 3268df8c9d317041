//! What lies where in the cache's memory: header, index, log.
//!
//! ```text
//! word 0        header: 64 words; what a reader needs to know, then one line that changes
//! buckets       8 words each: version, then 7 slots (0 = empty)
//! log           segments of equal length; items one after the other
//! ```
//!
//! A slot is a tag of 16 bits over an item's place of 48 bits, counted in words. An item is four
//! words, then its key, then its value, and ends at a word:
//!
//! | word | low half | high half |
//! |---|---|---|
//! | 0 | unique number ("cas"), 64 bits | |
//! | 1 | second of the server's clock at which it expires, 0 for never | the client's flags |
//! | 2 | bytes of its value | bytes of its key, bits ([`bits`]), how often it was read, 0 |
//! | 3 | second at which it was last read | second at which it was stored |
//!
//! Words are of the machine's own byte order: all who map the memory are on one machine.

use crate::memory::{View, WORD};
use crate::sync::Ordering;

/// First word of the memory: "ginnel$$" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ginnel$$");
/// Version of this layout. A reader refuses any other.
pub const VERSION: u64 = 1;
/// Longest key, bytes (memcached's).
pub const MAX_KEY: usize = 250;
/// Largest `-I`, bytes (memcached's).
pub const MOST_ITEM: usize = 1 << 30;
/// Words of an item before its key.
pub const ITEM_WORDS: usize = 4;
/// Words of a bucket.
pub const BUCKET_WORDS: usize = 8;
/// Words of the header.
pub const HEADER_WORDS: usize = 64;

/// Words of the header. All but those from [`LIFE`](header::LIFE) on never change.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// A number that no other start of a server has.
    pub const GENERATION: usize = 2;
    /// Words of the whole memory.
    pub const WORDS: usize = 3;
    /// How many buckets, a power of two.
    pub const BUCKETS: usize = 4;
    /// The log's first word.
    pub const LOG: usize = 5;
    /// Words of the longest item.
    pub const MAX_ITEM: usize = 6;
    /// The hash's key, two words.
    pub const HASH_KEY: usize = 8;
    /// A futex word whose owner is the server's thread that lives as long as the server: the
    /// kernel marks it when that ends ([`life`](crate::life)). On a line of its own.
    pub const LIFE: usize = 16;
    /// Seconds of the server's clock.
    pub const CLOCK: usize = 24;
}

/// Bits in an item's third word.
pub mod bits {
    /// It was read since it was stored.
    pub const FETCHED: u8 = 1;
    /// It is stale: marked so by `md I`, or stored late by `ms I`.
    pub const STALE: u8 = 2;
    /// Some client was told that it is to renew the item.
    pub const WON: u8 = 4;
    /// Its key came in base64.
    pub const BINARY_KEY: u8 = 8;
}

/// An item's four words, as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Item {
    /// Unique number; a new one with each change of the value.
    pub cas: u64,
    /// Second of the server's clock at which it expires; 0: never.
    pub expiry: u32,
    /// What the client asked to keep beside the value.
    pub flags: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// Bytes of the key.
    pub key_len: u8,
    /// [`bits`].
    pub bits: u8,
    /// How often it was read lately, at most [`Item::MOST_READ`].
    pub read: u8,
    /// Second at which it was last read.
    pub accessed: u32,
    /// Second at which it was stored.
    pub stored: u32,
}

impl Item {
    /// Where counting how often an item is read ends.
    pub const MOST_READ: u8 = 3;

    /// Returns the four words.
    #[must_use]
    pub fn to_words(self) -> [u64; ITEM_WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let small = u32::from_le_bytes([self.key_len, self.bits, self.read, 0]);
        [
            self.cas,
            pair(self.expiry, self.flags),
            pair(self.value_len, small),
            pair(self.accessed, self.stored),
        ]
    }

    /// Returns the item of which these are the words.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the halves of words are meant")]
    pub fn from_words(words: [u64; ITEM_WORDS]) -> Self {
        let [cas, expiry_flags, lengths, times] = words;
        let [key_len, bits, read, _] = ((lengths >> 32) as u32).to_le_bytes();
        Self {
            cas,
            expiry: expiry_flags as u32,
            flags: (expiry_flags >> 32) as u32,
            value_len: lengths as u32,
            key_len,
            bits,
            read,
            accessed: times as u32,
            stored: (times >> 32) as u32,
        }
    }

    /// Returns how many words the item takes with key and value.
    #[must_use]
    pub fn total_words(&self) -> usize {
        item_words(usize::from(self.key_len), self.value_len as usize)
    }

    /// Returns whether it is over at `now`, seconds of the server's clock.
    #[must_use]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expiry != 0 && u64::from(self.expiry) <= now
    }
}

/// Returns how many words an item of that many bytes of key and value takes.
#[must_use]
pub fn item_words(key: usize, value: usize) -> usize {
    ITEM_WORDS + (key + value).div_ceil(WORD)
}

/// A slot's two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Some bits of the key's hash.
    pub tag: u16,
    /// The item's first word.
    pub place: u64,
}

impl Slot {
    const PLACE: u64 = (1 << 48) - 1;

    /// Returns the slot in a word, or nothing if the word is 0: an empty slot.
    #[must_use]
    #[inline]
    pub fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self { tag: (word >> 48) as u16, place: word & Self::PLACE })
    }

    /// Returns the word.
    #[must_use]
    #[inline]
    pub fn to_word(self) -> u64 {
        u64::from(self.tag) << 48 | (self.place & Self::PLACE)
    }
}

/// Where a key's item may be: one of two buckets, under one tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// First words of the two buckets, which may be the same.
    pub buckets: [usize; 2],
    /// The tag.
    pub tag: u16,
}

/// The parts of a cache's memory, checked once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of this start of the server.
    pub generation: u64,
    /// Words of the whole memory.
    pub words: usize,
    /// How many buckets, a power of two.
    pub buckets: usize,
    /// The log's first word.
    pub log: usize,
    /// Words of the longest item.
    pub max_item: usize,
    /// The hash's key, so that nobody who does not see it can choose keys that collide.
    pub hash_key: [u64; 2],
}

impl Geometry {
    /// Reads and checks what a server wrote into the header.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read(view: &View) -> Result<Self, &'static str> {
        let word = |at: usize| view.load(at, Ordering::Relaxed).unwrap_or(0);
        if word(header::MAGIC) != MAGIC {
            return Err("it is not the memory of a ginnel-cache");
        }
        if word(header::VERSION) != VERSION {
            return Err("it has the layout of another version of ginnel-cache");
        }
        let size = |at: usize| usize::try_from(word(at)).unwrap_or(usize::MAX);
        let read = Self {
            generation: word(header::GENERATION),
            words: size(header::WORDS),
            buckets: size(header::BUCKETS),
            log: size(header::LOG),
            max_item: size(header::MAX_ITEM),
            hash_key: [word(header::HASH_KEY), word(header::HASH_KEY + 1)],
        };
        let index =
            read.buckets.checked_mul(BUCKET_WORDS).and_then(|len| len.checked_add(HEADER_WORDS));
        let fits = read.words == view.len()
            && read.buckets.is_power_of_two()
            && index.is_some_and(|end| end <= read.log)
            && read.log <= read.words
            && (ITEM_WORDS..=read.words - read.log).contains(&read.max_item)
            && read.max_item <= item_words(MAX_KEY, MOST_ITEM);
        if fits { Ok(read) } else { Err("its header contradicts itself") }
    }

    /// Returns where `key` may be.
    #[must_use]
    #[inline]
    pub fn home(&self, key: &[u8]) -> Home {
        self.home_of(self.hash(key))
    }

    /// Returns the key's hash (SipHash-1-3).
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let [first, second] = self.hash_key;
        siphasher::sip::SipHasher13::new_with_keys(first, second).hash(key)
    }

    /// Returns where a key with that hash may be.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "some of a hash's bits are meant")]
    pub fn home_of(&self, hash: u64) -> Home {
        let bucket = |bits: u64| HEADER_WORDS + (bits as usize & (self.buckets - 1)) * BUCKET_WORDS;
        Home { buckets: [bucket(hash), bucket(hash >> 24)], tag: (hash >> 48) as u16 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn items_and_slots_come_back_as_they_went() {
        let item = Item {
            cas: u64::MAX - 1,
            expiry: 2,
            flags: u32::MAX,
            value_len: 77,
            key_len: 250,
            bits: 9,
            read: 3,
            accessed: 5,
            stored: u32::MAX,
        };
        assert_eq!(Item::from_words(item.to_words()), item);
        assert_eq!(item.total_words(), 4 + 41);
        let slot = Slot { tag: 0xfedc, place: 0x1234_5678_9abc };
        assert_eq!(Slot::from_word(slot.to_word()), Some(slot));
        assert_eq!(Slot::from_word(0), None);
    }

    /// Whatever one word of an honest header becomes, the rest still fits, or it is refused.
    #[test]
    fn a_header_that_contradicts_itself_is_refused() {
        let memory = Memory::private(4096).expect("memory");
        let honest = [
            (header::MAGIC, MAGIC),
            (header::VERSION, VERSION),
            (header::WORDS, 4096),
            (header::BUCKETS, 64),
            (header::LOG, 1024),
            (header::MAX_ITEM, 512),
        ];
        let write = |pairs: &[(usize, u64)]| {
            pairs
                .iter()
                .for_each(|&(at, value)| memory.words()[at].store(value, Ordering::Relaxed));
        };
        write(&honest);
        let view = memory.view();
        Geometry::read(&view).expect("an honest header");
        let bad = [
            (header::MAGIC, vec![0, MAGIC + 1]),
            (header::VERSION, vec![0, VERSION + 1]),
            (header::WORDS, vec![0, 4095, 4097, u64::MAX]),
            (header::BUCKETS, vec![0, 63, 128, 1 << 62, u64::MAX]),
            (header::LOG, vec![0, 575, 4096, 4097, u64::MAX]),
            (header::MAX_ITEM, vec![0, 3, 3073, u64::MAX]),
        ];
        for (at, values) in bad {
            for value in values {
                write(&honest);
                write(&[(at, value)]);
                assert!(Geometry::read(&view).is_err(), "word {at} was {value}");
            }
        }
    }
}
