//! System calls made directly, past any C library: the shim replaces the library's functions and
//! must not call itself.
//!
//! Errors are `errno` values.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};
use syscalls::{Errno, Sysno, syscall};

/// Result of a system call: a value or an `errno`.
pub type Result<T> = std::result::Result<T, i32>;

fn errno(e: Errno) -> i32 {
    e.into_raw()
}

#[expect(clippy::cast_possible_truncation, reason = "the kernel returns descriptors and flags in 32 bits")]
#[expect(clippy::cast_possible_wrap, reason = "likewise")]
fn int(value: usize) -> i32 {
    value as i32
}

/// A system call with up to six word arguments.
///
/// # Safety
/// As for the call: pointers among the arguments must be valid for what the kernel does with them.
#[inline]
pub unsafe fn raw(number: Sysno, args: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { syscall!(number, args[0], args[1], args[2], args[3], args[4], args[5]) }.map_err(errno)
}

/// `openat(2)`. Use `libc::AT_FDCWD` for paths from the root. A terminal that stands under the name
/// does not become the process's.
///
/// # Errors
/// The `errno`.
pub fn openat(dir: i32, path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    // SAFETY: `path` is a terminated string.
    unsafe {
        raw(
            Sysno::openat,
            [dir as usize, path.as_ptr() as usize, (flags | libc::O_CLOEXEC | libc::O_NOCTTY) as usize, mode as usize, 0, 0],
        )
    }
    .map(int)
}

