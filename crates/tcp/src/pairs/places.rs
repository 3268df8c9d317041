//! Where the memory of pairs is mapped, and that what ended ones leave is used again.
//!
//! A pair that a process gives up leaves its addresses, with zeroes there, for threads that are
//! late: they had found the pair before, and read or write a word of it. A process whose neighbours
//! come and go would so use up all addresses that it has. So a place is used again, once nobody can
//! be late any more: the helper thread has looked [`LOOKS`] times, seconds apart, and no thread was
//! at work under the locks of a connection that was there. The next pair's memory is put in the
//! very place of the zeroes, and what is known of it where that was of the last one: whoever is
//! late beyond all that finds memory of the same length still.

use super::{Meeting, Pair};
use crate::ledger::{Ledger, SLOTS, Slot};
use ginnel_node::joined::Joined;
use ginnel_node::wake::line::Lines;
use ginnel_region::{Error, Segment, sys};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

/// So many pairs a process is in at most.
pub const MOST: usize = 1024;
/// So many looks the place of a pair rests that was given up.
const LOOKS: u32 = 2;
/// Places: between two looks all pairs may be given up, and others come.
const PLACES: usize = (LOOKS as usize + 2) * MOST;

/// The memory of one pair, or what it left.
struct Place {
    /// Null: never used. It is never freed.
    pair: AtomicPtr<Pair>,
    /// What is mapped; 0: nothing.
    at: AtomicUsize,
    len: AtomicUsize,
}

impl Place {
    fn pair(&self) -> Option<&Pair> {
        // SAFETY: null, or from a leaked box.
        unsafe { self.pair.load(Acquire).as_ref() }
    }

    fn range(&self) -> Option<Range<usize>> {
        let at = self.at.load(Acquire);
        (at != 0).then(|| at..at + self.len.load(Relaxed))
    }

    fn set_range(&self, range: &Range<usize>) {
        self.len.store(range.len(), Relaxed);
        self.at.store(range.start, Release);
    }

    /// May another pair's memory come here?
    fn is_free(&self) -> bool {
        self.pair().is_none_or(|pair| pair.rest.is_over())
    }

    /// Keeps what a pair is, here. One thread's at a time.
    fn put(&self, joined: Joined, id: u64, broker: u64) -> &Pair {
        self.set_range(&joined.segment.memory());
        let known = self.pair.load(Acquire);
        if known.is_null() {
            let (ended, idle) = (AtomicBool::new(false), AtomicU32::new(0));
            let made = Box::into_raw(Box::new(Pair {
                joined,
                id,
                broker,
                ended,
                idle,
                rest: Rest::default(),
            }));
            self.pair.store(made, Release);
            // SAFETY: from a leaked box.
            return unsafe { &*made };
        }
        // SAFETY: nobody is late any more; what is overwritten has nothing that would have to be
        // freed, and its lines are closed. `rest` is not touched: others ask it whether the pair is
        // one.
        unsafe {
            (&raw mut (*known).joined).write(joined);
            (&raw mut (*known).id).write(id);
            (&raw mut (*known).broker).write(broker);
        }
        // SAFETY: from a leaked box.
        let pair = unsafe { &*known };
        pair.ended.store(false, Relaxed);
        pair.idle.store(0, Relaxed);
        pair.rest.end();
        pair
    }
}

/// How far a pair is that was given up.
#[derive(Default)]
pub(super) struct Rest {
    /// 0: it was not; else the looks since, and 1.
    looks: AtomicU32,
    /// Somebody is at work there.
    disturbed: AtomicBool,
}

impl Rest {
    /// The pair was given up.
    pub(super) fn has_begun(&self) -> bool {
        self.looks.load(Acquire) != 0
    }

    /// False where it had begun before.
    fn begin(&self) -> bool {
        self.looks.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
    }

    fn is_over(&self) -> bool {
        self.looks.load(Acquire) > LOOKS
    }

    /// One more look. Is it over with that one?
    fn look(&self) -> bool {
        let looks = self.looks.load(Relaxed);
        let next = if self.disturbed.swap(false, Relaxed) { 1 } else { looks + 1 };
        self.looks.store(next, Release);
        next > LOOKS
    }

    fn end(&self) {
        self.looks.store(0, Release);
    }
}

/// All places, and where connections meet: zeroed memory, which stays mapped.
pub(super) struct Table {
    places: [Place; PLACES],
    pub(super) meetings: [Meeting; SLOTS as usize],
}

impl Table {
    /// # Errors
    /// The kernel's.
    pub(super) fn map() -> Result<*mut Self, Error> {
        let at = sys::map_private(size_of::<Self>());
        at.map(<*mut u8>::cast)
            .map_err(|errno| Error::System { doing: "map a table of pairs", errno })
    }

