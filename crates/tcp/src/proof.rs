//! Proof that two ends hold the two ends of one TCP connection.
//!
//! Whoever has a segment can write into every entry of its rendezvous table and into every
//! channel. So before an end believes the other side of a channel, that side proves that it
//! holds the other end of this very connection. Both kernels know two numbers that nobody else
//! does who has not seen the packets: the initial sequence numbers (RFC 9293, section 3.4.1).
//!
//! 1. Each end has a *secret* made of both numbers: a hash keyed with them over the nonces that
//!    both ends drew for this channel, and the addresses ([`Claim::secret`]). It stays in the
//!    process that holds the socket.
//! 2. Both ends show each other that they have the same secret, by a password-authenticated key
//!    exchange ([`exchange`]). What they show tells nothing about the secret, not even to somebody
//!    who could try all values: each wrong guess costs an attempt, and an end allows few.
//!
//! The second step is there because the numbers are worth fewer than 64 bits to some: Linux draws
//! them from a secret of the whole kernel and from the time (`net/core/secure_seq.c`). A user of
//! the same kernel, in a network namespace of his own, learns how they begin for any addresses.
//!
//! | ends | who reads the numbers |
//! |---|---|
//! | in a segment that belongs to this user alone | nobody: the other party is the user |
//! | in a virtual machine with the driver | the driver, by an ioctl ([`device::secret`]) |
//! | of a process with CAP_NET_ADMIN in the socket's network namespace | itself ([`repair`]) |
//! | of another process, in a segment of `ginneld` | `ginnel-prover`, by BPF ([`helper`]) |
//! | in a file that several users may open | nobody: all are on one kernel, see above |
//!
//! Where none of these can, the connection stays on TCP, unless the user's policy trusts the
//! address ([`crate::policy`]). The prover does not use TCP_REPAIR: whoever shares a socket with
//! one who puts it under repair can bind it meanwhile to a port that is another user's, as repair
//! forces the port's reuse.
//!
//! The hash is SipHash-2-4 (Aumasson and Bernstein, 2012), which the kernel has as well.

pub mod exchange;
pub mod helper;
pub mod repair;

use crate::kernel;
use crate::tuple::Tuple;
use ginnel_node::joined::Joined;
use ginnel_node::wake::open_device;
use ginnel_region::sys::{self, Fd};
use ginnel_region::{Source, device};
use siphasher::sip::SipHasher24;
use std::ffi::CString;
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
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

/// Why there is no proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unproven {
    /// The socket is in use just now: try again.
    Later,
    /// Nobody here can prove anything about this socket.
    Never,
}

/// Who reads the numbers for the processes that are joined to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prover<'a> {
    /// The segment is this user's alone: no proof is asked for, and none is shown.
    Nobody,
    /// Several users of one kernel may open the segment: nothing there is a proof.
    Nothing,
    /// The guest driver, through this open file of its device; -1: one opened for each proof.
    Driver(i32, &'a Path),
    /// The process itself, if it may; else the prover of the daemon that it joined at this socket.
    Process(&'a Path),
}

impl<'a> Prover<'a> {
    /// Who proves that this process holds a connection in the segment that it is joined to. Whether
    /// that is this user's alone is asked anew: others may have been given rights to its file since
    /// it was opened.
    #[must_use]
    pub fn in_segment(joined: &'a Joined) -> Self {
        let segment = &joined.segment;
        let is_own = segment.is_own() && !is_open_to_others(segment.path());
        Self::of(is_own, segment.source(), joined.device(), segment.path())
    }

    /// Who reads them in a segment that came so; `device`: an open file of the driver's, -1 none;
    /// `path`: what the segment was opened by.
    #[must_use]
    pub fn of(own: bool, source: Source, device: i32, path: &'a Path) -> Self {
        match source {
            // The broker has seen both proofs before it gave the memory to anybody.
            Source::Pair => Self::Nobody,
            Source::File if own => Self::Nobody,
            Source::File => Self::Nothing,
            Source::Device { .. } => Self::Driver(device, path),
            Source::Host { .. } | Source::Bar { .. } => Self::Process(path),
        }
    }

    /// The secret of the connection of which the caller holds the socket `fd`, which nobody uses
    /// meanwhile. Not 0. `shared`: other processes may have the socket: it is not put under repair,
    /// which would give them for a moment what only a process with CAP_NET_ADMIN may do.
    ///
    /// # Errors
    /// [`Unproven`].
    pub fn secret(self, fd: i32, shared: bool, claim: &Claim) -> Result<u64, Unproven> {
        let by_itself = || match shared {
            true => Err(Unproven::Never),
            false => repair::numbers(fd, claim.connected).map(|numbers| claim.secret(numbers)),
        };
        match self {
            Self::Nobody | Self::Nothing => Err(Unproven::Never),
            Self::Driver(device, path) => match by_driver(device, path, fd, claim) {
                // An older driver. Root can do without.
                Err(Unproven::Never) => by_itself(),
                secret => secret,
            },
            Self::Process(host) => match by_itself() {
                Err(Unproven::Never) => helper::secret(host, fd, claim),
                secret => secret,
            },
        }
    }
}

/// Has anybody but its owner rights to this file by now? False where it is not there any more.
fn is_open_to_others(path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes());
    path.is_ok_and(|path| sys::stat(&path).is_ok_and(|stat| stat.st_mode & 0o077 != 0))
}

