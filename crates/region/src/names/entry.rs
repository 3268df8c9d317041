//! Who claims a name, what stands under one, and why it could not be had.

use super::word::{HASH_AT, LIVE, PARTY_BITS, named};

/// Bytes that a name has at most.
pub const NAME_LEN: usize = 96;

/// A process that uses named objects: the page by which it is known, and how often that changed
/// hands. 43 bits; 0 is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Party(u64);

impl Party {
    /// The party with this page (below 2^28), and this count of its changes of hands (below 2^15).
    #[must_use]
    pub fn new(page: u32, claims: u16) -> Self {
        Self((u64::from(claims) << 28 | u64::from(page)) & ((1 << PARTY_BITS) - 1))
    }

    /// The party that a word names in its lower 43 bits; `None` where these are 0.
    #[must_use]
    pub fn of(word: u64) -> Option<Self> {
        Some(word & ((1 << PARTY_BITS) - 1)).filter(|&bits| bits != 0).map(Self)
    }

    /// As a number of 43 bits.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Its page.
    #[must_use]
    pub fn page(self) -> u32 {
        (self.0 & ((1 << 28) - 1)) as u32
    }

    /// How often its page had changed hands.
    #[must_use]
    pub fn claims(self) -> u16 {
        (self.0 >> 28) as u16
    }
}

/// What stands in the table under a name, copied. A peer may have written any of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of the entry, below [`NAMES`](super::NAMES).
    pub index: u32,
    /// Counts the objects that this entry stood for.
    pub generation: u32,
    /// The name: at most [`NAME_LEN`] bytes.
    pub name: Vec<u8>,
    /// What kind of object: a number that its makers have agreed on.
    pub kind: u16,
    /// First page of the object.
    pub page: u32,
    /// Bytes that the object has for its users.
    pub size: u64,
    /// The party with which the name goes; `None`: it is kept until it is removed.
    pub owner: Option<Party>,
    /// Nobody finds it by name any more; whoever uses it still may.
    pub removed: bool,
    pub(super) word: u64,
}

impl Entry {
    /// What stands in the table for as long as it stands for an object that has its name.
    #[must_use]
    pub fn live_word(&self) -> u64 {
        named(LIVE, (self.word >> HASH_AT) as u32, self.generation)
    }
}

/// An entry that a party has claimed: to be published, or given back.
#[derive(Debug)]
#[must_use]
pub struct Claim {
    pub(super) index: u32,
    pub(super) generation: u32,
    pub(super) word: u64,
    pub(super) hash: u32,
}

impl Claim {
    /// Number of the entry, and the generation that it will have.
    #[must_use]
    pub fn parts(&self) -> (u32, u32) {
        (self.index, self.generation)
    }
}

/// Why a name could not be claimed or published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// An object has it.
    Taken(Box<Entry>),
    /// It is empty, or longer than [`NAME_LEN`] bytes.
    Length(usize),
    /// All entries are taken.
    Full,
    /// Another party, which lives, has been making an object of this name for seconds.
    Busy,
    /// This party was taken for dead: its claim was given to others.
    Lost,
}
