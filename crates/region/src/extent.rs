//! Pages of a segment, claimed by compare-and-swap on one owner word each.

use crate::{Error, Segment, device::Source, sys};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Bytes in a page: the unit in which memory of a segment is claimed.
pub const PAGE: u64 = 4096;

const POPULATED: u64 = 1 << 63;
const USED: u64 = 1 << 62;

/// What claimed pages are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// A channel's header; its tag is its own page.
    Channel = 1,
    /// A ring's bytes; its tag is the channel's page.
    Ring = 2,
    /// A waiter: the flags by which a sleeper is found; its tag is its own page.
    Waiter = 3,
}

/// Who owns pages and what for. Layout of the owner word: bit 63 populated, bit 62 used, bits 56–59 use, bits 32–47 member, bits 0–31 tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The member of the segment (see `ginnel_channel`), 0 … 65535.
    pub member: u16,
    /// What the pages are for.
    pub kind: Use,
    /// The page that heads the group these pages are freed with; `None`: their own first page.
    pub tag: Option<u32>,
}

impl Owner {
    /// Pages that head their own group.
    #[must_use]
    pub fn new(member: u16, kind: Use) -> Self {
        Self { member, kind, tag: None }
    }

    fn word(self, first: u32) -> u64 {
        POPULATED | USED | (self.kind as u64) << 56 | u64::from(self.member) << 32 | u64::from(self.tag.unwrap_or(first))
    }

    pub(crate) fn of(word: u64) -> Option<Self> {
        let kind = match (word >> 56) & 0xf {
            1 => Use::Channel,
            2 => Use::Ring,
            3 => Use::Waiter,
            _ => return None,
        };
        if word & USED == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the fields of the word are cut out here")]
        Some(Self { member: (word >> 32) as u16, kind, tag: Some(word as u32) })
    }
}

/// Claimed pages, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Number of the first page, from the segment's start.
    pub page: u32,
    /// How many.
    pub pages: u32,
}

impl Extent {
    /// Bytes from the segment's start.
    #[must_use]
    pub fn offset(self) -> u64 {
        u64::from(self.page) * PAGE
    }
}

impl Segment {
    /// Claims `pages` neighbouring pages and makes their memory real, so that touching them cannot raise SIGBUS.
    /// The pages hold whatever their last owner left.
    ///
    /// # Errors
    /// [`Error::Full`] where no run of free pages is long enough, [`Error::NoMemory`] where the file system is full.
    pub fn claim(&self, pages: u32, owner: Owner) -> Result<Extent, Error> {
        let (first, end) = self.page_range();
        let start = self.hint().load(Relaxed).clamp(first, end);
        let extent =
            self.claim_in(start, end, pages, owner).or_else(|| self.claim_in(first, end, pages, owner)).ok_or(Error::Full)?;
        self.hint().store(extent.page + pages, Relaxed);
        if let Err(error) = self.make_real(extent) {
            self.set_free(extent, false);
            return Err(error);
        }
        Ok(extent)
    }

