//! What is fixed elsewhere: Ethernet, virtio-net's header and its features.

/// Virtio features by their bits (virtio 1.2, 5.1.3 and 6; vhost-user.rst).
pub mod features {
    /// The switch completes checksums, or whoever receives the frame does.
    pub const CSUM: u64 = 1 << 0;
    /// The guest takes frames whose checksum is not complete.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The device says its MTU.
    pub const MTU: u64 = 1 << 3;
    /// The guest takes large segments of TCP over IPv4 …
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// … and IPv6 …
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// … with ECN.
    pub const GUEST_ECN: u64 = 1 << 9;
    /// The guest may send large segments of TCP over IPv4 …
    pub const HOST_TSO4: u64 = 1 << 11;
    /// … and IPv6 …
    pub const HOST_TSO6: u64 = 1 << 12;
    /// … with ECN.
    pub const HOST_ECN: u64 = 1 << 13;
    /// A frame may take several receive buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// A guest that was moved says so itself.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// Several pairs of queues.
    pub const MQ: u64 = 1 << 22;
    /// Writes to guest memory are logged.
    pub const LOG_ALL: u64 = 1 << 26;
    /// Tables of indirect descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Kicks and interrupts by an index.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// vhost-user has features of its own.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// Not a device from before virtio 1.0.
    pub const VERSION_1: u64 = 1 << 32;

    /// What has nothing to do with what a device is for.
    pub const COMMON: u64 = LOG_ALL | INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1;

    /// What a card of the switch offers.
    pub const OFFERED: u64 = COMMON
        | CSUM
        | GUEST_CSUM
        | MTU
        | GUEST_TSO4
        | GUEST_TSO6
        | GUEST_ECN
        | HOST_TSO4
        | HOST_TSO6
        | HOST_ECN
        | MRG_RXBUF
        | GUEST_ANNOUNCE
        | MQ;
}

/// Bytes of a virtio-net header with `num_buffers`; without it is two less.
pub const HEADER: usize = 12;
/// Bytes of an Ethernet header: two addresses and a type.
pub const ETHERNET: usize = 14;
/// The longest frame: a segment of 64 KiB with its headers.
pub const LONGEST: usize = 65535 + ETHERNET + 4;
/// Bytes of the longest message between hosts: of one frame, however long, or several short ones,
/// with what stands before them.
pub const MESSAGE: usize = (LONGEST + 128).next_multiple_of(4096);
/// What of a frame is copied before it is looked at, bytes: enough for the longest headers that a
/// filter looks at (Ethernet, VLAN, IPv6, neighbour advertisement).
pub const FRONT: usize = 96;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Is it the address of a group, such as all?
#[must_use]
pub fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

/// As it is written: `52:54:00:12:34:56`.
#[must_use]
pub fn show(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// From how it is written.
#[must_use]
pub fn parse(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts
            .next()
            .filter(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// What a header says of the frame behind it (virtio 1.2, 5.1.6): where its checksum is still to be
/// computed, and how it is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// The checksum from `start` on goes to `start + offset`.
    pub checksum: Option<Checksum>,
    /// It is longer than a link's MTU.
    pub segments: Option<Segments>,
}

/// A checksum that is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// Where the sum begins, bytes from the frame's first.
    pub start: u16,
    /// Where it goes, bytes from `start`.
    pub offset: u16,
}

/// A frame that stands for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// IPv6, not IPv4.
    pub v6: bool,
    /// Congestion was signalled: only the first segment keeps CWR.
    pub ecn: bool,
    /// Bytes of headers, as the sender says: a hint.
    pub header: u16,
    /// Bytes of payload in each.
    pub size: u16,
}

/// Bytes of TCP's header without options, and where in it the checksum is (RFC 9293, 3.1).
const TCP: usize = 20;
const TCP_CHECKSUM: u16 = 16;

const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

