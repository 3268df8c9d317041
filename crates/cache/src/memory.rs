//! Where the items' memory is: a mapping whose base and length were looked at once.
//!
//! This is the only file that touches raw memory. Its rules:
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
pub use mapped::{create, in_segment, open};

/// Bytes of a word, the unit of every offset in the cache's memory.
pub const WORD: usize = 8;

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
mod mapped {
    use super::{Arc, AtomicU64, Memory, View, WORD, io};
    use rustix::fs::{MemfdFlags, SealFlags};
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    use std::os::fd::{AsFd, OwnedFd};
    use std::ptr::{NonNull, null_mut};

    /// Seals that a memory file must have before it is mapped: it cannot shrink under a reader.
    const STAYS: SealFlags = SealFlags::SHRINK;
    /// What fstatfs(2) says of files that memfd_create(2) makes without `MFD_HUGETLB`.
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    /// Bytes of a mapping that holds a single word: the kernel makes a page of it.
    const PAGE: usize = 4096;
    /// Smallest and largest file that is mapped, bytes.
    const SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 46;

    /// A mapping of whole words.
    #[derive(Debug)]
    pub struct Map {
        base: NonNull<AtomicU64>,
        bytes: usize,
        /// What it is a part of, where the SDK mapped it.
        of: Option<Kept>,
    }

    /// An object of a segment, which stays mapped as long as it is kept.
    struct Kept(ginnel::Memory);

    impl std::fmt::Debug for Kept {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0.name())
        }
    }

    const _: fn() = || {
        fn may_be_shared<T: Send + Sync>() {}
        may_be_shared::<ginnel::Memory>();
    };

    // SAFETY: the memory is reached as atomic words alone, which any thread may use, and stays
    // mapped as long as the value lives.
    unsafe impl Send for Map {}
    // SAFETY: as above.
    unsafe impl Sync for Map {}

    impl Drop for Map {
        fn drop(&mut self) {
            if self.of.is_some() {
                return;
            }
            // SAFETY: base and length are those that mmap(2) gave. References into the memory
            // borrow `self`, so none is left.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }

    impl Map {
        #[inline]
        pub fn words(&self) -> &[AtomicU64] {
            // SAFETY: `bytes` bytes are mapped from `base`, which is aligned to a word, readable,
            // and stay so as long as `self` is borrowed: by this file, or by the SDK, of whose
            // object `of` keeps a handle. Any bytes are a valid word. A store to a read-only
            // mapping is kept out by `View`, which offers none.
            unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes / WORD) }
        }

        pub fn private(words: usize) -> io::Result<Self> {
            let bytes = (words * WORD).max(WORD);
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let base =
                unsafe { rustix::mm::mmap_anonymous(null_mut(), bytes, prot, MapFlags::SHARED)? };
            Self::of(base.cast(), bytes)
        }

        pub fn wiped_on_fork() -> io::Result<Self> {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let base =
                unsafe { rustix::mm::mmap_anonymous(null_mut(), PAGE, prot, MapFlags::PRIVATE)? };
            let map = Self::of(base.cast(), PAGE)?;
            // SAFETY: it is the mapping just made, which a child sees as zeros from now on.
            unsafe { rustix::mm::madvise(base, PAGE, Advice::LinuxWipeOnFork)? };
            Ok(map)
        }

        fn of(base: *mut AtomicU64, bytes: usize) -> io::Result<Self> {
            let base = NonNull::new(base).ok_or(io::ErrorKind::InvalidInput)?;
            Ok(Self { base, bytes, of: None })
        }

        fn file(fd: impl AsFd, bytes: usize, prot: ProtFlags) -> io::Result<Self> {
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let base =
                unsafe { rustix::mm::mmap(null_mut(), bytes, prot, MapFlags::SHARED, fd, 0)? };
            Self::of(base.cast(), bytes)
        }
    }

    /// Makes a memory file of `bytes` bytes, a whole number of pages, zeroed, and maps it.
    ///
    /// The file can be neither resized nor written through any other mapping or descriptor than
    /// this process's own mapping (`F_SEAL_FUTURE_WRITE`, Linux 5.1), so whoever is handed the
    /// descriptor may read and can do nothing else.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2), mmap(2) and fcntl(2).
    pub fn create(name: &str, bytes: usize) -> io::Result<(Memory, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        let map = Map::file(&fd, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        // After the mapping: FUTURE_WRITE lets this one stay and forbids every later one.
        let only_here = SealFlags::FUTURE_WRITE | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, only_here | STAYS)?;
        Ok((Memory::of(map), fd))
    }

    /// Returns memory that anybody of a segment can write: for the copy of a server's own memory,
    /// or to read one there ([`Memory::view`]).
    ///
    /// # Errors
    /// `InvalidData` where it has no whole word.
    pub fn in_segment(memory: ginnel::Memory) -> io::Result<Memory> {
        let (base, bytes) = (memory.as_ptr().cast::<AtomicU64>(), memory.len() / WORD * WORD);
        if bytes == 0 || !base.is_aligned() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut map = Map::of(base, bytes)?;
        map.of = Some(Kept(memory));
        Ok(Memory::of(map))
    }

    /// Maps a memory file that somebody else made, read-only.
    ///
    /// # Errors
    /// `InvalidData` if the file can shrink, or has a size that no honest server's has; else those
    /// of fcntl(2), fstat(2) and mmap(2).
    pub fn open(fd: impl AsFd) -> io::Result<View> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(STAYS) {
            return Err(bad("the memory file is not sealed against shrinking"));
        }
        // Of huge pages a hole that was punched stays one where none is free: reading it is SIGBUS.
        if u64::try_from(rustix::fs::fstatfs(&fd)?.f_type) != Ok(TMPFS_MAGIC) {
            return Err(bad("the memory file is not one of ordinary pages"));
        }
        let size = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        if !SIZES.contains(&size) || size % 4096 != 0 {
            return Err(bad("the memory file has a size that no ginnel-cache gives it"));
        }
        let bytes = usize::try_from(size).map_err(|_| bad("the memory file is too large"))?;
        Map::file(fd, bytes, ProtFlags::READ).map(|map| View(Arc::new(map)))
    }
}
#[cfg(not(loom))]
use mapped::Map;
