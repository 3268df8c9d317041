//! Pages that were seen half made or half freed: whoever is at it may have died. They are remembered here, in trusted memory and by one clock, for processes that look once and end.

use super::{Ledger, Lock};
use ginnel_region::{Head, sys};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// So long it must have been seen so, milliseconds.
const LONG: u64 = 5000;
/// Nobody asked about it for so long: it was made, or freed, milliseconds.
const FORGOTTEN: u64 = 60_000;

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
}

impl Ledger {
    /// Has a page been as it is for a while? Asked at each look at one that somebody is making or freeing. Where there are more than can be remembered the others have to wait.
    #[must_use]
    pub fn is_long_so(&self, me: u32, segment: u64, head: Head) -> bool {
        self.is_long_so_at(me, segment, head, sys::monotonic_ns() / 1_000_000)
    }

    fn is_long_so_at(&self, me: u32, segment: u64, head: Head, now: u64) -> bool {
        let doubts = &self.header().doubts;
        let _held = doubts.lock.lock(self, me);
        let (page, word) = head.parts();
        let same = |doubt: &&Doubt| {
            (doubt.segment.load(Relaxed), doubt.page.load(Relaxed), doubt.word.load(Relaxed)) == (segment, page.into(), word)
        };
        // A time that is still to come is of another boot's clock.
        let is_over = |doubt: &&Doubt| {
            let asked = doubt.asked.load(Relaxed);
            asked == 0 || asked > now || now - asked > FORGOTTEN
        };
        if let Some(known) = doubts.known.iter().find(|doubt| same(doubt) && !is_over(doubt)) {
            known.asked.store(now, Relaxed);
            return now.saturating_sub(known.since.load(Relaxed)) >= LONG;
        }
        if let Some(free) = doubts.known.iter().find(is_over) {
            free.segment.store(segment, Relaxed);
            free.page.store(page.into(), Relaxed);
            free.word.store(word, Relaxed);
            free.since.store(now, Relaxed);
            free.asked.store(now.max(1), Relaxed);
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
        let name = |what: &str| std::env::temp_dir().join(format!("ginnel-{what}-{:x}", sys::random_u64()));
        let (path, memory) = (name("ledger"), name("doubt"));
        let ledger = Ledger::open_or_create(&path).expect("a ledger");
        let segment = Segment::create(&memory, &Config { size: 16 << 20, ..Config::default() }).expect("a segment");
        let claim = || segment.claim(1, Owner::new(0, Use::Channel)).expect("room");
        let page = claim().page;
        let head = || segment.head(page).expect("a head");
        let ask = |head, now| ledger.is_long_so_at(0, segment.id(), head, now);
        assert!(!ask(head(), 1000) && !ask(head(), 1000 + LONG - 1));
        assert!(ask(head(), 1000 + LONG), "still being made");
        // Taken, and claimed anew: another state each time.
        assert!(segment.take(head()).is_some());
        assert!(!ask(head(), 1000 + LONG) && ask(head(), 1000 + 2 * LONG));
        assert!(segment.release_head(head()));
        assert_eq!(claim().page, page);
        assert!(!ask(head(), 1000 + 2 * LONG));
        assert!(!ledger.is_long_so_at(0, segment.id() ^ 1, head(), 1000 + 3 * LONG), "another segment's page");
        assert!(ask(head(), 1000 + 3 * LONG));
        assert!(!ask(head(), 1000 + 3 * LONG + FORGOTTEN + 1), "forgotten meanwhile");
        // More than can be remembered: they get their turn.
        let many: Vec<_> = (0..100).filter_map(|_| segment.head(claim().page)).collect();
        let late = 1_000_000;
        let long = |now| many.iter().filter(|head| ask(**head, now)).count();
        assert_eq!((long(late), long(late + LONG)), (0, 64));
        assert_eq!(long(late + LONG + FORGOTTEN), 64, "asked about all the time");
        for path in [path, memory] {
            std::fs::remove_file(path).expect("remove");
        }
    }
}
