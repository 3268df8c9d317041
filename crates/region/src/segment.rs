//! A mapped segment, and where things lie in it.

mod file;
mod hints;
mod make;

pub use make::may_make;

use crate::device::Source;
use crate::header::{FEATURE_PEERS, FEATURE_TOKENS_ONLY, Header, MAGIC};
use crate::layout::{MEMBERS, MEMBERS_BYTES, OWNERS, RENDEZVOUS_BYTES, names_at, tables_end};
use crate::sys;
use crate::{Corrupt, Error, PAGE};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A mapped segment. The map lives as long as the process: connections in it may outlive any one
/// value.
pub struct Segment {
    base: *mut u8,
    len: u64,
    id: u64,
    features: u64,
    path: PathBuf,
    source: Source,
    own: bool,
    /// Device and inode of the file; of other memory 0.
    file: (u64, u64),
}

// SAFETY: the map is shared memory that is only accessed through atomics and copies; `base` never
// changes.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

pub(crate) fn system(doing: &'static str) -> impl Fn(i32) -> Error {
    move |errno| {
        if errno == libc::ENOSPC { Error::NoMemory } else { Error::System { doing, errno } }
    }
}

impl Segment {
    /// Does memory that came later hold this very segment?
    #[must_use]
    pub fn is_in(&self, memory: i32) -> bool {
        let mut id = [0; 8];
        sys::pread(memory, &mut id, std::mem::offset_of!(Header, id) as u64) == Ok(id.len())
            && u64::from_ne_bytes(id) == self.id
    }

    /// Unmaps a segment that nothing was done with.
    pub fn close(self) {
        // SAFETY: nothing that borrows from it is left; an address taken from it is the taker's to
        // forget.
        unsafe { sys::unmap(self.base, self.len as usize) };
    }

