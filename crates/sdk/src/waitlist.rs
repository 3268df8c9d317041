//! Many that sleep for one thing: 64 places in an object's first page, each for a wish to be woken.
//!
//! | offset | what stands there |
//! |---|---|
//! | 0x80 | one bit for each place with a wish in it |
//! | 0x400 … | the places |
//! | 0xc0, 0x600 … | the same once more, for objects with two things to sleep for |
//!
//! Who sleeps puts its wish into a free place, then sets the bit, then looks once more at what it
//! waits for. Who has news looks at the bits, clears one, then claims the wish. In this order a bit
//! may stand for an empty place, which costs a look; a wish without a bit is left by those alone
//! who die in between, and is found when the sleeper looks by itself. Whoever finds no place sleeps
//! for a millisecond at a time.

use crate::presence::Presence;
use crate::raw::Area;
use crate::sleeper::Wish;
use ginnel_region::Use;
use ginnel_ring::park::Want;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

/// The bits, and the places.
const FIRST: (usize, usize) = (0x80, 0x400);
const SECOND: (usize, usize) = (0xc0, 0x600);
const COUNT: usize = 64;

/// The places of an object.
#[derive(Clone, Copy)]
pub(crate) struct Waitlist {
    words: Area,
    at: (usize, usize),
}

impl Waitlist {
    /// In an object's first page.
    pub fn new(words: Area) -> Self {
        Self { words, at: FIRST }
    }

    /// The second one in an object's first page.
    pub fn second(words: Area) -> Self {
        Self { words, at: SECOND }
    }

    fn asleep(self) -> &'static AtomicU64 {
        self.words.word(self.at.0)
    }

    fn place(self, at: usize) -> &'static AtomicU64 {
        self.words.word(self.at.1 + at % COUNT * 8)
    }

    /// The words for wishes.
    pub fn places(self) -> impl Iterator<Item = &'static AtomicU64> {
        (0..COUNT).map(move |at| self.place(at))
    }

    /// Wakes one that sleeps, after what it waits for was stored.
    #[inline]
    pub fn wake_one(self, presence: &Presence) {
        self.wake_some(presence, 1);
    }

    /// The same for so many of them.
    #[inline]
    pub fn wake_some(self, presence: &Presence, most: usize) {
        fence(SeqCst);
        if self.asleep().load(Relaxed) != 0 {
            self.wake(presence, most);
        }
    }

    #[cold]
    fn wake(self, presence: &Presence, most: usize) {
        let mut woken = 0;
        let bits = self.asleep().load(Acquire);
        for at in (0..COUNT).filter(|at| bits >> at & 1 == 1) {
            self.asleep().fetch_and(!(1 << at), AcqRel);
            if let Want::Waiter { page, bit } = Want::of(self.place(at).swap(0, AcqRel)) {
                // One that is awake looks before it sleeps, or is a dead one's: then the next is
                // woken, too.
                woken += usize::from(presence.neighbour.ring(page, bit));
            }
            if woken >= most {
                return;
            }
        }
    }

    /// Empties places whose sleepers are gone.
    fn clear_dead(self, presence: &Presence) {
        for place in (0..COUNT).map(|at| self.place(at)) {
            let wish = place.load(Relaxed);
            let is_there = |page| {
                let owner = presence.segment().head(page).map(|head| head.owner().kind);
                owner == Some(Use::Waiter)
            };
            let lives = matches!(Want::of(wish), Want::Waiter { page, .. } if is_there(page));
            if wish != 0 && !lives {
                let _ = place.compare_exchange(wish, 0, AcqRel, Relaxed);
            }
        }
    }
}

/// One call's place in the list.
pub(crate) struct Place<'a> {
    list: Waitlist,
    presence: &'a Presence,
    at: Cell<usize>,
}

impl<'a> Place<'a> {
    pub fn new(list: Waitlist, presence: &'a Presence) -> Self {
        Self { list, presence, at: Cell::new(COUNT) }
    }

    fn put_anywhere(&self, wish: u64) -> bool {
        let free = |&at: &usize| {
            let place = self.list.place(at);
            place.compare_exchange(0, wish, AcqRel, Relaxed).is_ok()
        };
        let found = (0..COUNT).find(free);
        self.at.set(found.unwrap_or(COUNT));
        found.is_some()
    }
}

impl Wish for Place<'_> {
    fn put(&self, wish: u64) -> bool {
        let at = self.at.get();
        let still = at < COUNT && self.list.place(at).load(Relaxed) == wish;
        if !still && !self.put_anywhere(wish) {
            self.list.clear_dead(self.presence);
            if !self.put_anywhere(wish) {
                return false;
            }
        }
        self.list.asleep().fetch_or(1 << self.at.get(), SeqCst);
        fence(SeqCst);
        true
    }

    fn take_back(&self, wish: u64) {
        let at = self.at.get();
        if at < COUNT && self.list.place(at).compare_exchange(wish, 0, AcqRel, Relaxed).is_err() {
            // Somebody claimed it, and rang: what it told of is perhaps another's to have by now.
            self.list.wake_one(self.presence);
        }
    }
}
