//! Guest memory that is read where it is after the guest's turn is over: what is sent to another
//! host without a copy.

use super::chain::Slices;
use super::memory::{Memory, Region};
use smallvec::SmallVec;
use std::sync::Arc;

/// A piece of guest memory, and the region that keeps it mapped.
#[derive(Debug)]
pub struct Piece {
    at: *const u8,
    len: usize,
    region: Arc<Region>,
}

impl Piece {
    /// Where it begins: readable for [`Self::len`] bytes as long as the piece is there. Whoever
    /// reads it bears that the guest writes meanwhile.
    #[must_use]
    pub fn at(&self) -> *const u8 {
        self.at
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is it empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The region that it lies in.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

/// Pieces of guest memory that stay mapped as long as this is there, whatever becomes of the guest.
#[derive(Debug)]
pub struct Held(SmallVec<[Piece; 3]>);

// SAFETY: its pointers are into shared mappings, which belong to no thread, and its regions keep
// those mapped.
unsafe impl Send for Held {}

impl Held {
    /// The last `count` pieces of `from`, if they lie in regions of `memory` that are all `good`.
    #[must_use]
    pub fn last(
        memory: &Memory,
        from: &Slices<'_>,
        count: usize,
        good: impl Fn(&Arc<Region>) -> bool,
    ) -> Option<Self> {
        let pieces = from.last(count).map(|(at, len)| {
            let holds = |region: &&Arc<Region>| region.holds(at, len) && good(region);
            let region = memory.regions().iter().find(holds)?;
            Some(Piece { at, len, region: Arc::clone(region) })
        });
        pieces.collect::<Option<_>>().map(Self)
    }

    /// Its pieces.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Bytes of all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Piece::len).sum()
    }

    /// Is it empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Does nobody else keep one of its regions, so that it is unmapped with this?
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.0.iter().any(|piece| Arc::strong_count(&piece.region) == 1)
    }

    /// Copies all bytes, as they are now, to `to`, as far as it has room. Returns how many.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in &self.0 {
            let room = to.get_mut(done..).unwrap_or_default();
            let len = piece.len.min(room.len());
            // SAFETY: the piece is readable for so many bytes, as its region is mapped; `room` is
            // ours, at least as long, and lies in no guest's memory.
            unsafe { ginnel_ring::copy::copy(piece.at, room.as_mut_ptr(), len) };
            done += len;
        }
        done
    }
}
