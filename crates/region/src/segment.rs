//! The segment file: creating it whole or not at all, opening it with suspicion, mapping it.

use crate::device::{self, Source};
use crate::header::{Config, FEATURE_PEERS, FEATURE_TOKENS_ONLY, Header, MAGIC, MAX_SIZE, MIN_SIZE};
use crate::layout::{
    BEGUN, BY_TCP, CARRIED, HINT, LATELY, LATELY_ENTRIES, MEMBERS, MEMBERS_BYTES, OWNERS, REACHED, RENDEZVOUS_BYTES, names_at,
    tables_end,
};
use crate::open;
use crate::sys::{self, Fd};
use crate::{Corrupt, Error, Extent, PAGE};
use std::ffi::{CStr, CString, OsStr};
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// First word of the memory that `ginneld` gives to those who may not join.
const REFUSAL: &[u8; 8] = b"GINNELNO";

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

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::System { doing: "segment path", errno: libc::EINVAL })
}

pub(crate) fn system(doing: &'static str) -> impl Fn(i32) -> Error {
    move |errno| if errno == libc::ENOSPC { Error::NoMemory } else { Error::System { doing, errno } }
}

/// May this process make a file of `size` bytes? Asked before: the kernel answers with a signal.
///
/// # Errors
/// [`Error::FileLimit`].
pub fn may_make(size: u64) -> Result<(), Error> {
    let allowed = sys::file_size_limit();
    if size <= allowed { Ok(()) } else { Err(Error::FileLimit { needed: size, allowed }) }
}

