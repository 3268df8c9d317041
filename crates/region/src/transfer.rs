//! Pages that change owners without being free between: those of a named object, which belong to
//! the party that makes it until it is made.
//!
//! Each step is one compare-and-swap on one owner word, so that a death between any two leaves
//! pages that say whose they are: the dead party's, which are freed with it, or the object's.

use crate::owner::{BUSY, CLAIMS, MADE, next_claim};
use crate::{Error, Extent, Head, Owner, Segment, Use};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

impl Segment {
    /// Returns a page that was free a moment ago, from page `from` on; `None` where none is.
    #[must_use]
    pub fn free_page(&self, from: u32) -> Option<u32> {
        let free = |&(page, word): &(u32, &std::sync::atomic::AtomicU64)| {
            page >= from && word.load(Relaxed) & crate::owner::USED == 0
        };
        self.owner_words(u32::MAX).find(free).map(|(page, _)| page)
    }

    /// Claims this very page as the head of a group, busy as by [`claim_head`](Self::claim_head).
    ///
    /// # Errors
    /// [`Error::Full`] where it is not free, or no page that can be claimed; [`Error::NoMemory`].
    pub fn claim_page(&self, page: u32, owner: Owner) -> Result<Head, Error> {
        let (first, end) = self.page_range();
        if page < first || page >= end {
            return Err(Error::Full);
        }
        let owner = Owner { tag: Some(page), ..owner };
        let old = self.owner_word(page).load(Relaxed);
        let word = owner.word(page, old);
        // Acquire pairs with the Release store that freed the page.
        let claimed = old & crate::owner::USED == 0
            && self.owner_word(page).compare_exchange(old, word, AcqRel, Relaxed).is_ok();
        if !claimed {
            return Err(Error::Full);
        }
        self.note_reached(page + 1);
        let head = Head { page, word, owner };
        self.make_real(Extent { page, pages: 1 }).inspect_err(|_| _ = self.release_head(head))?;
        Ok(head)
    }

    /// Makes the first page of a party's extent the head of an object: the object is made, and its
    /// other pages are the party's until they are [handed over](Self::hand_over).
    ///
    /// # Errors
    /// [`Error::Full`] where the page is not the party's any more: it was taken for dead.
    pub fn promote(&self, page: u32, party: Head) -> Result<Head, Error> {
        let word = self.owner_word(page);
        let old = word.load(Acquire);
        let owner = Owner { kind: Use::Object, tag: Some(page), ..party.owner };
        let new = owner.bits(page) | next_claim(old) | MADE;
        if !is_of(old, party.page) || self.owner_word(party.page).load(Acquire) != party.word {
            return Err(Error::Full);
        }
        word.compare_exchange(old, new, AcqRel, Relaxed)
            .map(|_| Head { page, word: new, owner })
            .map_err(|_| Error::Full)
    }

    /// Gives those pages of an extent that are the party's to the group of `object`.
    ///
    /// # Errors
    /// [`Error::Full`] where one is not the party's: it was taken for dead.
    pub fn hand_over(&self, extent: Extent, party: Head, object: Head) -> Result<(), Error> {
        let (first, end) = self.page_range();
        let owner = Owner { kind: Use::Data, tag: Some(object.page), ..party.owner };
        for page in extent.page.max(first)..extent.page.saturating_add(extent.pages).min(end) {
            if page == object.page {
                continue;
            }
            let word = self.owner_word(page);
            let old = word.load(Acquire);
            let new = owner.bits(page) | old & CLAIMS;
            if !is_of(old, party.page) || word.compare_exchange(old, new, AcqRel, Relaxed).is_err()
            {
                return Err(Error::Full);
            }
        }
        Ok(())
    }

