//! Memory that lies in the segment, and that whoever has its [`Place`] uses directly: no message,
//! no help of its owner. What MPI calls a window, where it may say itself where that lies.
//!
//! It is a group of its own: a page that heads it (`layout::memory`), and the memory. The owner
//! gives it back. Of a dead owner it is freed once nobody of its job is left: one that still has
//! its place would write into what the pages are by then.

use crate::Error;
use crate::layout::memory::{JOB, MEMORY, OWNER, owner_of};
use crate::node::Node;
use ginnel_region::{Config, Extent, Head, Owner, PAGE, Segment, Use};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Where memory lies, for whoever has the same segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The segment's number.
    pub segment: u64,
    /// Where it begins in the segment.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Memory that was allocated.
#[derive(Debug)]
pub struct Piece {
    head: Head,
    extent: Extent,
    /// Where it lies here.
    pub at: *mut u8,
    /// The same for others.
    pub place: Place,
}

/// A process's memory in a segment, and its way to that of others.
pub struct Pool {
    node: Node,
    job: u64,
}

impl Pool {
    /// Joins the segment, as a member of a job.
    ///
    /// # Errors
    /// What stood against it.
    pub fn open(path: &Path, config: &Config, job: u64) -> Result<Self, Error> {
        let node = Node::join(path, config)?;
        node.set_job(job);
        Ok(Self { node, job })
    }

    /// Leaves the segment. What was allocated is given back.
    pub fn close(self) {
        if !self.node.is_own() {
            return self.node.leave();
        }
        let Ok(guard) = self.node.guard() else { return self.node.leave() };
        let own: Vec<Head> =
            self.node.segment().heads_within_reach().filter(|head| self.is_own(*head)).collect();
        own.into_iter().for_each(|head| release(self.node.segment(), head));
        drop(guard);
        self.node.leave();
    }

    fn is_own(&self, head: Head) -> bool {
        owner_of(self.node.segment(), head).is_some_and(|(owner, _)| owner == self.node.id())
    }

    /// Allocates memory, which is zeroed.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::TooLong`].
    pub fn allocate(&self, len: u64) -> Result<Piece, Error> {
        let pages = u32::try_from(len.max(1).div_ceil(PAGE)).map_err(|_| Error::TooLong)?;
        let _guard = self.node.guard()?;
        let segment = self.node.segment();
        let head = segment.claim_head(Owner::new(self.node.member(), Use::Endpoint))?;
        let page = head.page();
        segment.clear(page);
        let owner = Owner { tag: Some(page), ..Owner::new(self.node.member(), Use::Ring) };
        let extent = segment.claim(pages, owner);
        let extent = extent.inspect_err(|_| _ = segment.release_groups(&[head]))?;
        (extent.page..extent.page + extent.pages).for_each(|page| segment.clear(page));
        let word = |at| segment.word(u64::from(page) * PAGE + at);
        word(OWNER).store(self.node.id().0, Ordering::Relaxed);
        word(JOB).store(self.job, Ordering::Relaxed);
        // Release pairs with the Acquire in `owner_of`.
        word(0).store(MEMORY, Ordering::Release);
        let head = segment.settle(head).ok_or(Error::NoMemory)?;
        let place =
            Place { segment: segment.id(), offset: extent.offset(), len: u64::from(pages) * PAGE };
        Ok(Piece { head, extent, at: segment.page(extent.page), place })
    }

    /// Gives memory back.
    pub fn free(&self, piece: &Piece) {
        if self.is_own(piece.head)
            && let Ok(_guard) = self.node.guard()
            && let Some(head) = self.node.segment().take(piece.head)
        {
            // It is known where it lies: no look through all pages of the segment.
            self.node.segment().release_parts(head, &[piece.extent]);
        }
    }

    /// Where another's memory lies here. `None`: not in this segment. The map stays until the pool
    /// is closed.
    #[must_use]
    pub fn find(&self, place: &Place) -> Option<*mut u8> {
        let segment = self.node.segment();
        let is_there = place.segment == segment.id()
            && place.offset.is_multiple_of(PAGE)
            && segment.holds(place.offset, place.len);
        let page = u32::try_from(place.offset / PAGE).ok()?;
        is_there.then(|| segment.page(page))
    }
}

fn release(segment: &Segment, head: Head) {
    if let Some(head) = segment.take(head) {
        segment.release_groups(&[head]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_others_and_stays_until_its_job_is_gone() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("mpi");
        let config = Config { size: 16 << 20, ..Config::default() };
        let open = |job| Pool::open(&path, &config, job).expect("a pool");
        let (a, b, other) = (open(7), open(7), open(8));
        let piece = a.allocate(10_000).expect("room");
        assert_eq!(piece.place.len, 12_288);
        let there = b.find(&piece.place).expect("the same segment");
        // SAFETY: so many bytes lie there, and nobody else uses them.
        unsafe {
            assert!((0..10_000).all(|at| *there.add(at) == 0));
            *there.add(9_999) = 5;
            assert_eq!(*piece.at.add(9_999), 5);
        }
        let outside = [
            Place { segment: 1, ..piece.place },
            Place { offset: 0, ..piece.place },
            Place { offset: piece.place.offset + 8, ..piece.place },
            Place { len: u64::MAX, ..piece.place },
            Place { offset: u64::MAX - 4095, ..piece.place },
        ];
        assert!(outside.iter().all(|place| b.find(place).is_none()));
        assert!(matches!(a.allocate(1 << 40), Err(Error::NoMemory | Error::TooLong)));
        let heads = || {
            other
                .node
                .segment()
                .heads_within_reach()
                .filter(|head| owner_of(other.node.segment(), *head).is_some())
                .count()
        };
        assert_eq!(heads(), 1);
        a.free(&piece);
        a.free(&piece);
        assert_eq!(heads(), 0);
        // Every page is given back: most of the segment is to be had again and again.
        for _ in 0..10 {
            a.free(&a.allocate(10 << 20).expect("room, as before"));
        }
        // One that dies leaves it to its job.
        let piece = a.allocate(5000).expect("room");
        a.node.die();
        open(9).close();
        assert_eq!(heads(), 1, "b may still write there");
        assert!(b.find(&piece.place).is_some());
        b.close();
        assert_eq!(heads(), 0);
        other.close();
        assert!(!path.exists() && !path.with_extension("wake").exists());
    }
}