fn by_driver(device: i32, path: &Path, fd: i32, claim: &Claim) -> Result<u64, Unproven> {
    let opened = Fd(if device < 0 { open_device(path) } else { -1 });
    let device = if device < 0 { opened.0 } else { device };
    let secret = device::secret(device, fd, claim.side, claim.connected, claim.nonces);
    secret.map(|secret| secret.max(1)).map_err(|_| Unproven::Never)
}

/// Bytes of what is hashed.
const HASHED: usize = 64;

impl Claim {
    /// The secret of the connection with these sequence numbers: the same for both ends. Not 0.
    #[must_use]
    pub fn secret(&self, numbers: Numbers) -> u64 {
        let [first, second] = if self.side == 0 {
            [numbers.sent, numbers.received]
        } else {
            [numbers.received, numbers.sent]
        };
        let mut hasher =
            SipHasher24::new_with_keys(u64::from(first) | u64::from(second) << 32, DOMAIN);
        hasher.write(&self.hashed());
        hasher.finish().max(1)
    }

    /// What both ends say of the connection without its numbers, alike: side 0's first.
    /// `struct ginnel_hashed` of `driver/ginnel.c` has the same shape.
    #[must_use]
    pub(crate) fn hashed(&self) -> [u8; HASHED] {
        let Tuple { local, local_port, remote, remote_port, .. } = self.tuple;
        let (own, other) = ((local, local_port), (remote, remote_port));
        let [first, second] = if self.side == 0 { [own, other] } else { [other, own] };
        let mut bytes = [0u8; HASHED];
        bytes[..8].copy_from_slice(&self.nonces[0].to_le_bytes());
        bytes[8..16].copy_from_slice(&self.nonces[1].to_le_bytes());
        bytes[16..32].copy_from_slice(&first.0);
        bytes[32..48].copy_from_slice(&second.0);
        bytes[48..50].copy_from_slice(&first.1.to_le_bytes());
        bytes[50..52].copy_from_slice(&second.1.to_le_bytes());
        bytes
    }
}

impl Prover<'_> {
    /// Can it prove anything, as far as can be told without a connection? For `ginnel doctor`.
    #[must_use]
    pub fn is_there(self) -> bool {
        self != Self::Nothing && can_prove_by_itself()
            || match self {
                Self::Nobody => true,
                Self::Nothing => false,
                Self::Process(host) => helper::is_there(host),
                Self::Driver(_, path) => device::makes_secrets(Fd(open_device(path)).0),
            }
    }
}

/// May this process read sequence numbers, at least of sockets that it makes itself now?
#[must_use]
pub fn can_prove_by_itself() -> bool {
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: no memory is passed.
    let socket =
        unsafe { sys::raw(syscalls::Sysno::socket, [libc::AF_INET as usize, kind, 0, 0, 0, 0]) };
    let Ok(socket) = socket.map(|fd| fd as i32) else { return false };
    let may = kernel::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &1i32).is_ok();
    sys::close(socket);
    may
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn claim(side: u8) -> Claim {
        let (a, b) = ([1; 16], [2; 16]);
        let tuple = |local, local_port, remote, remote_port| Tuple {
            label: 0,
            local,
            local_port,
            remote,
            remote_port,
        };
        let tuple = if side == 0 { tuple(a, 7, b, 9) } else { tuple(b, 9, a, 7) };
        Claim { side, connected: false, nonces: [3, 4], tuple }
    }

    const NUMBERS: Numbers = Numbers { sent: 0x0102_0304, received: 0x0506_0708 };

    #[test]
    fn the_two_ends_have_one_secret() {
        let mirrored = Numbers { sent: NUMBERS.received, received: NUMBERS.sent };
        assert_eq!(claim(0).secret(NUMBERS), claim(1).secret(mirrored));
        assert_ne!(claim(0).secret(NUMBERS), claim(1).secret(NUMBERS));
    }

    #[test]
    fn each_part_counts() {
        let right = claim(0).secret(NUMBERS);
        let mut others = vec![
            claim(0).secret(Numbers { sent: 0, ..NUMBERS }),
            claim(0).secret(Numbers { received: 0, ..NUMBERS }),
            Claim { nonces: [5, 4], ..claim(0) }.secret(NUMBERS),
            Claim { nonces: [3, 5], ..claim(0) }.secret(NUMBERS),
            Claim { nonces: [4, 3], ..claim(0) }.secret(NUMBERS),
        ];
        for part in 0..4 {
            let mut claim = claim(0);
            match part {
                0 => claim.tuple.local[15] = 9,
                1 => claim.tuple.remote[0] = 9,
                2 => claim.tuple.local_port = 70,
                _ => claim.tuple.remote_port = 90,
            }
            others.push(claim.secret(NUMBERS));
        }
        assert!(others.iter().all(|&other| other != right), "{others:x?}");
    }

    /// The paper's test vector (appendix A): the library's is the hash that the kernel has.
    #[test]
    fn the_hash_is_siphash_2_4() {
        let mut hasher = SipHasher24::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        hasher.write(&(0..15).collect::<Vec<u8>>());
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }
}
