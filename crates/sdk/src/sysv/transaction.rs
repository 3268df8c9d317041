//! Changes of several words of a set that happen all or not at all, whoever is killed.
//!
//! They are collected aside first. Then they are written into the set's log, and the number of them
//! behind it: from there on they have happened. Then they are done, and the number is 0 again. Who
//! takes the set from one that died does what the number says: doing a change again changes
//! nothing.
//!
//! A semaphore that a change looks at is marked ([`HELD`]) until the change is over: calls that do
//! without the lock ([`super::quick`]) let it alone meanwhile.

use super::set::{HELD, LOGGED, Locked, SLOTS, Set};
use std::cell::RefCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Words that a call with one operation to be undone changes, and some more.
const USUAL: usize = 8;

/// Words of a set, and what is to stand there.
pub(super) struct Change<'a> {
    set: &'a Set,
    words: Vec<(usize, u64)>,
    /// Places of semaphores that it has marked.
    held: RefCell<Vec<usize>>,
}

impl<'a> Change<'a> {
    /// What stands at a place, or is about to.
    pub fn get(&self, at: usize) -> u64 {
        let changed = self.words.iter().rev().find(|(of, _)| *of == at);
        changed.map_or_else(|| self.hold(at), |&(_, value)| value)
    }

    /// Marks what stands at a place, where that is a semaphore, and gives it.
    pub fn hold(&self, at: usize) -> u64 {
        let word = self.set.word(at);
        if !self.set.semaphores().contains(&at) {
            return word.load(Relaxed);
        }
        // Acquire pairs with the exchange of who changed it last: what that did before is seen.
        let seen = word.fetch_or(HELD, AcqRel);
        if seen & HELD == 0 {
            self.held.borrow_mut().push(at);
        }
        seen & !HELD
    }

    /// What is to stand at a place, which was looked at before.
    pub fn put(&mut self, at: usize, value: u64) {
        match self.words.iter_mut().rev().take(64).find(|(of, _)| *of == at) {
            Some(word) => word.1 = value,
            None => {
                // For most calls it grows once.
                if self.words.is_empty() {
                    self.words.reserve(USUAL);
                }
                self.words.push((at, value));
            }
        }
    }

    pub fn set(&self) -> &'a Set {
        self.set
    }
}

impl Drop for Change<'_> {
    /// Release: who changes one of them after it sees what this process did before, the sleepers
    /// that it entered too.
    fn drop(&mut self) {
        for &at in self.held.get_mut().iter() {
            self.set.word(at).fetch_and(!HELD, Release);
        }
    }
}

impl<'a> Locked<'a> {
    pub fn change(&self) -> Change<'a> {
        Change { set: self.set, words: Vec::new(), held: RefCell::default() }
    }

    /// Has it happen.
    pub fn commit(&self, change: &Change<'_>) {
        let semaphores = self.set.semaphores();
        let put = |&(at, value): &(usize, u64)| {
            let mark = if semaphores.contains(&at) { HELD } else { 0 };
            self.set.word(at).store(value | mark, Release);
        };
        if let [one] = change.words.as_slice() {
            put(one);
            return;
        }
        // The room is as large as the largest change; what did not fit would not happen.
        let words = &change.words[..change.words.len().min(self.set.log_room)];
        for (index, &(at, value)) in words.iter().enumerate() {
            self.set.word(self.set.log(index)).store(at as u64, Relaxed);
            self.set.word(self.set.log(index) + 8).store(value, Relaxed);
        }
        // Release: who sees the number sees the changes.
        self.set.word(LOGGED).store(words.len() as u64, Release);
        words.iter().for_each(put);
        self.set.word(LOGGED).store(0, Release);
    }

    /// Does what one that died has left in the log, and takes its marks away. `of_dead`: one died.
    pub fn finish_log(&self, of_dead: bool) {
        let set = self.set;
        let count = usize::try_from(set.word(LOGGED).load(Acquire)).unwrap_or(usize::MAX);
        // Only what a change may change: semaphores, undo entries, slots.
        let places = set.semaphore(0)..set.slot(SLOTS);
        for index in 0..count.min(set.log_room) {
            let at = usize::try_from(set.word(set.log(index)).load(Relaxed)).unwrap_or(0);
            let value = set.word(set.log(index) + 8).load(Relaxed);
            if places.contains(&at) && at.is_multiple_of(8) {
                let mark = if set.semaphores().contains(&at) { HELD } else { 0 };
                set.word(at).store(value | mark, Relaxed);
            }
        }
        if count == 0 && !of_dead {
            return;
        }
        set.word(LOGGED).store(0, Release);
        for number in 0..set.count {
            set.word(set.semaphore(number)).fetch_and(!HELD, Release);
        }
    }
}
