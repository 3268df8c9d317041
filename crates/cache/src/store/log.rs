//! The log: fixed segments, filled one after the other, by how long their items live.
//!
//! Items of like remaining life lie in the same segments (Segcache: Yang, Yue, Vinayak, NSDI '21),
//! so a segment's items expire about together and are given back together. What the memory holds
//! is decided in [`evict`](super::evict); this file keeps the books of segments alone.

use std::collections::VecDeque;
use std::ops::Range;

/// How many classes of lifetime there are: never, and one for each power of two of seconds.
const CLASSES: usize = 33;
/// The class of items that outlived their segment because they were read.
const SURVIVORS: usize = CLASSES;
/// Free segments that only survivors may take: evicting needs room before it makes some.
const SPARE: usize = 2;

/// Where an item is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A new item, by what is left of its life.
    Fresh {
        /// Seconds, or nothing for ever.
        left: Option<u32>,
    },
    /// An item that is kept when its segment is evicted.
    Survivor,
}

impl Class {
    fn index(self) -> usize {
        match self {
            Self::Fresh { left: None } => 0,
            Self::Fresh { left: Some(left) } => 1 + left.max(1).ilog2() as usize,
            Self::Survivor => SURVIVORS,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    /// New items of its class are put there.
    Open,
    /// Full, and in the queue under this number.
    Sealed(u64),
    /// Its items are being taken out.
    Draining,
}

/// What is known of a segment.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    state: State,
    class: usize,
    /// Words in use from its beginning, live or not.
    pub used: usize,
    /// Words of items that the index knows.
    pub live: usize,
    /// Second from which on all its items are expired; nothing if one is for ever.
    until: Option<u32>,
}

/// The books of all segments.
#[derive(Debug)]
pub struct Log {
    first: usize,
    words: usize,
    segments: Vec<Segment>,
    free: Vec<usize>,
    /// Sealed segments in the order of sealing; an entry whose segment is no longer sealed under
    /// its number is void.
    queue: VecDeque<(usize, u64)>,
    sealed: u64,
    open: [Option<usize>; CLASSES + 1],
    /// Segments that were opened once: all up to this one.
    reached: usize,
}

impl Log {
    /// Returns the books of `count` free segments of `words` words, the first at word `first`.
    #[must_use]
    pub fn new(first: usize, words: usize, count: usize) -> Self {
        Self {
            first,
            words,
            segments: vec![Segment::default(); count],
            free: (0..count).rev().collect(),
            queue: VecDeque::new(),
            sealed: 0,
            open: [None; CLASSES + 1],
            reached: 0,
        }
    }

    /// Returns the words of all segments into which anything was ever put.
    #[must_use]
    pub fn reached(&self) -> Range<usize> {
        self.first..self.first + self.reached * self.words
    }

    /// Returns how many words a segment has.
    #[must_use]
    pub fn segment_words(&self) -> usize {
        self.words
    }

