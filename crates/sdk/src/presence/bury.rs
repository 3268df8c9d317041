//! Freeing what the dead held, and what nobody uses any more.

use super::{MOST_USES, Presence, USES, use_word};
use crate::Kind;
use crate::layout::{parts, stands_in};
use ginnel_region::{Entry, Head, Use};
use std::collections::HashSet;
use std::sync::atomic::{Ordering, fence};

impl Presence {
    /// Frees what the dead held: their claims and the names that went with them, the pages of what
    /// they were making, and objects without a name that nobody uses any more.
    pub fn sweep(&self) {
        let segment = self.segment();
        let dead: Vec<Head> =
            self.parties().filter(|(_, lives)| !lives).map(|(head, _)| head).collect();
        segment.names().bury(|party| self.lives(party));
        segment.release_groups(&dead);
        self.bury_removed();
        let abandoned: Vec<Head> = segment
            .heads_within_reach()
            .filter(|head| head.owner().kind == Use::Object)
            .filter(|&head| {
                let (index, generation) = stands_in(segment, head);
                !segment.names().stands_for(index, generation, |party| self.lives(party))
            })
            .collect();
        segment.release_groups(&abandoned);
        // Also where no party is dead: a process that is being ended gives up its party's lock and
        // its place among the neighbours one after the other, and others look in between; and one
        // may have ended before it was a party.
        self.neighbour.reclaim();
    }

    /// Frees the objects whose names were taken away, and which nobody uses.
    pub fn bury_removed(&self) {
        let segment = self.segment();
        let mut unused: Vec<Entry> = segment.names().removed().collect();
        // Twice: a removed object of System V's may be entered by who saw that another uses it
        // (see [`crate::sysv`]), and may have left the pages that the first look goes through
        // last, while the newcomer came to those that it goes through first.
        for _ in 0..2 {
            if unused.is_empty() {
                return;
            }
            fence(Ordering::SeqCst);
            self.leave_unused(&mut unused);
        }
        for entry in unused {
            let is_it = |head: &Head| {
                head.owner().kind == Use::Object
                    && stands_in(segment, *head) == (entry.index, entry.generation)
            };
            let head = segment.head(entry.page).filter(is_it);
            match head {
                Some(head) if entry.kind == Kind::Iceoryx2 as u16 => {
                    segment.release_parts(head, &parts(segment, head));
                }
                head => _ = segment.release_groups(head.as_slice()),
            }
            segment.names().free(&entry);
        }
    }

    /// Takes from the list what a party that lives uses.
    fn leave_unused(&self, entries: &mut Vec<Entry>) {
        let heads = self.segment().heads_within_reach();
        for head in heads.filter(|head| head.owner().kind == Use::Party) {
            let words = (0..MOST_USES).map(|at| self.page_word(head, USES + at * 8));
            let listed = words.map(|word| word.load(Ordering::Acquire)).filter(|&word| word != 0);
            let listed: HashSet<u64> = listed.collect();
            let is_listed =
                |entry: &Entry| listed.contains(&use_word(entry.index, entry.generation));
            if entries.iter().any(is_listed) && (self.is_own(head) || self.head_lives(head)) {
                entries.retain(|entry| !is_listed(entry));
            }
        }
    }

    fn is_own(&self, head: Head) -> bool {
        self.head() == Ok(head)
    }
}
