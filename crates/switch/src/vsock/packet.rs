//! One packet's header (virtio 1.2, 5.10.6). Everything is little-endian.

/// Bytes of a header.
pub const HEADER: usize = 44;
/// The host's context id.
pub const HOST: u64 = 2;
/// `VIRTIO_VSOCK_TYPE_STREAM`.
pub const STREAM: u16 = 1;
/// In a SHUTDOWN: whoever sends it receives no more, sends no more.
pub const NO_RECEIVE: u32 = 1;
/// See above.
pub const NO_SEND: u32 = 2;

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are those of virtio 1.2, 5.10.6, which explains them")]
pub enum Op {
    Request = 1,
    Response = 2,
    Rst = 3,
    Shutdown = 4,
    Rw = 5,
    CreditUpdate = 6,
    CreditRequest = 7,
}

impl Op {
    /// In the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Request,
        Self::Response,
        Self::Rst,
        Self::Shutdown,
        Self::Rw,
        Self::CreditUpdate,
        Self::CreditRequest,
    ];

    /// By its number.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// A context id and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The context id.
    pub cid: u64,
    /// The port.
    pub port: u32,
}

/// A header, copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Who sends it.
    pub from: Address,
    /// Who is to have it.
    pub to: Address,
    /// Bytes behind it.
    pub len: u32,
    /// [`STREAM`], or a kind of socket that is not known here.
    pub kind: u16,
    /// One of [`Op`].
    pub op: u16,
    /// Of a SHUTDOWN.
    pub flags: u32,
    /// Bytes that the sender can keep.
    pub buf_alloc: u32,
    /// Bytes that it has taken out of what it keeps, since the connection began.
    pub fwd_cnt: u32,
}

impl Header {
    /// From the bytes. Nothing of it is checked.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER]) -> Self {
        let at = |from: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[from + n]));
        let half = |from: usize| u16::from_le_bytes([bytes[from], bytes[from + 1]]);
        let long = |from: usize| u64::from(at(from)) | u64::from(at(from + 4)) << 32;
        Self {
            from: Address { cid: long(0), port: at(16) },
            to: Address { cid: long(8), port: at(20) },
            len: at(24),
            kind: half(28),
            op: half(30),
            flags: at(32),
            buf_alloc: at(36),
            fwd_cnt: at(40),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.from.cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.to.cid.to_le_bytes());
        let words = [self.from.port, self.to.port, self.len];
        let kind = u32::from(self.kind) | u32::from(self.op) << 16;
        let rest = [kind, self.flags, self.buf_alloc, self.fwd_cnt];
        for (to, word) in bytes[16..].chunks_exact_mut(4).zip(words.iter().chain(&rest)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The answer to a packet that belongs to nothing.
    #[must_use]
    pub fn refusal(&self) -> Self {
        let (from, to) = (self.to, self.from);
        let (op, kind) = (Op::Rst as u16, self.kind);
        Self { from, to, len: 0, kind, op, flags: 0, buf_alloc: 0, fwd_cnt: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive() {
        let bytes: [u8; HEADER] = std::array::from_fn(|n| n as u8 + 1);
        let header = Header::parse(&bytes);
        assert_eq!(header.bytes(), bytes);
        assert_eq!(header.to.cid, 0x100f_0e0d_0c0b_0a09);
        assert_eq!((header.kind, header.op), (0x1e1d, 0x201f));
        for op in Op::ALL {
            assert_eq!(Op::of(op as u16), Some(op));
        }
        assert_eq!((Op::of(0), Op::of(8), Op::of(u16::MAX)), (None, None, None));
    }
}
