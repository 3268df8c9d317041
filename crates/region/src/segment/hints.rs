//! What all in a segment note for each other: hints, on which nothing relies, as a peer may have
//! written anything there.

use super::Segment;
use crate::layout::{BEGUN, BY_TCP, CARRIED, HINT, LATELY, LATELY_ENTRIES, REACHED};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

impl Segment {
    /// Notes how many bytes a connection carried that has ended: a hint for those who look on, kept
    /// at the end so that no byte waits for it.
    pub fn add_carried(&self, bytes: u64) {
        self.word(CARRIED).fetch_add(bytes, Relaxed);
    }

    /// A process of the segment is about to say something to another over TCP: `entry` says to
    /// whom, and when.
    #[inline]
    pub fn begin_tcp(&self, entry: u64) {
        let place = self.word(BEGUN).fetch_add(1, AcqRel);
        self.word(LATELY + place % LATELY_ENTRIES * 8).store(entry, Release);
    }

    /// How often that was so. A hint.
    #[must_use]
    #[inline]
    pub fn begun_by_tcp(&self) -> u64 {
        self.word(BEGUN).load(Acquire)
    }

    /// What was noted as number `place`, if it is among the last; else anything.
    #[must_use]
    #[inline]
    pub fn lately_by_tcp(&self, place: u64) -> u64 {
        self.word(LATELY + place % LATELY_ENTRIES * 8).load(Acquire)
    }

    /// A process of the segment has said something to another over TCP, in a call that has ended:
    /// who looks at rings, and finds that it did ([`Self::by_tcp`]), asks the kernel too.
    #[inline]
    pub fn note_tcp(&self) {
        self.word(BY_TCP).fetch_add(1, AcqRel);
    }

    /// How often that was so. A hint, which a peer may have written.
    #[must_use]
    #[inline]
    pub fn by_tcp(&self) -> u64 {
        self.word(BY_TCP).load(Acquire)
    }

    /// Pages up to `end` (exclusive) have been claimed.
    pub(crate) fn note_reached(&self, end: u32) {
        let reached = self.word(REACHED);
        if reached.load(Relaxed) < u64::from(end) {
            reached.fetch_max(end.into(), Relaxed);
        }
    }

    /// The page after the highest that was ever claimed, as the peers say.
    pub(crate) fn reached(&self) -> u32 {
        u32::try_from(self.word(REACHED).load(Relaxed)).unwrap_or(u32::MAX)
    }

    /// Where to look for free pages, as the peers say: the lowest that was freed since, or what
    /// comes after the last that was claimed.
    pub(crate) fn hint(&self) -> u64 {
        self.word(HINT).load(Relaxed)
    }

    /// Pages were claimed, up to `end` (exclusive), after a look from `hint` on. Lower ones that
    /// were freed meanwhile come first.
    pub(crate) fn claimed_from(&self, hint: u64, end: u32) {
        let _ = self.word(HINT).compare_exchange(hint, end.into(), Relaxed, Relaxed);
    }

    /// Pages from `page` on were freed.
    pub(crate) fn freed_from(&self, page: u32) {
        self.word(HINT).fetch_min(page.into(), Relaxed);
    }
}
