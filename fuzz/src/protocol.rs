//! The ivshmem protocol, as a client hears it from a server that means harm.

use crate::Bytes;
use ginnel_ivshmem::client::{Client, MAX_DOORBELLS};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Sends bytes with so many copies of a descriptor beside them.
fn send(socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) -> bool {
    let iov = [IoSlice::new(bytes)];
    let mut control = [0u64; 8];
    // SAFETY: all zeroes is a valid header without a name or control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = iov.as_ptr().cast_mut().cast();
    header.msg_iovlen = 1;
    if !descriptors.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        let len = u32::try_from(size_of_val(descriptors)).unwrap_or(0);
        // SAFETY: a calculation.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as usize;
        // SAFETY: `control` has room for a header and four descriptors; it is aligned as 64-bit
        // numbers are.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(len) as usize;
            std::ptr::copy_nonoverlapping(
                descriptors.as_ptr(),
                libc::CMSG_DATA(message).cast(),
                descriptors.len(),
            );
        }
    }
    // SAFETY: everything that the header names lives until the call is over.
    unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const header,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        ) >= 0
    }
}

/// Messages in pieces, with descriptors and without, mostly in the order that is expected. A client
/// keeps no more than it should.
///
/// # Panics
/// When no socket can be made.
pub fn target(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let (server, client) = UnixStream::pair().expect("a socket pair");
    let mut client = Client::over(client);
    let honest = bytes.byte() % 4;
    for (number, with) in [(0i64, 0), (3, 0), (-1, 1)].into_iter().take(usize::from(honest)) {
        send(&server, &number.to_le_bytes(), &[server.as_raw_fd()][..with]);
    }
    while !bytes.is_empty() {
        let number = match bytes.byte() % 6 {
            0 => -1,
            1 => 0,
            2 => bytes.below(4) as i64,
            3 => bytes.below(65536) as i64,
            4 => i64::from(bytes.byte()) << 16,
            _ => bytes.word() as i64,
        };
        let descriptors =
            vec![server.as_raw_fd(); usize::from(bytes.byte() % 8).saturating_sub(4) % 4];
        let descriptors = if bytes.one_in(2) {
            &descriptors[..descriptors.len().min(1)]
        } else {
            &descriptors[..]
        };
        let len = if bytes.one_in(8) { bytes.below(9) as usize } else { 8 };
        if !send(&server, &number.to_le_bytes()[..len], descriptors) {
            break;
        }
        loop {
            match client.receive() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return;
                }
            }
        }
        assert!(
            client.peers().map(|peer| client.doorbells(peer).len()).sum::<usize>() <= MAX_DOORBELLS
        );
    }
}
