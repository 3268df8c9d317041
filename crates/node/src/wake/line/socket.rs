//! The calls on one end of a line. The process at the other end may be anybody's: no call here
//! waits for it, and none takes a descriptor that it has sent.
//!
//! Whoever reads a message with descriptors beside it closes those for which it made no room, and
//! the last close of a socket or of a terminal may wait for as long as the sender likes. Linux 6.16
//! and later refuse to send any where the receiver says so (SO_PASSRIGHTS). Before that a message
//! is looked at before it is read, and one with descriptors is left where it is.

use ginnel_region::sys::{self, Result};
use syscalls::Sysno;

/// Bytes that are read in one call: more than an honest process writes between two sleeps.
const AT_ONCE: usize = 256;
/// Calls in which a line is read empty: what lies there still wakes once more.
const READS: usize = 8;
/// (asm-generic/socket.h, Linux 6.16.)
const SO_PASSRIGHTS: usize = 83;

/// What lies in a line.
enum Next {
    Bytes(usize),
    Nothing,
    /// Nothing more will come, or what came has descriptors beside it.
    Unfit,
}

/// Is this socket one to which no descriptors can be sent?
pub(super) fn takes_no_rights(fd: i32) -> bool {
    let (mut value, mut length) = (1i32, size_of::<i32>() as libc::socklen_t);
    let option = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        SO_PASSRIGHTS,
        &raw mut value as usize,
        &raw mut length as usize,
        0,
    ];
    // SAFETY: both places are writable.
    unsafe { sys::raw(Sysno::getsockopt, option) }.is_ok() && value == 0
}

/// Has the kernel refuse to send descriptors to this socket, where it can.
pub(super) fn refuse_rights(fd: i32) {
    let (value, length) = (0i32, size_of::<i32>());
    let option = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        SO_PASSRIGHTS,
        &raw const value as usize,
        length,
        0,
    ];
    // SAFETY: the value is readable.
    let _ = unsafe { sys::raw(Sysno::setsockopt, option) };
}

