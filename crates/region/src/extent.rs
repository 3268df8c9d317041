//! Pages of a segment, claimed by compare-and-swap on one owner word each.

use crate::owner::{BUSY, CLAIMS, MADE, USED, freed, next_claim};
use crate::{Error, Extent, Head, Owner, PAGE, Segment, Use, device::Source, sys};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

impl Segment {
    /// Claims `pages` neighbouring pages of a group and makes their memory real, so that touching
    /// them cannot raise SIGBUS. The pages hold whatever their last owner left.
    ///
    /// # Errors
    /// [`Error::Full`] where no run of free pages is long enough, [`Error::NoMemory`] where the
    /// file system is full.
    pub fn claim(&self, pages: u32, owner: Owner) -> Result<Extent, Error> {
        let (extent, _) = self.find_free(pages, owner)?;
        self.make_real(extent).inspect_err(|_| self.give_up(extent, owner))?;
        Ok(extent)
    }

    /// The same, if `permitted` says so to the bytes of memory that this takes from the system:
    /// those of pages that nobody has touched before. (In a segment of another machine, or of a
    /// daemon, none.)
    ///
    /// # Errors
    /// As there, and [`Error::Limited`] where that is not permitted.
    pub fn claim_if(
        &self,
        pages: u32,
        owner: Owner,
        permitted: impl FnOnce(u64) -> bool,
    ) -> Result<Extent, Error> {
        let (extent, _) = self.find_free(pages, owner)?;
        if matches!(self.source(), Source::File | Source::Pair)
            && !permitted(self.untouched(extent))
        {
            self.give_up(extent, owner);
            return Err(Error::Limited);
        }
        self.make_real(extent).inspect_err(|_| self.give_up(extent, owner))?;
        Ok(extent)
    }

    /// Bytes of an extent that have no memory yet.
    fn untouched(&self, extent: Extent) -> u64 {
        self.without_memory(extent.offset(), u64::from(extent.pages) * PAGE)
    }

    /// Claims a page that heads a group: it is the caller's to make, who says when it is
    /// [ready](Self::settle), or [frees](Self::release_head) it. Else as [`claim`](Self::claim).
    ///
    /// # Errors
    /// As there.
    pub fn claim_head(&self, owner: Owner) -> Result<Head, Error> {
        let (extent, word) = self.find_free(1, owner)?;
        let head =
            Head { page: extent.page, word, owner: Owner { tag: Some(extent.page), ..owner } };
        self.make_real(extent).inspect_err(|_| _ = self.release_head(head))?;
        self.still(head)
    }

    /// The claimed pages, and the last one's word.
    fn find_free(&self, pages: u32, owner: Owner) -> Result<(Extent, u64), Error> {
        let (first, end) = self.page_range();
        let hint = self.hint();
        let start = u32::try_from(hint).unwrap_or(u32::MAX).clamp(first, end);
        let found = self
            .claim_in(start, end, pages, owner)
            .or_else(|| self.claim_in(first, end, pages, owner))
            .ok_or(Error::Full)?;
        self.claimed_from(hint, found.0.page + pages);
        self.note_reached(found.0.page + pages);
        Ok(found)
    }

