//! Many messages in one system call: sendmmsg(2).
//!
//! Not for speed: a process that is killed is killed between two system calls, so either all of a
//! setup is in the peer's socket or nothing is.

use crate::wire::MESSAGE;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Most messages of one call; the kernel takes no more (UIO_MAXIOV).
pub(crate) const MOST: usize = 1024;

/// One message: its bytes that are still to be sent, and the descriptor that goes with the first of
/// them.
pub(crate) struct Piece {
    pub bytes: [u8; MESSAGE],
    /// Bytes that were sent earlier.
    pub begun: usize,
    pub descriptor: Option<RawFd>,
}

/// A control message with one descriptor (cmsg(3)); as large as `CMSG_SPACE` of one.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    descriptor: libc::c_int,
    padding: libc::c_int,
}

// SAFETY: the macros only compute.
const _: () = assert!(size_of::<Control>() == unsafe { libc::CMSG_SPACE(4) } as usize);
const _: () = assert!(std::mem::offset_of!(Control, descriptor) == size_of::<libc::cmsghdr>());

/// Sends them in order, as far as the socket takes them, and never waits: how many bytes of each,
/// for those that were begun.
pub(crate) fn send(socket: BorrowedFd<'_>, pieces: &[Piece]) -> Result<Vec<usize>, Errno> {
    let pieces = &pieces[..pieces.len().min(MOST)];
    let mut controls: Vec<Control> =
        pieces.iter().map(|piece| control(piece.descriptor.unwrap_or(-1))).collect();
    let mut vectors: Vec<libc::iovec> = pieces
        .iter()
        .map(|piece| {
            let rest = &piece.bytes[piece.begun..];
            libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() }
        })
        .collect();
    let mut headers: Vec<libc::mmsghdr> = Vec::with_capacity(pieces.len());
    for ((piece, control), vector) in pieces.iter().zip(&mut controls).zip(&mut vectors) {
        // SAFETY: all zeroes is an empty header.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        if piece.descriptor.is_some() {
            header.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        headers.push(header);
    }
    let count = libc::c_uint::try_from(headers.len()).map_err(|_| Errno::INVAL)?;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `headers` holds `count` headers, and what they point to (`vectors`, `controls`,
    // `pieces`) lives until the call returns.
    let sent =
        unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, flags as _) };
    match usize::try_from(sent) {
        Ok(sent) => Ok(headers.iter().take(sent).map(|header| header.msg_len as usize).collect()),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

fn control(descriptor: RawFd) -> Control {
    // SAFETY: the macro only computes; a header of zeroes is valid, and its other fields are filled
    // in.
    let (len, mut header) =
        unsafe { (libc::CMSG_LEN(4) as usize, std::mem::zeroed::<libc::cmsghdr>()) };
    header.cmsg_len = len as _;
    header.cmsg_level = libc::SOL_SOCKET;
    header.cmsg_type = libc::SCM_RIGHTS;
    Control { header, descriptor, padding: 0 }
}
