//! The names table: which object of a segment has which name.
//!
//! An entry is one atomic word and, apart from it, what the word stands for. Everything is decided
//! by compare-and-swap on the word, and each value of it says whose turn it is:
//!
//! | state | bits 61–63 | the rest of the word | who goes on |
//! |---|---|---|---|
//! | free | 0 | generation | anybody |
//! | claimed | 1 | 18 bits of the name's hash (43–60), the party that claimed it (0–42) | that party; where it died, anybody frees the entry |
//! | live | 2 | 32 bits of the hash (29–60), generation (0–28) | whoever removes the name |
//! | removed | 3 | the same | whoever finds that nobody uses the object any more |
//!
//! Two parties that claim one name at once see each other: each claims an entry, fences, then looks
//! through the table (Dekker). Whoever sees a claim of the same hash in a lower entry withdraws and
//! begins anew; whoever sees one in a higher entry waits until that is withdrawn, published, or its
//! party dead. Waiting goes from lower to higher entries only, so nobody waits in a circle.
//! `tests/names_model.rs` walks every run of it, with a death at each step.
//!
//! Names, owners and places are what a peer wrote. They are copied, and the copy is returned as it
//! is: whoever follows a place checks it ([`Segment::head`]).

mod entry;
mod word;

pub use crate::layout::NAMES;
pub use entry::{Claim, Entry, NAME_LEN, NameError, Party};
pub(crate) use word::is_object;

use crate::layout::DETAILS;
use crate::{Segment, sys};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use word::{
    CLAIM_HASH, CLAIMED, FREE, GENERATIONS, HASH_AT, LIVE, PARTY_BITS, REMOVED, claimed,
    generation, hash_of, named, state,
};

/// How long to wait for another party that is making an object of this name, nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

const GENERATION: u64 = 0;
const OWNER: u64 = 8;
const PLACE: u64 = 16;
const SIZE: u64 = 24;
const NAME: u64 = 32;

/// The names of a segment.
#[derive(Clone, Copy)]
pub struct Names<'a>(&'a Segment);

impl Segment {
    /// The names of the segment's objects.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        Names(self)
    }
}

/// Where an entry's size stands, from the beginning of the table.
pub(crate) fn size_at(index: u32) -> u64 {
    u64::from(NAMES) * 8 + u64::from(index % NAMES) * DETAILS + SIZE
}