    /// Do all pages of an extent belong to the group that `page` heads?
    #[must_use]
    pub fn is_of_group(&self, extent: Extent, page: u32) -> bool {
        let (first, end) = self.page_range();
        let last = extent
            .page
            .checked_add(extent.pages)
            .filter(|&last| extent.page >= first && last <= end && extent.pages > 0);
        let tagged = |at| {
            Owner::of(self.owner_word(at).load(Acquire))
                .is_some_and(|owner| owner.tag == Some(page))
        };
        last.is_some_and(|last| (extent.page..last).all(tagged))
    }
}

/// Is it the word of a page that a party has claimed, and not handed over yet?
fn is_of(word: u64, party: u32) -> bool {
    word & BUSY == 0
        && Owner::of(word).is_some_and(|owner| owner.kind == Use::Data && owner.tag == Some(party))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, sys};

    /// A maker that dies after any step leaves pages that are freed with it, or with the object.
    #[test]
    fn a_death_between_any_two_steps_leaves_nothing() {
        let path = std::env::temp_dir().join(format!("ginnel-transfer-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() })
            .expect("create");
        let all = segment.page_counts().1;
        for steps in 0..4 {
            let at = segment.free_page(0).expect("free");
            let party = segment.claim_page(at, Owner::new(3, Use::Party)).expect("free");
            assert_eq!(segment.claim_page(at, Owner::new(3, Use::Party)), Err(Error::Full));
            let party = segment.settle(party).expect("its own");
            let mut object = None;
            if steps > 0 {
                let owner = Owner { kind: Use::Data, tag: Some(party.page()), member: 3 };
                let extent = segment.claim(5, owner).expect("room");
                if steps > 1 {
                    object = Some(segment.promote(extent.page, party).expect("the party's"));
                    assert_eq!(segment.promote(extent.page, party), Err(Error::Full), "once");
                }
                if let Some(object) = object.filter(|_| steps > 2) {
                    segment
                        .hand_over(Extent { pages: 3, ..extent }, party, object)
                        .expect("the party's");
                    assert!(segment.is_of_group(Extent { pages: 3, ..extent }, object.page()));
                    assert!(!segment.is_of_group(extent, object.page()));
                }
            }
            let with_party = segment.release_groups(&[party]);
            assert_eq!(with_party, [1, 6, 5, 3][steps]);
            assert_eq!(
                object.map_or(0, |object| segment.release_groups(&[object])),
                [0, 0, 1, 3][steps]
            );
            assert_eq!(segment.page_counts().0, all, "after {steps} steps");
        }
        std::fs::remove_file(path).expect("remove");
    }

    /// A party that was taken for dead (a machine that was paused) does not go on making its
    /// object.
    #[test]
    fn a_party_that_was_taken_for_dead_makes_nothing_more() {
        let path = std::env::temp_dir().join(format!("ginnel-transfer-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() })
            .expect("create");
        let claim = |at| {
            segment
                .claim_page(at, Owner::new(1, Use::Party))
                .and_then(|head| segment.settle(head).ok_or(Error::Full))
        };
        let party = claim(segment.free_page(0).expect("free")).expect("free");
        let data = |party: Head| Owner { kind: Use::Data, tag: Some(party.page()), member: 1 };
        let extent = segment.claim(2, data(party)).expect("room");
        assert_eq!(segment.release_groups(&[party]), 3);
        assert_eq!(segment.promote(extent.page, party), Err(Error::Full));
        // The same page, by the same member, for the same use: another party.
        let another = claim(party.page()).expect("free again");
        assert_ne!(another.claims(), party.claims());
        let extent = segment.claim(2, data(another)).expect("room");
        assert_eq!(segment.promote(extent.page, party), Err(Error::Full));
        let object = segment.promote(extent.page, another).expect("its own");
        assert_eq!(segment.hand_over(extent, another, object), Ok(()));
        assert_eq!(
            segment.hand_over(extent, another, object),
            Err(Error::Full),
            "no longer the party's"
        );
        std::fs::remove_file(path).expect("remove");
    }
}