/// `close(2)`.
pub fn close(fd: i32) {
    // SAFETY: closing a descriptor touches no memory.
    let _ = unsafe { raw(Sysno::close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// A soft limit of this process.
fn soft_limit(resource: usize) -> Result<u64> {
    let mut limit = [0u64; 2];
    // SAFETY: `limit` has the shape of `struct rlimit64`.
    unsafe { raw(Sysno::prlimit64, [0, resource, 0, limit.as_mut_ptr() as usize, 0, 0]) }.map(|_| limit[0])
}

/// How many descriptors this process may have (`RLIMIT_NOFILE`, soft).
#[must_use]
pub fn descriptor_limit() -> u64 {
    soft_limit(libc::RLIMIT_NOFILE as usize).unwrap_or(0)
}

/// How large a file this process may make (`RLIMIT_FSIZE`, soft), bytes. To go beyond it raises
/// SIGXFSZ, which ends a program that does not expect it.
#[must_use]
pub fn file_size_limit() -> u64 {
    soft_limit(libc::RLIMIT_FSIZE as usize).unwrap_or(u64::MAX)
}

/// How much address space (`RLIMIT_AS`) and private memory (`RLIMIT_DATA`) this process may have,
/// soft, bytes.
#[must_use]
pub fn memory_limits() -> (u64, u64) {
    let limit = |which| soft_limit(which as usize).unwrap_or(u64::MAX);
    (limit(libc::RLIMIT_AS), limit(libc::RLIMIT_DATA))
}

/// Moves a descriptor out of the way of the program, to the highest numbers that the limit allows,
/// close-on-exec. Where that fails the descriptor stays where it is.
#[must_use]
pub fn move_high(fd: i32) -> i32 {
    let limit = descriptor_limit();
    if limit < 64 {
        return fd;
    }
    let top = usize::try_from(limit.min(65536)).unwrap_or(1024);
    // Above half of the numbers: programs take the lowest free one.
    match fcntl(fd, libc::F_DUPFD_CLOEXEC, top / 2 + top / 4) {
        Ok(high) => {
            close(fd);
            int(high)
        }
        Err(_) => fd,
    }
}

/// `dup3(2)`, close-on-exec: `to` stands for what `from` stands for, at once. `from` is closed.
pub fn replace(from: i32, to: i32) {
    // SAFETY: no memory is passed.
    let _ = unsafe { raw(Sysno::dup3, [from as usize, to as usize, libc::O_CLOEXEC as usize, 0, 0, 0]) };
    close(from);
}

/// `fcntl(2)` with a number as its argument.
///
/// # Errors
/// The `errno`.
pub fn fcntl(fd: i32, command: i32, argument: usize) -> Result<usize> {
    // SAFETY: used with commands whose argument is a number.
    unsafe { raw(Sysno::fcntl, [fd as usize, command as usize, argument, 0, 0, 0]) }
}

/// `fstat(2)`.
///
/// # Errors
/// The `errno`.
pub fn fstat(fd: i32) -> Result<libc::stat> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable and has the kernel's shape on 64-bit Linux.
    unsafe { raw(Sysno::fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]) }?;
    Ok(stat)
}

/// `stat(2)`.
///
/// # Errors
/// The `errno`.
pub fn stat(path: &CStr) -> Result<libc::stat> {
    #[cfg(target_arch = "aarch64")]
    const CALL: Sysno = Sysno::fstatat;
    #[cfg(not(target_arch = "aarch64"))]
    const CALL: Sysno = Sysno::newfstatat;
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [libc::AT_FDCWD as usize, path.as_ptr() as usize, &raw mut stat as usize, 0, 0, 0];
    // SAFETY: `path` is a terminated string, `stat` writable and of the kernel's shape on 64-bit
    // Linux.
    unsafe { raw(CALL, arguments) }?;
    Ok(stat)
}

/// `ftruncate(2)`.
///
/// # Errors
/// The `errno`.
pub fn ftruncate(fd: i32, len: u64) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { raw(Sysno::ftruncate, [fd as usize, len as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `fallocate(2)`: makes memory real, so that touching it later cannot fail.
///
/// # Errors
/// The `errno`; ENOSPC where the file system is full.
pub fn fallocate(fd: i32, offset: u64, len: u64) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { raw(Sysno::fallocate, [fd as usize, 0, offset as usize, len as usize, 0, 0]) }.map(drop)
}

/// `mmap(2)` of a whole file, shared, anywhere.
///
/// # Errors
/// The `errno`.
pub fn map_shared(fd: i32, len: usize, writable: bool) -> Result<*mut u8> {
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new map at an address of the kernel's choice disturbs nobody.
    let at = unsafe {
        raw(Sysno::mmap, [0, len, protection as usize, (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize, fd as usize, 0])
    }?;
    Ok(at as *mut u8)
}

/// Pages of a file that this process can only read, unmapped when this is dropped.
#[derive(Debug)]
pub struct ReadOnly {
    at: *mut u8,
    len: usize,
}

// SAFETY: a map at an address that nobody else knows; what others write there is theirs.
unsafe impl Send for ReadOnly {}
// SAFETY: as above.
unsafe impl Sync for ReadOnly {}

impl ReadOnly {
    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    /// The `errno`.
    pub fn map(fd: i32, offset: u64, len: usize) -> Result<Self> {
        let arguments = [0, len, libc::PROT_READ as usize, libc::MAP_SHARED as usize, fd as usize, offset as usize];
        // SAFETY: a new map at an address of the kernel's choice disturbs nobody.
        let at = unsafe { raw(Sysno::mmap, arguments) }?;
        Ok(Self { at: at as *mut u8, len })
    }

    /// Where it begins.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: the map is this value's own; whoever has its address keeps this value.
        unsafe { unmap(self.at, self.len) };
    }
}

/// Maps `len` bytes of a file from `offset` on at `at`, in place of what lies there, as a copy of
/// this process's own.
///
/// # Errors
/// The `errno`; what lay there is there still.
///
/// # Safety
/// What lies there is a map of the same bytes, and the caller's to replace.
pub unsafe fn map_copy(at: *mut u8, len: usize, fd: i32, offset: u64) -> Result<()> {
    let (rights, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED);
    let arguments = [at as usize, len, rights as usize, how as usize, fd as usize, offset as usize];
    // SAFETY: the caller's promise.
    unsafe { raw(Sysno::mmap, arguments) }.map(|_| ())
}

/// `mmap(2)` of private zeroed memory, taken only as it is touched.
///
/// # Errors
/// The `errno`.
pub fn map_private(len: usize) -> Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new map at an address of the kernel's choice disturbs nobody.
    let at = unsafe { raw(Sysno::mmap, [0, len, (libc::PROT_READ | libc::PROT_WRITE) as usize, flags as usize, usize::MAX, 0]) }?;
    Ok(at as *mut u8)
}

/// `mmap(2)` of zeroed memory that children of `fork` have in common with this process, taken only
/// as it is touched.
///
/// # Errors
/// The `errno`.
pub fn map_common(len: usize) -> Result<*mut u8> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new map at an address of the kernel's choice disturbs nobody.
    let at = unsafe { raw(Sysno::mmap, [0, len, (libc::PROT_READ | libc::PROT_WRITE) as usize, flags as usize, usize::MAX, 0]) }?;
    Ok(at as *mut u8)
}

/// Has a child of `fork` find zeroes in its copy of a private map (`MADV_WIPEONFORK`, Linux 4.14).
///
/// # Errors
/// The `errno`; EINVAL before 4.14.
pub fn wipe_on_fork(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: nothing of this process's memory changes.
    unsafe { raw(Sysno::madvise, [at as usize, len, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) }.map(drop)
}

/// `munmap(2)`.
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { raw(Sysno::munmap, [at as usize, len, 0, 0, 0, 0]) };
}

/// Private zeroed memory of which none is taken before it is touched, also where the program has
/// all its later maps locked (`mlockall(MCL_FUTURE)`): the kernel fills no map that cannot be
/// accessed.
fn map_unlocked(len: usize) -> Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new map at an address of the kernel's choice disturbs nobody.
    let at = unsafe { raw(Sysno::mmap, [0, len, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0]) }?;
    // SAFETY: the map is this function's.
    let _ = unsafe { raw(Sysno::munlock, [at, len, 0, 0, 0, 0]) };
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: as above.
    match unsafe { raw(Sysno::mprotect, [at, len, protection, 0, 0, 0]) } {
        Ok(_) => Ok(at as *mut u8),
        Err(errno) => {
            // SAFETY: as above.
            unsafe { unmap(at as *mut u8, len) };
            Err(errno)
        }
    }
}

