//! The mappings themselves: what the kernel is asked for, and how it is laid into this process.
//!
//! A mapping of 2 MiB and more begins where a huge page can, so that the kernel needs one entry of
//! its tables for what it has gathered into one ([`Memory::gather`]).

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
/// Bytes of a huge page, on most processors. Elsewhere nothing is gained, and nothing lost.
const HUGE: usize = 2 << 20;
/// `MADV_COLLAPSE` of Linux 6.1 (asm-generic/mman-common.h).
const COLLAPSE: libc::c_int = 25;
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
        if bytes < HUGE {
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let base =
                unsafe { rustix::mm::mmap(null_mut(), bytes, prot, MapFlags::SHARED, fd, 0)? };
            return Self::of(base.cast(), bytes);
        }
        let (none, free) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping, at an address that the kernel chooses, which nobody may touch.
        let room = unsafe { rustix::mm::mmap_anonymous(null_mut(), bytes + HUGE, none, free)? };
        let before = room.addr().next_multiple_of(HUGE) - room.addr();
        let start = room.wrapping_byte_add(before);
        // SAFETY: the file goes over a part of that mapping, which begins less than a huge page
        // behind its start and is so much shorter; where it does not, the mapping goes again.
        let base = unsafe {
            rustix::mm::mmap(start, bytes, prot, MapFlags::SHARED | MapFlags::FIXED, fd, 0)
                .inspect_err(|_| _ = rustix::mm::munmap(room, bytes + HUGE))?
        };
        for (start, len) in [(room, before), (base.wrapping_byte_add(bytes), HUGE - before)] {
            // SAFETY: what is left of it in front of the file and behind it: whole pages, since all
            // these numbers are of pages.
            let _ = unsafe { len == 0 || rustix::mm::munmap(start, len).is_ok() };
        }
        Self::of(base.cast(), bytes)
    }

    /// Gathers into a huge page what lies in its place.
    fn gather(&self, chunk: usize) -> io::Result<()> {
        let end = chunk.checked_add(1).and_then(|next| next.checked_mul(HUGE));
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let start = self.base.as_ptr().wrapping_byte_add(chunk * HUGE);
        // SAFETY: a part of this mapping, as was just looked. What it holds stays as it is; the
        // kernel only moves it, and has whoever reads or writes it meanwhile wait.
        match unsafe { libc::madvise(start.cast(), HUGE, COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Words of what [`Memory::gather`] gathers.
pub const CHUNK: usize = HUGE / WORD;

impl Memory {
    /// Has the kernel gather into one huge page what is in the [`CHUNK`] words with that number, of
    /// this process's own memory: a processor then finds the place of any of its bytes by one entry
    /// of its tables, rather than by 512. That takes the 2 MiB, used or not.
    ///
    /// # Errors
    /// Those of madvise(2) for `MADV_COLLAPSE`, of Linux 6.1: `EINVAL` where the kernel does not do
    /// it, others where it has no such page just now.
    pub fn gather(&self, chunk: usize) -> io::Result<()> {
        self.own.gather(chunk)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;
    use std::sync::atomic::AtomicBool;

    /// What is gathered while others read and write stays as it is, for each mapping of it.
    #[test]
    fn gathering_changes_nothing_that_anybody_sees() {
        const CHUNKS: usize = 4;
        let (memory, fd) = create("gather", CHUNKS * HUGE + PAGE).expect("memory");
        let view = open(&fd).expect("its own file");
        let number = |at: usize| at as u64 * 3 + 1;
        // The first word of each chunk is the writer's, which counts there from 0.
        let stays = |at: &usize| !at.is_multiple_of(5) && !at.is_multiple_of(CHUNK);
        for (at, word) in memory.words().iter().enumerate().filter(|(at, _)| stays(at)) {
            word.store(number(at), Ordering::Relaxed);
        }
        assert!(memory.gather(CHUNKS).is_err(), "it is no whole chunk");
        let stop = AtomicBool::new(false);
        let (counted, wrong) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    (0..CHUNKS).for_each(|at| memory.store(at * CHUNK, count, Ordering::Release));
                }
                count
            });
            let reader = scope.spawn(|| {
                let (mut wrong, mut last) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let count = view.load(CHUNK, Ordering::Acquire).unwrap_or(0);
                    wrong += usize::from(count < last);
                    last = count;
                    let all = (1..view.len()).step_by(61).filter(stays);
                    let is_wrong =
                        |&at: &usize| view.load(at, Ordering::Relaxed) != Some(number(at));
                    wrong += all.filter(is_wrong).count();
                }
                wrong
            });
            for chunk in (0..CHUNKS).chain(0..CHUNKS) {
                // A kernel that does not do it leaves everything, too.
                let _ = memory.gather(chunk);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            (writer.join().expect("it ends"), reader.join().expect("it ends"))
        });
        assert_eq!(wrong, 0);
        for chunk in 0..CHUNKS {
            assert_eq!(view.load(chunk * CHUNK, Ordering::Relaxed), Some(counted));
        }
    }

    #[test]
    fn a_mapping_begins_where_a_huge_page_can_and_has_its_length() {
        for bytes in [HUGE - PAGE, HUGE, HUGE + PAGE, 3 * HUGE - PAGE] {
            let (memory, fd) = create("aligned", bytes).expect("memory");
            let view = open(&fd).expect("its own file");
            assert_eq!((memory.words().len(), view.len()), (bytes / WORD, bytes / WORD));
            for base in [memory.own.base, view.0.base] {
                assert!(bytes < HUGE || base.addr().get().is_multiple_of(HUGE), "{bytes}");
            }
            memory.store(bytes / WORD - 1, 7, Ordering::Relaxed);
            assert_eq!(view.load(bytes / WORD - 1, Ordering::Relaxed), Some(7));
        }
    }
}
