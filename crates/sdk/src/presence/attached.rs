//! How often a party has System V memory attached, where the memory's own list of who has is full:
//! a word among those of the objects that it uses, with bit 62 and the count (bits 45–61). It goes
//! with the party, as its uses do.
//!
//! A child of fork that finds neither a place in that list nor one here, or cannot join the segment
//! at all, is counted nowhere. Its parent then never ends its own use of the memory, and the child
//! keeps the lock by which its parent is known to live ([`Presence::share_life`]): so the memory
//! stays for as long as either of them.

use super::{MOST_USES, Own, Presence, USES, Uses, use_word};
use crate::{Error, Result};
use std::sync::atomic::{Ordering, fence};

const COUNTS: u64 = 1 << 62;
const COUNT_AT: u32 = 45;
const MOST: u64 = (1 << 17) - 1;

fn key((index, generation): (u32, u32)) -> u64 {
    use_word(index, generation) | COUNTS
}

impl Presence {
    /// This process has attached what stands in an entry of the names, (entry, generation), once
    /// more.
    pub fn attach(&self, place: (u32, u32)) -> Result<()> {
        let mut uses = self.uses.lock().unwrap_or_else(|broken| broken.into_inner());
        let known = uses.listed.get(&key(place)).copied();
        let new = |uses: &mut Uses| self.free_place(uses).map(|at| (at, 0));
        let (at, count) = known.map_or_else(|| new(&mut uses), Ok)?;
        if u64::from(count) >= MOST {
            return Err(Error::TooManyObjects);
        }
        let word = key(place) | u64::from(count + 1) << COUNT_AT;
        self.page_word(at.0, USES + at.1 * 8).store(word, Ordering::Release);
        fence(Ordering::SeqCst);
        uses.listed.insert(key(place), (at, count + 1));
        Ok(())
    }

    /// Once less.
    pub fn detach(&self, place: (u32, u32)) {
        let mut uses = self.uses.lock().unwrap_or_else(|broken| broken.into_inner());
        let Some((at, count)) = uses.listed.get_mut(&key(place)) else { return };
        *count -= 1;
        let (at, word) =
            (*at, if *count > 0 { key(place) | u64::from(*count) << COUNT_AT } else { 0 });
        self.page_word(at.0, USES + at.1 * 8).store(word, Ordering::Release);
        if word == 0 {
            uses.listed.remove(&key(place));
            uses.free.push(at);
        }
    }

    /// How often the parties that live have attached it in this way.
    pub fn attached(&self, place: (u32, u32)) -> u64 {
        let count = |word: u64| word >> COUNT_AT & MOST;
        let words = |head| {
            (0..MOST_USES)
                .map(move |at| self.page_word(head, USES + at * 8).load(Ordering::Acquire))
                .filter(move |word| word & !(MOST << COUNT_AT) == key(place))
        };
        let living = self.parties().filter(|&(_, lives)| lives);
        living.flat_map(|(head, _)| words(head)).map(count).sum()
    }

    /// This process uses what stands in an entry for as long as it is there.
    pub fn keep_using(&self, (index, generation): (u32, u32)) {
        let _ = self.start_use(index, generation);
    }

    /// Has children of fork take this party's life with them, or not. True where that is so now.
    pub fn share_life(&self, with_children: bool) -> bool {
        let uses = self.uses.lock().unwrap_or_else(|broken| broken.into_inner());
        let shared = |own: &Own| own.life.share(with_children).is_ok();
        self.own.get().is_some_and(shared) && uses.further.iter().all(shared)
    }
}
