//! Where a segment is attached: a second map of the same pages, at a place of the program's choice.

use crate::kernel::{Result, errno};
use ginnel_region::{PAGE, open};
use libc::{c_int, c_void};
use std::path::Path;

/// What is to be mapped.
pub(crate) struct Wanted<'a> {
    /// Where the bytes lie in the segment's own map.
    pub own: *mut u8,
    /// Whole pages.
    pub len: usize,
    /// From the segment's start.
    pub offset: u64,
    /// The segment's file or device.
    pub path: &'a Path,
}

/// `shmat(2)`'s rules for an address: the one that is meant; `None`: any.
pub(crate) fn address(at: usize, flags: c_int) -> Result<Option<usize>> {
    let (round, replace) = (flags & libc::SHM_RND != 0, flags & libc::SHM_REMAP != 0);
    let page = PAGE as usize;
    match at {
        0 if replace => Err(libc::EINVAL),
        0 => Ok(None),
        at if at.is_multiple_of(page) => Ok(Some(at)),
        at if round => match at / page * page {
            0 if replace => Err(libc::EINVAL),
            // As the kernel: what is rounded to nothing means any place.
            0 => Ok(None),
            at => Ok(Some(at)),
        },
        _ => Err(libc::EINVAL),
    }
}

/// Maps it.
pub(crate) fn attach(wanted: &Wanted<'_>, at: Option<usize>, flags: c_int) -> Result<usize> {
    let replace = flags & libc::SHM_REMAP != 0;
    if let Some(at) = at {
        if at.checked_add(wanted.len).is_none() {
            return Err(libc::EINVAL);
        }
        if !replace {
            reserve(at, wanted.len)?;
        }
    }
    let mapped = again(wanted, at).or_else(|errno| {
        // Memory of a device cannot be mapped from a map (mremap(2) gives EFAULT).
        if errno == libc::EFAULT { from_file(wanted, at) } else { Err(errno) }
    });
    let mapped = mapped.inspect_err(|_| {
        if let Some(at) = at.filter(|_| !replace) {
            detach(at, wanted.len);
        }
    })?;
    let read_only = flags & libc::SHM_RDONLY != 0;
    let execute = flags & libc::SHM_EXEC != 0;
    let access = libc::PROT_READ
        | if read_only { 0 } else { libc::PROT_WRITE }
        | if execute { libc::PROT_EXEC } else { 0 };
    let done = if read_only || execute {
        // SAFETY: what was just mapped, and nobody has got to know.
        unsafe { libc::mprotect(mapped as *mut c_void, wanted.len, access) }
    } else {
        0
    };
    if done != 0 {
        let errno = errno();
        detach(mapped, wanted.len);
        return Err(errno);
    }
    Ok(mapped)
}

/// Has nothing else come to lie there; EINVAL where something does.
fn reserve(at: usize, len: usize) -> Result<()> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: nothing that is mapped is replaced.
    let got = unsafe { libc::mmap(at as *mut c_void, len, libc::PROT_NONE, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(match errno() {
            libc::EEXIST => libc::EINVAL,
            errno => errno,
        });
    }
    if got as usize == at {
        return Ok(());
    }
    // A kernel before 4.17, which takes the place for a hint.
    detach(got as usize, len);
    Err(libc::EINVAL)
}

fn again(wanted: &Wanted<'_>, at: Option<usize>) -> Result<usize> {
    let flags = libc::MREMAP_MAYMOVE | if at.is_some() { libc::MREMAP_FIXED } else { 0 };
    // SAFETY: 0 of the old size leaves the segment's own map as it is (mremap(2)); what is replaced
    // is what was just reserved there, or what the program has asked for.
    let got = unsafe {
        libc::mremap(wanted.own.cast(), 0, wanted.len, flags, at.unwrap_or(0) as *mut c_void)
    };
    if got == libc::MAP_FAILED { Err(errno()) } else { Ok(got as usize) }
}

fn from_file(wanted: &Wanted<'_>, at: Option<usize>) -> Result<usize> {
    let (file, _) = open::open(wanted.path)?;
    let flags = libc::MAP_SHARED | if at.is_some() { libc::MAP_FIXED } else { 0 };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let offset = libc::off_t::try_from(wanted.offset).map_err(|_| libc::ENOMEM)?;
    // SAFETY: as above.
    let got = unsafe {
        libc::mmap(at.unwrap_or(0) as *mut c_void, wanted.len, access, flags, file.0, offset)
    };
    if got == libc::MAP_FAILED { Err(errno()) } else { Ok(got as usize) }
}

/// A line of `/proc/PID/maps` (proc_pid_maps(5)): from, to, offset, and which file.
fn line(text: &[u8]) -> Option<(usize, usize, u64, &[u8])> {
    let mut fields = text.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let number = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    let (range, _access, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (device, inode) = (fields.next()?, fields.next()?);
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (from, to) = (number(&range[..dash])?, number(&range[dash + 1..])?);
    // Both fields, and the blanks between them, which are alike in every line.
    let start = device.as_ptr() as usize - text.as_ptr() as usize;
    let end = inode.as_ptr() as usize - text.as_ptr() as usize + inode.len();
    Some((
        usize::try_from(from).ok()?,
        usize::try_from(to).ok()?,
        number(offset)?,
        &text[start..end],
    ))
}

/// What is still mapped of an attachment, as (place, length): parts of the file whose part at `own`
/// was attached at `at`. All of it where `maps`, the text of `/proc/self/maps`, does not say.
pub(crate) fn pieces(maps: &[u8], own: usize, at: usize, len: usize) -> Vec<(usize, usize)> {
    let lines = || maps.split(|&byte| byte == b'\n').filter_map(line);
    let Some((from, _, offset, file)) = lines().find(|&(from, to, ..)| (from..to).contains(&own))
    else {
        return vec![(at, len)];
    };
    let wanted = offset + (own - from) as u64;
    let piece = |(from, to, offset, of): (usize, usize, u64, &[u8])| {
        let (begin, end) = (from.max(at), to.min(at + len));
        let is_it = begin < end
            && of == file
            && offset + (begin - from) as u64 == wanted + (begin - at) as u64;
        is_it.then(|| (begin, end - begin))
    };
    lines().filter_map(piece).collect()
}

/// Takes a map away.
pub(crate) fn detach(at: usize, len: usize) {
    // SAFETY: what this library mapped; the program has asked for it, or has not got to know it.
    unsafe { libc::munmap(at as *mut c_void, len) };
}
