//! The prover of `ginneld`: a process that may read sequence numbers, and does nothing else.
//!
//! A program of the host hands it the socket, and learns the secret, never the numbers. One
//! connection to [`SOCKET`] beside the segment's `host.sock`, of kind SOCK_SEQPACKET, carries
//! one question (32 bytes, and the socket as SCM_RIGHTS) and one answer (8 bytes).
//!
//! | question, bytes | |
//! |---|---|
//! | 0..8 | [`MAGIC`] |
//! | 8 | side of the channel: 0 or 1 |
//! | 9 | 1: this end called connect |
//! | 10..16 | 0 |
//! | 16..32 | nonces of side 0 and side 1 |
//!
//! The answer is the secret; 0: not just now; no answer: never. All numbers are little-endian.

use super::{Claim, Unproven, repair};
use crate::join::{self, Fd};
use crate::kernel;
use crate::settle;
use ginnel_region::sys;
use std::path::Path;
use syscalls::Sysno;

/// Name of the prover's socket, beside the segment's `host.sock`.
pub const SOCKET: &str = "prove.sock";
/// What a question begins with; the last letter is its version.
pub const MAGIC: [u8; 8] = *b"GINPROV1";
/// Bytes of a question.
pub const QUESTION: usize = 32;
/// Bytes of an answer.
pub const ANSWER: usize = 8;

/// How long the prover may take, milliseconds. Its work is microseconds; the caller holds locks.
const PATIENCE: i32 = 200;

/// Asks the prover of the daemon whose `host.sock` is `door` about the socket `fd`.
///
/// # Errors
/// [`Unproven`].
pub fn ask(door: &Path, fd: i32, claim: &Claim) -> Result<u64, Unproven> {
    let socket = join::connect(&door.with_file_name(SOCKET), libc::SOCK_SEQPACKET);
    let socket = socket.map_err(|_| Unproven::Never)?;
    send(&socket, fd, &question(claim)).map_err(|_| Unproven::Never)?;
    if kernel::poll(socket.0, libc::POLLIN, PATIENCE) & libc::POLLIN == 0 {
        return Err(Unproven::Later);
    }
    let mut answer = [0u8; ANSWER];
    if sys::read(socket.0, &mut answer) != Ok(ANSWER) {
        return Err(Unproven::Never);
    }
    match u64::from_le_bytes(answer) {
        0 => Err(Unproven::Later),
        secret => Ok(secret),
    }
}

fn question(claim: &Claim) -> [u8; QUESTION] {
    let mut bytes = [0u8; QUESTION];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = claim.side;
    bytes[9] = u8::from(claim.connected);
    bytes[16..24].copy_from_slice(&claim.nonces[0].to_le_bytes());
    bytes[24..].copy_from_slice(&claim.nonces[1].to_le_bytes());
    bytes
}

fn words(bytes: &[u8; 16]) -> [u64; 2] {
    let word = |at: usize| bytes.iter().skip(at).take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    [word(0), word(8)]
}

/// The prover's part: what it answers to a question about the socket `fd`, which it was handed.
/// `None`: nothing, since the question is none, or it is not about a TCP connection.
#[must_use]
pub fn answer(question: &[u8], fd: i32) -> Option<[u8; ANSWER]> {
    let question: &[u8; QUESTION] = question.try_into().ok()?;
    let (side, connected) = (question[8], question[9]);
    if question[..8] != MAGIC || side > 1 || connected > 1 || question[10..16] != [0; 6] {
        return None;
    }
    let mut nonces = [0u8; 16];
    nonces.copy_from_slice(&question[16..]);
    let tuple = settle::tuple_of(fd, None)?;
    let claim = Claim { side, connected: connected == 1, nonces: words(&nonces), tuple };
    let secret = match repair::numbers(fd, claim.connected) {
        Ok(numbers) => claim.secret(numbers),
        Err(Unproven::Later) => 0,
        Err(Unproven::Never) => return None,
    };
    Some(secret.to_le_bytes())
}

/// Sends bytes with a descriptor beside them.
fn send(socket: &Fd, fd: i32, bytes: &[u8]) -> sys::Result<()> {
    // SAFETY: it only computes.
    let space = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;
    let mut control = [0u64; 4];
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes is a valid header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = space.min(size_of_val(&control)) as _;
    // SAFETY: the header names room for one control message, which is aligned as a header is.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(message).cast::<i32>().write_unaligned(fd);
    }
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as usize;
    // SAFETY: header, bytes and control message are readable.
    unsafe { sys::raw(Sysno::sendmsg, [socket.0 as usize, &raw const header as usize, flags, 0, 0, 0]) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Tuple;

    #[test]
    fn what_is_no_question_has_no_answer() {
        let tuple = Tuple { label: 0, local: [0; 16], local_port: 0, remote: [0; 16], remote_port: 0 };
        let good = question(&Claim { side: 1, connected: true, nonces: [1, 2], tuple });
        // It is a question, but not about a connection.
        assert_eq!(answer(&good, -1), None);
        assert_eq!(answer(&good[1..], 0), None);
        for at in [0, 7, 8, 9, 10, 15] {
            let mut bad = good;
            bad[at] = 0xff;
            assert_eq!(answer(&bad, -1), None, "{at}");
        }
    }
}
