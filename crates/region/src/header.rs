//! A segment's first words: what it is, which layout it has, how large it is; and what may be asked
//! of a new one.

use crate::{Error, PAGE, sys};

/// First word of every segment: "GINNELSG" in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GINNELSG");
/// Layout version. A reader of another version refuses.
pub const VERSION: u32 = 3;

/// Bytes of the smallest segment.
pub(crate) const MIN_SIZE: u64 = 16 << 20;
/// Bytes of the largest.
pub(crate) const MAX_SIZE: u64 = 1 << 40;

/// How a new segment is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes, whole pages. Memory is taken only as it is used.
    pub size: u64,
    /// Permission bits of the file, subject to the umask.
    pub mode: u32,
    /// Wake-ups only by tokens over TCP.
    pub tokens_only: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { size: 1 << 30, mode: 0o600, tokens_only: false }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let good = (MIN_SIZE..=MAX_SIZE).contains(&self.size) && self.size.is_multiple_of(PAGE);
        if good { Ok(()) } else { Err(Error::Size(self.size)) }
    }
}

/// The header, at offset 0. Written once, before anybody else can see the file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) header_len: u32,
    pub(crate) size: u64,
    pub(crate) features: u64,
    pub(crate) id: u64,
}

const _: () = assert!(size_of::<Header>() == 40);

impl Header {
    pub(crate) fn new(config: &Config, features: u64) -> Self {
        let tokens = if config.tokens_only { FEATURE_TOKENS_ONLY } else { 0 };
        Self {
            magic: MAGIC,
            version: VERSION,
            header_len: 40,
            size: config.size,
            features: tokens | features,
            id: sys::random_u64(),
        }
    }

    /// Is it the header of a segment of `actual` bytes that this program can use?
    pub(crate) fn check(&self, actual: u64) -> Result<(), Error> {
        if self.magic != MAGIC {
            return Err(Error::Foreign);
        }
        if self.version != VERSION {
            return Err(Error::Version { theirs: self.version, ours: VERSION });
        }
        if self.size != actual
            || self.size < MIN_SIZE
            || self.size > MAX_SIZE
            || !self.size.is_multiple_of(PAGE)
        {
            return Err(Error::Truncated { expected: self.size, actual });
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> [u8; size_of::<Self>()] {
        // SAFETY: plain numbers without padding, as many bytes as the array has.
        unsafe { std::mem::transmute_copy(self) }
    }
}

/// Wake-ups in the segment are tokens over TCP.
pub(crate) const FEATURE_TOKENS_ONLY: u64 = 1;
/// A daemon made the segment and keeps the table of peers ([`crate::peers`]).
pub(crate) const FEATURE_PEERS: u64 = 2;