impl Offload {
    /// From a header before a frame of `len` bytes. `None` where it makes no sense: whoever
    /// receives the frame would have to believe it.
    #[must_use]
    pub fn parse(header: &[u8; HEADER], len: usize) -> Option<Self> {
        let [flags, gso, hl, hh, sl, sh, cl, ch, ol, oh, _, _] = *header;
        let word = |low, high| u16::from_le_bytes([low, high]);
        let mut offload = Self::default();
        if flags & NEEDS_CSUM != 0 {
            let (start, offset) = (word(cl, ch), word(ol, oh));
            let end = usize::from(start) + usize::from(offset) + 2;
            if usize::from(start) < ETHERNET || end > len {
                return None;
            }
            offload.checksum = Some(Checksum { start, offset });
        }
        let kind = gso & !GSO_ECN;
        if kind != 0 {
            let size = word(sl, sh);
            // A segment can only be cut where its checksum is known, and not into nothing. A kernel
            // of before 2024 believes that it is TCP's (`virtio_net_hdr_to_skb`), and warns later.
            let checksum = offload
                .checksum
                .filter(|sum| sum.offset == TCP_CHECKSUM && usize::from(sum.start) + TCP <= len);
            if !matches!(kind, GSO_TCPV4 | GSO_TCPV6) || size == 0 || checksum.is_none() {
                return None;
            }
            let (v6, ecn) = (kind == GSO_TCPV6, gso & GSO_ECN != 0);
            offload.segments = Some(Segments { v6, ecn, header: word(hl, hh), size });
        }
        Some(offload)
    }

    /// As a header, of a frame in one buffer. What a sender says of itself beyond this (that its
    /// checksum was verified, for one) goes to nobody.
    #[must_use]
    pub fn header(self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        if let Some(Checksum { start, offset }) = self.checksum {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_le_bytes());
            header[8..10].copy_from_slice(&offset.to_le_bytes());
        }
        if let Some(Segments { v6, ecn, header: bytes, size }) = self.segments {
            header[1] = if v6 { GSO_TCPV6 } else { GSO_TCPV4 } | if ecn { GSO_ECN } else { 0 };
            header[2..4].copy_from_slice(&bytes.to_le_bytes());
            header[4..6].copy_from_slice(&size.to_le_bytes());
        }
        header[10] = 1;
        header
    }

    /// May a guest that agreed on these features be given such a frame as it is?
    #[must_use]
    #[inline]
    pub fn suits(self, agreed: u64) -> bool {
        let has = |bit: u64| agreed & bit != 0;
        let segments = self.segments.is_none_or(|one| {
            has(if one.v6 { features::GUEST_TSO6 } else { features::GUEST_TSO4 })
                && (!one.ecn || has(features::GUEST_ECN))
        });
        segments && (self.checksum.is_none() || has(features::GUEST_CSUM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let mac = [0x52, 0x54, 0, 0x12, 0xab, 1];
        assert_eq!(show(mac), "52:54:00:12:ab:01");
        assert_eq!(parse(&show(mac)), Some(mac));
        for wrong in
            ["", "52:54:00:12:ab", "52:54:00:12:ab:01:02", "52:54:00:12:ab:+1", "5:54:00:12:ab:01"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(is_group([0xff; 6]) && is_group([1, 0, 0x5e, 0, 0, 1]) && !is_group(mac));
    }

    #[test]
    fn headers_survive_and_nonsense_does_not() {
        let offload = Offload {
            checksum: Some(Checksum { start: 34, offset: 16 }),
            segments: Some(Segments { v6: true, ecn: true, header: 66, size: 1448 }),
        };
        assert_eq!(Offload::parse(&offload.header(), 60000), Some(offload));
        assert_eq!(Offload::parse(&offload.header(), 51), None, "a checksum past the end");
        let mut header = offload.header();
        header[0] = 0;
        assert_eq!(Offload::parse(&header, 60000), None, "segments without a checksum");
        header = offload.header();
        (header[4], header[5]) = (0, 0);
        assert_eq!(Offload::parse(&header, 60000), None, "segments of no size");
        assert_eq!(Offload::parse(&offload.header(), 53), None, "segments without a header");
        header = offload.header();
        header[8] = 6;
        assert_eq!(Offload::parse(&header, 60000), None, "segments with the checksum of UDP");
        header = offload.header();
        header[1] = 3;
        assert_eq!(Offload::parse(&header, 60000), None, "a kind that was not offered");
        // VIRTIO_NET_HDR_F_DATA_VALID is for the device alone to say.
        assert_eq!(
            Offload::parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 60),
            Some(Offload::default())
        );
        assert_eq!(Offload::default().header(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn what_suits_whom() {
        let sum = Offload { checksum: Some(Checksum { start: 34, offset: 6 }), segments: None };
        assert!(sum.suits(features::GUEST_CSUM) && !sum.suits(0));
        let large = Segments { v6: false, ecn: false, header: 54, size: 1448 };
        let large = Offload { segments: Some(large), ..sum };
        assert!(!large.suits(features::GUEST_CSUM | features::GUEST_TSO6));
        assert!(large.suits(features::GUEST_CSUM | features::GUEST_TSO4));
    }
}
