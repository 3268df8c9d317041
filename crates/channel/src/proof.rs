//! Proof that two ends hold the two ends of one TCP connection.
//!
//! Whoever has a segment can write into every entry of its rendezvous table and into every
//! channel. So before an end believes the other side of a channel, that side proves that it
//! holds the other end of this very connection. Both kernels know two numbers that nobody else
//! does who has not seen the packets: the initial sequence numbers (RFC 9293, section 3.4.1),
//! 64 bits. Each end shows a hash, keyed with both numbers, over the nonces that both drew for
//! this channel, the addresses, and its side. It shows no count, and sends nothing for the
//! other's sake, before it has found the other's hash right. The numbers never leave the kernel
//! or the process that read them.
//!
//! | ends | who proves |
//! |---|---|
//! | in a segment that belongs to this user alone | nobody: the other party is the user |
//! | in a virtual machine with the driver | the driver, by an ioctl ([`device::prove`]) |
//! | of a process with CAP_NET_ADMIN in the socket's network namespace | itself ([`repair`]) |
//! | of another process of a host with `ginneld` | its prover, to which the socket is handed |
//!
//! Where none of these can, the connection stays on TCP, unless the user's policy trusts the
//! address ([`crate::policy`]).
//!
//! The hash is SipHash-2-4 (Aumasson and Bernstein, 2012), which the kernel has as well. Its key
//! has 64 bits, its result 64. To whoever shares the kernel of neither end all 64 are secret. A user
//! of an end's own kernel, who may have a network namespace of his own, can compute that end's 32
//! but for the time of the connection (`docs/protocol.md`, *Meeting*): this is open.

pub mod prover;
pub mod repair;

use crate::attach;
use crate::join::Fd;
use crate::kernel;
use crate::ledger::Tuple;
use ginnel_region::{Source, device, sys};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::path::Path;

/// The second half of the hash's key: which use of the numbers this is.
pub const DOMAIN: u64 = u64::from_le_bytes(*b"GINPROOF");

/// The sequence numbers of the first byte each way: one more than the initial ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Of the bytes that this end sends.
    pub sent: u32,
    /// Of the bytes that it receives.
    pub received: u32,
}

/// What is proved about which connection, without the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// This end's side of the channel, 0 or 1.
    pub side: u8,
    /// This end called connect.
    pub connected: bool,
    /// The nonces of side 0 and side 1.
    pub nonces: [u64; 2],
    /// The addresses, as this end sees them.
    pub tuple: Tuple,
}

/// The proofs of both sides; none is 0, which stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proofs {
    /// What this end shows.
    pub own: u64,
    /// What the other end must show.
    pub other: u64,
}

/// Why there is no proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unproven {
    /// The socket is in use just now: try again.
    Later,
    /// Nobody here can prove anything about this socket.
    Never,
}