    fn claim_in(&self, from: u32, end: u32, pages: u32, owner: Owner) -> Option<(Extent, u64)> {
        let mut first = from;
        'run: while first.checked_add(pages)? <= end {
            let mut last = 0;
            for taken in 0..pages {
                let word = self.owner_word(first + taken);
                let old = word.load(Relaxed);
                last = owner.word(first, old);
                // Acquire pairs with the Release store that freed the page.
                if old & USED != 0 || word.compare_exchange(old, last, AcqRel, Relaxed).is_err() {
                    self.give_up(Extent { page: first, pages: taken }, owner);
                    first += taken + 1;
                    continue 'run;
                }
            }
            return Some((Extent { page: first, pages }, last));
        }
        None
    }

    pub(crate) fn make_real(&self, extent: Extent) -> Result<(), Error> {
        let len = u64::from(extent.pages) * PAGE;
        if !matches!(self.source(), Source::File | Source::Pair) {
            // The host's memory, which the host makes real; this kernel has no pages behind it that
            // could be wanting.
            return Ok(());
        }
        // SAFETY: the extent lies inside the map.
        let done =
            unsafe { sys::populate(self.base().add(extent.offset() as usize), len as usize) };
        match done {
            Ok(()) => Ok(()),
            Err(libc::EINVAL) => self.allocate_in_file(extent.offset(), len),
            Err(_) => Err(Error::NoMemory),
        }
    }

    /// Frees what was just claimed for `owner`, and is not somebody else's by now.
    fn give_up(&self, extent: Extent, owner: Owner) {
        let owner = Owner { tag: Some(owner.tag.unwrap_or(extent.page)), ..owner };
        for page in extent.page..extent.page + extent.pages {
            let word = self.owner_word(page);
            let old = word.load(Relaxed);
            if Owner::of(old) == Some(owner) {
                let _ = word.compare_exchange(old, freed(old), Release, Relaxed);
            }
        }
    }

    /// A page that heads a group, as it is now; `None` where it heads none.
    #[must_use]
    pub fn head(&self, page: u32) -> Option<Head> {
        let (first, end) = self.page_range();
        let word = (first..end).contains(&page).then(|| self.owner_word(page).load(Acquire))?;
        let owner =
            Owner::of(word).filter(|owner| owner.kind.heads() && owner.tag == Some(page))?;
        Some(Head { page, word, owner })
    }

    /// Is a head still what it was when it was seen? To be asked before writing to its page, after
    /// what may have taken seconds.
    ///
    /// # Errors
    /// [`Error::Full`]: it was thought abandoned, and is somebody else's.
    pub fn still(&self, head: Head) -> Result<Head, Error> {
        if self.head(head.page) == Some(head) { Ok(head) } else { Err(Error::Full) }
    }

    /// The word by which a head is known, and what stands there for as long as it
    /// [still](Self::still) is what was seen: for who asks often.
    #[must_use]
    pub fn standing(&self, head: Head) -> (&AtomicU64, u64) {
        (self.owner_word(head.page), head.word)
    }

    fn step(&self, head: Head, word: u64) -> Option<Head> {
        let done = self.owner_word(head.page).compare_exchange(head.word, word, AcqRel, Relaxed);
        done.ok().map(|_| Head { word, ..head })
    }

    /// The group is made, or what was to be done with it is: not busy any more. `None` where
    /// somebody else took it.
    #[must_use]
    pub fn settle(&self, head: Head) -> Option<Head> {
        if head.is_busy() { self.step(head, head.word & !BUSY | MADE) } else { None }
    }

    /// Makes it the caller's to free, or to change. `None` where it is no longer what was seen.
    #[must_use]
    pub fn take(&self, head: Head) -> Option<Head> {
        self.step(head, head.word & !CLAIMS | next_claim(head.word) | BUSY)
    }

    /// Frees such pages of an extent as belong to the group, but for its head, which the caller has
    /// [taken](Self::take): a bad value frees nothing of anybody else's.
    pub fn release_part(&self, head: Head, part: Extent) {
        let (low, end) = self.page_range();
        for page in part.page.max(low)..part.page.saturating_add(part.pages).min(end) {
            self.release_member(page, |tag| (tag == head.page).then_some(head));
        }
        self.freed_from(part.page.max(low));
    }

    /// Frees a page that belongs to a group, if `head_of` gives the head for its tag, and that
    /// still is what the caller has taken. True if it did.
    fn release_member(&self, page: u32, head_of: impl FnOnce(u32) -> Option<Head>) -> bool {
        let word = self.owner_word(page);
        let old = word.load(Acquire);
        let Some(Owner { kind: Use::Ring | Use::Data, tag: Some(tag), .. }) = Owner::of(old) else {
            return false;
        };
        // A page that changes hands after this look has another word then.
        head_of(tag)
            .is_some_and(|head| tag != page && self.owner_word(tag).load(Acquire) == head.word)
            && word.compare_exchange(old, freed(old), AcqRel, Relaxed).is_ok()
    }

    /// Frees a head that the caller has [taken](Self::take) or [claimed](Self::claim_head), and of
    /// whose group nothing else is left. False where it is somebody else's by now.
    pub fn release_head(&self, head: Head) -> bool {
        let done = self.step(head, freed(head.word)).is_some();
        self.freed_from(head.page);
        done
    }

    /// Frees the whole groups of heads that the caller has [taken](Self::take), which ascend, in
    /// one go through all pages, and the heads last. Returns how many pages there were.
    pub fn release_groups(&self, heads: &[Head]) -> u32 {
        let Some(&lowest) = heads.first() else { return 0 };
        let (first, end) = self.page_range();
        let find =
            |tag| heads.get(heads.binary_search_by_key(&tag, |head| head.page).ok()?).copied();
        let members = (first..end).filter(|&page| self.release_member(page, find)).count();
        let heads = heads.iter().filter(|&&head| self.release_head(head)).count();
        self.freed_from(lowest.page);
        u32::try_from(members + heads).unwrap_or(u32::MAX)
    }

    /// Frees a group of which it is known where it lies: no look through all pages, and what lies
    /// elsewhere stays for [`release_orphan`](Self::release_orphan).
    pub fn release_parts(&self, head: Head, parts: &[Extent]) {
        for &part in parts {
            self.release_part(head, part);
        }
        self.release_head(head);
    }

    /// Frees `pages` pages from `first` on as far as they still belong to the group of `tag`: a bad
    /// value frees nothing of anybody else's.
    pub fn release_if_tagged(&self, first: u32, pages: u32, tag: u32) {
        let (low, end) = self.page_range();
        for page in first.max(low)..first.saturating_add(pages).min(end) {
            let word = self.owner_word(page);
            let old = word.load(Acquire);
            if Owner::of(old).is_some_and(|owner| owner.tag == Some(tag)) {
                let _ = word.compare_exchange(old, freed(old), AcqRel, Relaxed);
            }
        }
        self.freed_from(first.max(low));
    }

    /// Frees the further pages of the object with this head that `is_named` does not name. Where a
    /// page changes hands after `is_named` was asked, it stays.
    pub fn release_strays(&self, head: Head, is_named: impl Fn(u32) -> bool) {
        let (first, end) = self.page_range();
        for page in (first..end).filter(|&page| page != head.page) {
            let word = self.owner_word(page);
            // Before the question: what names a page is written before the page is the object's.
            let old = word.load(Acquire);
            let is_its = Owner::of(old)
                .is_some_and(|owner| owner.kind == Use::Data && owner.tag == Some(head.page));
            if is_its
                && !is_named(page)
                && self.still(head).is_ok()
                && word.compare_exchange(old, freed(old), AcqRel, Relaxed).is_ok()
            {
                self.freed_from(page);
            }
        }
    }

    /// Frees a page of a group that has no head: that is claimed first and freed last.
    pub fn release_orphan(&self, page: u32) {
        let word = self.owner_word(page);
        // Before the look at the head: a page that changes hands has another word then.
        let old = word.load(Acquire);
        if let Some(Owner { kind: Use::Ring | Use::Data, tag: Some(tag), .. }) = Owner::of(old)
            && !self.owner(tag).is_some_and(|head| head.kind.heads())
            && word.compare_exchange(old, freed(old), AcqRel, Relaxed).is_ok()
        {
            self.freed_from(page);
        }
    }

    /// Who owns a page; `None` where it is free or not a page that can be claimed.
    #[must_use]
    pub fn owner(&self, page: u32) -> Option<Owner> {
        let (first, end) = self.page_range();
        if page < first || page >= end {
            return None;
        }
        Owner::of(self.owner_word(page).load(Acquire))
    }

    /// Every page that somebody owns.
    pub fn owned(&self) -> impl Iterator<Item = (u32, Owner)> {
        self.owner_words(u32::MAX)
            .filter_map(|(page, word)| Some((page, Owner::of(word.load(Acquire))?)))
    }

    /// Every page that heads a group, as far as the peers say that they have claimed any: a peer
    /// that does not say so may own pages beyond.
    pub fn heads_within_reach(&self) -> impl Iterator<Item = Head> {
        // Most pages are a ring's, or free, which the word alone tells.
        let heads = |(_, word): &(u32, &AtomicU64)| {
            let word = word.load(Relaxed);
            word & USED != 0 && Use::of(word).is_some_and(Use::heads)
        };
        self.owner_words(self.reached()).filter(heads).filter_map(|(page, _)| self.head(page))
    }

    /// (free, all) pages that can be claimed.
    #[must_use]
    pub fn page_counts(&self) -> (u32, u32) {
        let (first, end) = self.page_range();
        let used = self.owner_words(end).filter(|(_, word)| word.load(Relaxed) & USED != 0).count();
        let all = end - first;
        (all - u32::try_from(used).unwrap_or(all), all)
    }
}

#[cfg(test)]
mod tests;