/// Puts private zeroed memory in the place of a map, in one step for every thread: whoever uses an
/// address in it finds the one or the other.
///
/// # Errors
/// The `errno`; then the map is as it was.
///
/// # Safety
/// The map is the caller's, whole, and the program stays sound whatever stands in it.
pub unsafe fn replace_with_zeroes(at: *mut u8, len: usize) -> Result<()> {
    // Made elsewhere first: a map that is refused for lack of memory would leave a hole.
    let zeroes = map_unlocked(len)?;
    // SAFETY: the caller's promise; what is moved is this function's own.
    match unsafe { replace_with(at, zeroes, len) } {
        Ok(()) => Ok(()),
        Err(errno) => {
            // SAFETY: nobody has got to know it.
            unsafe { unmap(zeroes, len) };
            Err(errno)
        }
    }
}

/// Puts a map in the place of another of the same length, in one step for every thread.
///
/// # Errors
/// The `errno`; then the map is where it was, and what was to go may be gone.
///
/// # Safety
/// Both maps are the caller's, whole. Nobody uses the one that moves, and the program stays sound
/// whatever stands in the place of the other.
pub unsafe fn replace_with(to: *mut u8, at: *mut u8, len: usize) -> Result<()> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the caller's promise.
    unsafe { raw(Sysno::mremap, [at as usize, len, len, flags, to as usize, 0]) }.map(drop)
}

/// Gives a map up for good: private zeroes stand in its place, or nothing where they cannot be had.
/// Whoever is late then ends there, rather than in memory that is not this process's any more.
/// Returns whether the zeroes stand there: else others may come to have the addresses.
///
/// # Safety
/// As for [`replace_with_zeroes`].
pub unsafe fn give_up(at: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    if unsafe { replace_with_zeroes(at, len) }.is_ok() {
        return true;
    }
    // In one step again, without room for a second map.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let arguments = [at as usize, len, protection as usize, flags as usize, usize::MAX, 0];
    // SAFETY: the caller's promise.
    let made = unsafe { raw(Sysno::mmap, arguments) }.is_ok();
    if !made {
        // SAFETY: as above.
        unsafe { unmap(at, len) };
    }
    made
}

/// Copies into this process's own memory by `process_vm_writev(2)`: EFAULT where a plain store
/// would have raised a signal.
///
/// # Errors
/// The `errno`.
///
/// # Safety
/// Memory that is there must be the caller's to write.
pub unsafe fn copy_in(at: *mut u8, bytes: &[u8]) -> Result<()> {
    // SAFETY: the caller's promise; the kernel checks both ranges.
    unsafe { copy_own(Sysno::process_vm_writev, bytes.as_ptr().cast_mut(), at, bytes.len()) }
}