/// Who proves for the processes that are joined to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prover<'a> {
    /// The segment is this user's alone: no proof is asked for, and none is shown.
    Nobody,
    /// The guest driver, through this open file of its device; -1: one opened for each proof.
    Driver(i32, &'a Path),
    /// The process itself, if it may.
    Process,
    /// The process itself, if it may; else the prover of the daemon that listens here.
    Daemon(&'a Path),
}

impl<'a> Prover<'a> {
    /// Who proves in a segment that came so; `device`: an open file of the driver's, -1 none;
    /// `path`: what the segment was opened by.
    #[must_use]
    pub fn of(own: bool, source: Source, device: i32, path: &'a Path) -> Self {
        match source {
            Source::File if own => Self::Nobody,
            Source::Device { .. } => Self::Driver(device, path),
            Source::Host { .. } => Self::Daemon(path),
            _ => Self::Process,
        }
    }

    /// Proves that the caller holds the socket `fd`, which nobody uses meanwhile.
    ///
    /// # Errors
    /// [`Unproven`].
    pub fn prove(self, fd: i32, claim: &Claim) -> Result<Proofs, Unproven> {
        let by_itself = || repair::numbers(fd, claim.connected).map(|numbers| claim.proofs(numbers));
        match self {
            Self::Nobody => Err(Unproven::Never),
            Self::Driver(device, path) => match by_driver(device, path, fd, claim) {
                // An older driver. Root can do without.
                Err(Unproven::Never) => by_itself(),
                proved => proved,
            },
            Self::Process => by_itself(),
            Self::Daemon(path) => match by_itself() {
                Err(Unproven::Never) => prover::ask(path, fd, claim),
                proved => proved,
            },
        }
    }
}

fn by_driver(device: i32, path: &Path, fd: i32, claim: &Claim) -> Result<Proofs, Unproven> {
    let opened = Fd(if device < 0 { attach::open_device(path) } else { -1 });
    let device = if device < 0 { opened.0 } else { device };
    let proved = device::prove(device, fd, claim.side, claim.connected, claim.nonces);
    let [own, other] = proved.map_err(|_| Unproven::Never)?;
    Ok(Proofs { own: shown(own), other: shown(other) })
}

/// Zero stands for no proof.
fn shown(hash: u64) -> u64 {
    hash.max(1)
}

/// Bytes of what is hashed.
const HASHED: usize = 64;

impl Claim {
    /// The proofs of both sides, of the connection with these sequence numbers.
    #[must_use]
    pub fn proofs(&self, numbers: Numbers) -> Proofs {
        let hash = |side| shown(self.hash(numbers, side));
        Proofs { own: hash(self.side), other: hash(1 - self.side) }
    }

    /// `struct ginnel_hashed` of `driver/ginnel.c` has the same shape.
    fn hash(&self, numbers: Numbers, shower: u8) -> u64 {
        let Tuple { local, local_port, remote, remote_port, .. } = self.tuple;
        let (own, other) = ((numbers.sent, local, local_port), (numbers.received, remote, remote_port));
        let [first, second] = if self.side == 0 { [own, other] } else { [other, own] };
        let mut bytes = [0u8; HASHED];
        bytes[..8].copy_from_slice(&u64::from(shower).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.nonces[0].to_le_bytes());
        bytes[16..24].copy_from_slice(&self.nonces[1].to_le_bytes());
        bytes[24..40].copy_from_slice(&first.1);
        bytes[40..56].copy_from_slice(&second.1);
        bytes[56..58].copy_from_slice(&first.2.to_le_bytes());
        bytes[58..60].copy_from_slice(&second.2.to_le_bytes());
        let mut hasher = SipHasher24::new_with_keys(u64::from(first.0) | u64::from(second.0) << 32, DOMAIN);
        hasher.write(&bytes);
        hasher.finish()
    }
}

/// May a process with the socket's rights leave the numbers to be read? For `ginnel doctor`.
#[must_use]
pub fn can_prove_by_itself() -> bool {
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: no memory is passed.
    let socket = unsafe { sys::raw(syscalls::Sysno::socket, [libc::AF_INET as usize, kind, 0, 0, 0, 0]) };
    let Ok(socket) = socket.map(|fd| fd as i32) else { return false };
    let may = kernel::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &1i32).is_ok();
    sys::close(socket);
    may
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(side: u8) -> Claim {
        let (a, b) = ([1; 16], [2; 16]);
        let tuple = |local, local_port, remote, remote_port| Tuple { label: 0, local, local_port, remote, remote_port };
        let tuple = if side == 0 { tuple(a, 7, b, 9) } else { tuple(b, 9, a, 7) };
        Claim { side, connected: false, nonces: [3, 4], tuple }
    }

    const NUMBERS: Numbers = Numbers { sent: 0x0102_0304, received: 0x0506_0708 };

    #[test]
    fn the_two_ends_expect_what_the_other_shows() {
        let mirrored = Numbers { sent: NUMBERS.received, received: NUMBERS.sent };
        let (zero, one) = (claim(0).proofs(NUMBERS), claim(1).proofs(mirrored));
        assert_eq!((zero.own, zero.other), (one.other, one.own));
        assert_ne!(zero.own, zero.other, "a proof says which side shows it");
    }

    #[test]
    fn each_part_counts() {
        let right = claim(0).proofs(NUMBERS);
        let mut others = vec![
            claim(0).proofs(Numbers { sent: 0, ..NUMBERS }),
            claim(0).proofs(Numbers { received: 0, ..NUMBERS }),
            Claim { nonces: [5, 4], ..claim(0) }.proofs(NUMBERS),
            Claim { nonces: [3, 5], ..claim(0) }.proofs(NUMBERS),
            Claim { nonces: [4, 3], ..claim(0) }.proofs(NUMBERS),
        ];
        for part in 0..4 {
            let mut claim = claim(0);
            match part {
                0 => claim.tuple.local[15] = 9,
                1 => claim.tuple.remote[0] = 9,
                2 => claim.tuple.local_port = 70,
                _ => claim.tuple.remote_port = 90,
            }
            others.push(claim.proofs(NUMBERS));
        }
        for other in others {
            assert!(other.own != right.own && other.other != right.other, "{other:x?}");
        }
    }

    /// The paper's test vector (appendix A): the library's is the hash that the kernel has.
    #[test]
    fn the_hash_is_siphash_2_4() {
        let mut hasher = SipHasher24::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        hasher.write(&(0..15).collect::<Vec<u8>>());
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }
}
