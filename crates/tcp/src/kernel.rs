//! System calls on the TCP socket beneath a channel, and on a file that is sent. None of them
//! blocks.

mod info;
pub mod pipe;

use ginnel_region::sys::{self, Result};
pub use info::{
    CLOSE, CLOSE_WAIT, ESTABLISHED, Facts, Path, facts, nothing_follows, path, state, totals,
};
use libc::{c_int, iovec};
use syscalls::Sysno;

fn word(fd: c_int) -> usize {
    fd as usize
}

/// Reads what of a file's page cache is at hand, at `position` (-1: the file's own), into `pieces`:
/// without waiting for a device (`preadv2(2)`, RWF_NOWAIT).
///
/// # Errors
/// The `errno`: EAGAIN where nothing is at hand, EOPNOTSUPP where the file system cannot tell,
/// EFAULT where the pieces are no memory.
///
/// # Safety
/// The pieces describe memory that may be written.
pub unsafe fn read_cached(file: c_int, pieces: &[iovec], position: i64) -> Result<usize> {
    let flags = libc::RWF_NOWAIT as usize;
    // SAFETY: the caller's promise. (The upper half of the position is of 32-bit machines only.)
    unsafe {
        sys::raw(
            Sysno::preadv2,
            [word(file), pieces.as_ptr() as usize, pieces.len(), position as usize, 0, flags],
        )
    }
}

/// Receives into `iov` without blocking. `Ok(0)`: end-of-file (or no room in `iov`).
///
/// # Errors
/// The `errno`.
///
/// # Safety
/// The iovecs describe writable memory.
pub unsafe fn recv(fd: c_int, iov: &[iovec], flags: c_int) -> Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    if let [piece] = iov {
        // For the kernel the shorter way. SAFETY: the caller's promise.
        return unsafe {
            sys::raw(
                Sysno::recvfrom,
                [word(fd), piece.iov_base as usize, piece.iov_len, flags as usize, 0, 0],
            )
        };
    }
    // SAFETY: all zeroes is a valid header without a name or control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut();
    header.msg_iovlen = iov.len() as _;
    // SAFETY: the caller's promise.
    unsafe {
        sys::raw(Sysno::recvmsg, [word(fd), &raw mut header as usize, flags as usize, 0, 0, 0])
    }
}

/// Sends from `iov` without blocking and without SIGPIPE.
///
/// # Errors
/// The `errno`.
///
/// # Safety
/// The iovecs describe readable memory.
pub unsafe fn send(fd: c_int, iov: &[iovec], flags: c_int) -> Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if let [piece] = iov {
        // For the kernel the shorter way. SAFETY: the caller's promise.
        return unsafe {
            sys::raw(
                Sysno::sendto,
                [word(fd), piece.iov_base as usize, piece.iov_len, flags as usize, 0, 0],
            )
        };
    }
    // SAFETY: all zeroes is a valid header without a name or control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut();
    header.msg_iovlen = iov.len() as _;
    // SAFETY: the caller's promise.
    unsafe {
        sys::raw(Sysno::sendmsg, [word(fd), &raw mut header as usize, flags as usize, 0, 0, 0])
    }
}

/// Throws away up to `n` bytes (`MSG_TRUNC`, which on TCP discards without copying).
///
/// # Errors
/// The `errno`.
pub fn discard(fd: c_int, n: usize) -> Result<usize> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC the kernel writes nothing.
    unsafe { sys::raw(Sysno::recvfrom, [word(fd), 0, n, flags as usize, 0, 0]) }
}

/// Looks at the next byte: `Ok(1)` there is one, `Ok(0)` end-of-file, EAGAIN nothing yet, else the
/// connection's error.
///
/// # Errors
/// The `errno`; the kernel forgets a pending error once it was told.
pub fn look(fd: c_int) -> Result<usize> {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: `byte` is writable.
    unsafe {
        sys::raw(Sysno::recvfrom, [word(fd), &raw mut byte as usize, 1, flags as usize, 0, 0])
    }
}

/// Sends one byte that means nothing: a token.
///
/// # Errors
/// The `errno`; EAGAIN where the send buffer is full.
pub fn token(fd: c_int) -> Result<()> {
    let byte = 0u8;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `byte` is readable.
    unsafe {
        sys::raw(Sysno::sendto, [word(fd), &raw const byte as usize, 1, flags as usize, 0, 0])
    }
    .map(drop)
}

/// Sends what Nagle's algorithm holds back until what was sent before is acknowledged, which may be
/// put off by 40 ms. The option is set for a moment: the kernel pushes then.
pub fn push(fd: c_int) {
    let mut is_off: c_int = 0;
    let asked = getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &mut is_off);
    if asked.is_ok() && is_off == 0 {
        for value in [1, 0] {
            let _ = setsockopt::<c_int>(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &value);
        }
    }
}

