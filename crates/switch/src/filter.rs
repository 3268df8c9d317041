//! Who a port's guest may say that it is: `mac =` and `address =`.
//!
//! The check is of bytes that were copied out of the guest's memory and are delivered from the
//! copy: a guest cannot change them in between. What changes later is a checksum that is completed
//! by the switch or by the receiver, in two bytes that the sender names: they must lie behind
//! everything that was checked.

mod network;
#[cfg(test)]
mod tests;

use crate::wire::{ETHERNET, Mac};
pub use network::Network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Types below this are lengths: a header of IEEE 802.2 follows.
const LOWEST_KIND: u16 = 0x600;
/// Bytes of that header, with the one of SNAP behind it (RFC 1042).
const SNAP: usize = 8;

/// Extension headers of IPv6 (IANA, "IPv6 Extension Header Types"). Their second byte is a length
/// in units of 8 bytes beyond the first, but for the two below.
const EXTENSIONS: [u8; 7] = [0, 43, 60, 135, 139, 140, AUTHENTICATION];
/// 4 bytes, beyond the first two of them (RFC 4302).
const AUTHENTICATION: u8 = 51;
/// Always 8 bytes (RFC 8200, 4.5).
const FRAGMENT: u8 = 44;

/// What is not so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoofed {
    /// The sender's Ethernet address.
    Mac,
    /// An address of IP: the sender's, or one that it says is its own (ARP, neighbour discovery).
    Address,
}

/// What a port's guest may say that it is. Empty lists allow everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its Ethernet addresses.
    pub macs: Vec<Mac>,
    /// Its addresses of IP.
    pub addresses: Vec<Network>,
}

