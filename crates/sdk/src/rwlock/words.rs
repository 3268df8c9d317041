//! The words of a reader–writer lock, and what each step of it does to them. [`super`] says what
//! they mean.

use crate::presence::Presence;
use crate::raw::Area;
use crate::wait;
use crate::waitlist::Waitlist;
use ginnel_region::{PAGE, Party};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize, fence};

const WRITER: usize = 0x40;
const DRAINED: usize = 0x48;
const WRITES: u64 = 1 << 60;
pub(super) const HALF_DONE: u64 = 1 << 61;
/// Readers at a time.
const PLACES: usize = PAGE as usize / 8;

/// A lock's two pages.
#[derive(Clone, Copy)]
pub(super) struct Words {
    page: Area,
    places: Area,
}

impl Words {
    /// Of an object with these two pages.
    pub fn new(page: Area, body: Area) -> Option<Self> {
        Some(Self { page, places: body.part(0, PLACES * 8)? })
    }

    /// Of the lock whose first page this is, where there is no object at hand.
    pub fn at(presence: &Presence, page: u32) -> Option<Self> {
        let area = |page: u64| Area::new(presence.segment(), page * PAGE, PAGE);
        Self::new(area(page.into())?, area(u64::from(page) + 1)?)
    }

    pub fn writer(self) -> &'static AtomicU64 {
        self.page.word(WRITER)
    }

    pub fn drained(self) -> &'static AtomicU64 {
        self.page.word(DRAINED)
    }

    pub fn readers(self) -> Waitlist {
        Waitlist::new(self.page)
    }

    pub fn writers(self) -> Waitlist {
        Waitlist::second(self.page)
    }

    pub fn is_half_done(self) -> bool {
        self.writer().load(Relaxed) & HALF_DONE != 0
    }

    fn place(self, at: usize) -> &'static AtomicU64 {
        self.places.word(at % PLACES * 8)
    }

    /// Every place, from the one that was of use last time.
    fn from(self, hint: &AtomicUsize) -> impl Iterator<Item = usize> {
        let first = hint.load(Relaxed);
        (0..PLACES).map(move |at| (first + at) % PLACES)
    }

    /// Takes a place to read in, where nobody writes or is about to.
    pub fn take_place(self, presence: &Presence, hint: &AtomicUsize) -> Option<&'static AtomicU64> {
        if Party::of(self.writer().load(Acquire)).is_some() {
            return None;
        }
        let mine = presence.party().bits();
        let take = |place: &AtomicU64| {
            place.load(Relaxed) == 0 && place.compare_exchange(0, mine, AcqRel, Relaxed).is_ok()
        };
        let at = self.from(hint).find(|&at| take(self.place(at)))?;
        hint.store(at, Relaxed);
        let place = self.place(at);
        // The place first, then the look at who writes: see the head of `rwlock.rs`.
        fence(SeqCst);
        // Acquire pairs with the Release of the writer before.
        if Party::of(self.writer().load(Acquire)).is_none() {
            return Some(place);
        }
        self.leave_place(presence, place);
        None
    }

    /// Gives a place back that this process has.
    pub fn leave_place(self, presence: &Presence, place: &AtomicU64) {
        let mine = presence.party().bits();
        // Where it was taken away, this process was taken for dead.
        if place.compare_exchange(mine, 0, Release, Relaxed).is_err() {
            return;
        }
        fence(SeqCst);
        if Party::of(self.writer().load(Relaxed)).is_some() {
            wait::wake(presence, self.drained());
        } else {
            // There may be one that found no place.
            self.readers().wake_one(presence);
        }
    }

    /// Puts this process into the first word, where nobody is in it.
    pub fn enter(self, presence: &Presence) -> Option<()> {
        let seen = self.writer().load(Relaxed);
        let mine = presence.party().bits() | seen & HALF_DONE;
        let free = Party::of(seen).is_none();
        let entered = free && self.writer().compare_exchange(seen, mine, AcqRel, Relaxed).is_ok();
        fence(SeqCst);
        entered.then_some(())
    }

    pub fn is_drained(self, hint: &AtomicUsize) -> bool {
        // Acquire pairs with the Release of each reader that left.
        let taken = self.from(hint).find(|&at| self.place(at).load(Acquire) != 0);
        taken.inspect(|&at| hint.store(at, Relaxed)).is_none()
    }

    /// Writes, where this process is in the first word and the last reader has left. Gives what
    /// stands in the word then.
    pub fn go_in(self, presence: &Presence, hint: &AtomicUsize) -> Option<u64> {
        if !self.is_drained(hint) {
            return None;
        }
        let mine = presence.party().bits();
        let go = |half_done: u64| {
            let (from, inside) = (mine | half_done, mine | WRITES | half_done);
            let gone = self.writer().compare_exchange(from, inside, AcqRel, Relaxed);
            gone.is_ok().then_some(inside)
        };
        go(0).or_else(|| go(HALF_DONE))
    }

    /// The same where somebody who must not may have taken this process out of the first word.
    pub fn enter_and_go_in(self, presence: &Presence, hint: &AtomicUsize) -> Option<u64> {
        let is_in = self.writer().load(Relaxed) & !HALF_DONE == presence.party().bits();
        if is_in || self.enter(presence).is_some() { self.go_in(presence, hint) } else { None }
    }

    /// Leaves the first word without having written.
    pub fn withdraw(self, presence: &Presence) {
        let mine = presence.party().bits();
        let from = [(mine, 0), (mine | HALF_DONE, HALF_DONE)];
        self.leave(presence, from);
    }

    /// Leaves it after having written. `add`: what is to stand there.
    pub fn leave_writing(self, presence: &Presence, add: u64) {
        let mine = presence.party().bits() | WRITES;
        self.leave(presence, [(mine, add), (mine | HALF_DONE, HALF_DONE)]);
    }

    fn leave(self, presence: &Presence, changes: [(u64, u64); 2]) {
        let change =
            |&(from, to): &(u64, u64)| self.writer().compare_exchange(from, to, Release, Relaxed);
        // Where none of it stands there, this process was taken for dead.
        if changes.iter().any(|from_to| change(from_to).is_ok()) {
            self.writer_left(presence);
        }
    }

    fn writer_left(self, presence: &Presence) {
        self.writers().wake_one(presence);
        self.readers().wake_some(presence, usize::MAX);
    }

    /// What was half done is in order again: said by who writes.
    pub fn mark_consistent(self, presence: &Presence) {
        let mine = presence.party().bits() | WRITES;
        let _ = self.writer().compare_exchange(mine | HALF_DONE, mine, AcqRel, Relaxed);
    }

    /// Takes a dead one out of the first word.
    pub fn free_of_dead(self, presence: &Presence) {
        let seen = self.writer().load(Relaxed);
        if Party::of(seen).is_some_and(|party| !presence.lives(party)) {
            let half_done = if seen & WRITES != 0 { HALF_DONE } else { seen & HALF_DONE };
            if self.writer().compare_exchange(seen, half_done, AcqRel, Relaxed).is_ok() {
                self.writer_left(presence);
            }
        }
    }

    /// Takes the dead out of every word.
    pub fn clear_dead(self, presence: &Presence) {
        self.free_of_dead(presence);
        // A process that reads many times at once is asked for once.
        let mut last = None;
        for place in (0..PLACES).map(|at| self.place(at)) {
            let seen = place.load(Relaxed);
            let lives = Party::of(seen).is_some_and(|party| {
                let known = last.filter(|&(of, _)| of == party).map(|(_, lives)| lives);
                let lives = known.unwrap_or_else(|| presence.lives(party));
                last = Some((party, lives));
                lives
            });
            // What names nobody is nonsense, and nobody's to give back.
            if seen != 0 && !lives {
                let _ = place.compare_exchange(seen, 0, AcqRel, Relaxed);
            }
        }
    }
}
