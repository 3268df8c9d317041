//! What is undone when a process ends (`SEM_UNDO`).
//!
//! An entry is four words: the party (bits 0–42); the semaphore's number (0–15), what is to be
//! added to it (16–31, signed), the process's number (32–63); and two by which its process is known
//! after an exec (see [`super::doer`]). Whoever has a set to itself first does what the dead have
//! left to be undone, so nobody sees it undone too late but who asks no call of it. A process that
//! has become another program takes over what the old one had.

use super::doer::Doer;
use super::set::{HIGHEST, Locked, UNDO_END, UNDOS};
use super::transaction::Change;
use ginnel_region::Party;
use std::sync::atomic::Ordering::Relaxed;

fn entry(number: usize, add: i16, pid: u32) -> u64 {
    number as u64 & 0xffff | u64::from(add.cast_unsigned()) << 16 | u64::from(pid) << 32
}

fn number(entry: u64) -> usize {
    (entry & 0xffff) as usize
}

fn add(entry: u64) -> i32 {
    i32::from((entry >> 16) as u16 as i16)
}

impl Locked<'_> {
    /// Entries in use, as (index, party, what stands there).
    fn undos<'c>(&'c self, change: &'c Change<'_>) -> impl Iterator<Item = (usize, u64, u64)> + 'c {
        let end =
            usize::try_from(self.set.word(UNDO_END).load(Relaxed)).unwrap_or(UNDOS).min(UNDOS);
        let at = |index: usize| {
            let party = change.get(self.set.undo(index));
            let is_one = Party::of(party).is_some();
            is_one.then(|| (index, party, change.get(self.set.undo(index) + 8)))
        };
        (0..end).filter_map(at).filter(|&(_, _, entry)| number(entry) < self.set.count)
    }

    /// What this process has to undo at a semaphore.
    pub fn own_undo(&self, change: &Change<'_>, party: u64, of: usize) -> i32 {
        self.undos(change)
            .find(|&(_, by, entry)| by == party && number(entry) == of)
            .map_or(0, |(_, _, entry)| add(entry))
    }

    /// Notes what a party is to undo. False where there is no room.
    pub fn put_undo(&self, change: &mut Change<'_>, doer: &Doer, of: usize, value: i16) -> bool {
        let own = self
            .undos(change)
            .find(|&(_, by, entry)| by == doer.party && number(entry) == of)
            .map(|(index, _, _)| index);
        if value == 0 {
            if let Some(index) = own {
                change.put(self.set.undo(index), 0);
            }
            return true;
        }
        let free = |index: &usize| change.get(self.set.undo(*index)) == 0;
        let Some(index) = own.or_else(|| (0..UNDOS).find(free)) else { return false };
        // Before the entry: it is looked at as far as this says.
        let end = self.set.word(UNDO_END);
        if end.load(Relaxed) < index as u64 + 1 {
            end.store(index as u64 + 1, Relaxed);
        }
        change.put(self.set.undo(index), doer.party);
        change.put(self.set.undo(index) + 8, entry(of, value, doer.pid));
        for (at, &value) in [16, 24].into_iter().zip(&doer.process) {
            change.put(self.set.undo(index) + at, value);
        }
        true
    }

    /// Nothing is to be undone any more at these semaphores, by anybody (`SETVAL`, `SETALL`).
    pub fn forget_undo(&self, change: &mut Change<'_>, is_it: impl Fn(usize) -> bool) {
        let of_these = |&(_, _, entry): &(usize, u64, u64)| is_it(number(entry));
        let forgotten: Vec<_> = self.undos(change).filter(of_these).collect();
        for (index, ..) in forgotten {
            change.put(self.set.undo(index), 0);
        }
    }

    /// Undoes what the dead have left. `look`: lets those go on that can, in any case.
    pub fn bury_dead(&mut self, look: bool) {
        if self.set.word(UNDO_END).load(Relaxed) == 0 && !look {
            return;
        }
        let mut change = self.change();
        let (mut any, mut others) = (false, false);
        for (_, party, _) in self.undos(&change) {
            (any, others) = (true, others || party != self.set.mine());
        }
        if !any {
            self.set.word(UNDO_END).store(0, Relaxed);
        }
        // Most often all that there is to be undone is this process's own.
        if !others && !look {
            return;
        }
        let mut undos: Vec<_> = self.undos(&change).collect();
        // Who died first is not known. What gives back comes first, so that nothing is cut off at 0
        // that another's death makes up for.
        undos.sort_by_key(|&(_, _, entry)| add(entry) < 0);
        let mut known: Vec<(u64, bool)> = vec![(self.set.mine(), true)];
        let (mut any, mut changed) = (false, false);
        for (index, party, entry) in undos {
            let lives = known.iter().find(|(of, _)| *of == party).map(|&(_, lives)| lives);
            let lives = lives.unwrap_or_else(|| {
                known.push((party, self.set.lives(party)));
                known.last().is_some_and(|&(_, lives)| lives)
            });
            if lives {
                continue;
            }
            let word = |at| self.set.word(self.set.undo(index) + at).load(Relaxed);
            let of = Doer { party, pid: (entry >> 32) as u32, process: [word(16), word(24)] };
            if of.goes_on(&self.set.own) {
                if of.process == self.set.own.process && of.pid == self.set.own.pid {
                    change.put(self.set.undo(index), self.set.own.party);
                    changed = true;
                }
                continue;
            }
            let at = self.set.semaphore(number(entry));
            let value = (change.get(at) & 0xffff) as i32 + add(entry);
            let value = u64::from(value.clamp(0, HIGHEST).cast_unsigned());
            change.put(at, entry >> 32 << 32 | value);
            change.put(self.set.undo(index), 0);
            any = true;
        }
        if any || changed {
            self.commit(&change);
        }
        if any {
            self.set.touch();
        }
        drop(change);
        if any || look {
            self.let_go_on(any && self.has_any_zero());
        }
    }
}