impl Segment {
    /// Opens a segment, or makes it where there is none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open_or_create(path: &Path, config: &Config) -> Result<Self, Error> {
        match Self::open(path) {
            Err(Error::System { errno: libc::ENOENT, .. }) => match Self::create(path, config) {
                Err(Error::System { errno: libc::EEXIST, .. }) => Self::open(path),
                other => other,
            },
            other => other,
        }
    }

    /// Makes a new segment, whole or not at all: the file gets its name when it is complete.
    ///
    /// # Errors
    /// EEXIST (as [`Error::System`]) if the name is taken, [`Error::Size`], [`Error::NoMemory`].
    pub fn create(path: &Path, config: &Config) -> Result<Self, Error> {
        config.check()?;
        may_make(config.size)?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(OsStr::new(&format!(".{:x}.new", sys::random_u64())));
        let (draft, name) = (c_path(Path::new(&draft))?, c_path(path)?);
        let fd = sys::openat(libc::AT_FDCWD, &draft, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, config.mode)
            .map(Fd)
            .map_err(system("create segment file"))?;
        let made = Self::fill(&fd, config).and_then(|()| sys::link(&draft, &name).map_err(system("name segment file")));
        let _ = sys::unlinkat(libc::AT_FDCWD, &draft);
        made?;
        Self::open(path)
    }

    fn fill(fd: &Fd, config: &Config) -> Result<(), Error> {
        sys::ftruncate(fd.0, config.size).map_err(system("size segment file"))?;
        // Everything but the claimable pages is made real at once, so that no later touch can raise
        // SIGBUS.
        sys::fallocate(fd.0, 0, tables_end(config.size)).map_err(system("reserve segment tables"))?;
        let bytes = Header::new(config, 0).bytes();
        match sys::write(fd.0, &bytes) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(Error::NoMemory),
            Err(errno) => Err(system("write segment header")(errno)),
        }
    }

    /// Opens a segment that is there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (fd, stat) = open::open(path).map_err(|errno| match errno {
            libc::EINVAL => Error::Foreign,
            errno => system("open segment file")(errno),
        })?;
        if let Some((source, size)) = device::look(path, fd.0, &stat)? {
            return Self::open_memory(path, fd.0, source, size);
        }
        let mut bytes = [0u8; size_of::<Header>()];
        if sys::read(fd.0, &mut bytes).map_err(system("read segment header"))? != bytes.len() {
            return Err(Error::Foreign);
        }
        // SAFETY: `Header` is plain numbers: any bytes are a valid one.
        let header: Header = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        header.check(actual)?;
        let base = sys::map_shared(fd.0, actual as usize, true).map_err(system("map segment"))?;
        let own = stat.st_uid == sys::effective_ids().0 && stat.st_mode & 0o077 == 0;
        Ok(Self { own, file: (stat.st_dev, stat.st_ino), ..Self::mapped(path, base, header, Source::File) })
    }

    fn mapped(path: &Path, base: *mut u8, header: Header, source: Source) -> Self {
        let (len, id, features) = (header.size, header.id, header.features);
        Self { base, len, id, features, path: path.to_owned(), source, own: false, file: (0, 0) }
    }

    /// Maps memory that `ginneld` gave this process of the host: `path` is where it was asked. The
    /// descriptor is not needed afterwards.
    ///
    /// # Errors
    /// [`Error::Refused`] where it is what those get who may not join; [`Error::Unsealed`]; else as for a file.
    pub fn of_host(path: &Path, memory: i32, vectors: u16) -> Result<Self, Error> {
        let size = u64::try_from(sys::fstat(memory).map_err(system("look at ginneld's memory"))?.st_size).unwrap_or(0);
        let mut word = [0; 8];
        if sys::pread(memory, &mut word, 0) == Ok(word.len()) && word == *REFUSAL {
            return Err(Error::Refused);
        }
        // Somebody who could cut it short would end this process with SIGBUS.
        let seals = sys::fcntl(memory, libc::F_GET_SEALS, 0).unwrap_or(0);
        if seals & libc::F_SEAL_SHRINK as usize == 0 {
            return Err(Error::Unsealed);
        }
        Self::open_memory(path, memory, Source::Host { vectors }, size)
    }

    /// Makes the memory of a pair of processes in an empty file that has no name (memfd_create(2)).
    /// The caller seals it. Nothing but the header page is taken: the rest is there once one of the
    /// pair touches it, and counts as that process's.
    ///
    /// # Errors
    /// As for [`Self::format`].
    pub fn format_pair(memory: BorrowedFd<'_>, size: u64) -> Result<(), Error> {
        let config = Config { size, tokens_only: true, ..Config::default() };
        config.check()?;
        sys::ftruncate(memory.as_raw_fd(), size).map_err(system("size a pair's memory"))?;
        let bytes = Header::new(&config, 0).bytes();
        match sys::write(memory.as_raw_fd(), &bytes) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(Error::NoMemory),
            Err(errno) => Err(system("write a pair's header")(errno)),
        }
    }

    /// Maps memory that the broker gave this process and one other. The descriptor is not needed
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Unsealed`]; else as for a file.
    pub fn of_pair(memory: i32) -> Result<Self, Error> {
        let size = u64::try_from(sys::fstat(memory).map_err(system("look at a pair's memory"))?.st_size).unwrap_or(0);
        // Somebody who could cut it short would end this process with SIGBUS.
        let seals = sys::fcntl(memory, libc::F_GET_SEALS, 0).unwrap_or(0);
        if seals & libc::F_SEAL_SHRINK as usize == 0 {
            return Err(Error::Unsealed);
        }
        Self::open_memory(Path::new(""), memory, Source::Pair, size)
    }

    /// Does memory that came later hold this very segment?
    #[must_use]
    pub fn is_in(&self, memory: i32) -> bool {
        let mut id = [0; 8];
        sys::pread(memory, &mut id, std::mem::offset_of!(Header, id) as u64) == Ok(id.len()) && u64::from_ne_bytes(id) == self.id
    }

    /// Opens memory that is shared with other kernels. Its header can be read only where it is
    /// mapped.
    fn open_memory(path: &Path, fd: i32, source: Source, size: u64) -> Result<Self, Error> {
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) {
            return Err(Error::Foreign);
        }
        let base = sys::map_shared(fd, size as usize, true).map_err(system("map segment"))?;
        // SAFETY: inside the map, aligned; atomics may be shared with anybody who uses the same
        // memory.
        let word = |i: usize| unsafe { &*base.cast::<AtomicU64>().add(i) }.load(Relaxed);
        let versions = word(1).to_le_bytes();
        let half = |at: usize| u32::from_le_bytes([versions[at], versions[at + 1], versions[at + 2], versions[at + 3]]);
        let header =
            Header { magic: word(0), version: half(0), header_len: half(4), size: word(2), features: word(3), id: word(4) };
        match header.check(size) {
            Ok(()) => Ok(Self::mapped(path, base, header, source)),
            Err(error) => {
                // SAFETY: nobody has got to know the map.
                unsafe { sys::unmap(base, size as usize) };
                Err(error)
            }
        }
    }

    /// Allocates pages in the file through a fresh descriptor: for kernels without
    /// `MADV_POPULATE_WRITE`.
    pub(crate) fn allocate_in_file(&self, offset: u64, len: u64) -> Result<(), Error> {
        let (fd, stat) = open::open(&self.path).map_err(system("open segment file"))?;
        if (stat.st_dev, stat.st_ino) != self.file {
            // Another stands under its name by now.
            return Err(Error::Foreign);
        }
        sys::fallocate(fd.0, offset, len).map_err(system("reserve pages"))
    }

    /// Bytes of memory behind the file, as the kernel says, whoever touched them; [`u64::MAX`]
    /// where it does not say. Takes no memory from an allocator.
    #[must_use]
    pub fn bytes_taken(&self) -> u64 {
        self.blocks().map_or(u64::MAX, |blocks| blocks.saturating_mul(512))
    }

    fn blocks(&self) -> Option<u64> {
        u64::try_from(sys::fstat(self.named()?.0).ok()?.st_blocks).ok()
    }

    /// What stands under the segment's name now, not opened (O_PATH).
    fn named(&self) -> Option<Fd> {
        let mut name = [0; 1024];
        let path = self.path.as_os_str().as_bytes();
        name.get_mut(..path.len())?.copy_from_slice(path);
        let name = CStr::from_bytes_until_nul(&name).ok()?;
        sys::openat(libc::AT_FDCWD, name, libc::O_PATH, 0).map(Fd).ok()
    }

    /// Bytes of the `len` ones at `offset` for which there is no memory yet; all of them where the
    /// kernel does not say. Takes no memory from an allocator.
    ///
    /// Asks the file (lseek(2), SEEK_DATA) and not mincore(2): a service manager's filter lets the
    /// one through and may end a program for the other (systemd's `@system-service`).
    pub(crate) fn without_memory(&self, offset: u64, len: u64) -> u64 {
        self.opened_to_look().map_or(len, |file| len - sys::data_within(file.0, offset, len).min(len))
    }

    /// The segment's own file, for reading; `None` where it is no longer to be had by its name.
    fn opened_to_look(&self) -> Option<Fd> {
        let named = self.named()?;
        let stat = sys::fstat(named.0).ok().filter(|stat| (stat.st_dev, stat.st_ino) == self.file)?;
        debug_assert_eq!(stat.st_mode & libc::S_IFMT, libc::S_IFREG);
        let mut again = [0_u8; 32];
        write!(again.as_mut_slice(), "/proc/self/fd/{}\0", named.0).ok()?;
        let again = CStr::from_bytes_until_nul(&again).ok()?;
        sys::openat(libc::AT_FDCWD, again, libc::O_RDONLY | libc::O_NONBLOCK, 0).map(Fd).ok()
    }

    /// Maps claimed pages once more, for reading only; `None` where the segment is no file of this
    /// kernel, or no longer to be had by its name.
    #[must_use]
    pub fn map_read_only(&self, extent: Extent) -> Option<sys::ReadOnly> {
        let len = u64::from(extent.pages) * PAGE;
        let may = self.source == Source::File && len > 0 && self.holds(extent.offset(), len);
        let file = may.then(|| self.opened_to_look()).flatten()?;
        sys::ReadOnly::map(file.0, extent.offset(), len as usize).ok()
    }

    /// Maps pages anew in their places, as copies of this process's own: what it writes there
    /// from here on is seen by nobody else. For a child of fork, whose parent goes on using them;
    /// it asks for no memory of its own. False where the segment is no file of this kernel, or no
    /// longer to be had by its name: then nothing has changed.
    #[must_use]
    pub fn keep_to_oneself(&self, extents: impl Iterator<Item = Extent>) -> bool {
        let file = (self.source == Source::File).then(|| self.opened_to_look()).flatten();
        let Some(file) = file else { return false };
        let held = extents.map(|extent| (extent.offset(), u64::from(extent.pages) * PAGE));
        held.filter(|&(at, len)| len > 0 && self.holds(at, len)).fold(true, |done, (at, len)| {
            // SAFETY: pages of this map, whose content stays what it was.
            let mapped = unsafe { sys::map_copy(self.base.add(at as usize), len as usize, file.0, at) };
            done && mapped.is_ok()
        })
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
                Source::Bar { .. } | Source::Device { vectors: 0, .. } | Source::Host { vectors: 0 } | Source::Pair
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

    /// Notes how many bytes a connection carried that has ended: a hint for those who look on, kept
    /// at the end so that no byte waits for it.
    pub fn add_carried(&self, bytes: u64) {
        self.word(CARRIED).fetch_add(bytes, Relaxed);
    }

    /// A process of the segment is about to say something to another over TCP: `entry` says to
    /// whom, and when.
    #[inline]
    pub fn begin_tcp(&self, entry: u64) {
        let place = self.word(BEGUN).fetch_add(1, AcqRel);
        self.word(LATELY + place % LATELY_ENTRIES * 8).store(entry, Release);
    }

    /// How often that was so. A hint.
    #[must_use]
    #[inline]
    pub fn begun_by_tcp(&self) -> u64 {
        self.word(BEGUN).load(Acquire)
    }

    /// What was noted as number `place`, if it is among the last; else anything.
    #[must_use]
    #[inline]
    pub fn lately_by_tcp(&self, place: u64) -> u64 {
        self.word(LATELY + place % LATELY_ENTRIES * 8).load(Acquire)
    }

    /// A process of the segment has said something to another over TCP, in a call that has ended:
    /// who looks at rings, and finds that it did ([`Self::by_tcp`]), asks the kernel too.
    #[inline]
    pub fn note_tcp(&self) {
        self.word(BY_TCP).fetch_add(1, AcqRel);
    }

    /// How often that was so. A hint, which a peer may have written.
    #[must_use]
    #[inline]
    pub fn by_tcp(&self) -> u64 {
        self.word(BY_TCP).load(Acquire)
    }

    /// Pages up to `end` (exclusive) have been claimed.
    pub(crate) fn note_reached(&self, end: u32) {
        let reached = self.word(REACHED);
        if reached.load(Relaxed) < u64::from(end) {
            reached.fetch_max(end.into(), Relaxed);
        }
    }

    /// The page after the highest that was ever claimed, as the peers say.
    pub(crate) fn reached(&self) -> u32 {
        u32::try_from(self.word(REACHED).load(Relaxed)).unwrap_or(u32::MAX)
    }

    /// Where to look for free pages, as the peers say: the lowest that was freed since, or what
    /// comes after the last that was claimed.
    pub(crate) fn hint(&self) -> u64 {
        self.word(HINT).load(Relaxed)
    }

    /// Pages were claimed, up to `end` (exclusive), after a look from `hint` on. Lower ones that
    /// were freed meanwhile come first.
    pub(crate) fn claimed_from(&self, hint: u64, end: u32) {
        let _ = self.word(HINT).compare_exchange(hint, end.into(), Relaxed, Relaxed);
    }

    /// Pages from `page` on were freed.
    pub(crate) fn freed_from(&self, page: u32) {
        self.word(HINT).fetch_min(page.into(), Relaxed);
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
        let words = unsafe { core::slice::from_raw_parts(self.base.add(at).cast::<AtomicU64>(), count as usize) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// A segment that an older Ginnel made, or a newer one, is refused with both numbers.
    #[test]
    fn another_layout_is_refused_with_both_versions() {
        let path = std::env::temp_dir().join(format!("ginnel-version-{:x}", sys::random_u64()));
        let config = Config { size: MIN_SIZE, ..Config::default() };
        Segment::create(&path, &config).expect("create").close();
        let file = std::fs::File::options().write(true).open(&path).expect("own file");
        for theirs in [2, 4] {
            file.write_all_at(&u32::to_le_bytes(theirs), 8).expect("memory");
            let error = Segment::open_or_create(&path, &config).err().expect("refused");
            assert_eq!(error, Error::Version { theirs, ours: 3 });
            assert!(error.to_string().contains(&format!("layout version {theirs}, this Ginnel speaks 3")));
        }
        std::fs::remove_file(path).expect("remove");
    }
}
