//! The word of an entry in the table of names: whose turn it is, and what for. The table at the
//! head of [`super`] has its bits.

use super::Party;

pub(super) const STATE_AT: u32 = 61;
pub(super) const FREE: u64 = 0;
pub(super) const CLAIMED: u64 = 1;
pub(super) const LIVE: u64 = 2;
pub(super) const REMOVED: u64 = 3;
pub(super) const GENERATIONS: u64 = (1 << 29) - 1;
pub(super) const HASH_AT: u32 = 29;
pub(super) const PARTY_BITS: u32 = 43;
pub(super) const CLAIM_HASH: u32 = (1 << 18) - 1;

/// FNV-1a: nobody gains by two names with one hash, which cost a comparison.
pub(super) fn hash_of(name: &[u8]) -> u32 {
    name.iter()
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

pub(super) fn state(word: u64) -> u64 {
    word >> STATE_AT
}

/// Does a word of the table stand for an object that is found by its name, or used still?
pub(crate) fn is_object(word: u64) -> bool {
    matches!(state(word), LIVE | REMOVED)
}

pub(super) fn named(state: u64, hash: u32, generation: u32) -> u64 {
    state << STATE_AT | u64::from(hash) << HASH_AT | u64::from(generation)
}

pub(super) fn claimed(hash: u32, party: Party) -> u64 {
    CLAIMED << STATE_AT | u64::from(hash & CLAIM_HASH) << PARTY_BITS | party.bits()
}

pub(super) fn generation(word: u64) -> u32 {
    (word & GENERATIONS) as u32
}