    /// Is it no longer what was mapped: its device was unplugged, or [`Self::let_go`] was called?
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.word(0).load(Relaxed) != MAGIC
    }

    /// Lets go of the memory: zeroes of this process's own stand in its place, for as long as the
    /// process lives. A thread that is late, wherever it is, finds memory there. False where there
    /// was no room for zeroes: then others may come to have the addresses.
    #[must_use]
    pub fn let_go(&self) -> bool {
        // SAFETY: the map is this value's, and whatever stands in it is read as a peer's writing.
        unsafe { sys::give_up(self.base, self.len as usize) }
    }

    /// Puts this segment where one of the same size was that was [let go](Self::let_go) of, and of
    /// which `place` is the address. False where the kernel had no room: then it stays where it is,
    /// and nothing is known of that place.
    ///
    /// # Safety
    /// Zeroes of this process's stand there, which nobody uses any more, and nobody has got to know
    /// this segment's address.
    #[must_use]
    pub unsafe fn take_place(&mut self, place: *mut u8) -> bool {
        // SAFETY: the caller's promise; whatever stands there is read as a peer's writing.
        let moved = unsafe { sys::replace_with(place, self.base, self.len as usize) }.is_ok();
        if moved {
            self.base = place;
        }
        moved
    }

    /// Where the segment begins in this process.
    #[must_use]
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Where it lies in this process.
    #[must_use]
    pub fn memory(&self) -> std::ops::Range<usize> {
        self.base as usize..self.base as usize + self.len as usize
    }

    /// Bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A random number that names this segment: two files are never one segment.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Are tokens the only wake-up in this segment?
    #[must_use]
    pub fn tokens_only(&self) -> bool {
        self.features & FEATURE_TOKENS_ONLY != 0
            || matches!(
                self.source,
                Source::Bar { .. }
                    | Source::Device { vectors: 0, .. }
                    | Source::Host { vectors: 0 }
                    | Source::Pair
            )
    }

    /// How it came into this machine.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Is it a file of this kernel that, when it was opened, belonged to this process's effective
    /// user and gave nobody else any right?
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Did a daemon make it, and does it keep the table of peers?
    #[must_use]
    pub fn kept_by_daemon(&self) -> bool {
        self.features & FEATURE_PEERS != 0
    }

    /// The segment's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the rendezvous table lies: (offset, bytes).
    #[must_use]
    pub fn rendezvous(&self) -> (u64, u64) {
        (PAGE, RENDEZVOUS_BYTES)
    }

    /// Where the member table lies: (offset, bytes).
    #[must_use]
    pub fn members(&self) -> (u64, u64) {
        (MEMBERS, MEMBERS_BYTES)
    }

    /// First page that can be claimed, and the page after the last.
    pub(crate) fn page_range(&self) -> (u32, u32) {
        let page = |bytes: u64| u32::try_from(bytes / PAGE).unwrap_or(u32::MAX);
        (page(tables_end(self.len)), page(self.len))
    }

    pub(crate) fn owner_word(&self, page: u32) -> &AtomicU64 {
        self.word(OWNERS + u64::from(page) * 8)
    }

    /// Where the table of names begins, bytes from the segment's start.
    pub(crate) fn names_at(&self) -> u64 {
        names_at(self.len)
    }

    /// Every page that can be claimed, up to before `end`, with its owner word.
    pub(crate) fn owner_words(&self, end: u32) -> impl Iterator<Item = (u32, &AtomicU64)> {
        let (first, last) = self.page_range();
        let at = (OWNERS + u64::from(first) * 8) as usize;
        let count = end.clamp(first, last) - first;
        // SAFETY: the words of all pages of the segment lie in its map, one after the other;
        // atomics may be shared with anybody who uses the same memory.
        let words = unsafe {
            core::slice::from_raw_parts(self.base.add(at).cast::<AtomicU64>(), count as usize)
        };
        (first..).zip(words)
    }

    /// The atomic word at `offset`, which must be a multiple of 8 inside the segment. An offset
    /// outside (a bug, or a value that escaped checking) gives the segment's last word: wrong, but
    /// inside.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.len, "word at {offset:#x}");
        let offset = if offset <= self.len - 8 { offset & !7 } else { self.len - 8 };
        // SAFETY: inside the map, aligned; atomics may be shared with anybody who uses the same
        // memory.
        unsafe { &*self.base.add(offset as usize).cast::<AtomicU64>() }
    }

    /// Address of page `page`; of the last one, where there is none so far.
    #[must_use]
    #[inline]
    pub fn page(&self, page: u32) -> *mut u8 {
        let offset = u64::from(page).min(self.len / PAGE - 1) * PAGE;
        // SAFETY: inside the map.
        unsafe { self.base.add(offset as usize) }
    }

    /// Returns where a ring of `size` bytes at `offset` lies in this process.
    ///
    /// Asked at each use, also of numbers that were checked when they were stored: what stores them
    /// (the ledger) is memory that others write, too. Base and length are this process's own.
    ///
    /// # Errors
    /// [`Corrupt`] unless `size` is a power of two and all of the ring lies in the segment.
    #[inline]
    pub fn ring(&self, offset: u64, size: u64) -> Result<*mut u8, Corrupt> {
        if !size.is_power_of_two() || size > self.len || offset > self.len - size {
            return Err(Corrupt);
        }
        // SAFETY: `offset..offset + size` was just found to lie inside the map.
        Ok(unsafe { self.base.add(offset as usize) })
    }

    /// Is `len` bytes from `offset` on inside the pages that can be claimed?
    #[must_use]
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset >= tables_end(self.len) && offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Zeroes a page before its first use.
    pub fn clear(&self, page: u32) {
        for word in 0..PAGE / 8 {
            self.word(u64::from(page) * PAGE + word * 8).store(0, Relaxed);
        }
    }

    /// Makes the pages of a range that a peer claimed present in this process: one call rather than
    /// a fault a page. Not in the memory of a pair: what the other process has not touched would
    /// count as this one's.
    pub fn fault_in(&self, offset: u64, len: u64) {
        if matches!(self.source, Source::File | Source::Host { .. }) && self.holds(offset, len) {
            // SAFETY: inside the map.
            let _ = unsafe { sys::populate(self.base.add(offset as usize), len as usize) };
        }
    }
}
