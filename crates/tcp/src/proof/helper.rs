//! A program that may not read sequence numbers asks `ginnel-prover`, which may.
//!
//! The program sends a question and, beside it, the socket (SCM_RIGHTS, unix(7)); the prover
//! answers with the connection's secret, or that there is none, and closes. It looks the addresses
//! up in the socket itself. So nobody learns by it more than the holder of the socket may know, and
//! the numbers stay where they are.
//!
//! The program waits for the answer in the midst of a call, for [`PATIENCE`] at most. If none comes
//! it asks nobody for [`PAUSE`], so that a prover that stands still costs next to nothing.

use super::{Claim, Unproven};
use crate::tuple::tuple_of;
use crate::unix;
use ginnel_region::sys::{self, Fd};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use syscalls::Sysno;

/// The prover's socket, of type SOCK_SEQPACKET, in the directory where ginneld has a directory for
/// each of its segments.
pub const SOCKET: &str = "prove.sock";
/// How long a program waits for an answer, nanoseconds.
const PATIENCE: u64 = 100_000_000;
/// For how long it asks nobody after it has waited in vain, nanoseconds.
const PAUSE: u64 = 10_000_000_000;
/// The version of both messages.
const VERSION: u8 = 1;

/// What is to be proved about the socket beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// As in [`Claim`].
    pub side: u8,
    /// As in [`Claim`].
    pub connected: bool,
    /// As in [`Claim`].
    pub nonces: [u64; 2],
}

impl Question {
    /// Bytes of it on the socket.
    pub const SIZE: usize = 24;

    /// As it is sent: version, side, connected, five zeroes, both nonces (little-endian).
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..3].copy_from_slice(&[VERSION, self.side, u8::from(self.connected)]);
        bytes[8..16].copy_from_slice(&self.nonces[0].to_le_bytes());
        bytes[16..].copy_from_slice(&self.nonces[1].to_le_bytes());
        bytes
    }

    /// From what was received; `None` where that is no question.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let [VERSION, side @ 0..=1, connected @ 0..=1, 0, 0, 0, 0, 0, nonces @ ..] = bytes else {
            return None;
        };
        let (first, second) = nonces.split_at(8);
        let nonce = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        Some(Self {
            side: *side,
            connected: *connected == 1,
            nonces: [nonce(first)?, nonce(second)?],
        })
    }

    /// The claim that it makes about the socket `fd`; `None` where that is not connected.
    #[must_use]
    pub fn claim(&self, fd: i32) -> Option<Claim> {
        let Self { side, connected, nonces } = *self;
        Some(Claim { side, connected, nonces, tuple: tuple_of(fd, None)? })
    }
}

/// Bytes of an answer: the secret, little-endian, 0 for none.
pub const ANSWER: usize = 8;

/// Asks the prover of the segment that is joined at `host` for the secret of the socket `fd`.
/// Allocates nothing.
///
/// # Errors
/// [`Unproven::Never`]: nobody is there, or nothing came in time, or there is no secret.
pub fn secret(host: &Path, fd: i32, claim: &Claim) -> Result<u64, Unproven> {
    static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
    if sys::monotonic_ns() < NOT_BEFORE.load(Relaxed) {
        return Err(Unproven::Never);
    }
    let socket = connect(host).ok_or(Unproven::Never)?;
    let question = Question { side: claim.side, connected: claim.connected, nonces: claim.nonces };
    if unix::send(socket.0, &question.bytes(), fd).is_err() {
        return Err(Unproven::Never);
    }
    match answer(&socket) {
        Some(0) => Err(Unproven::Never),
        Some(secret) => Ok(secret),
        None => {
            NOT_BEFORE.store(sys::monotonic_ns() + PAUSE, Relaxed);
            Err(Unproven::Never)
        }
    }
}

/// Does a prover that may be asked listen there?
#[must_use]
pub fn is_there(host: &Path) -> bool {
    connect(host).is_some()
}

/// RUN_DIR/prove.sock as an address, from RUN_DIR/NAME/host.sock.
fn address(host: &Path) -> Option<libc::sockaddr_un> {
    let directory = host.parent()?.parent()?.as_os_str();
    unix::address(&[directory, OsStr::new("/"), OsStr::new(SOCKET)])
}

/// Connects without waiting, and looks who listens: whoever gets the socket could use it.
fn connect(host: &Path) -> Option<Fd> {
    unix::connect(&address(host)?, host)
}

/// The secret that was answered, 0 for none; `None`: nothing came in time.
fn answer(socket: &Fd) -> Option<u64> {
    let until = sys::monotonic_ns() + PATIENCE;
    let mut bytes = [0u8; ANSWER];
    loop {
        let arguments = [
            socket.0 as usize,
            bytes.as_mut_ptr() as usize,
            ANSWER,
            libc::MSG_DONTWAIT as usize,
            0,
            0,
        ];
        // SAFETY: the buffer is writable for its length.
        match unsafe { sys::raw(Sysno::recvfrom, arguments) } {
            Ok(ANSWER) => return Some(u64::from_le_bytes(bytes)),
            // It closed, or is no prover.
            Ok(_) => return Some(0),
            Err(libc::EAGAIN | libc::EINTR) => {}
            Err(_) => return Some(0),
        }
        let left = until.checked_sub(sys::monotonic_ns())?;
        let _ = sys::poll(socket.0, libc::POLLIN, i32::try_from(left / 1_000_000 + 1).unwrap_or(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_goes_over_and_back() {
        let question = Question { side: 1, connected: true, nonces: [3, u64::MAX] };
        assert_eq!(Question::of_bytes(&question.bytes()), Some(question));
    }

    #[test]
    fn what_is_no_question_is_none() {
        let right = Question { side: 0, connected: false, nonces: [1, 2] }.bytes();
        for at in 0..8 {
            let mut bytes = right;
            bytes[at] = 7;
            assert_eq!(Question::of_bytes(&bytes), None, "byte {at}");
        }
        assert_eq!(Question::of_bytes(&right[1..]), None);
        assert_eq!(Question::of_bytes(&[]), None);
    }

    #[test]
    fn the_socket_lies_above_the_segments() {
        let host = Path::new("/run/ginnel/t/host.sock");
        let address = address(host).expect("short enough");
        let path: Vec<u8> =
            address.sun_path.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
        assert_eq!(path, b"/run/ginnel/prove.sock");
        assert!(super::address(Path::new(&format!("/{}/t/host.sock", "x".repeat(120)))).is_none());
    }
}
