//! A socket's sequence numbers, from the kernel's own counts of it.

use super::bpf;
use super::program::{self, Counts};
use anyhow::{Context, Result, ensure};
use ginnel_tcp::proof::Numbers;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How often the counts are read until two agree. They are read while the kernel may change them:
/// a number of one moment and a count of the next would give a number that is none.
const TRIES: usize = 16;

/// Where an end of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which user namespace owns the network that it is in.
    pub owner: u32,
    /// The network itself, if the end's addresses are such that the other one must be in it, too.
    pub within: Option<u64>,
}

impl Place {
    /// May the other end of a connection that has one end here be there?
    #[must_use]
    pub fn may_reach(self, other: Self) -> bool {
        let apart = self.within.zip(other.within).is_some_and(|(one, other)| one != other);
        self.owner == other.owner && !apart
    }
}

/// Reads the numbers of sockets that this process has.
#[derive(Debug)]
pub struct Reader {
    link: OwnedFd,
}

impl Reader {
    /// Loads what it takes into the kernel: CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN. Reading
    /// takes none.
    ///
    /// # Errors
    /// What failed, and what that means.
    pub fn new() -> Result<Self> {
        let made = program::make(Path::new(program::VMLINUX))?;
        let program =
            bpf::load_iterator(&made.instructions, made.target, &mut []).or_else(|error| {
                let mut log = vec![0u8; 1 << 16];
                let again = bpf::load_iterator(&made.instructions, made.target, &mut log);
                let said = String::from_utf8_lossy(&log);
                again.with_context(|| {
                    format!(
                        "load the iterator's program (CAP_BPF, CAP_PERFMON): {error} {}",
                        said.trim_matches('\0')
                    )
                })
            })?;
        let link = bpf::link_to_process(program.as_fd(), std::process::id());
        Ok(Self { link: link.context("tie the iterator to this process (Linux 6.1)")? })
    }

    /// The numbers of the connection of `socket`. `connected`: this end called connect. `None`: it
    /// is no TCP connection, or its counts never held still.
    ///
    /// # Errors
    /// bpf(2)'s and read(2)'s.
    pub fn numbers(&self, socket: BorrowedFd<'_>, connected: bool) -> io::Result<Option<Numbers>> {
        Ok(self.numbers_and_place(socket, connected)?.map(|(numbers, _)| numbers))
    }

    /// The same, and where the socket is.
    ///
    /// # Errors
    /// As there; getsockopt(2)'s.
    pub fn numbers_and_place(
        &self,
        socket: BorrowedFd<'_>,
        connected: bool,
    ) -> io::Result<Option<(Numbers, Place)>> {
        let mut before = None;
        for _ in 0..TRIES {
            // Between two looks that agree: whoever connects the socket anew meanwhile gets other
            // numbers.
            let Some(stays) = stays_within(socket) else { return Ok(None) };
            let within = stays.then(|| network(socket)).transpose()?;
            let Some(counts) = self.walk(socket)? else { return Ok(None) };
            let now = (numbers_of(counts, connected), Place { owner: counts.owner, within });
            if before == Some(now) {
                return Ok(before);
            }
            before = Some(now);
        }
        Ok(None)
    }

    /// What the program wrote about one of this process's files; `None` where it is no TCP socket.
    fn walk(&self, socket: BorrowedFd<'_>) -> io::Result<Option<Counts>> {
        let mut iterator = File::from(bpf::begin(self.link.as_fd())?);
        let mut all = Vec::new();
        iterator.read_to_end(&mut all)?;
        let (all, []) = all.as_chunks::<{ Counts::SIZE }>() else {
            return Err(io::Error::other(format!("the iterator wrote {} bytes", all.len())));
        };
        // Two sockets under one number would be those of two threads' tables: then nobody is told.
        let mut found = all
            .iter()
            .map(Counts::of_bytes)
            .filter(|counts| i64::from(counts.fd) == i64::from(socket.as_raw_fd()));
        Ok(found.next().filter(|_| found.next().is_none()))
    }

    /// Reads both ends of a connection over loopback, and looks whether they mirror each other.
    ///
    /// # Errors
    /// They do not, or could not be read.
    pub fn check(&self) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .context("listen on loopback, to check what is read")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        let client = self
            .numbers(client.as_fd(), true)?
            .context("this kernel shows no numbers of a TCP socket")?;
        let server = self
            .numbers(server.as_fd(), false)?
            .context("this kernel shows no numbers of a TCP socket")?;
        let mirrored = client.sent == server.received && client.received == server.sent;
        ensure!(
            mirrored,
            "this kernel's counts of the two ends of a connection do not mirror each other"
        );
        Ok(())
    }
}

/// Is a socket's other end in the same network, by its addresses? `None`: it has none, as one that
/// is not connected any more.
fn stays_within(socket: BorrowedFd<'_>) -> Option<bool> {
    let ip = |address: rustix::net::SocketAddrAny| -> Option<IpAddr> {
        Some(SocketAddr::try_from(address).ok()?.ip().to_canonical())
    };
    let local = ip(rustix::net::getsockname(socket).ok()?)?;
    let remote = ip(rustix::net::getpeername(socket).ok()??)?;
    Some(local == remote || local.is_loopback() && remote.is_loopback())
}

/// The number of a socket's network namespace, which no other one ever has (Linux 5.14,
/// `SO_NETNS_COOKIE`).
fn network(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // `asm-generic/socket.h`.
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie = 0u64;
    let mut len = size_of_val(&cookie) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, SO_NETNS_COOKIE);
    // SAFETY: both are writable, and `len` says how long the number is.
    let asked = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut cookie).cast(), &raw mut len)
    };
    if asked == 0 && len as usize == size_of_val(&cookie) {
        Ok(cookie)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// From counts to the numbers of the first byte each way; sequence numbers are taken modulo 2^32.
/// A SYN counts as acknowledged at the end that sent the first.
#[expect(clippy::cast_possible_truncation, reason = "only the low halves count")]
fn numbers_of(counts: Counts, connected: bool) -> Numbers {
    Numbers {
        sent: counts
            .snd_una
            .wrapping_sub(counts.bytes_acked as u32)
            .wrapping_add(u32::from(connected)),
        received: counts.rcv_nxt.wrapping_sub(counts.bytes_received as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round() {
        let counts = Counts {
            fd: 3,
            snd_una: 4,
            rcv_nxt: 0,
            bytes_acked: (7 << 32) + 5,
            bytes_received: 1,
            owner: 7,
        };
        assert_eq!(numbers_of(counts, true), Numbers { sent: 0, received: u32::MAX });
        assert_eq!(numbers_of(counts, false).sent, u32::MAX);
    }
}