    fn claim_in(&self, from: u32, end: u32, pages: u32, owner: Owner) -> Option<Extent> {
        let mut first = from;
        'run: while first.checked_add(pages)? <= end {
            for taken in 0..pages {
                let word = self.owner_word(first + taken);
                let old = word.load(Relaxed);
                // Acquire pairs with the Release store that freed the page.
                if old & USED != 0 || word.compare_exchange(old, owner.word(first), AcqRel, Relaxed).is_err() {
                    self.set_free(Extent { page: first, pages: taken }, true);
                    first += taken + 1;
                    continue 'run;
                }
            }
            return Some(Extent { page: first, pages });
        }
        None
    }

    fn make_real(&self, extent: Extent) -> Result<(), Error> {
        let len = u64::from(extent.pages) * PAGE;
        if self.source() != Source::File {
            // The host's memory, which the host makes real; this kernel has no pages behind it that could be wanting.
            return Ok(());
        }
        // SAFETY: the extent lies inside the map.
        let done = unsafe { sys::populate(self.base().add(extent.offset() as usize), len as usize) };
        match done {
            Ok(()) => Ok(()),
            Err(libc::EINVAL) => self.allocate_in_file(extent.offset(), len),
            Err(_) => Err(Error::NoMemory),
        }
    }

    fn set_free(&self, extent: Extent, populated: bool) {
        for page in extent.page..extent.page + extent.pages {
            self.owner_word(page).store(if populated { POPULATED } else { 0 }, Release);
        }
    }

    /// Frees claimed pages.
    pub fn release(&self, extent: Extent) {
        self.set_free(extent, true);
        self.hint().fetch_min(extent.page, Relaxed);
    }

    /// Frees every page whose group is headed by one of `heads`, which ascend, in one go through all pages, and the heads last. Returns how many there were.
    pub fn release_groups(&self, heads: &[u32]) -> u32 {
        let Some(&lowest) = heads.first() else { return 0 };
        let (first, end) = self.page_range();
        let mut freed = 0;
        let mut free = |page: u32, old: u64| {
            freed += u32::from(self.owner_word(page).compare_exchange(old, POPULATED, AcqRel, Relaxed).is_ok());
        };
        for page in first..end {
            let old = self.owner_word(page).load(Acquire);
            if let Some(Owner { kind: Use::Channel | Use::Ring, tag: Some(tag), .. }) = Owner::of(old)
                && tag != page
                && heads.binary_search(&tag).is_ok()
            {
                free(page, old);
            }
        }
        for &head in heads.iter().filter(|head| (first..end).contains(head)) {
            let old = self.owner_word(head).load(Acquire);
            if Owner::of(old).is_some_and(|owner| owner.tag == Some(head)) {
                free(head, old);
            }
        }
        self.hint().fetch_min(lowest.max(first), Relaxed);
        freed
    }

    /// Frees `pages` pages from `first` on as far as they still belong to the group of `tag`: a bad value frees nothing of anybody else's.
    pub fn release_if_tagged(&self, first: u32, pages: u32, tag: u32) {
        let (low, end) = self.page_range();
        for page in first.max(low)..first.saturating_add(pages).min(end) {
            let word = self.owner_word(page);
            let old = word.load(Acquire);
            if Owner::of(old).is_some_and(|owner| owner.tag == Some(tag)) {
                let _ = word.compare_exchange(old, POPULATED, AcqRel, Relaxed);
            }
        }
        self.hint().fetch_min(first.max(low), Relaxed);
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
        let (first, end) = self.page_range();
        (first..end).filter_map(|page| Some((page, Owner::of(self.owner_word(page).load(Acquire))?)))
    }

    /// (free, all) pages that can be claimed.
    #[must_use]
    pub fn page_counts(&self) -> (u32, u32) {
        let (first, end) = self.page_range();
        let used = (first..end).filter(|&page| self.owner_word(page).load(Relaxed) & USED != 0).count();
        let all = end - first;
        (all - u32::try_from(used).unwrap_or(all), all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn segment() -> (Segment, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("ginnel-extent-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() }).expect("create");
        (segment, path)
    }

    #[test]
    fn pages_are_claimed_once_and_come_back() {
        let (segment, path) = segment();
        let (free, all) = segment.page_counts();
        assert_eq!(free, all);
        let owner = Owner::new(3, Use::Channel);
        let head = segment.claim(1, owner).expect("one page");
        let ring = segment.claim(8, Owner { kind: Use::Ring, tag: Some(head.page), ..owner }).expect("eight");
        assert_eq!(segment.page_counts().0, all - 9);
        assert!(ring.page > head.page || ring.page + 8 <= head.page);
        assert_eq!(segment.owner(ring.page + 7), Some(Owner { kind: Use::Ring, tag: Some(head.page), member: 3 }));
        assert_eq!(segment.release_groups(&[head.page]), 9);
        assert_eq!(segment.page_counts().0, all);
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn a_full_segment_says_so_and_recovers() {
        let (segment, path) = segment();
        let all = segment.page_counts().1;
        let whole = segment.claim(all, Owner::new(0, Use::Ring)).expect("all of it");
        assert_eq!(segment.claim(1, Owner::new(0, Use::Ring)), Err(Error::Full));
        segment.release(whole);
        assert!(segment.claim(1, Owner::new(0, Use::Ring)).is_ok());
        assert_eq!(segment.claim(all, Owner::new(0, Use::Ring)), Err(Error::Full), "one page is missing");
        assert_eq!(segment.page_counts().0, all - 1, "a failed claim leaves nothing behind");
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn racing_claims_never_overlap() {
        let (segment, path) = segment();
        let segment = &segment;
        std::thread::scope(|scope| {
            for member in 0..4u16 {
                scope.spawn(move || {
                    for round in 0..2000u32 {
                        let extent = segment.claim(1 + round % 7, Owner::new(member, Use::Ring)).expect("claim");
                        for page in extent.page..extent.page + extent.pages {
                            assert_eq!(segment.owner(page).map(|owner| owner.member), Some(member));
                        }
                        segment.release(extent);
                    }
                });
            }
        });
        let (free, all) = segment.page_counts();
        assert_eq!(free, all);
        std::fs::remove_file(path).expect("remove");
    }
}