/// Copies out of this process's own memory by `process_vm_readv(2)`: EFAULT where a plain load
/// would have raised a signal.
///
/// # Errors
/// The `errno`.
///
/// # Safety
/// Memory that is there must be the caller's to read.
pub unsafe fn copy_out(at: *mut u8, bytes: &mut [u8]) -> Result<()> {
    // SAFETY: the caller's promise; the kernel checks both ranges.
    unsafe { copy_own(Sysno::process_vm_readv, bytes.as_mut_ptr(), at, bytes.len()) }
}

unsafe fn copy_own(call: Sysno, local: *mut u8, remote: *mut u8, len: usize) -> Result<()> {
    let iovec = |base: *mut u8| libc::iovec { iov_base: base.cast(), iov_len: len };
    let (local, remote) = (iovec(local), iovec(remote));
    // SAFETY: two vectors of one element each.
    match unsafe { raw(call, [pid() as usize, &raw const local as usize, 1, &raw const remote as usize, 1, 0]) } {
        Ok(copied) if copied == len => Ok(()),
        Ok(_) => Err(libc::EFAULT),
        Err(errno) => Err(errno),
    }
}

/// Makes pages of a map real (`MADV_POPULATE_WRITE`, Linux 5.14): fails where touching them would
/// have raised SIGBUS.
///
/// # Errors
/// The `errno`: EINVAL on an older kernel, EFAULT or ENOMEM where there is no memory.
///
/// # Safety
/// The range must lie in a map of the caller's.
pub unsafe fn populate(at: *mut u8, len: usize) -> Result<()> {
    const MADV_POPULATE_WRITE: usize = 23;
    // SAFETY: the caller's promise.
    unsafe { raw(Sysno::madvise, [at as usize, len, MADV_POPULATE_WRITE, 0, 0, 0]) }.map(drop)
}

/// Bytes of the `len` ones at `offset` of a file behind which there is data, or memory (lseek(2)):
/// 0 where the kernel does not say.
pub(crate) fn data_within(fd: i32, offset: u64, len: u64) -> u64 {
    let end = offset.saturating_add(len);
    // SAFETY: no memory is passed.
    let seek = |at: u64, whence: i32| unsafe { raw(Sysno::lseek, [fd as usize, at as usize, whence as usize, 0, 0, 0]) };
    let (mut at, mut sum) = (offset, 0);
    while at < end {
        // ENXIO: there is none from here on.
        let Ok(from) = seek(at, libc::SEEK_DATA).map(|from| (from as u64).clamp(at, end)) else { break };
        let Ok(to) = seek(from, libc::SEEK_HOLE).map(|to| (to as u64).clamp(from, end)) else { break };
        if to == at {
            break;
        }
        sum += to - from;
        at = to;
    }
    sum
}

/// `flock(2)`.
///
/// # Errors
/// The `errno`.
pub fn flock(fd: i32, operation: i32) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { raw(Sysno::flock, [fd as usize, operation as usize, 0, 0, 0, 0]) }.map(drop)
}

fn byte_lock(fd: i32, command: i32, kind: i32, byte: u64) -> Result<libc::flock> {
    // SAFETY: all zeroes is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_start = byte as i64;
    lock.l_len = 1;
    // SAFETY: `lock` is writable and has the kernel's shape on 64-bit Linux.
    unsafe { raw(Sysno::fcntl, [fd as usize, command as usize, &raw mut lock as usize, 0, 0, 0]) }.map(|_| lock)
}

/// Takes the lock on one byte of a file for this open file alone, until it is closed everywhere and
/// no map of it is left (`F_OFD_SETLK`, fcntl(2)).
///
/// # Errors
/// The `errno`; EAGAIN: another has it.
pub fn lock_byte(fd: i32, byte: u64) -> Result<()> {
    byte_lock(fd, libc::F_OFD_SETLK, libc::F_WRLCK, byte).map(drop)
}

/// Has a child of `fork` not get a map at all (`MADV_DONTFORK`).
///
/// # Errors
/// The `errno`.
pub fn keep_from_children(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: nothing of this process's memory changes.
    unsafe { raw(Sysno::madvise, [at as usize, len, libc::MADV_DONTFORK as usize, 0, 0, 0]) }.map(drop)
}

/// Has a child of `fork` get a map again that [`keep_from_children`] kept from it (`MADV_DOFORK`).
///
/// # Errors
/// The `errno`.
pub fn give_to_children(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: nothing of this process's memory changes.
    unsafe { raw(Sysno::madvise, [at as usize, len, libc::MADV_DOFORK as usize, 0, 0, 0]) }.map(drop)
}

