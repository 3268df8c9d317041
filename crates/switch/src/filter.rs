//! Who a port's guest may say that it is: `mac =` and `address =`.
//!
//! The check is of bytes that were copied out of the guest's memory and are delivered from the
//! copy: a guest cannot change them in between. What changes later is a checksum that is completed
//! by the switch or by the receiver, in two bytes that the sender names: they must lie behind
//! everything that was checked.

mod network;

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
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

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

    /// The sender's addresses in ARP (RFC 826): its own, or none (RFC 5227).
    fn arp(&self, packet: &[u8], source: Mac) -> Option<usize> {
        let ethernet_and_ipv4 = [0, 1, 8, 0, 6, 4];
        let sender: Mac = bytes(packet, 8)?;
        if bytes(packet, 0)? != ethernet_and_ipv4 || sender != source {
            return None;
        }
        let address = Ipv4Addr::from(bytes::<4>(packet, 14)?);
        if !address.is_unspecified() {
            self.own(address.into())?;
        }
        // It has no checksum.
        Some(packet.len())
    }

    /// Where its headers end, if its source is good, and what it says is its own.
    fn ipv6(&self, packet: &[u8]) -> Option<usize> {
        let source = Ipv6Addr::from(bytes::<16>(packet, 8)?);
        self.own_or_local(source)?;
        let Some((kind, at, whole)) = upper(packet)? else { return Some(packet.len()) };
        let [icmp] = if kind == ICMPV6 { bytes(packet, at)? } else { [0] };
        match icmp {
            NEIGHBOUR_ADVERTISEMENT => {}
            // Whoever takes these sends everything there. The type comes before the checksum.
            ROUTER_ADVERTISEMENT | REDIRECT if !self.speaks_for_all() => return None,
            _ => return Some(at),
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

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Mac = [2, 0, 0, 0, 0, 1];

    fn filter(addresses: &[&str]) -> Filter {
        let addresses = addresses.iter().map(|text| text.parse().expect("good")).collect();
        Filter { macs: vec![ME], addresses }
    }

    fn frame(source: Mac, kind: u16, body: &[u8]) -> Vec<u8> {
        [&[0xff; 6][..], &source, &kind.to_be_bytes(), body].concat()
    }

    fn ipv4(source: [u8; 4]) -> Vec<u8> {
        [&[0x45; 12][..], &source, &[10, 0, 0, 9]].concat()
    }

    fn arp(sender: Mac, address: [u8; 4]) -> Vec<u8> {
        [&[0, 1, 8, 0, 6, 4, 0, 2][..], &sender, &address, &[0; 10]].concat()
    }

    #[test]
    fn networks() {
        let network: Network = "10.1.2.0/23".parse().expect("good");
        let holds = |text: &str| network.holds(text.parse().expect("good"));
        assert!(holds("10.1.3.255") && !holds("10.1.4.0") && !holds("::a01:300"));
        assert!("0.0.0.0/0".parse::<Network>().expect("good").holds(Ipv4Addr::BROADCAST.into()));
        for wrong in ["10.0.0.0/33", "10.0.0/8", "::/129", "", "10.0.0.1/", "10.0.0.1/-1"] {
            assert!(wrong.parse::<Network>().expect_err(wrong).contains("is no address"));
        }
    }

    #[test]
    fn only_its_own_addresses() {
        let filter = filter(&["10.0.0.5", "2001:db8::5"]);
        let check = |source, kind, body: &[u8]| filter.check(&frame(source, kind, body), None);
        assert_eq!(check(ME, IPV4, &ipv4([10, 0, 0, 5])), Ok(()));
        assert_eq!(check(ME, IPV4, &ipv4([0, 0, 0, 0])), Ok(()), "DHCP");
        assert_eq!(check(ME, IPV4, &ipv4([10, 0, 0, 6])), Err(Spoofed::Address));
        assert_eq!(check([2, 0, 0, 0, 0, 2], IPV4, &ipv4([10, 0, 0, 5])), Err(Spoofed::Mac));
        assert_eq!(check(ME, ARP, &arp(ME, [10, 0, 0, 5])), Ok(()));
        assert_eq!(check(ME, ARP, &arp(ME, [10, 0, 0, 1])), Err(Spoofed::Address));
        assert_eq!(check(ME, ARP, &arp([2; 6], [10, 0, 0, 5])), Err(Spoofed::Address));
        assert_eq!(check(ME, 0x88cc, &[]), Ok(()), "what is neither");
    }

    #[test]
    fn also_behind_a_tag_and_cut_short() {
        let filter = filter(&["10.0.0.5"]);
        let tagged = |inner: u16, body: &[u8]| {
            let body = [&[0, 7][..], &inner.to_be_bytes(), body].concat();
            filter.check(&frame(ME, VLAN, &body), None)
        };
        assert_eq!(tagged(IPV4, &ipv4([10, 0, 0, 5])), Ok(()));
        assert_eq!(tagged(IPV4, &ipv4([10, 0, 0, 6])), Err(Spoofed::Address));
        assert_eq!(tagged(VLAN, &ipv4([10, 0, 0, 5])), Err(Spoofed::Address), "a second tag");
        for len in 0..30 {
            let short = &frame(ME, IPV4, &ipv4([10, 0, 0, 5]))[..len];
            assert!(filter.check(short, None).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn neighbours_of_ipv6() {
        let packet = |source: &str, target: &str| advertisement(source, target, ICMPV6, &[]);
        let six = filter(&["2001:db8::5"]);
        let check = |frame: &[u8]| six.check(frame, None);
        assert_eq!(check(&packet("fe80::1", "2001:db8::5")), Ok(()));
        assert_eq!(check(&packet("fe80::1", "2001:db8::6")), Err(Spoofed::Address));
        assert_eq!(check(&packet("2001:db8::6", "2001:db8::5")), Err(Spoofed::Address));
        assert_eq!(
            filter(&["10.0.0.5"]).check(&packet("fe80::1", "fe80::1"), None),
            Err(Spoofed::Address)
        );
    }

    /// A neighbour advertisement behind extension headers, the first of which is `next`.
    fn advertisement(source: &str, target: &str, next: u8, extensions: &[u8]) -> Vec<u8> {
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("good").octets();
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, next, 255];
        packet.extend(address(source));
        packet.extend([0xff; 16]);
        packet.extend(extensions);
        packet.extend([NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(address(target));
        frame(ME, IPV6, &packet)
    }

    #[test]
    fn neighbours_behind_extension_headers() {
        let six = filter(&["2001:db8::5"]);
        let check = |next: u8, extensions: &[u8], target: &str| {
            six.check(&advertisement("fe80::1", target, next, extensions), None)
        };
        let (own, other) = ("2001:db8::5", "2001:db8::6");
        let icmp = [ICMPV6, 0, 0, 0, 0, 0, 0, 0];
        for next in [0, 43, 60, 135, 139, 140] {
            assert_eq!(check(next, &icmp, own), Ok(()), "{next}");
            assert_eq!(check(next, &icmp, other), Err(Spoofed::Address), "{next}");
        }
        // Of 12 bytes, which it says otherwise.
        let authentication = [ICMPV6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(check(AUTHENTICATION, &authentication, own), Ok(()));
        assert_eq!(check(AUTHENTICATION, &authentication, other), Err(Spoofed::Address));
        let two = [[60, 0, 0, 0, 0, 0, 0, 0], icmp].concat();
        assert_eq!(check(0, &two, other), Err(Spoofed::Address));
        // In pieces nobody advertises anything; a later piece carries anything.
        let piece = |place: u16| [&[ICMPV6, 0][..], &place.to_be_bytes(), &[0; 4]].concat();
        assert_eq!(check(FRAGMENT, &piece(1), own), Err(Spoofed::Address));
        assert_eq!(check(FRAGMENT, &piece(8), other), Ok(()));
        // Headers that go on beyond what is copied: what follows cannot be seen.
        let long = [ICMPV6, 20, 0, 0, 0, 0, 0, 0];
        assert_eq!(check(0, &long, own), Err(Spoofed::Address));
    }

    #[test]
    fn nobody_says_that_it_is_the_router_who_may_not_speak_for_all() {
        let said = |kind: u8, source: &str, extensions: &[u8]| {
            let next = if extensions.is_empty() { ICMPV6 } else { 60 };
            let mut frame = advertisement(source, "2001:db8::5", next, extensions);
            frame[ETHERNET + 40 + extensions.len()] = kind;
            frame
        };
        let of = |addresses: &[&str], frame: &[u8]| filter(addresses).check(frame, None);
        for kind in [ROUTER_ADVERTISEMENT, REDIRECT] {
            for extensions in [&[][..], &[ICMPV6, 0, 0, 0, 0, 0, 0, 0]] {
                let frame = said(kind, "fe80::1", extensions);
                assert_eq!(of(&["2001:db8::5"], &frame), Err(Spoofed::Address), "{kind}");
                assert_eq!(of(&["2001:db8::/32", "fe80::1"], &frame), Err(Spoofed::Address));
                assert_eq!(of(&["::/0"], &frame), Ok(()), "the router");
            }
        }
        assert_eq!(of(&["2001:db8::5"], &said(133, "fe80::1", &[])), Ok(()), "who asks for one");
    }

    #[test]
    fn an_address_of_its_link_that_is_named_is_the_only_one() {
        let of = |addresses: &[&str], source: &str, target: &str| {
            filter(addresses).check(&advertisement(source, target, ICMPV6, &[]), None)
        };
        let named = ["2001:db8::5", "fe80::5"];
        assert_eq!(of(&["2001:db8::5"], "fe80::1", "fe80::1"), Ok(()), "any, if none is named");
        assert_eq!(of(&named, "fe80::5", "fe80::5"), Ok(()));
        assert_eq!(of(&named, "fe80::5", "fe80::1"), Err(Spoofed::Address));
        assert_eq!(of(&named, "fe80::1", "fe80::5"), Err(Spoofed::Address));
        assert_eq!(of(&named, "::", "2001:db8::5"), Ok(()), "it has none yet");
    }

    #[test]
    fn no_checksum_is_written_into_what_was_checked() {
        let both = filter(&["10.0.0.5", "2001:db8::5"]);
        let fits = |frame: &[u8], written| both.check(frame, Some(written)) == Ok(());
        let four = frame(ME, IPV4, &[ipv4([10, 0, 0, 5]), vec![0; 40]].concat());
        assert!(!fits(&four, 26) && !fits(&four, 33) && fits(&four, 34) && fits(&four, 50));
        let body = [&[0, 7, 8, 0][..], &ipv4([10, 0, 0, 5]), &[0; 40]].concat();
        let tagged = frame(ME, VLAN, &body);
        assert!(!fits(&tagged, 16) && !fits(&tagged, 30) && fits(&tagged, 54));
        // With another kind inside, the kind itself could be written.
        let other = frame(ME, VLAN, &[&[0, 7, 0x88, 0xb5][..], &[0; 60]].concat());
        assert!(!fits(&other, 16) && fits(&other, 18));
        let arp = frame(ME, ARP, &arp(ME, [10, 0, 0, 5]));
        assert!(!fits(&arp, 28));
        let icmp = [ICMPV6, 0, 0, 0, 0, 0, 0, 0];
        let six = advertisement("fe80::1", "2001:db8::5", 0, &icmp);
        assert!(!fits(&six, 22) && !fits(&six, 62) && !fits(&six, 70) && !fits(&six, 84));
    }
}