impl<'a> Names<'a> {
    fn word(self, index: u32) -> &'a AtomicU64 {
        self.0.word(self.0.names_at() + u64::from(index % NAMES) * 8)
    }

    fn detail(self, index: u32, at: u64) -> &'a AtomicU64 {
        self.0.word(
            self.0.names_at() + u64::from(NAMES) * 8 + u64::from(index % NAMES) * DETAILS + at,
        )
    }

    fn name(self, index: u32) -> Vec<u8> {
        let words = (0..NAME_LEN as u64 / 8)
            .map(|i| self.detail(index, NAME + i * 8).load(Relaxed).to_le_bytes());
        let mut name: Vec<u8> = words.flatten().collect();
        let len = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        name.truncate(len);
        name
    }

    fn put_name(self, index: u32, name: &[u8]) {
        for i in 0..NAME_LEN / 8 {
            let mut bytes = [0; 8];
            let part = name.get(i * 8..).unwrap_or_default();
            let n = part.len().min(8);
            bytes[..n].copy_from_slice(&part[..n]);
            self.detail(index, NAME + i as u64 * 8).store(u64::from_le_bytes(bytes), Relaxed);
        }
    }

    /// What an entry says, if it says the same before and after it was read (a seqlock).
    fn entry(self, index: u32) -> Option<Entry> {
        // Acquire pairs with the Release exchange of `publish`.
        let word = self.word(index).load(Acquire);
        if state(word) != LIVE && state(word) != REMOVED {
            return None;
        }
        let value = |at| self.detail(index, at).load(Relaxed);
        let (owner, place, size, name) =
            (value(OWNER), value(PLACE), value(SIZE), self.name(index));
        fence(Acquire);
        let same = self.word(index).load(Relaxed) == word;
        same.then(|| Entry {
            index,
            generation: generation(word),
            name,
            kind: (place >> 32) as u16,
            page: place as u32,
            size,
            owner: Party::of(owner),
            removed: state(word) == REMOVED,
            word,
        })
    }

    /// Every entry that stands for an object, removed ones too.
    pub fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        (0..NAMES).filter_map(move |index| self.entry(index))
    }

    /// Those without a name that somebody may still use.
    pub fn removed(self) -> impl Iterator<Item = Entry> + 'a {
        // Most entries are free or live, which the word alone tells.
        let removed =
            (0..NAMES).filter(move |&index| state(self.word(index).load(Relaxed)) == REMOVED);
        removed.filter_map(move |index| self.entry(index)).filter(|entry| entry.removed)
    }

    /// What an entry stands for, by its number; `None` where it stands for nothing at the moment.
    #[must_use]
    pub fn at(self, index: u32) -> Option<Entry> {
        (index < NAMES).then(|| self.entry(index)).flatten()
    }

    /// The object of this name.
    #[must_use]
    pub fn find(self, name: &[u8]) -> Option<Entry> {
        let is_hash = |word: u64| word & !GENERATIONS == named(LIVE, hash_of(name), 0);
        let likely = (0..NAMES).filter(|&index| is_hash(self.word(index).load(Relaxed)));
        likely
            .filter_map(|index| self.entry(index))
            .find(|entry| !entry.removed && entry.name == name)
    }

    /// Claims a name for an object that `party` is about to make. `lives`: does a party live?
    ///
    /// # Errors
    /// [`NameError`]; nothing is left claimed then.
    pub fn claim(
        self,
        name: &[u8],
        party: Party,
        lives: impl Fn(Party) -> bool,
    ) -> Result<Claim, NameError> {
        if name.is_empty() || name.len() > NAME_LEN || name.contains(&0) {
            return Err(NameError::Length(name.len()));
        }
        let until = sys::monotonic_ns() + PATIENCE;
        loop {
            if let Some(entry) = self.find(name) {
                return Err(NameError::Taken(Box::new(entry)));
            }
            let claim = self.take_entry(name, party, &lives)?;
            match self.resolve(&claim, name, &lives, until) {
                Rival::Nobody => return Ok(claim),
                rival => self.give_back(claim, rival)?,
            }
            if sys::monotonic_ns() > until {
                return Err(NameError::Busy);
            }
            sys::yield_now();
        }
    }

    fn give_back(self, claim: Claim, rival: Rival) -> Result<(), NameError> {
        self.withdraw(claim);
        match rival {
            Rival::Lives(entry) => Err(NameError::Taken(entry)),
            Rival::Stuck => Err(NameError::Busy),
            Rival::Claims | Rival::Nobody => Ok(()),
        }
    }

    /// Claims a free entry, or that of a party that died in between.
    fn take_entry(
        self,
        name: &[u8],
        party: Party,
        lives: &impl Fn(Party) -> bool,
    ) -> Result<Claim, NameError> {
        let hash = hash_of(name);
        for again in [false, true] {
            for index in 0..NAMES {
                let old = self.word(index).load(Relaxed);
                if again {
                    self.free_if_dead(index, old, lives);
                }
                let old = if again { self.word(index).load(Relaxed) } else { old };
                let word = claimed(hash, party);
                if state(old) != FREE
                    || self.word(index).compare_exchange(old, word, SeqCst, Relaxed).is_err()
                {
                    continue;
                }
                // A reader that sees any of what is written now sees that the word has changed.
                fence(Release);
                let generation = generation(old).wrapping_add(1) & GENERATIONS as u32;
                self.detail(index, GENERATION).store(generation.into(), Relaxed);
                self.put_name(index, name);
                // The claim first, then the look at others' claims: see the head of this file.
                fence(SeqCst);
                return Ok(Claim { index, generation, word, hash });
            }
        }
        Err(NameError::Full)
    }

    /// Looks for others that have or claim the name, and waits for those that are to withdraw.
    fn resolve(
        self,
        claim: &Claim,
        name: &[u8],
        lives: &impl Fn(Party) -> bool,
        until: u64,
    ) -> Rival {
        for index in (0..NAMES).filter(|&index| index != claim.index) {
            loop {
                let word = self.word(index).load(SeqCst);
                let is_claim = state(word) == CLAIMED
                    && (word >> PARTY_BITS) as u32 & CLAIM_HASH == claim.hash & CLAIM_HASH;
                if word & !GENERATIONS == named(LIVE, claim.hash, 0)
                    && let Some(entry) =
                        self.entry(index).filter(|entry| !entry.removed && entry.name == name)
                {
                    return Rival::Lives(Box::new(entry));
                }
                if !is_claim || self.free_if_dead(index, word, lives) {
                    break;
                }
                if index < claim.index {
                    return Rival::Claims;
                }
                if sys::monotonic_ns() > until {
                    return Rival::Stuck;
                }
                sys::yield_now();
            }
        }
        Rival::Nobody
    }

    /// Frees an entry that a dead party had claimed. True if it is free of that claim now.
    fn free_if_dead(self, index: u32, word: u64, lives: &impl Fn(Party) -> bool) -> bool {
        if state(word) != CLAIMED || Party::of(word).is_some_and(lives) {
            return false;
        }
        let next = self.detail(index, GENERATION).load(Relaxed) & GENERATIONS;
        let _ = self.word(index).compare_exchange(word, next, AcqRel, Relaxed);
        true
    }

    /// Gives a claimed entry back.
    pub fn withdraw(self, claim: Claim) {
        let _ = self.word(claim.index).compare_exchange(
            claim.word,
            claim.generation.into(),
            AcqRel,
            Relaxed,
        );
    }

    /// The object is made: whoever looks for the name finds it from here on. `owner`: the party
    /// with which the name goes; `None`: it is kept until it is removed.
    ///
    /// # Errors
    /// [`NameError::Lost`]: the party was taken for dead, and must not use what it made.
    pub fn publish(
        self,
        claim: Claim,
        kind: u16,
        page: u32,
        size: u64,
        owner: Option<Party>,
    ) -> Result<Entry, NameError> {
        let put = |at, value| self.detail(claim.index, at).store(value, Relaxed);
        put(OWNER, owner.map_or(0, Party::bits));
        put(PLACE, u64::from(kind) << 32 | u64::from(page));
        put(SIZE, size);
        let word = named(LIVE, claim.hash, claim.generation);
        self.word(claim.index)
            .compare_exchange(claim.word, word, AcqRel, Relaxed)
            .map_err(|_| NameError::Lost)?;
        let name = self.name(claim.index);
        let (index, generation) = claim.parts();
        Ok(Entry { index, generation, name, kind, page, size, owner, removed: false, word })
    }

    /// Takes the name from an object: nobody finds it from here on. False where somebody else did.
    pub fn remove(self, entry: &Entry) -> bool {
        let word = named(REMOVED, (entry.word >> HASH_AT) as u32, entry.generation);
        state(entry.word) == LIVE
            && self.word(entry.index).compare_exchange(entry.word, word, SeqCst, Relaxed).is_ok()
    }

    /// Frees the entry of a removed object, of which nothing is left.
    pub fn free(self, entry: &Entry) -> bool {
        let word = named(REMOVED, (entry.word >> HASH_AT) as u32, entry.generation);
        self.word(entry.index)
            .compare_exchange(word, entry.generation.into(), AcqRel, Relaxed)
            .is_ok()
    }

    /// Is an entry still what it was: live, and for the same object?
    #[must_use]
    pub fn is_live(self, entry: &Entry) -> bool {
        self.holds(entry.index, entry.live_word())
    }

    /// Does an entry hold this word, an [`Entry::live_word`]?
    #[must_use]
    #[inline]
    pub fn holds(self, index: u32, word: u64) -> bool {
        self.word(index).load(SeqCst) == word
    }

    /// Does this entry stand for an object of this generation, or has a party that `lives` claimed
    /// it for one?
    #[must_use]
    pub fn stands_for(
        self,
        index: u32,
        generation_of_object: u32,
        lives: impl Fn(Party) -> bool,
    ) -> bool {
        let word = self.word(index).load(SeqCst);
        match state(word) {
            LIVE | REMOVED => generation(word) == generation_of_object,
            CLAIMED => {
                let claimed_for = self.detail(index, GENERATION).load(Relaxed);
                claimed_for == generation_of_object.into() && Party::of(word).is_some_and(lives)
            }
            _ => false,
        }
    }

    /// Frees what dead parties had claimed, and takes away the names that went with them.
    pub fn bury(self, lives: impl Fn(Party) -> bool) {
        for index in 0..NAMES {
            let word = self.word(index).load(Acquire);
            if state(word) == CLAIMED {
                self.free_if_dead(index, word, &lives);
            } else if state(word) == LIVE
                && let Some(entry) = self.entry(index)
                && entry.owner.is_some_and(|owner| !lives(owner))
            {
                self.remove(&entry);
            }
        }
    }
}

/// Who else wants a name.
enum Rival {
    Nobody,
    /// An object has it.
    Lives(Box<Entry>),
    /// A party in a lower entry claims it: that one goes first.
    Claims,
    /// A party in a higher entry does not go on, and lives.
    Stuck,
}

#[cfg(test)]
mod tests;