/// Takes a shared lock on one byte of a file for this open file, until it is closed everywhere
/// (`F_OFD_SETLK`, fcntl(2)).
///
/// # Errors
/// The `errno`.
pub fn share_byte(fd: i32, byte: u64) -> Result<()> {
    byte_lock(fd, libc::F_OFD_SETLK, libc::F_RDLCK, byte).map(drop)
}

/// Has anybody else a lock on this byte of the file?
///
/// # Errors
/// The `errno`.
pub fn byte_is_shared(fd: i32, byte: u64) -> Result<bool> {
    byte_lock(fd, libc::F_OFD_GETLK, libc::F_WRLCK, byte).map(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
}

/// `mkdirat(2)`.
///
/// # Errors
/// The `errno`.
pub fn mkdir(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` is a terminated string.
    unsafe { raw(Sysno::mkdirat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, mode as usize, 0, 0, 0]) }.map(drop)
}

/// `fchmod(2)`.
///
/// # Errors
/// The `errno`.
pub fn fchmod(fd: i32, mode: u32) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { raw(Sysno::fchmod, [fd as usize, mode as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `mknodat(2)` of a FIFO, relative to `dir`.
///
/// # Errors
/// The `errno`.
pub fn mkfifoat(dir: i32, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` is a terminated string.
    unsafe { raw(Sysno::mknodat, [dir as usize, path.as_ptr() as usize, (libc::S_IFIFO | mode) as usize, 0, 0, 0]) }.map(drop)
}

/// `unlinkat(2)`.
///
/// # Errors
/// The `errno`.
pub fn unlinkat(dir: i32, path: &CStr) -> Result<()> {
    // SAFETY: `path` is a terminated string.
    unsafe { raw(Sysno::unlinkat, [dir as usize, path.as_ptr() as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `symlinkat(2)`: `name` in `dir` points to `target`.
///
/// # Errors
/// The `errno`.
pub fn symlinkat(target: &CStr, dir: i32, name: &CStr) -> Result<()> {
    // SAFETY: both are terminated strings.
    unsafe { raw(Sysno::symlinkat, [target.as_ptr() as usize, dir as usize, name.as_ptr() as usize, 0, 0, 0]) }.map(drop)
}

/// `linkat(2)` of one path to another; fails with EEXIST rather than replacing.
///
/// # Errors
/// The `errno`.
pub fn link(old: &CStr, new: &CStr) -> Result<()> {
    let here = libc::AT_FDCWD as usize;
    // SAFETY: both are terminated strings.
    unsafe { raw(Sysno::linkat, [here, old.as_ptr() as usize, here, new.as_ptr() as usize, 0, 0]) }.map(drop)
}

/// `readlink(2)`: bytes written of the link's target, all of `buffer` if that is longer.
///
/// # Errors
/// The `errno`; EINVAL where it is no link.
pub fn read_link(path: &CStr, buffer: &mut [u8]) -> Result<usize> {
    let here = libc::AT_FDCWD as usize;
    // SAFETY: a terminated string, and `buffer` is writable for its length.
    unsafe { raw(Sysno::readlinkat, [here, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0]) }
}

/// `read(2)`.
///
/// # Errors
/// The `errno`.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: `buffer` is writable for its length.
    unsafe { raw(Sysno::read, [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) }
}

/// All of a file; empty where it cannot be read.
#[must_use]
pub fn read_file(path: &CStr) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(file) = openat(libc::AT_FDCWD, path, libc::O_RDONLY, 0) {
        let mut piece = [0u8; 4096];
        while let Ok(n @ 1..) = read(file, &mut piece) {
            text.extend_from_slice(piece.get(..n).unwrap_or(&[]));
        }
        close(file);
    }
    text
}

/// `pread(2)`.
///
/// # Errors
/// The `errno`.
pub fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: `buffer` is writable for its length.
    unsafe { raw(Sysno::pread64, [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0]) }
}

/// Has the file an extended attribute of that name (`fgetxattr(2)`)?
#[must_use]
pub fn has_attribute(fd: i32, name: &CStr) -> bool {
    // SAFETY: a terminated string; with size 0 nothing is written.
    unsafe { raw(Sysno::fgetxattr, [fd as usize, name.as_ptr() as usize, 0, 0, 0, 0]) }.is_ok_and(|len| len > 0)
}

/// Effective user and group.
#[must_use]
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no arguments, cannot fail.
    let id = |number| unsafe { raw(number, [0; 6]) }.map_or(0, |id| id as u32);
    (id(Sysno::geteuid), id(Sysno::getegid))
}

/// `write(2)`.
///
/// # Errors
/// The `errno`.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: `bytes` is readable for its length.
    unsafe { raw(Sysno::write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }
}

/// Fills `buffer` with random bytes (`getrandom(2)`); a poor substitute from the clock where the
/// kernel refuses.
pub fn random(buffer: &mut [u8]) {
    // SAFETY: `buffer` is writable for its length.
    let got = unsafe { raw(Sysno::getrandom, [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0]) };
    if got != Ok(buffer.len()) {
        let mut seed = monotonic_ns() ^ u64::from(pid()) << 32;
        for byte in buffer {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = seed.to_be_bytes()[0];
        }
    }
}

/// A random number other than zero.
#[must_use]
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    random(&mut bytes);
    u64::from_ne_bytes(bytes) | 1
}

/// `getpid(2)`, asked of the kernel each time (a vfork child shares our memory but not our number).
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { raw(Sysno::getpid, [0; 6]) }.map_or(0, |pid| u32::try_from(pid).unwrap_or(0))
}

