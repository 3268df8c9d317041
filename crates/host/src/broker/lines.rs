//! The lines by which the two processes of a pair wake each other ([`ginnel_node::wake::line`]):
//! connected sockets, of which each process gets one end.

use ginnel_node::wake::line::{LINES, refuse_rights};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that the kernel keeps of what was written and not read, as it counts them: the least. One
/// byte is enough.
const UNREAD: usize = 1;

/// Both processes' ends, in the same order.
pub type Ends = [Vec<OwnedFd>; 2];

/// Makes a pair's lines.
///
/// # Errors
/// The kernel's: then the processes do without, and wake each other over TCP.
pub fn make() -> Result<Ends, Errno> {
    let mut ends = Ends::default();
    for _ in 0..LINES {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        for (end, place) in [one, other].into_iter().zip(&mut ends) {
            set_socket_send_buffer_size(&end, UNREAD)?;
            refuse_rights(end.as_raw_fd());
            place.push(end);
        }
    }
    Ok(ends)
}

/// What goes beside the answer to one of the two: the memory, then its ends.
pub fn beside<'a>(memory: BorrowedFd<'a>, ends: &'a [OwnedFd]) -> Vec<BorrowedFd<'a>> {
    std::iter::once(memory).chain(ends.iter().map(AsFd::as_fd)).collect()
}
