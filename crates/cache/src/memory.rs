//! Where the items' memory is: a mapping whose base and length were looked at once.
//!
//! This file and [`mapped`] are the only ones that touch raw memory. Their rules:
//!
//! - The mapping is handed out as a slice of atomic words and as nothing else. Another process may
//!   write a word at any time; an atomic load of it is defined all the same.
//! - The length is asked of the kernel once. The memory file is sealed against shrinking first, so
//!   no access within that length can end in SIGBUS.
//! - A [`View`] is mapped read-only and offers no stores.
//! - A mapping is never moved, resized or replaced while its value lives.
//! - What lies in a segment of Ginnel's, where anybody of the segment can write, is mapped by the
//!   SDK ([`in_segment`]) and kept here. The server stores into it and loads nothing from it.

use crate::sync::{AtomicU64, Ordering};
use std::io;
use std::sync::Arc;

#[cfg(not(loom))]
pub use mapped::{CHUNK, create, in_segment, open};

/// Bytes of a word, the unit of every offset in the cache's memory.
pub const WORD: usize = 8;

/// Words of a cache line, on most processors.
const LINE: usize = 8;

/// Memory of the cache as its one writer sees it, and perhaps a copy of it for other machines.
#[derive(Debug)]
pub struct Memory {
    own: Arc<Map>,
    copy: Option<Arc<Map>>,
}

/// Memory of the cache as a reader sees it: somebody else writes it, perhaps maliciously.
#[derive(Debug, Clone)]
pub struct View(Arc<Map>);

impl Memory {
    /// Returns all words.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        self.own.words()
    }

    /// Returns all words, then those of the copy: what is stored goes into each.
    #[inline]
    pub fn each(&self) -> impl Iterator<Item = &[AtomicU64]> {
        std::iter::once(self.words()).chain(self.copy.as_deref().map(Map::words))
    }

    /// Stores a word.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub fn store(&self, at: usize, value: u64, order: Ordering) {
        self.each().for_each(|words| words[at].store(value, order));
    }

    /// Has `change` change what the version at a word guards ([`seq`](crate::seq)).
    ///
    /// # Panics
    /// If the version lies outside.
    #[inline]
    pub fn change(&self, version: usize, change: impl Fn(&[AtomicU64])) {
        let before = self.words()[version].load(Ordering::Relaxed);
        for words in self.each() {
            crate::seq::write_after(&words[version], before, || change(words));
        }
    }

    /// Has all that is stored from now on go into `copy`, too, which is zeroed as this is.
    ///
    /// # Errors
    /// `InvalidInput` if the copy is smaller.
    pub fn copied_to(self, copy: Self) -> io::Result<Self> {
        if copy.words().len() < self.words().len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { copy: Some(copy.own), ..self })
    }

    /// Returns zeroed memory of `words` words that no other process can be given.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn private(words: usize) -> io::Result<Self> {
        Map::private(words).map(Self::of)
    }

    /// Returns a second value for the same mapping, which keeps it mapped.
    #[must_use]
    pub(crate) fn keep(&self) -> Self {
        Self { own: self.own.clone(), copy: self.copy.clone() }
    }

    fn of(map: Map) -> Self {
        Self { own: Arc::new(map), copy: None }
    }

    /// Returns a reader's view of the same mapping, for readers in this process.
    #[must_use]
    pub fn view(&self) -> View {
        View(self.own.clone())
    }
}

impl View {
    /// Returns the word at `index`, loaded with `order`, or nothing if it lies outside.
    #[must_use]
    #[inline]
    pub fn load(&self, index: usize, order: Ordering) -> Option<u64> {
        self.0.words().get(index).map(|word| word.load(order))
    }

    /// Returns `count` words from `start`, or nothing if any lies outside. Only loads are allowed:
    /// the memory may be mapped read-only.
    #[must_use]
    #[inline]
    pub(crate) fn words(&self, start: usize, count: usize) -> Option<&[AtomicU64]> {
        self.0.words().get(start..start.checked_add(count)?)
    }

    /// Asks for the cache lines of `count` words from `start`, which are going to be read; for none
    /// that lie outside.
    #[inline]
    pub(crate) fn will_read(&self, start: usize, count: usize) {
        let words = self.0.words();
        let end = words.len().min(start.saturating_add(count + LINE - 1));
        for word in words.get(start..end).unwrap_or_default().iter().step_by(LINE) {
            will_read(word);
        }
    }

    /// Returns how many words there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.words().len()
    }

    /// Returns whether there is no word.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Asks for a word's cache line.
#[inline(always)]
fn will_read(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: prefetching never faults, and changes nothing that a program could see.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(word.as_ptr().cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = word;
}

/// A word that is set in the process that made it, and in no child of that.
#[derive(Debug)]
pub struct Mark(Map);

impl Mark {
    /// Returns a word that is set.
    ///
    /// # Errors
    /// Those of mmap(2) and madvise(2): `MADV_WIPEONFORK` is of Linux 4.14.
    pub fn new() -> io::Result<Self> {
        let map = Map::wiped_on_fork()?;
        map.words().iter().take(1).for_each(|word| word.store(1, Ordering::Relaxed));
        Ok(Self(map))
    }

    /// Returns whether this process made it.
    #[must_use]
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.words().first().is_some_and(|word| word.load(Ordering::Relaxed) == 1)
    }
}

#[cfg(loom)]
mod model {
    use super::{AtomicU64, io};

    /// Loom's words stand for a mapping.
    #[derive(Debug)]
    pub struct Map(Vec<AtomicU64>);

    impl Map {
        pub fn words(&self) -> &[AtomicU64] {
            &self.0
        }

        pub fn private(words: usize) -> io::Result<Self> {
            Ok(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
        }

        pub fn wiped_on_fork() -> io::Result<Self> {
            Self::private(1)
        }
    }
}
#[cfg(loom)]
use model::Map;

#[cfg(not(loom))]
mod mapped;
#[cfg(not(loom))]
use mapped::Map;