/// `getppid(2)`: 0 where the parent is in another pid namespace.
#[must_use]
pub fn parent() -> u32 {
    // SAFETY: no arguments.
    unsafe { raw(Sysno::getppid, [0; 6]) }.map_or(0, |pid| u32::try_from(pid).unwrap_or(0))
}

/// What a signal does, as the kernel has it (sigaction(2), x86-64 and others with a restorer).
#[repr(C)]
#[derive(Default)]
pub struct Action {
    /// The handler's address; 0 and 1: none.
    pub handler: usize,
    /// `SA_…`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    mask: u64,
}

/// Asks what a signal does.
#[must_use]
pub fn signal_action(signal: usize) -> Option<Action> {
    let mut action = Action::default();
    // SAFETY: asks only; `action` has the kernel's shape.
    let asked = unsafe { raw(Sysno::rt_sigaction, [signal, 0, &raw mut action as usize, 8, 0, 0]) };
    asked.is_ok().then_some(action)
}

/// Nanoseconds of the monotonic clock, which all processes of a kernel share.
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds_by(libc::CLOCK_MONOTONIC)
}

/// The same as of the kernel's last tick (ten milliseconds ago at most, where its processors run),
/// which costs less to ask for.
#[must_use]
pub fn coarse_monotonic_ns() -> u64 {
    nanoseconds_by(libc::CLOCK_MONOTONIC_COARSE)
}

