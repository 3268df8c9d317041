//! What the kernel is asked of a pipe.

use super::{Result, word};
use ginnel_region::sys;
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
    match give(pipe, bytes) {
        // No memory, or a filter does not let the call through. There was room a moment ago.
        Err(libc::ENOMEM | libc::ENOSYS | libc::EPERM | libc::EACCES) => sys::write(pipe, bytes),
        put => put,
    }
}

/// Puts bytes, at most PIPE_BUF, into a pipe without waiting, in a page that is the pipe's from then
/// on. Takes no descriptor: the program may have as many as it may have.
fn give(pipe: c_int, bytes: &[u8]) -> Result<usize> {
    let page = sys::map_private(libc::PIPE_BUF).map_err(|_| libc::ENOMEM)?;
    let n = bytes.len().min(libc::PIPE_BUF);
    // SAFETY: so many bytes were just mapped, and nobody else knows where.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(page, n) };
    let piece = [iovec { iov_base: page.cast(), iov_len: n }];
    let flags = libc::SPLICE_F_NONBLOCK as usize;
    // SAFETY: the piece is readable. The pipe keeps the page for itself.
    let put =
        unsafe { sys::raw(Sysno::vmsplice, [word(pipe), piece.as_ptr() as usize, 1, flags, 0, 0]) };
    // SAFETY: nobody has the address any more.
    unsafe { sys::unmap(page, libc::PIPE_BUF) };
    put
}

/// Moves up to `n` bytes out of a pipe into a socket that does not block.
///
/// # Errors
/// The `errno`; with EPIPE the thread has got SIGPIPE.
pub fn splice(pipe: c_int, to: c_int, n: usize) -> Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK as usize;
    // SAFETY: takes numbers only.
    unsafe { sys::raw(Sysno::splice, [word(pipe), 0, word(to), 0, n, flags]) }
}