impl Filter {
    /// Does it allow everything?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.macs.is_empty() && self.addresses.is_empty()
    }

    /// Checks the first bytes of a frame (all that there are, or [`crate::wire::FRONT`]), of which
    /// two are `written` later: from there on, a checksum.
    ///
    /// # Errors
    /// [`Spoofed`].
    pub fn check(&self, frame: &[u8], written: Option<usize>) -> Result<(), Spoofed> {
        let source: Mac = bytes(frame, 6).ok_or(Spoofed::Mac)?;
        if !self.macs.is_empty() && !self.macs.contains(&source) {
            return Err(Spoofed::Mac);
        }
        if self.addresses.is_empty() {
            return Ok(());
        }
        let mut kind = u16::from_be_bytes(bytes(frame, 12).ok_or(Spoofed::Address)?);
        let mut at = ETHERNET;
        if kind == VLAN {
            kind = u16::from_be_bytes(bytes(frame, 16).ok_or(Spoofed::Address)?);
            at += 4;
        }
        let body = frame.get(at..).ok_or(Spoofed::Address)?;
        // Where what was looked at ends.
        let end = match kind {
            IPV4 => self.ipv4(body),
            ARP => self.arp(body, source),
            IPV6 => self.ipv6(body),
            // Behind a second tag anything could be.
            VLAN | SERVICE_VLAN => None,
            length if length < LOWEST_KIND => logical_link(body),
            _ => Some(0),
        };
        let end = at + end.ok_or(Spoofed::Address)?;
        if written.is_none_or(|written| written >= end) { Ok(()) } else { Err(Spoofed::Address) }
    }

    fn own(&self, address: IpAddr) -> Option<()> {
        self.addresses.iter().any(|network| network.holds(address)).then_some(())
    }

    /// Where its header ends, if its source is good.
    fn ipv4(&self, packet: &[u8]) -> Option<usize> {
        let source = Ipv4Addr::from(bytes::<4>(packet, 12)?);
        // Whoever asks for an address has none yet (DHCP, RFC 2131).
        if !source.is_unspecified() {
            self.own(source.into())?;
        }
        let [first] = bytes(packet, 0)?;
        Some(4 * usize::from(first & 15).max(5))
    }

    /// The sender's addresses in ARP (RFC 826): its own, or none while it asks whether somebody has
    /// the one that it would have. Whoever else would have that one takes it for taken, then
    /// (RFC 5227, 2.1.1).
    fn arp(&self, packet: &[u8], source: Mac) -> Option<usize> {
        let ethernet_and_ipv4 = [0, 1, 8, 0, 6, 4];
        let sender: Mac = bytes(packet, 8)?;
        if bytes(packet, 0)? != ethernet_and_ipv4 || sender != source {
            return None;
        }
        let mut address = Ipv4Addr::from(bytes::<4>(packet, 14)?);
        if address.is_unspecified() {
            address = Ipv4Addr::from(bytes::<4>(packet, 24)?);
        }
        self.own(address.into())?;
        // It has no checksum.
        Some(packet.len())
    }

    /// Where its headers end, if its source is good, and what it says is its own.
    fn ipv6(&self, packet: &[u8]) -> Option<usize> {
        let source = Ipv6Addr::from(bytes::<16>(packet, 8)?);
        self.own_or_local(source)?;
        let Some((kind, at, whole)) = upper(packet)? else { return Some(packet.len()) };
        if kind != ICMPV6 {
            return Some(at);
        }
        match bytes(packet, at)? {
            [NEIGHBOUR_ADVERTISEMENT] => {}
            // Whoever has no address yet asks whether somebody has the one that it would have.
            // Whoever else would have that one gives it up (RFC 4862, 5.4.3).
            [NEIGHBOUR_SOLICITATION] if source.is_unspecified() => {}
            // Whoever takes these sends everything there.
            [ROUTER_ADVERTISEMENT | REDIRECT] if !self.speaks_for_all() => return None,
            // The type, and a code beside it, come before the checksum.
            _ => return Some(at + 2),
        }
        self.own_or_local(Ipv6Addr::from(bytes::<16>(packet, at + 8)?))?;
        // In pieces it is not taken by anybody (RFC 6980), and the target could be in another. Its
        // checksum comes before the target.
        whole.then_some(at + 24)
    }

    /// May it speak for every address of IPv6, as a router does?
    fn speaks_for_all(&self) -> bool {
        self.addresses.iter().any(|one| one.bits == 0 && one.address.is_ipv6())
    }

    /// A guest that has an address of IPv6 also has one of its link, or none for a while. Which
    /// one is known only where the configuration names it.
    fn own_or_local(&self, address: Ipv6Addr) -> Option<()> {
        let mut six = self.addresses.iter().filter_map(|one| match one.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        });
        let has_any = six.clone().next().is_some();
        let any_local = has_any && !six.any(|one| one.is_unicast_link_local());
        if has_any && address.is_unspecified() || any_local && address.is_unicast_link_local() {
            return Some(());
        }
        self.own(address.into())
    }
}

/// Where the header of IEEE 802.2 ends, unless it says that IP or ARP follows: some systems take
/// those as if they had come behind their own type (CVE-2021-27853).
fn logical_link(packet: &[u8]) -> Option<usize> {
    // The last bit tells a group of services from one.
    match bytes::<1>(packet, 0).map(|[service]| service & 0xfe) {
        Some(0x06) => return None,
        // The types of Ethernet (RFC 1042), and those that bridges made of them (IEEE 802.1H).
        Some(0xaa) if matches!(bytes(packet, 3)?, [0, 0, 0 | 0xf8]) => return None,
        _ => {}
    }
    Some(SNAP)
}

/// What a packet of IPv6 carries behind its extension headers, where that begins, and whether it is
/// whole: its first piece is looked at. `Some(None)`: a later piece. `None`: it cannot be seen.
fn upper(packet: &[u8]) -> Option<Option<(u8, usize, bool)>> {
    let ([mut kind], mut at, mut whole) = (bytes(packet, 6)?, 40, true);
    while kind == FRAGMENT || EXTENSIONS.contains(&kind) {
        let [next, len, high, low] = bytes(packet, at)?;
        let bytes = match kind {
            FRAGMENT if u16::from_be_bytes([high, low]) >> 3 != 0 => return Some(None),
            FRAGMENT => 8,
            AUTHENTICATION => 4 * (usize::from(len) + 2),
            _ => 8 * (usize::from(len) + 1),
        };
        whole &= kind != FRAGMENT;
        (kind, at) = (next, at + bytes);
    }
    Some(Some((kind, at, whole)))
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}
