//! The rendezvous table of a segment: two endpoints of one connection find each other by its
//! 4-tuple.
//!
//! An entry is found within `WINDOW` places of its key's hash. Whoever comes first publishes;
//! whoever comes second claims the entry, makes the channel and offers it there. Entry words: 0
//! state, 1 key, 2–7 tuple as the publisher sees it, 8 nonce, 9 owner (member << 32 | slot), 10
//! generation of the slot, 11 channel page, 12 offer's nonce.

use crate::tuple::Tuple;
use ginnel_region::Segment;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const ENTRY_BYTES: u64 = 128;
/// How far from its hashed place an entry may lie.
const WINDOW: u64 = 16;

/// State of an entry.
pub mod state {
    /// Nobody's.
    pub const FREE: u64 = 0;
    /// Being written.
    pub const WRITING: u64 = 1;
    /// Waiting for the other end.
    pub const PUBLISHED: u64 = 2;
    /// The other end is making the channel.
    pub const CLAIMED: u64 = 3;
    /// The channel is there.
    pub const OFFERED: u64 = 4;
}

/// One entry of the table.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    segment: &'a Segment,
    index: u32,
}

impl<'a> Entry<'a> {
    /// The entry with this number.
    #[must_use]
    #[inline]
    pub fn at(segment: &'a Segment, index: u32) -> Self {
        Self { segment, index }
    }

    /// Its number.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }

    #[inline]
    fn word(self, i: u64) -> &'a AtomicU64 {
        self.segment.word(self.segment.rendezvous().0 + u64::from(self.index) * ENTRY_BYTES + i * 8)
    }

    /// Its state.
    #[must_use]
    #[inline]
    pub fn state(self) -> u64 {
        self.word(0).load(Ordering::Acquire)
    }

    /// Moves from one state to another, if it is still in the first.
    #[must_use]
    pub fn step(self, from: u64, to: u64) -> bool {
        self.word(0).compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// The publisher's nonce.
    #[must_use]
    pub fn nonce(self) -> u64 {
        self.word(8).load(Ordering::Relaxed)
    }

    /// The publisher: (member, slot, generation).
    #[must_use]
    pub fn owner(self) -> (u16, u32, u64) {
        let owner = self.word(9).load(Ordering::Relaxed);
        ((owner >> 32) as u16, owner as u32, self.word(10).load(Ordering::Relaxed))
    }

    /// The channel that was offered, and for which nonce.
    #[must_use]
    pub fn offer(self) -> (u32, u64) {
        (
            u32::try_from(self.word(11).load(Ordering::Relaxed)).unwrap_or(0),
            self.word(12).load(Ordering::Relaxed),
        )
    }

    /// Offers a channel to the publisher with `nonce`.
    pub fn set_offer(self, page: u32, nonce: u64) {
        self.word(11).store(u64::from(page), Ordering::Relaxed);
        self.word(12).store(nonce, Ordering::Relaxed);
        self.word(0).store(state::OFFERED, Ordering::Release);
    }

    /// Gives the entry back.
    pub fn free(self) {
        self.word(0).store(state::FREE, Ordering::Release);
    }

    /// The addresses as the publisher sees them, unchecked.
    #[must_use]
    pub fn tuple(self) -> Tuple {
        let words = [2, 3, 4, 5, 6, 7].map(|i| self.word(i).load(Ordering::Relaxed));
        Tuple::of_words(words)
    }

    fn says(self, tuple: &[u64; 6]) -> bool {
        tuple.iter().zip(2..).all(|(value, i)| self.word(i).load(Ordering::Relaxed) == *value)
    }
}

fn mirrored(tuple: &Tuple) -> Tuple {
    Tuple {
        label: tuple.label,
        local: tuple.remote,
        local_port: tuple.remote_port,
        remote: tuple.local,
        remote_port: tuple.local_port,
    }
}

/// The same number for both ends: each end's words are mixed by themselves and added.
fn key(segment: &Segment, tuple: &Tuple) -> u64 {
    let mix = |x: u64| {
        let x = (x ^ x >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
        (x ^ x >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D)
    };
    let end = |high: u64, low: u64, port: u64| mix(mix(mix(high ^ segment.id()) ^ low) ^ port);
    let [label, lh, ll, rh, rl, ports] = tuple.words();
    let sum = end(lh, ll, ports >> 16).wrapping_add(end(rh, rl, ports & 0xffff)) ^ mix(label);
    mix(sum) | 1
}

/// What the table says about a tuple.
pub enum Found<'a> {
    /// The other end waits here.
    Mate(Entry<'a>),
    /// Published by this call.
    Published(Entry<'a>),
    /// Another socket published the same tuple: (its entry).
    Same(Entry<'a>),
    /// No free place.
    Full,
}

fn window<'a>(segment: &'a Segment, key: u64) -> impl Iterator<Item = Entry<'a>> {
    let count = segment.rendezvous().1 / ENTRY_BYTES;
    (0..WINDOW).map(move |step| Entry {
        segment,
        index: u32::try_from((key >> 8).wrapping_add(step) % count).unwrap_or(0),
    })
}

/// The other end's entry, if it is published.
#[must_use]
pub fn find_mate<'a>(segment: &'a Segment, tuple: &Tuple) -> Option<Entry<'a>> {
    let (key, theirs) = (key(segment, tuple), mirrored(tuple).words());
    window(segment, key).find(|entry| {
        entry.state() == state::PUBLISHED
            && entry.word(1).load(Ordering::Relaxed) == key
            && entry.says(&theirs)
    })
}

