//! The seal on an active message: whoever has not the job's key cannot make one.
//!
//! The library above trusts what its messages begin with: numbers, and addresses in the receiver's
//! own memory. So a message that another party of the segment forges or alters could end a rank. A
//! seal covers where the message stands, what it is, and all of its bytes: UCX's own active
//! messages (`ucp_am_send_nbx`) have numbers that it acts on at their end, and MPICH has its own in
//! between.
//!
//! SipHash is the faster one for what is short, HighwayHash for what is long: of a long message the
//! first [`SHORT`] bytes go into SipHash, and so does HighwayHash's hash of the others. HighwayHash
//! computes with vectors, of which each instruction is a call in an emulated machine. There SipHash
//! takes all, and a message says so: see [`Hash`].

use crate::layout::EndpointId;
use ginnel_region::sys;
use highway::{HighwayHash, HighwayHasher};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// A job's key.
pub type Key = [u8; 16];

/// What is longer than this is long.
const SHORT: usize = 256;

ginnel_region::numbered! {
    /// By what a seal covers a message. Its sender chooses.
    enum Hash: u64 {
        /// SipHash, and HighwayHash for what is long.
        Both = 0,
        /// SipHash alone.
        Alone = 1,
    }
}

/// Makes and checks the seals of one pair.
#[derive(Clone)]
pub struct Seal(Option<Keyed>);

#[derive(Clone)]
struct Keyed {
    /// For [`Hash::Both`] and [`Hash::Alone`]: a seal of the one is none of the other.
    begun: [SipHasher13; 2],
    rest: highway::Key,
}

impl Seal {
    /// For messages from one endpoint to another. Without a key every message has the seal 0.
    pub fn new(key: Option<&Key>, writer: EndpointId, reader: EndpointId) -> Self {
        Self(key.map(|key| {
            let mut hasher = SipHasher13::new_with_key(key);
            hasher.write_u64(writer.0);
            hasher.write_u64(reader.0);
            // Keys that follow from the job's, and tell nothing of it.
            let word = |at: u64| {
                SipHasher13::new_with_key(key).hash(&[*b"for long", at.to_le_bytes()].concat())
            };
            let mut alone = hasher;
            alone.write_u64(Hash::Alone as u64);
            let rest = highway::Key([word(0), word(1), word(2), word(3)]);
            Keyed { begun: [hasher, alone], rest }
        }))
    }

    /// Does it cover anything?
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The words of a message at this position, whose first word is `head`: its seal, and by what
    /// it covers the message.
    #[inline]
    pub fn words(&self, position: u64, head: u64, bytes: &[u8]) -> [u64; 3] {
        let hash = if sys::is_emulated() { Hash::Alone } else { Hash::Both };
        [self.of(hash, position, head, bytes), hash as u64, 0]
    }

    /// Are these the words of such a message?
    #[inline]
    pub fn is_right(&self, words: [u64; 3], position: u64, head: u64, bytes: &[u8]) -> bool {
        let is_it = |hash| self.of(hash, position, head, bytes) == words[0];
        !self.is_set() || Hash::numbered(words[1]).is_some_and(is_it)
    }

    #[inline]
    fn of(&self, hash: Hash, position: u64, head: u64, bytes: &[u8]) -> u64 {
        let Some(keyed) = &self.0 else { return 0 };
        let mut hasher = keyed.begun[hash as usize];
        hasher.write_u64(position);
        hasher.write_u64(head);
        match bytes.split_at_checked(SHORT) {
            Some((first, rest)) if !rest.is_empty() && hash == Hash::Both => {
                hasher.write(first);
                hasher.write_u64(HighwayHasher::new(keyed.rest).hash64(rest));
            }
            _ => hasher.write(bytes),
        }
        hasher.finish()
    }
}

/// A job's number, which everybody may know; 0 without a key.
#[must_use]
pub fn job_of(key: Option<&Key>) -> u64 {
    key.map_or(0, |key| SipHasher13::new_with_key(key).hash(b"job").max(1))
}

/// A key as 32 hexadecimal digits say it.
#[must_use]
pub fn parse_key(text: &str) -> Option<Key> {
    let mut key = Key::default();
    if text.len() != 2 * key.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_place_one_pair_and_these_bytes() {
        let key = parse_key("000102030405060708090a0b0c0d0eff").expect("a key");
        assert_eq!((key[1], key[15]), (1, 255));
        let (a, b) = (EndpointId(1), EndpointId(2));
        let seal = |key: &Key, from, to, position, head, bytes: &[u8]| {
            Seal::new(Some(key), from, to).of(Hash::Both, position, head, bytes)
        };
        let true_one = seal(&key, a, b, 64, 7, b"bytes");
        assert_eq!(true_one, seal(&key, a, b, 64, 7, b"bytes"));
        let others = [
            seal(&[0; 16], a, b, 64, 7, b"bytes"),
            seal(&key, b, a, 64, 7, b"bytes"),
            seal(&key, a, b, 128, 7, b"bytes"),
            seal(&key, a, b, 64, 8, b"bytes"),
            seal(&key, a, b, 64, 7, b"bytez"),
            0,
        ];
        assert!(!others.contains(&true_one));
        let long = |len: usize, other: usize| {
            (0..len).map(|at| u8::from(at == other)).collect::<Vec<u8>>()
        };
        let of = |bytes: &[u8]| seal(&key, a, b, 0, 0, bytes);
        let seals: std::collections::HashSet<u64> = (0..600).map(|at| of(&long(600, at))).collect();
        assert_eq!(seals.len(), 600, "every byte of a long message is covered");
        assert!(
            of(&long(256, 999)) != of(&long(257, 999))
                && of(&long(600, 0)) != seal(&[0; 16], a, b, 0, 0, &long(600, 0))
        );
        assert_eq!(Seal::new(None, a, b).of(Hash::Both, 64, 7, b"bytes"), 0);
        assert!(parse_key("12").is_none() && parse_key(&"x".repeat(32)).is_none());
    }

    #[test]
    fn a_seal_by_siphash_alone_covers_as_much_and_is_no_other() {
        let seal = Seal::new(Some(&[7; 16]), EndpointId(1), EndpointId(2));
        let bytes = |other: usize| (0..600).map(|at| u8::from(at == other)).collect::<Vec<u8>>();
        let of = |hash, other| seal.of(hash, 64, 5, &bytes(other));
        let alone: std::collections::HashSet<u64> =
            (0..600).map(|at| of(Hash::Alone, at)).collect();
        assert_eq!(alone.len(), 600, "every byte is covered");
        let right = |words: [u64; 3]| seal.is_right(words, 64, 5, &bytes(9));
        for (hash, other) in [(Hash::Both, Hash::Alone), (Hash::Alone, Hash::Both)] {
            assert!(right([of(hash, 9), hash as u64, 0]));
            assert!(!right([of(hash, 9), other as u64, 0]) && !right([of(hash, 9), 2, 0]));
            assert!(!right([of(hash, 8), hash as u64, 0]));
            let short = |hash| seal.of(hash, 64, 5, b"short");
            assert_ne!(short(hash), short(other));
        }
        assert!(right(seal.words(64, 5, &bytes(9))));
    }
}