/// Writes a byte. A line that is full has been written to.
pub(super) fn ring(fd: i32) -> bool {
    let (byte, flags) = ([0u8], (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize);
    // SAFETY: the byte is readable.
    let sent =
        unsafe { sys::raw(Sysno::sendto, [fd as usize, byte.as_ptr() as usize, 1, flags, 0, 0]) };
    matches!(sent, Ok(_) | Err(libc::EAGAIN))
}

/// Reads a line empty, of all that was in it before: within bounds. False: it is of no use any
/// more.
pub(super) fn empty(fd: i32, no_rights: bool) -> bool {
    for _ in 0..READS {
        let most = match if no_rights { Next::Bytes(AT_ONCE) } else { look(fd) } {
            Next::Bytes(count) => count,
            Next::Nothing => return true,
            Next::Unfit => return false,
        };
        match receive(fd, most, 0) {
            Ok(0) => return false,
            Ok(count) if count < AT_ONCE => return true,
            Ok(_) => {}
            Err(errno) => return matches!(errno, libc::EAGAIN | libc::EINTR),
        }
    }
    true
}

fn receive(fd: i32, most: usize, flags: i32) -> Result<usize> {
    let mut bytes = [0u8; AT_ONCE];
    let flags = (flags | libc::MSG_DONTWAIT) as usize;
    // SAFETY: the bytes are writable, and as many as there are at most.
    unsafe {
        sys::raw(
            Sysno::recvfrom,
            [fd as usize, bytes.as_mut_ptr() as usize, most.min(AT_ONCE), flags, 0, 0],
        )
    }
}

/// Looks at what comes next, and leaves it there.
fn look(fd: i32) -> Next {
    let mut bytes = [0u8; AT_ONCE];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes is a valid header, without a name or room for descriptors.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    let flags = (libc::MSG_DONTWAIT | libc::MSG_PEEK) as usize;
    // SAFETY: the header and what it names live until the call returns, and are writable.
    match unsafe {
        sys::raw(Sysno::recvmsg, [fd as usize, &raw mut message as usize, flags, 0, 0, 0])
    } {
        // There was something beside the bytes.
        Ok(0) => Next::Unfit,
        Ok(_) if message.msg_flags & libc::MSG_CTRUNC != 0 => Next::Unfit,
        Ok(count) => Next::Bytes(count),
        Err(libc::EAGAIN | libc::EINTR) => Next::Nothing,
        Err(_) => Next::Unfit,
    }
}

/// Nothing more is sent or comes: who sleeps at either end wakes.
pub(super) fn end(fd: i32) {
    // SAFETY: no memory is passed.
    let _ =
        unsafe { sys::raw(Sysno::shutdown, [fd as usize, libc::SHUT_RDWR as usize, 0, 0, 0, 0]) };
}

/// Has the other end know that nobody is here any more. False where the number must stay open:
/// descriptors lie there that the other end sent.
pub(super) fn hang_up(fd: i32, no_rights: bool) -> bool {
    // Nothing comes behind this.
    end(fd);
    if no_rights {
        return true;
    }
    // Each look is followed by reading what it saw; a line holds no more than a send buffer of the
    // other end's.
    loop {
        match look(fd) {
            Next::Bytes(count) if receive(fd, count, 0).is_ok_and(|read| read > 0) => {}
            Next::Bytes(_) | Next::Nothing => return false,
            Next::Unfit => return is_at_end(fd),
        }
    }
}

/// Nothing lies there, and nothing will.
fn is_at_end(fd: i32) -> bool {
    matches!(receive(fd, 1, libc::MSG_PEEK), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// Sends a byte with a pipe's writing end beside it.
    fn send_pipe(socket: &UnixStream) -> Option<std::io::PipeReader> {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut room = [0u64; 4];
        let (mut byte, fd) = ([0u8], writer.as_raw_fd());
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: all zeroes is a valid value; the room holds a header and one descriptor.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            (message.msg_control, message.msg_controllen) =
                (room.as_mut_ptr().cast(), libc::CMSG_SPACE(4) as _);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
            libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
        };
        (sent == 1).then_some(reader)
    }

    /// As the kernel says: is the other end of a pipe open nowhere? (Children of other tests may
    /// have it for a moment.)
    fn is_closed(reader: &mut std::io::PipeReader, ms: i32) -> bool {
        sys::poll(reader.as_raw_fd(), libc::POLLIN, ms) & libc::POLLHUP != 0
            && matches!(reader.read(&mut [0]), Ok(0))
    }

    #[test]
    fn what_was_written_is_read_and_no_more_is_waited_for() {
        for no_rights in [false, true] {
            let (own, mut other) = UnixStream::pair().expect("sockets");
            assert!(empty(own.as_raw_fd(), no_rights), "nothing there");
            other.write_all(&[0; 1000]).expect("room");
            assert!(empty(own.as_raw_fd(), no_rights));
            assert_eq!(sys::poll(own.as_raw_fd(), libc::POLLIN, 0), 0);
            // More than is read at once: it wakes again.
            other.write_all(&[0; 8000]).expect("room");
            assert!(empty(own.as_raw_fd(), no_rights));
            assert_eq!(sys::poll(own.as_raw_fd(), libc::POLLIN, 0), libc::POLLIN);
            drop(other);
            let ended = (0..8).any(|_| !empty(own.as_raw_fd(), no_rights));
            assert!(ended, "the other end is closed");
        }
    }

    #[test]
    fn a_line_that_is_full_is_rung_and_one_that_is_closed_is_not() {
        let (own, other) = UnixStream::pair().expect("sockets");
        assert!((0..100_000).all(|_| ring(own.as_raw_fd())), "nobody waits for room");
        drop(other);
        assert!(!ring(own.as_raw_fd()));
    }

    /// Whoever read it would close the descriptor, which may wait for ever.
    #[test]
    fn a_descriptor_beside_a_byte_is_neither_taken_nor_closed() {
        let (own, other) = UnixStream::pair().expect("sockets");
        assert!(!takes_no_rights(own.as_raw_fd()));
        ring(other.as_raw_fd());
        let mut reader = send_pipe(&other).expect("sent");
        ring(other.as_raw_fd());
        assert!(!empty(own.as_raw_fd(), false));
        assert!(!hang_up(own.as_raw_fd(), false), "it has to stay open");
        assert!(!is_closed(&mut reader, 50));
        assert!(send_pipe(&other).is_none(), "nothing comes behind that");
    }

    #[test]
    fn who_is_hung_up_on_hears_it() {
        for no_rights in [false, true] {
            let (own, mut other) = UnixStream::pair().expect("sockets");
            other.write_all(&[0; 3000]).expect("room");
            assert!(hang_up(own.as_raw_fd(), no_rights), "what lies there is nobody's");
            assert!(!ring(other.as_raw_fd()));
        }
    }

    #[test]
    fn where_the_kernel_can_no_descriptor_comes() {
        let (own, other) = UnixStream::pair().expect("sockets");
        refuse_rights(own.as_raw_fd());
        if takes_no_rights(own.as_raw_fd()) {
            assert!(send_pipe(&other).is_none());
        }
    }
}
