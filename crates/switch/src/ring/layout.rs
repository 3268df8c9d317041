//! Where a queue lies, and its parts once they are found in memory.

use super::broken::Broken;
use super::memory::{Memory, Region};
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

/// What a front end says of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Entries: a power of two, at most [`MAX_SIZE`].
    pub size: u16,
    /// The descriptor table, at the front end's address.
    pub descriptors: u64,
    /// The available ring.
    pub available: u64,
    /// The used ring.
    pub used: u64,
    /// Where the guest has the used ring, while what is written there is to be logged.
    pub used_log: Option<u64>,
    /// Index of the next entry of the available ring.
    pub base: u16,
    /// `VIRTIO_F_EVENT_IDX` was agreed on.
    pub event_idx: bool,
    /// `VIRTIO_F_INDIRECT_DESC` was agreed on.
    pub indirect: bool,
}

/// A part of a queue, and the region that keeps it mapped.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) at: *mut u8,
    _region: Arc<Region>,
}

impl Part {
    pub(super) fn new(memory: &Memory, user: u64, len: u64, align: usize) -> Result<Self, Broken> {
        let (region, offset) = memory.find_user(user, len).ok_or(Broken::Place(user))?;
        let at = region.at(offset, len).ok_or(Broken::Place(user))?;
        if !(at as usize).is_multiple_of(align) {
            return Err(Broken::Place(user));
        }
        Ok(Self { at, _region: region })
    }

    /// The word at `offset`.
    ///
    /// # Safety
    /// The part holds it, and it is aligned.
    #[inline]
    pub(super) unsafe fn u16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: the caller's promise; the part is mapped as long as it is borrowed.
        unsafe { AtomicU16::from_ptr(self.at.add(offset).cast()) }
    }
}