fn nanoseconds_by(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` is not one of the functions that the shim replaces; `time` is
    // writable.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Is the processor one that QEMU emulates in software? An instruction takes ten times as long
/// then, and a wake-up too. (CPUID leaf 0x4000_0000, where hypervisors say who they are:
/// `target/i386/cpu.c` of QEMU.)
#[must_use]
pub fn is_emulated() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        // 0 not asked yet, else 1 + the answer: a hypervisor is asked by leaving the guest.
        static ANSWER: AtomicU8 = AtomicU8::new(0);
        if ANSWER.load(Ordering::Relaxed) == 0 {
            let name = (__cpuid(1).ecx >> 31 == 1).then(|| __cpuid(0x4000_0000)).map(|told| [told.ebx, told.ecx, told.edx]);
            ANSWER.store(
                1 + u8::from(
                    name == Some([u32::from_le_bytes(*b"TCGT"), u32::from_le_bytes(*b"CGTC"), u32::from_le_bytes(*b"GTCG")]),
                ),
                Ordering::Relaxed,
            );
        }
        ANSWER.load(Ordering::Relaxed) == 2
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Calls `each` with every name in a directory (getdents64(2)); takes no memory but the stack's.
pub fn each_entry(dir: i32, mut each: impl FnMut(&CStr)) {
    /// Where in an entry (`struct linux_dirent64`) its length stands, and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buffer = [0u8; 1024];
    // SAFETY: the buffer is writable for its length.
    while let Ok(got @ 1..) = unsafe { raw(Sysno::getdents64, [dir as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) }
    {
        let mut rest = buffer.get(..got).unwrap_or_default();
        while let Some(name) = rest.get(NAME..).and_then(|name| CStr::from_bytes_until_nul(name).ok()) {
            each(name);
            let length = rest.get(LENGTH..LENGTH + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_ne_bytes);
            rest = rest.get(usize::from(length).max(NAME)..).unwrap_or_default();
        }
    }
}

/// A descriptor that is closed when it is dropped, unless it is taken. −1 stands for none.
#[derive(Debug)]
pub struct Fd(pub i32);

impl Fd {
    /// Returns the number, which the caller closes from here on.
    #[must_use]
    pub fn take(mut self) -> i32 {
        std::mem::replace(&mut self.0, -1)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        if self.0 >= 0 {
            close(self.0);
        }
    }
}

/// Waits until the kernel has one of `events` (`POLLIN` …) to report of `fd`, at most `ms`
/// milliseconds (0: only looks). Returns what it reports (poll(2)'s `revents`), 0 for nothing.
#[must_use]
pub fn poll(fd: i32, events: i16, ms: i32) -> i16 {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    let timeout = libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 };
    // SAFETY: one pollfd; the kernel may write the remaining time into our copy.
    let done = unsafe { raw(Sysno::ppoll, [&raw mut poll as usize, 1, &raw const timeout as usize, 0, 8, 0]) };
    if done == Ok(1) { poll.revents } else { 0 }
}

/// Sleeps for `ms` milliseconds, or until a signal comes.
pub fn sleep_ms(ms: i32) {
    let _ = poll(-1, 0, ms);
}

/// Gives the processor away to whoever else can run on it.
pub fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { raw(Sysno::sched_yield, [0; 6]) };
}

/// Does a process with this number exist (in this pid namespace)?
#[must_use]
pub fn pid_exists(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { raw(Sysno::kill, [pid as usize, 0, 0, 0, 0, 0]) };
    asked != Err(libc::ESRCH)
}

/// While it lives, no signal handler runs in this thread.
#[must_use]
pub struct SignalsBlocked(u64);

/// Blocks all signals of this thread until the value is dropped. For the few calls that a handler
/// must not come into the midst of, nor leave by `siglongjmp`. But for the one by which glibc has a
/// thread set its ids when another calls `setuid`: that one waits for it, perhaps with a lock that
/// this thread needs.
pub fn block_signals() -> SignalsBlocked {
    /// glibc's SIGSETXID (`sysdeps/unix/sysv/linux/internal-signals.h`).
    const SETS_IDS: u32 = 33;
    let (all, mut before) = (!(1u64 << (SETS_IDS - 1)), 0u64);
    let arguments = [libc::SIG_BLOCK as usize, &raw const all as usize, &raw mut before as usize, size_of::<u64>(), 0, 0];
    // SAFETY: both sets are as large as the kernel's.
    let blocked = unsafe { raw(Sysno::rt_sigprocmask, arguments) };
    SignalsBlocked(if blocked.is_ok() { before } else { 0 })
}

impl SignalsBlocked {
    /// The signals that were blocked before, one bit for each, the first for signal 1.
    #[must_use]
    pub fn before(&self) -> u64 {
        self.0
    }

    /// Blocks what was blocked before, and no more. Signals that came meanwhile are dealt with.
    pub fn restored(&self) {
        let arguments = [libc::SIG_SETMASK as usize, &raw const self.0 as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the set is as large as the kernel's.
        let _ = unsafe { raw(Sysno::rt_sigprocmask, arguments) };
    }

    /// The same for a moment.
    pub fn let_through(&self) {
        self.restored();
        std::mem::forget(block_signals());
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let arguments = [libc::SIG_SETMASK as usize, &raw const self.0 as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the set is as large as the kernel's, and what it was before.
        let _ = unsafe { raw(Sysno::rt_sigprocmask, arguments) };
    }
}

/// Does this thread run a signal handler on a stack of the handler's own (`sigaltstack(2)`), which
/// may be small?
#[must_use]
pub fn on_signal_stack() -> bool {
    // SAFETY: all zeroes is a valid value.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and the value is writable.
    let asked = unsafe { raw(Sysno::sigaltstack, [0, &raw mut stack as usize, 0, 0, 0, 0]) };
    asked.is_ok() && stack.ss_flags & libc::SS_ONSTACK != 0
}