/// Looks for the other end; publishes this one where it is not there yet.
#[must_use]
pub fn meet<'a>(
    segment: &'a Segment,
    tuple: &Tuple,
    nonce: u64,
    owner: (u16, u32, u64),
) -> Found<'a> {
    if let Some(mate) = find_mate(segment, tuple) {
        return Found::Mate(mate);
    }
    let (key, mine) = (key(segment, tuple), tuple.words());
    let taken = |entry: &Entry<'_>| {
        entry.state() != state::FREE
            && entry.word(1).load(Ordering::Relaxed) == key
            && entry.says(&mine)
    };
    if let Some(same) = window(segment, key).find(taken) {
        return Found::Same(same);
    }
    let Some(entry) = window(segment, key)
        .find(|entry| entry.state() == state::FREE && entry.step(state::FREE, state::WRITING))
    else {
        return Found::Full;
    };
    entry.word(1).store(key, Ordering::Relaxed);
    for (value, i) in mine.iter().zip(2..) {
        entry.word(i).store(*value, Ordering::Relaxed);
    }
    entry.word(8).store(nonce, Ordering::Relaxed);
    entry.word(9).store(u64::from(owner.0) << 32 | u64::from(owner.1), Ordering::Relaxed);
    entry.word(10).store(owner.2, Ordering::Relaxed);
    entry.word(11).store(0, Ordering::Relaxed);
    entry.word(0).store(state::PUBLISHED, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    // Both may have published at the same time. At least one of the two sees the other; the one in
    // the later place gives way. (The other may have looked before this one was to be seen: see
    // `gives_way`.)
    match find_mate(segment, tuple) {
        Some(mate) if mate.index < entry.index && entry.step(state::PUBLISHED, state::FREE) => {
            Found::Mate(mate)
        }
        _ => Found::Published(entry),
    }
}

/// Both ends may have published at the same time, and only the one in the earlier place have seen
/// the other: the one in the later place looks again now and then, and gives way. True: its entry
/// is free, and it is to meet the other anew.
#[must_use]
pub fn gives_way(segment: &Segment, tuple: &Tuple, entry: Entry<'_>) -> bool {
    find_mate(segment, tuple).is_some_and(|mate| mate.index < entry.index)
        && entry.step(state::PUBLISHED, state::FREE)
}

/// Every entry in use.
pub fn entries(segment: &Segment) -> impl Iterator<Item = Entry<'_>> {
    let count = u32::try_from(segment.rendezvous().1 / ENTRY_BYTES).unwrap_or(0);
    (0..count).map(|index| Entry { segment, index }).filter(|entry| entry.state() != state::FREE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_region::{Config, sys};

    fn tuple(local_port: u16, remote_port: u16) -> Tuple {
        Tuple { label: 0, local: [1; 16], local_port, remote: [2; 16], remote_port }
    }

    fn segment() -> Segment {
        let path = std::env::temp_dir().join(format!("ginnel-rendezvous-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() })
            .expect("create");
        // It stays mapped.
        std::fs::remove_file(path).expect("remove");
        segment
    }

    #[test]
    fn of_two_that_published_at_once_the_later_gives_way() {
        let segment = segment();
        let a = tuple(1, 2);
        let b = mirrored(&a);
        let first = window(&segment, key(&segment, &a)).next().expect("a place");
        assert!(
            first.step(state::FREE, state::WRITING),
            "somebody is in the first place for a moment"
        );
        let Found::Published(later) = meet(&segment, &a, 7, (0, 1, 1)) else {
            panic!("one end is published")
        };
        first.free();
        // The other end looks just before it is.
        assert!(later.step(state::PUBLISHED, state::WRITING));
        let Found::Published(earlier) = meet(&segment, &b, 8, (0, 2, 1)) else {
            panic!("so is the other")
        };
        assert!(later.step(state::WRITING, state::PUBLISHED) && earlier.index() < later.index());
        assert!(!gives_way(&segment, &b, earlier), "the earlier stays");
        assert!(gives_way(&segment, &a, later) && later.state() == state::FREE);
        assert!(
            matches!(meet(&segment, &a, 9, (0, 1, 1)), Found::Mate(mate) if mate.index() == earlier.index())
        );
    }

    #[test]
    fn two_ends_meet_and_a_third_is_told() {
        let segment = segment();
        let a = tuple(1, 2);
        let b = mirrored(&a);
        let Found::Published(entry) = meet(&segment, &a, 7, (0, 1, 1)) else {
            panic!("first end is published")
        };
        assert!(
            matches!(meet(&segment, &a, 8, (0, 2, 1)), Found::Same(same) if same.index() == entry.index())
        );
        assert!(
            matches!(meet(&segment, &tuple(1, 3), 8, (0, 2, 1)), Found::Published(_)),
            "another tuple"
        );
        let Found::Mate(mate) = meet(&segment, &b, 9, (0, 3, 1)) else {
            panic!("second end finds the first")
        };
        assert_eq!((mate.index(), mate.nonce(), mate.owner()), (entry.index(), 7, (0, 1, 1)));
        assert_eq!(mate.tuple(), a);
        entry.free();
        assert!(find_mate(&segment, &b).is_none());
    }
}