    /// Every pair that was not given up.
    pub(super) fn all(&self) -> impl Iterator<Item = &Pair> {
        self.places.iter().filter_map(Place::pair).filter(|pair| !pair.rest.has_begun())
    }

    /// Where memory of pairs is mapped, or zeroes in its place.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.places.iter().filter_map(Place::range)
    }

    /// Would memory of `len` bytes take addresses that are not a place's already?
    pub(super) fn takes_more(&self, len: usize) -> bool {
        !self.places.iter().any(|place| Self::fits(place, len))
    }

    fn fits(place: &Place, len: usize) -> bool {
        place.is_free() && place.range().is_some_and(|range| range.len() == len)
    }

    /// Adds a pair, in a place that is free. One thread's at a time.
    ///
    /// # Errors
    /// What is wrong with the memory; [`Error::Full`].
    pub(super) fn add(
        &self,
        memory: i32,
        lines: Lines,
        id: u64,
        broker: u64,
    ) -> Result<&Pair, Error> {
        if self.all().count() >= MOST {
            return Err(Error::Full);
        }
        let mut joined = Joined::of_pair(Segment::of_pair(memory)?, lines)?;
        let len = joined.segment.memory().len();
        let fitting = self.places.iter().find(|place| Self::fits(place, len));
        // Else one that never was, before one whose broker gave another size.
        let new = || self.places.iter().find(|place| place.pair().is_none());
        let Some(place) =
            fitting.or_else(new).or_else(|| self.places.iter().find(|place| place.is_free()))
        else {
            joined.segment.close();
            return Err(Error::Full);
        };
        match place.range() {
            Some(range) if range.len() == len => {
                // SAFETY: zeroes, of a pair that nobody uses any more; the segment is new.
                let _ = unsafe { joined.segment.take_place(range.start as *mut u8) };
            }
            // SAFETY: as above.
            Some(range) => unsafe { sys::unmap(range.start as *mut u8, range.len()) },
            None => {}
        }
        Ok(place.put(joined, id, broker))
    }

    /// Gives a pair's memory up: zeroes take its place.
    pub(super) fn let_go(&self, pair: &Pair) {
        if !pair.rest.begin() {
            return;
        }
        pair.joined.lines.close();
        if !pair.joined.segment.let_go()
            && let Some(place) =
                self.places.iter().find(|place| std::ptr::eq(place.pair.load(Relaxed), pair))
        {
            // Nothing of it is this process's own.
            place.at.store(0, Release);
        }
    }

    /// A look at what was given up, by a thread that looks every few seconds. `me`: this process's
    /// ticket.
    pub(super) fn look(&self, ledger: &Ledger, me: u32) {
        for pair in self.places.iter().filter_map(Place::pair) {
            pair.joined.lines.tidy(pair.rest.has_begun());
        }
        let resting = || {
            let given_up = |pair: &&Pair| pair.rest.has_begun() && !pair.rest.is_over();
            self.places.iter().filter_map(Place::pair).filter(given_up)
        };
        if resting().next().is_none() {
            return;
        }
        for (index, meeting) in (0..SLOTS).zip(&self.meetings) {
            if let Some(pair) = meeting.pair().filter(|pair| pair.rest.has_begun())
                && is_worked_on(ledger.slot(index), meeting, me)
            {
                pair.rest.disturbed.store(true, Relaxed);
            }
        }
        for pair in resting().filter(|pair| pair.joined.lines.are_taken()) {
            pair.rest.disturbed.store(true, Relaxed);
        }
        // Each of them: a look at one is not to save that at the next.
        if resting().filter(|pair| pair.rest.look()).count() == 0 {
            return;
        }
        // What comes here next is no connection's that was here.
        for meeting in &self.meetings {
            if meeting.pair().is_some_and(|pair| pair.rest.is_over()) {
                meeting.pair.store(null_mut(), Release);
            }
        }
    }
}

/// Is a thread of this process at work on the connection that met there? (One that left its work by
/// `siglongjmp` seems to be, until the slot is another connection's.)
fn is_worked_on(slot: &Slot, meeting: &Meeting, me: u32) -> bool {
    // Who gets the slot finds both locks free.
    let is_next = !matches!(slot.generation.load(Relaxed), 0)
        && slot.generation.load(Relaxed) != meeting.generation.load(Relaxed);
    !is_next && (slot.tx.lock.is_of(me) || slot.rx.lock.is_of(me))
}

#[cfg(test)]
mod tests {
    use crate::attach::tests::attached;
    use crate::pairs::tests::{memory, own, waiting};
    use crate::pairs::{MOST, Pairs};
    use crate::{Attachment, lifetime};
    use ginnel_node::wake::line::Lines;
    use std::collections::BTreeSet;
    use std::os::fd::AsRawFd;

