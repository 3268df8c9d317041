//! Maps of memory, and what becomes of them.

use super::{Result, pid, raw};
use syscalls::Sysno;

/// `mmap(2)` of a whole file, shared, anywhere.
///
/// # Errors
/// The `errno`.
pub fn map_shared(fd: i32, len: usize, writable: bool) -> Result<*mut u8> {
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new map at an address of the kernel's choice disturbs nobody.
    let at = unsafe {
        raw(
            Sysno::mmap,
            [
                0,
                len,
                protection as usize,
                (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize,
                fd as usize,
                0,
            ],
        )
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
        let arguments = [
            0,
            len,
            libc::PROT_READ as usize,
            libc::MAP_SHARED as usize,
            fd as usize,
            offset as usize,
        ];
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
    let at = unsafe {
        raw(
            Sysno::mmap,
            [0, len, (libc::PROT_READ | libc::PROT_WRITE) as usize, flags as usize, usize::MAX, 0],
        )
    }?;
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
    let at = unsafe {
        raw(
            Sysno::mmap,
            [0, len, (libc::PROT_READ | libc::PROT_WRITE) as usize, flags as usize, usize::MAX, 0],
        )
    }?;
    Ok(at as *mut u8)
}

/// Has a child of `fork` find zeroes in its copy of a private map (`MADV_WIPEONFORK`, Linux 4.14).
///
/// # Errors
/// The `errno`; EINVAL before 4.14.
pub fn wipe_on_fork(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: nothing of this process's memory changes.
    unsafe { raw(Sysno::madvise, [at as usize, len, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) }
        .map(drop)
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
    let at = unsafe {
        raw(Sysno::mmap, [0, len, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0])
    }?;
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
    match unsafe {
        raw(call, [pid() as usize, &raw const local as usize, 1, &raw const remote as usize, 1, 0])
    } {
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

/// Has a child of `fork` not get a map at all (`MADV_DONTFORK`).
///
/// # Errors
/// The `errno`.
pub fn keep_from_children(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: nothing of this process's memory changes.
    unsafe { raw(Sysno::madvise, [at as usize, len, libc::MADV_DONTFORK as usize, 0, 0, 0]) }
        .map(drop)
}

/// Has a child of `fork` get a map again that [`keep_from_children`] kept from it (`MADV_DOFORK`).
///
/// # Errors
/// The `errno`.
pub fn give_to_children(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: nothing of this process's memory changes.
    unsafe { raw(Sysno::madvise, [at as usize, len, libc::MADV_DOFORK as usize, 0, 0, 0]) }
        .map(drop)
}
