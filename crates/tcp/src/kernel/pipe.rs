//! What the kernel is asked of a pipe.

use super::{Result, read_cached, word};
use ginnel_region::sys;
use libc::{c_int, iovec};
use syscalls::Sysno;

/// Reads what a pipe holds into `pieces`, without waiting for more.
///
/// # Errors
/// The `errno`: EAGAIN where it holds nothing, EOPNOTSUPP where the pipe blocks and the kernel
/// cannot leave that out: before Linux 6.5, and once something was spliced out of the pipe or into
/// it.
///
/// # Safety
/// The pieces describe memory that may be written.
pub unsafe fn read(pipe: c_int, pieces: &[iovec]) -> Result<usize> {
    let blocks = sys::fcntl(pipe, libc::F_GETFL, 0)? & libc::O_NONBLOCK as usize == 0;
    if blocks {
        // SAFETY: the caller's promise. (There is no position.)
        return unsafe { read_cached(pipe, pieces, -1) };
    }
    // SAFETY: as above.
    unsafe { sys::raw(Sysno::readv, [word(pipe), pieces.as_ptr() as usize, pieces.len(), 0, 0, 0]) }
}

/// Reads `n` bytes of a pipe that holds more into `pieces`, which have as many. A pipe of packets
/// (O_DIRECT) would lose the rest of one that is read in part, and does not tell that it is one: so
/// the bytes are spliced into another pipe, which leaves the rest where it is, and read there.
///
/// # Errors
/// The `errno`; EAGAIN where somebody else has read what was there, EOPNOTSUPP where there is no
/// descriptor for another pipe. Nothing is taken then.
///
/// # Safety
/// The pieces describe memory that may be written.
pub unsafe fn read_part(pipe: c_int, pieces: [iovec; 2], n: usize) -> Result<usize> {
    let mut ends = [-1; 2];
    let flags = libc::O_CLOEXEC as usize;
    // SAFETY: two descriptors have room.
    unsafe { sys::raw(Sysno::pipe2, [ends.as_mut_ptr() as usize, flags, 0, 0, 0, 0]) }
        .map_err(|_| libc::EOPNOTSUPP)?;
    let [out, into] = ends.map(sys::Fd);
    let moved = splice(pipe, into.0, n)?;
    let mut got = 0;
    while got < moved {
        let [mut first, mut second] = pieces;
        let (skip, more) = (got.min(first.iov_len), got.saturating_sub(first.iov_len));
        first.iov_base = first.iov_base.wrapping_byte_add(skip);
        first.iov_len -= skip;
        second.iov_base = second.iov_base.wrapping_byte_add(more);
        second.iov_len -= more;
        let left = [first, second];
        let arguments = [word(out.0), left.as_ptr() as usize, left.len(), 0, 0, 0];
        // SAFETY: the caller's promise. What was moved is there: this does not wait.
        match unsafe { sys::raw(Sysno::readv, arguments) } {
            Ok(0) | Err(_) => break,
            Ok(read) => got += read,
        }
    }
    Ok(got)
}

/// Moves up to `n` bytes out of a pipe into a socket that does not block, or into another pipe.
///
/// # Errors
/// The `errno`; with EPIPE the thread has got SIGPIPE.
pub fn splice(pipe: c_int, to: c_int, n: usize) -> Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK as usize;
    // SAFETY: takes numbers only.
    unsafe { sys::raw(Sysno::splice, [word(pipe), 0, word(to), 0, n, flags]) }
}
