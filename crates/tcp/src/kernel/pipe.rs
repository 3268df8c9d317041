//! What the kernel is asked of a pipe.

use super::{Result, word};
use ginnel_region::sys::{self, Fd};
use libc::{c_int, iovec};
use syscalls::Sysno;

/// Moves what a pipe holds into `pieces`, without waiting for more (`vmsplice(2)`). What has no room
/// there stays in the pipe, as by splice(2): also the rest of a packet (O_DIRECT), which read(2)
/// would lose. 0: it holds nothing, and nobody writes into it any more.
///
/// # Errors
/// The `errno`: EAGAIN where it holds nothing, EOPNOTSUPP where this cannot be done: the descriptor
/// is not for reading alone, or a filter does not let the call through.
///
/// # Safety
/// The pieces describe memory that may be written.
pub unsafe fn take(pipe: c_int, pieces: &[iovec]) -> Result<usize> {
    // Into one that can be written to they would be spliced.
    if sys::fcntl(pipe, libc::F_GETFL, 0)? & libc::O_ACCMODE as usize != libc::O_RDONLY as usize {
        return Err(libc::EOPNOTSUPP);
    }
    let flags = libc::SPLICE_F_NONBLOCK as usize;
    let arguments = [word(pipe), pieces.as_ptr() as usize, pieces.len(), flags, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { sys::raw(Sysno::vmsplice, arguments) }.map_err(|errno| match errno {
        libc::ENOSYS | libc::EPERM | libc::EACCES => libc::EOPNOTSUPP,
        errno => errno,
    })
}

/// Puts bytes, at most PIPE_BUF, into a pipe that is open as `settings` says (F_GETFL), without
/// waiting, and as splice(2) does: no packets are made of them (O_DIRECT), so whoever reads a part
/// finds the rest there.
///
/// # Errors
/// The `errno`; with EPIPE the thread has got SIGPIPE.
pub fn put(pipe: c_int, bytes: &[u8], settings: usize) -> Result<usize> {
    let is = |flag: c_int| settings & flag as usize != 0;
    if !is(libc::O_DIRECT) {
        if is(libc::O_NONBLOCK) {
            return sys::write(pipe, bytes);
        }
        let piece = [iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
        let nowait = libc::RWF_NOWAIT as usize;
        let arguments = [word(pipe), piece.as_ptr() as usize, 1, usize::MAX, 0, nowait];
        // SAFETY: the piece is readable. (There is no position.)
        match unsafe { sys::raw(Sysno::pwritev2, arguments) } {
            // Before Linux 6.5, and once something was spliced into the pipe.
            Err(libc::EOPNOTSUPP | libc::ENOSYS) => {}
            put => return put,
        }
    }
    let mut ends = [-1; 2];
    let flags = libc::O_CLOEXEC as usize;
    // SAFETY: two descriptors have room.
    unsafe { sys::raw(Sysno::pipe2, [ends.as_mut_ptr() as usize, flags, 0, 0, 0, 0]) }
        .map_err(|_| libc::ENOMEM)?;
    let [out, into] = ends.map(Fd);
    let there = sys::write(into.0, bytes)?;
    splice(out.0, pipe, there)
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