fn ioctl_int(fd: c_int, request: libc::Ioctl) -> Result<u64> {
    let mut value: c_int = 0;
    // SAFETY: these requests store one int.
    unsafe {
        sys::raw(Sysno::ioctl, [word(fd), request as usize, &raw mut value as usize, 0, 0, 0])
    }?;
    Ok(u64::try_from(value).unwrap_or(0))
}

const SIOCOUTQNSD: libc::Ioctl = 0x894B;

/// Bytes that can be received now, or read from a pipe (`FIONREAD`).
#[must_use]
pub fn readable(fd: c_int) -> u64 {
    ioctl_int(fd, libc::FIONREAD).unwrap_or(0)
}

/// Is the next byte the one after urgent data (`SIOCATMARK`)? `FIONREAD` is then 0, whatever
/// follows.
#[must_use]
pub fn at_mark(fd: c_int) -> bool {
    const SIOCATMARK: libc::Ioctl = 0x8905;
    ioctl_int(fd, SIOCATMARK) == Ok(1)
}

/// Bytes given to the kernel and not yet acknowledged by the peer's (`SIOCOUTQ`).
#[must_use]
pub fn unacknowledged(fd: c_int) -> u64 {
    ioctl_int(fd, libc::TIOCOUTQ).unwrap_or(0)
}

/// Bytes given to the kernel and not yet sent (`SIOCOUTQNSD`).
#[must_use]
pub fn unsent(fd: c_int) -> u64 {
    ioctl_int(fd, SIOCOUTQNSD).unwrap_or(0)
}

/// `getsockopt(2)` into a plain value. Returns the length that the kernel stored.
///
/// # Errors
/// The `errno`.
pub fn getsockopt<T: Copy>(fd: c_int, level: c_int, name: c_int, value: &mut T) -> Result<u32> {
    let mut len = u32::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: `value` is writable for `len` bytes; the kernel stores plain numbers.
    unsafe {
        sys::raw(
            Sysno::getsockopt,
            [
                word(fd),
                level as usize,
                name as usize,
                std::ptr::from_mut(value) as usize,
                &raw mut len as usize,
                0,
            ],
        )
    }?;
    Ok(len)
}

/// `setsockopt(2)` from a plain value.
///
/// # Errors
/// The `errno`.
pub fn setsockopt<T: Copy>(fd: c_int, level: c_int, name: c_int, value: &T) -> Result<()> {
    // SAFETY: `value` is readable for its size.
    unsafe {
        sys::raw(
            Sysno::setsockopt,
            [
                word(fd),
                level as usize,
                name as usize,
                std::ptr::from_ref(value) as usize,
                size_of::<T>(),
                0,
            ],
        )
    }
    .map(drop)
}

/// `SO_COOKIE`: the socket's number, the same in every process that has it.
///
/// # Errors
/// ENOTSOCK and the like.
pub fn cookie(fd: c_int) -> Result<u64> {
    let mut cookie = 0u64;
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie)?;
    Ok(cookie)
}

/// Does the kernel call the socket writable?
#[must_use]
pub fn writable(fd: c_int) -> bool {
    sys::poll(fd, libc::POLLOUT, 0) & libc::POLLOUT != 0
}

/// Ends the writing direction: FIN, behind what the kernel has. Nothing where it has ended.
pub fn end_writing(fd: c_int) {
    if !matches!(state(fd), Ok(ESTABLISHED | CLOSE_WAIT)) {
        // Once more would be an edge for whoever waits on the socket.
        return;
    }
    // SAFETY: no memory is passed.
    let _ = unsafe { sys::raw(Sysno::shutdown, [word(fd), libc::SHUT_WR as usize, 0, 0, 0, 0]) };
}

/// Aborts the connection: RST to the peer, at once (`connect` to AF_UNSPEC).
pub fn abort(fd: c_int) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    let unspecified = [0u8; 16];
    // SAFETY: a sockaddr of family AF_UNSPEC (0).
    let _ =
        unsafe { sys::raw(Sysno::connect, [word(fd), unspecified.as_ptr() as usize, 16, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_token_is_pushed_past_nagles_algorithm() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut there =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut here, _) = listener.accept().expect("accepts");
        let (fd, mut byte) = (here.as_raw_fd(), [0]);
        // So that the other end puts acknowledgements off.
        for _ in 0..40 {
            here.write_all(&[1])
                .and_then(|()| there.read_exact(&mut byte))
                .expect("one byte there");
            there.write_all(&[1]).and_then(|()| here.read_exact(&mut byte)).expect("one byte back");
        }
        let held = (0..100).any(|_| {
            let sent = token(fd).and_then(|()| token(fd));
            sent.is_ok() && unsent(fd) != 0
        });
        assert!(held, "the kernel holds none back, and this tells nothing");
        push(fd);
        let mut off: c_int = -1;
        getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &mut off).expect("an option");
        assert_eq!((unsent(fd), off), (0, 0));
    }
}
