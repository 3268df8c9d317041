//! Files and descriptors.

use super::{Result, descriptor_limit, int, raw};
use std::ffi::CStr;
use syscalls::Sysno;

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
            [
                dir as usize,
                path.as_ptr() as usize,
                (flags | libc::O_CLOEXEC | libc::O_NOCTTY) as usize,
                mode as usize,
                0,
                0,
            ],
        )
    }
    .map(int)
}

/// `close(2)`.
pub fn close(fd: i32) {
    // SAFETY: closing a descriptor touches no memory.
    let _ = unsafe { raw(Sysno::close, [fd as usize, 0, 0, 0, 0, 0]) };
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
    let _ = unsafe {
        raw(Sysno::dup3, [from as usize, to as usize, libc::O_CLOEXEC as usize, 0, 0, 0])
    };
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
    let arguments =
        [libc::AT_FDCWD as usize, path.as_ptr() as usize, &raw mut stat as usize, 0, 0, 0];
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
    unsafe { raw(Sysno::fallocate, [fd as usize, 0, offset as usize, len as usize, 0, 0]) }
        .map(drop)
}

/// Bytes of the `len` ones at `offset` of a file behind which there is data, or memory (lseek(2)):
/// 0 where the kernel does not say.
pub(crate) fn data_within(fd: i32, offset: u64, len: u64) -> u64 {
    let end = offset.saturating_add(len);
    // SAFETY: no memory is passed.
    let seek = |at: u64, whence: i32| unsafe {
        raw(Sysno::lseek, [fd as usize, at as usize, whence as usize, 0, 0, 0])
    };
    let (mut at, mut sum) = (offset, 0);
    while at < end {
        // ENXIO: there is none from here on.
        let Ok(from) = seek(at, libc::SEEK_DATA).map(|from| (from as u64).clamp(at, end)) else {
            break;
        };
        let Ok(to) = seek(from, libc::SEEK_HOLE).map(|to| (to as u64).clamp(from, end)) else {
            break;
        };
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
    unsafe { raw(Sysno::fcntl, [fd as usize, command as usize, &raw mut lock as usize, 0, 0, 0]) }
        .map(|_| lock)
}

/// Takes the lock on one byte of a file for this open file alone, until it is closed everywhere and
/// no map of it is left (`F_OFD_SETLK`, fcntl(2)).
///
/// # Errors
/// The `errno`; EAGAIN: another has it.
pub fn lock_byte(fd: i32, byte: u64) -> Result<()> {
    byte_lock(fd, libc::F_OFD_SETLK, libc::F_WRLCK, byte).map(drop)
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
    byte_lock(fd, libc::F_OFD_GETLK, libc::F_WRLCK, byte)
        .map(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
}

/// `mkdirat(2)`.
///
/// # Errors
/// The `errno`.
pub fn mkdir(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` is a terminated string.
    unsafe {
        raw(
            Sysno::mkdirat,
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, mode as usize, 0, 0, 0],
        )
    }
    .map(drop)
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
    unsafe {
        raw(
            Sysno::mknodat,
            [dir as usize, path.as_ptr() as usize, (libc::S_IFIFO | mode) as usize, 0, 0, 0],
        )
    }
    .map(drop)
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
    unsafe {
        raw(
            Sysno::symlinkat,
            [target.as_ptr() as usize, dir as usize, name.as_ptr() as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// `linkat(2)` of one path to another; fails with EEXIST rather than replacing.
///
/// # Errors
/// The `errno`.
pub fn link(old: &CStr, new: &CStr) -> Result<()> {
    let here = libc::AT_FDCWD as usize;
    // SAFETY: both are terminated strings.
    unsafe { raw(Sysno::linkat, [here, old.as_ptr() as usize, here, new.as_ptr() as usize, 0, 0]) }
        .map(drop)
}

/// `readlink(2)`: bytes written of the link's target, all of `buffer` if that is longer.
///
/// # Errors
/// The `errno`; EINVAL where it is no link.
pub fn read_link(path: &CStr, buffer: &mut [u8]) -> Result<usize> {
    let here = libc::AT_FDCWD as usize;
    // SAFETY: a terminated string, and `buffer` is writable for its length.
    unsafe {
        raw(
            Sysno::readlinkat,
            [here, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0],
        )
    }
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
    unsafe {
        raw(
            Sysno::pread64,
            [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0],
        )
    }
}

/// Has the file an extended attribute of that name (`fgetxattr(2)`)?
#[must_use]
pub fn has_attribute(fd: i32, name: &CStr) -> bool {
    // SAFETY: a terminated string; with size 0 nothing is written.
    unsafe { raw(Sysno::fgetxattr, [fd as usize, name.as_ptr() as usize, 0, 0, 0, 0]) }
        .is_ok_and(|len| len > 0)
}

/// `write(2)`.
///
/// # Errors
/// The `errno`.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: `bytes` is readable for its length.
    unsafe { raw(Sysno::write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }
}

/// Calls `each` with every name in a directory (getdents64(2)); takes no memory but the stack's.
pub fn each_entry(dir: i32, mut each: impl FnMut(&CStr)) {
    /// Where in an entry (`struct linux_dirent64`) its length stands, and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buffer = [0u8; 1024];
    // SAFETY: the buffer is writable for its length.
    while let Ok(got @ 1..) = unsafe {
        raw(Sysno::getdents64, [dir as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0])
    } {
        let mut rest = buffer.get(..got).unwrap_or_default();
        while let Some(name) =
            rest.get(NAME..).and_then(|name| CStr::from_bytes_until_nul(name).ok())
        {
            each(name);
            let length = rest
                .get(LENGTH..LENGTH + 2)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u16::from_ne_bytes);
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
/// milliseconds (0: only looks; −1: for as long as that takes). Returns what it reports (poll(2)'s
/// `revents`), 0 for nothing.
#[must_use]
pub fn poll(fd: i32, events: i16, ms: i32) -> i16 {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    let timeout =
        libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 };
    let timeout = if ms < 0 { std::ptr::null() } else { &raw const timeout };
    // SAFETY: one pollfd; the kernel may write the remaining time into our copy.
    let done = unsafe { raw(Sysno::ppoll, [&raw mut poll as usize, 1, timeout as usize, 0, 8, 0]) };
    if done == Ok(1) { poll.revents } else { 0 }
}