    /// Returns (all segments, free ones).
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.segments.len(), self.free.len())
    }

    /// Returns the segment's first word, and what is known of it.
    #[must_use]
    pub fn segment(&self, index: usize) -> (usize, &Segment) {
        (self.first + index * self.words, &self.segments[index])
    }

    /// Takes `words` words for an item that expires at `expiry` (0: never); nothing if segments
    /// have to be evicted first.
    pub fn take(&mut self, class: Class, words: usize, expiry: u32) -> Option<usize> {
        let slot = class.index();
        let full =
            self.open[slot].is_some_and(|open| self.segments[open].used + words > self.words);
        if full {
            self.seal(slot);
        }
        let open = match self.open[slot] {
            Some(open) => open,
            None => self.open_new(slot)?,
        };
        let segment = &mut self.segments[open];
        let place = self.first + open * self.words + segment.used;
        segment.until =
            if expiry == 0 { None } else { segment.until.map(|until| until.max(expiry)) };
        segment.used += words;
        segment.live += words;
        Some(place)
    }

    fn open_new(&mut self, slot: usize) -> Option<usize> {
        let spare = if slot == SURVIVORS { 0 } else { SPARE };
        if self.free.len() <= spare {
            return None;
        }
        let open = self.free.pop()?;
        self.reached = self.reached.max(open + 1);
        let until = Some(0);
        self.segments[open] = Segment { state: State::Open, class: slot, used: 0, live: 0, until };
        self.open[slot] = Some(open);
        Some(open)
    }

    fn seal(&mut self, slot: usize) {
        let Some(open) = self.open[slot].take() else { return };
        self.sealed += 1;
        self.segments[open].state = State::Sealed(self.sealed);
        if self.segments[open].live == 0 {
            self.give_back(open);
        } else {
            self.queue.push_back((open, self.sealed));
        }
    }

    /// The index no longer knows an item of `words` words at `place`.
    pub fn forget(&mut self, place: usize, words: usize) {
        let index = (place - self.first) / self.words;
        let segment = &mut self.segments[index];
        segment.live -= words;
        if segment.live == 0 && matches!(segment.state, State::Sealed(_)) {
            self.give_back(index);
        }
    }

    /// The item at `place` expires at `expiry` from now on.
    pub fn extend(&mut self, place: usize, expiry: u32) {
        let segment = &mut self.segments[(place - self.first) / self.words];
        segment.until =
            if expiry == 0 { None } else { segment.until.map(|until| until.max(expiry)) };
    }

    /// Returns the order in which the segment at `place` will be evicted, lower sooner.
    #[must_use]
    pub fn age(&self, place: usize) -> u64 {
        match self.segments[(place - self.first) / self.words].state {
            State::Sealed(number) => number,
            _ => u64::MAX,
        }
    }

    /// Takes the segment that is to be evicted next out of the order, and says whether it was
    /// sealed; where none is, the fullest open one.
    pub fn victim(&mut self) -> Option<(usize, bool)> {
        while let Some((index, number)) = self.queue.pop_front() {
            if self.segments[index].state == State::Sealed(number) {
                self.segments[index].state = State::Draining;
                return Some((index, true));
            }
        }
        let open = self.open.iter().flatten().copied();
        let fullest = open.max_by_key(|&index| self.segments[index].used)?;
        self.drain(fullest);
        Some((fullest, false))
    }

    /// Takes the sealed segment with the fewest live words out of the order, if these are at most
    /// half of it: two such make one, so giving it back makes room.
    pub fn sparse(&mut self) -> Option<usize> {
        let half = self.words / 2;
        let is_sparse =
            |segment: &Segment| matches!(segment.state, State::Sealed(_)) && segment.live <= half;
        let sparse = self.segments.iter().enumerate().filter(|(_, segment)| is_sparse(segment));
        let (index, _) = sparse.min_by_key(|(_, segment)| segment.live)?;
        self.drain(index);
        Some(index)
    }

    /// Takes a segment whose items are all expired at `now` out of the order.
    pub fn expired(&mut self, now: u32) -> Option<usize> {
        let is_over = |segment: &Segment| {
            matches!(segment.state, State::Open | State::Sealed(_))
                && segment.live > 0
                && segment.until.is_some_and(|until| until <= now)
        };
        let index = self.segments.iter().position(is_over)?;
        self.drain(index);
        Some(index)
    }

    fn drain(&mut self, index: usize) {
        let segment = &mut self.segments[index];
        if segment.state == State::Open {
            self.open[segment.class] = None;
        }
        segment.state = State::Draining;
    }

    /// Gives back every segment that is being filled and has no live item.
    pub fn close_empty(&mut self) {
        for slot in 0..self.open.len() {
            let open = self.open[slot].filter(|&open| self.segments[open].live == 0);
            if let Some(open) = open {
                self.open[slot] = None;
                self.give_back(open);
            }
        }
    }

    /// The segment has no live item left, and may be filled anew.
    pub fn give_back(&mut self, index: usize) {
        self.segments[index] = Segment::default();
        self.free.push(index);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const EVER: Class = Class::Fresh { left: None };

    #[test]
    fn segments_are_evicted_in_the_order_of_sealing() {
        let mut log = Log::new(100, 10, 6);
        let places: Vec<usize> = (0..8).map_while(|_| log.take(EVER, 5, 0)).collect();
        assert_eq!(places, [100, 105, 110, 115, 120, 125, 130, 135], "two of six are spare");
        assert_eq!(log.take(EVER, 5, 0), None);
        assert_eq!(log.victim(), Some((0, true)));
        log.give_back(0);
        assert_eq!(log.take(EVER, 5, 0), Some(100));
        assert!(log.age(110) < log.age(120), "the second is next");
    }

    #[test]
    fn a_segment_without_live_items_is_free_at_once() {
        let mut log = Log::new(0, 10, 5);
        let places = [log.take(EVER, 5, 0), log.take(EVER, 5, 0), log.take(EVER, 5, 0)];
        assert_eq!(log.counts(), (5, 3));
        log.forget(places[0].expect("room"), 5);
        log.forget(places[1].expect("room"), 5);
        assert_eq!(log.counts(), (5, 4));
        assert_eq!(log.victim(), Some((1, false)), "the void entry of the queue is passed over");
    }

    #[test]
    fn like_lifetimes_lie_together_and_expire_together() {
        let mut log = Log::new(0, 10, 7);
        let left = |left| Class::Fresh { left: Some(left) };
        let minute = log.take(left(60), 2, 160).expect("room");
        assert_eq!(log.take(left(40), 2, 140), Some(minute + 2), "32 to 63 seconds");
        assert_eq!(log.take(left(64), 2, 164), Some(10));
        assert_eq!(log.expired(159), None);
        assert_eq!(log.expired(160), Some(0));
        log.extend(10, 0);
        assert_eq!(log.expired(u32::MAX), None, "one of its items is for ever");
    }
}
