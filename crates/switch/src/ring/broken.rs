//! What a guest can do wrong, and why a frame does not go into a queue.

use super::MAX_SIZE;
use std::fmt;

/// A guest or its front end broke a rule of virtio. Its queue is served no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The size is no power of two, or more than [`MAX_SIZE`].
    Size(u16),
    /// A part of the queue is not aligned as it must be, or lies in no region.
    Place(u64),
    /// More is available than the queue has entries: the index, and where it stood.
    AvailableIndex(u16, u16),
    /// The number of a descriptor is outside its table.
    Descriptor(u16),
    /// A chain is longer than its table, or than [`super::MAX_CHAIN`].
    Endless,
    /// A buffer or an indirect table lies where the guest has no memory.
    Address(u64, u32),
    /// A descriptor is for the wrong direction.
    Direction,
    /// A table of indirect descriptors that was not agreed on, is in another one, or has no whole
    /// number of descriptors.
    Indirect,
    /// A buffer to receive into that has no room for a header.
    Tiny(usize),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "queue size {size} is no power of two up to {MAX_SIZE}"),
            Self::Place(at) => {
                write!(f, "a part of the queue, at {at:#x}, is misaligned or unmapped")
            }
            Self::AvailableIndex(is, was) => {
                write!(f, "the available index jumps from {was} to {is}, past the queue's size")
            }
            Self::Descriptor(index) => write!(f, "descriptor {index} is outside its table"),
            Self::Endless => f.write_str("a chain of descriptors does not end"),
            Self::Address(at, len) => write!(f, "{len} bytes at {at:#x} are not in guest memory"),
            Self::Direction => f.write_str("a descriptor is for the other direction"),
            Self::Indirect => f.write_str("a table of indirect descriptors is malformed"),
            Self::Tiny(len) => {
                write!(f, "a receive buffer of {len} bytes has no room for a header")
            }
        }
    }
}

impl std::error::Error for Broken {}

/// Why a frame did not go into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The guest has made too few buffers available.
    Full,
    /// It is longer than the next buffer, and the guest takes no frame in several.
    TooLong,
    /// The queue is broken, and is to be served no further.
    Broken(Broken),
}

impl From<Broken> for Refused {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}
