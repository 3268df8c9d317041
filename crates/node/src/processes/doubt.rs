//! Pages that were seen half made or half freed: whoever is at it may have died. They are
//! remembered here, in trusted memory and by one clock, for processes that look once and end.

use super::{Lock, Processes};
use ginnel_region::{Head, sys};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// So long it must have been seen so, milliseconds …
const LONG: u64 = 5000;
/// … at so many looks …
const LOOKS: u64 = 3;
/// … that lie so far apart, milliseconds: what changes all the time is found the same again by
/// chance once, not each time.
const APART: u64 = 1000;
/// An entry may give way to another that nobody asked about for so long, milliseconds: it was made,
/// or freed.
const FORGOTTEN: u64 = 60_000;
/// So many pages of one segment are remembered: one that is full of nonsense leaves room for
/// others.
const OF_SEGMENT: usize = 16;

#[repr(C)]
pub(super) struct Doubts {
    lock: Lock,
    known: [Doubt; 64],
}

#[repr(C)]
struct Doubt {
    segment: AtomicU64,
    page: AtomicU64,
    word: AtomicU64,
    /// First seen so, and last, monotonic milliseconds; 0: a free entry.
    since: AtomicU64,
    asked: AtomicU64,
    /// When looks were counted last, and how many.
    counted: AtomicU64,
    looks: AtomicU64,
}

impl Doubt {
    /// Free? A time that is still to come is of another boot's clock.
    fn is_void(&self, now: u64) -> bool {
        let asked = self.asked.load(Relaxed);
        asked == 0 || asked > now
    }

    fn is_of(&self, segment: u64, now: u64) -> bool {
        !self.is_void(now) && self.segment.load(Relaxed) == segment
    }

    fn begin(&self, segment: u64, (page, word): (u32, u64), now: u64) {
        self.segment.store(segment, Relaxed);
        self.page.store(page.into(), Relaxed);
        self.word.store(word, Relaxed);
        for time in [&self.since, &self.asked, &self.counted] {
            time.store(now.max(1), Relaxed);
        }
        self.looks.store(1, Relaxed);
    }

    /// Another look at the same.
    fn look(&self, now: u64) -> bool {
        self.asked.store(now, Relaxed);
        if now.saturating_sub(self.counted.load(Relaxed)) >= APART {
            self.counted.store(now, Relaxed);
            self.looks.fetch_add(1, Relaxed);
        }
        self.looks.load(Relaxed) >= LOOKS && now.saturating_sub(self.since.load(Relaxed)) >= LONG
    }
}

impl Processes {
    /// Has a page been as it is for a while? Asked at each look at one that somebody is making or
    /// freeing. Where there are more than can be remembered the others have to wait.
    #[must_use]
    pub fn is_long_so(&self, me: u32, segment: u64, head: Head) -> bool {
        self.is_long_so_at(me, segment, head, sys::monotonic_ns() / 1_000_000)
    }

    fn is_long_so_at(&self, me: u32, segment: u64, head: Head, now: u64) -> bool {
        let doubts = &self.header().doubts;
        // Whoever is stopped in here stops nobody.
        let _held = match doubts.lock.try_lock(me) {
            Some(held) => held,
            None if doubts.lock.is_orphan(self) || doubts.lock.was_left_here(me) => {
                doubts.lock.lock(self, me)
            }
            None => return false,
        };
        let (page, word) = head.parts();
        let of_segment = || doubts.known.iter().filter(|doubt| doubt.is_of(segment, now));
        let same = |doubt: &&Doubt| {
            doubt.page.load(Relaxed) == u64::from(page) && doubt.word.load(Relaxed) == word
        };
        if let Some(known) = of_segment().find(same) {
            return known.look(now);
        }
        let asked = |doubt: &&Doubt| doubt.asked.load(Relaxed);
        let forgotten = |doubt: &&Doubt| now - doubt.asked.load(Relaxed) > FORGOTTEN;
        let place = if of_segment().count() < OF_SEGMENT {
            let oldest = || doubts.known.iter().min_by_key(asked).filter(forgotten);
            doubts.known.iter().find(|doubt| doubt.is_void(now)).or_else(oldest)
        } else {
            of_segment().min_by_key(asked).filter(forgotten)
        };
        if let Some(place) = place {
            place.begin(segment, (page, word), now);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_region::{Config, Owner, Segment, Use};

    #[test]
    fn only_what_stays_as_it_was_is_in_doubt_for_long() {
        let place = tempfile::tempdir().expect("a directory");
        let memory = place.path().join("segment");
        let processes = Processes::open_or_create(place.path()).expect("a table");
        let segment = Segment::create(&memory, &Config { size: 16 << 20, ..Config::default() })
            .expect("a segment");
        let claim = || segment.claim_head(Owner::new(0, Use::Channel)).expect("room");
        let page = claim().page();
        let head = || segment.head(page).expect("a head");
        let ask = |head, now| processes.is_long_so_at(0, segment.id(), head, now);
        assert!(!ask(head(), 1000) && !ask(head(), 3000) && !ask(head(), 1000 + LONG - 1));
        assert!(ask(head(), 1000 + LONG), "still being made");
        // Taken, and claimed anew: another state each time.
        let taken = segment.take(head()).expect("nobody else did");
        assert!(!ask(taken, 10_000) && !ask(taken, 10_000 + LONG), "two looks tell nothing");
        assert!(!ask(taken, 10_000 + LONG + APART - 1) && ask(taken, 10_000 + LONG + APART));
        assert!(segment.release_head(taken));
        assert_eq!(claim().page(), page);
        assert!(!ask(head(), 20_000));
        assert!(
            !processes.is_long_so_at(0, segment.id() ^ 1, head(), 30_000),
            "another segment's page"
        );
        // Looked at seldom.
        assert!(!ask(head(), 200_000) && ask(head(), 400_000));
        // More than can be remembered: they get their turn.
        let many: Vec<_> = (0..40).map(|_| claim()).collect();
        let late = 1_000_000;
        let long = |now| many.iter().filter(|head| ask(**head, now)).count();
        assert_eq!([late, late + LONG / 2, late + LONG].map(long), [0, 0, OF_SEGMENT]);
        let (first, others) = many.split_at(OF_SEGMENT);
        for head in first {
            assert!(segment.release_head(*head));
        }
        let long = |now| others.iter().filter(|head| ask(**head, now)).count();
        let later = late + LONG + FORGOTTEN + 1;
        assert_eq!([later, later + LONG / 2, later + LONG].map(long), [0, 0, OF_SEGMENT]);
        assert!(
            !processes.is_long_so_at(0, segment.id() ^ 1, head(), later),
            "other segments have room"
        );
        // After a boot the clock begins anew.
        assert!(!ask(head(), 5) && !ask(head(), 3000) && ask(head(), 5 + LONG));
    }
}
