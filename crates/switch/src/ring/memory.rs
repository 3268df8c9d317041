//! A guest's memory map: what its front end shared, and where the guest has it.

use super::chain::{Slice, Slices};
use super::log::Log;
use super::mapping::{MapError, Mapping};
use super::room::Taken;
use crate::closer::Closer;
use std::os::fd::AsFd;
use std::sync::Arc;

/// One region of guest memory, mapped here.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    /// Where the guest has it (guest physical address), bytes.
    pub guest: u64,
    /// How long it is, bytes.
    pub size: u64,
    /// Where the front end has it: the addresses of queues are given so.
    pub user: u64,
}

impl Region {
    /// Maps one, from `offset` of the file on.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(
        file: impl AsFd,
        offset: u64,
        guest: u64,
        size: u64,
        user: u64,
    ) -> Result<Self, MapError> {
        if guest.checked_add(size).is_none() || user.checked_add(size).is_none() {
            return Err(MapError::Size);
        }
        Ok(Self { mapping: Mapping::new(file, offset, size)?, guest, size, user })
    }

    /// It holds this part of a room for as long as it is mapped, and is unmapped by the thread of
    /// `closer`.
    #[must_use]
    pub fn until_closed(mut self, closer: &Arc<Closer>, room: Taken) -> Self {
        self.mapping.until_closed(closer, room);
        self
    }

    /// May it be read by a system call at any later time? One that meets the end of a file fails,
    /// and whatever it was part of fails with it, so nobody may be able to cut the file short
    /// (fcntl(2), F_SEAL_SHRINK), nor punch holes into it that no page fills again, as those of
    /// hugetlbfs may be.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.mapping.is_steady()
    }

    /// All of it, by address and length: mapped as long as the region is there.
    #[must_use]
    pub fn all(&self) -> (*const u8, u64) {
        (self.mapping.start().cast_const(), self.size)
    }

    /// Do these bytes of this process's lie in it?
    pub(super) fn holds(&self, at: *const u8, len: usize) -> bool {
        let offset = at.addr().checked_sub(self.mapping.start().addr());
        offset.is_some_and(|offset| self.at(offset as u64, len as u64).is_some())
    }

    /// Where `len` bytes from `offset` on lie here, if the region holds them.
    #[inline(always)]
    pub(super) fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.size);
        // SAFETY: the offset is within the region, and its mapping is as long as the region.
        fits.then(|| unsafe { self.mapping.start().add(offset as usize) })
    }
}

/// The memory map of one guest.
#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Arc<Region>>,
    log: Option<Arc<Log>>,
}

impl Memory {
    /// Of these regions. What is written is marked in `log`, if there is one.
    #[must_use]
    pub fn new(regions: Vec<Arc<Region>>, log: Option<Arc<Log>>) -> Self {
        Self { regions, log }
    }

    /// Its regions.
    #[must_use]
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.log.as_ref()
    }

    /// Was one of its files cut short?
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let log = self.log.as_ref().is_some_and(|log| log.is_cut());
        log || self.regions.iter().any(|region| region.mapping.is_cut())
    }

    /// The bytes from `guest` on, up to the end of their region or `len`, whichever comes first.
    #[inline]
    fn piece(&self, guest: u64, len: u64) -> Option<Slice<'_>> {
        let holds = |region: &&Arc<Region>| guest.wrapping_sub(region.guest) < region.size;
        let region = self.regions.iter().find(holds)?;
        let offset = guest - region.guest;
        let len = len.min(region.size - offset);
        // SAFETY: the region holds them, and lives as long as the borrow of this map.
        Some(unsafe { Slice::new(region.at(offset, len)?, usize::try_from(len).ok()?, guest) })
    }

    /// The `len` bytes from `guest` on, where one region holds them all.
    #[inline]
    #[must_use]
    pub fn slice(&self, guest: u64, len: u64) -> Option<Slice<'_>> {
        self.piece(guest, len).filter(|piece| piece.len() as u64 == len)
    }

    /// Appends the `len` bytes from `guest` on, in as many slices as regions hold them. False
    /// where some of them are nowhere.
    #[inline]
    #[must_use]
    pub fn append<'m>(&'m self, mut guest: u64, mut len: u64, to: &mut Slices<'m>) -> bool {
        while len > 0 {
            let Some(piece) = self.piece(guest, len) else { return false };
            to.push(piece);
            len -= piece.len() as u64;
            // Cannot overflow: no region ends beyond the last address.
            guest += piece.len() as u64;
        }
        true
    }

    /// The region that holds the `len` bytes which the front end has at `user`, and their offset
    /// in it.
    #[must_use]
    pub fn find_user(&self, user: u64, len: u64) -> Option<(Arc<Region>, u64)> {
        self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user)?;
            region.at(offset, len).map(|_| (Arc::clone(region), offset))
        })
    }

    /// Marks what was written, if there is a log.
    #[inline]
    pub fn mark(&self, guest: u64, len: u64) {
        if let Some(log) = &self.log {
            log.mark(guest, len);
        }
    }
}