    fn attachment() -> (tempfile::TempDir, &'static Attachment) {
        let place = tempfile::tempdir().expect("a directory");
        let attachment = Box::leak(Box::new(attached(place.path())));
        (place, attachment)
    }

    fn look(attachment: &Attachment) {
        attachment.pairs.look(&attachment.ledger, attachment.node.ticket());
    }

    /// A server, say, that lives for long, and each of its clients for a moment.
    #[test]
    fn neighbours_that_come_and_go_do_not_use_up_the_addresses() {
        let (_place, attachment) = attachment();
        let mut places = BTreeSet::new();
        for number in 0..3000 {
            let pair =
                attachment.pairs.add(memory().as_raw_fd(), Lines::none(), number, 1).expect("room");
            assert_eq!((pair.id, attachment.pairs.all().count()), (number, 1));
            places.insert(pair.joined.segment.base() as usize);
            attachment.pairs.let_go(pair);
            if number % 5 == 4 {
                look(attachment);
            }
        }
        // Three thousand are 48 GiB together.
        assert!(places.len() <= 20, "{} places", places.len());
        assert!(attachment.pairs.bytes() <= 20 * (16 << 20), "{}", attachment.pairs.bytes());
    }

    #[test]
    fn a_place_rests_for_two_looks_and_while_somebody_works_there() {
        let (_place, attachment) = attachment();
        let end = waiting(attachment, &own(7));
        let pair = attachment.pairs.add(memory().as_raw_fd(), Lines::none(), 1, 1).expect("room");
        let at = pair.joined.segment.base() as usize;
        assert!(end.meet_in(pair, 2, 0) && attachment.pair_of(end.slot()).is_some());
        let word = pair.joined.segment.base().cast::<u64>();
        // SAFETY: mapped, aligned; nobody writes there now.
        assert_ne!(unsafe { word.read_volatile() }, 0);
        let held = end.slot().rx.lock.try_lock(attachment.node.ticket()).expect("free");
        attachment.pairs.let_go(pair);
        // SAFETY: as above: whoever is late finds memory there.
        assert_eq!(unsafe { word.read_volatile() }, 0);
        assert!(attachment.is_of_foreign_pair(end.slot()), "nobody may take the connection up");
        let next_at = |id| {
            let pair =
                attachment.pairs.add(memory().as_raw_fd(), Lines::none(), id, 1).expect("room");
            assert!(
                !attachment.pair_of(end.slot()).is_some_and(|of| std::ptr::eq(of, pair)),
                "not the next one's"
            );
            let at = pair.joined.segment.base() as usize;
            attachment.pairs.let_go(pair);
            at
        };
        for id in 2..6 {
            look(attachment);
            assert_ne!(next_at(id), at, "somebody works there");
        }
        drop(held);
        look(attachment);
        assert_ne!(next_at(6), at, "one look");
        look(attachment);
        assert!((7..12).any(|id| next_at(id) == at), "two looks");
    }

    /// Nor does it hold a place back that another connection has the slot by now, and is busy.
    #[test]
    fn the_next_connection_of_a_slot_disturbs_no_rest() {
        let (_place, attachment) = attachment();
        let end = waiting(attachment, &own(7));
        let pair = attachment.pairs.add(memory().as_raw_fd(), Lines::none(), 1, 1).expect("room");
        let at = pair.joined.segment.base() as usize;
        assert!(end.meet_in(pair, 2, 0));
        attachment.pairs.let_go(pair);
        lifetime::forget(attachment, end.slot(), 77);
        let next = waiting(attachment, &own(8));
        assert_eq!(next.index(), end.index());
        let _held = next.slot().tx.lock.try_lock(attachment.node.ticket()).expect("free");
        look(attachment);
        look(attachment);
        assert_eq!(
            attachment
                .pairs
                .add(memory().as_raw_fd(), Lines::none(), 2, 1)
                .expect("room")
                .joined
                .segment
                .base() as usize,
            at
        );
    }

    #[test]
    fn a_process_is_in_so_many_pairs_at_once() {
        let pairs = Pairs::default();
        let memory = memory();
        // (The table of members in one memory has not so many places.)
        let all = (0..MOST as u64)
            .map_while(|id| pairs.add(memory.as_raw_fd(), Lines::none(), id, 1).ok())
            .count();
        assert!(all > 0 && pairs.add(memory.as_raw_fd(), Lines::none(), 9, 1).is_err());
        assert_eq!(pairs.bytes(), all as u64 * (16 << 20), "what was refused is not kept");
        pairs.let_go_of_all();
        assert_eq!((pairs.all().count(), pairs.bytes()), (0, all as u64 * (16 << 20)));
    }
}
