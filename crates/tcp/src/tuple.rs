//! Between which addresses a connection is, as the kernel says of its socket.

use crate::kernel;
use ginnel_node::place::Place;
use ginnel_region::sys;
use syscalls::Sysno;

/// (label of the address space, local address and port, remote address and port); IPv4 as mapped
/// IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Which address space: 0 the segment's, else a network namespace's cookie (loopback).
    pub label: u64,
    /// This end: 16 bytes of address.
    pub local: [u8; 16],
    /// This end's port.
    pub local_port: u16,
    /// The other end.
    pub remote: [u8; 16],
    /// The other end's port.
    pub remote_port: u16,
}

impl Tuple {
    /// As six words: label, local address, remote address (high half first), both ports.
    #[must_use]
    pub fn words(&self) -> [u64; 6] {
        let half = |bytes: &[u8; 16], at: usize| {
            bytes.iter().skip(at).take(8).fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
        };
        [
            self.label,
            half(&self.local, 0),
            half(&self.local, 8),
            half(&self.remote, 0),
            half(&self.remote, 8),
            u64::from(self.local_port) << 16 | u64::from(self.remote_port),
        ]
    }

    /// From [`Self::words`]; what is more than a port holds is cut off.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "ports are cut out of the last word")]
    pub fn of_words(
        [label, local_high, local_low, remote_high, remote_low, ports]: [u64; 6],
    ) -> Self {
        let address =
            |high: u64, low: u64| (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Self {
            label,
            local: address(local_high, local_low),
            local_port: (ports >> 16) as u16,
            remote: address(remote_high, remote_low),
            remote_port: ports as u16,
        }
    }
}

fn name_of(fd: i32, call: Sysno) -> Option<([u8; 16], u16)> {
    let mut bytes = [0u8; 128];
    let mut len = 128u32;
    // SAFETY: the kernel writes at most `len` bytes.
    unsafe {
        sys::raw(call, [fd as usize, bytes.as_mut_ptr() as usize, &raw mut len as usize, 0, 0, 0])
    }
    .ok()?;
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let mut address = [0u8; 16];
    match family {
        libc::AF_INET => {
            address[10..12].copy_from_slice(&[0xff, 0xff]);
            address[12..].copy_from_slice(&bytes[4..8]);
        }
        libc::AF_INET6 => address.copy_from_slice(&bytes[8..24]),
        _ => return None,
    }
    Some((address, port))
}

/// The connection's ports, this end's and the other's; `None` while it is not connected.
pub(crate) fn ports_of(fd: i32) -> Option<(u16, u16)> {
    let (_, others) = name_of(fd, Sysno::getpeername)?;
    let (_, own) = name_of(fd, Sysno::getsockname)?;
    Some((own, others))
}

/// The connection's tuple; `None` while it is not connected.
pub(crate) fn tuple_of(fd: i32, place: Option<Place>) -> Option<Tuple> {
    const SO_NETNS_COOKIE: i32 = 71;
    let (remote, remote_port) = name_of(fd, Sysno::getpeername)?;
    let (local, local_port) = name_of(fd, Sysno::getsockname)?;
    let loopback = |address: &[u8; 16]| {
        *address == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
            || (address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] && address[12] == 127)
    };
    // Addresses that every network namespace has for itself are labelled with it.
    let mut label = 0u64;
    if local == remote || loopback(&local) || loopback(&remote) {
        kernel::getsockopt(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut label).ok()?;
        // Each kernel counts its own namespaces.
        label ^= place.map_or(0, |place| place.kernel());
    }
    Some(Tuple { label, local, local_port, remote, remote_port })
}
