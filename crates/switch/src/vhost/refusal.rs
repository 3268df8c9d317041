//! Why a front end is let go.

use super::message::Malformed;
use crate::ring::MapError;
use rustix::io::Errno;
use std::fmt;

/// Why a front end is not served any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It sent what is no message.
    Malformed(Malformed),
    /// There is no such queue.
    Queue(u32),
    /// It asks for features that were not offered.
    Features(u64),
    /// Its memory cannot be mapped.
    Memory(MapError),
    /// Its memory is more than this, which its port may have.
    Limit(u64),
    /// All ports together have as much memory as there is to be.
    Room(u64),
    /// Regions overlap, or there are too many.
    Regions,
    /// There is no such region to be removed.
    NoRegion,
    /// A kick, call or error descriptor is no eventfd.
    NoEventfd,
    /// A queue without a kick would have to be looked at for ever.
    NoKick,
    /// No frame fits into that.
    Mtu(u64),
    /// The kernel's word.
    Kernel(Errno),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => what.fmt(f),
            Self::Queue(index) => write!(f, "there is no queue {index}; raise `queues`"),
            Self::Features(bits) => write!(f, "features {bits:#x} were not offered"),
            Self::Memory(why) => why.fmt(f),
            Self::Limit(most) => write!(
                f,
                "its memory is more than the {} MiB that it may have; raise its `memory`",
                most >> 20
            ),
            Self::Room(most) => write!(
                f,
                "all machines together have more memory than {} MiB; raise `memory` of the \
                 switch, or lower that of others",
                most >> 20
            ),
            Self::Regions => f.write_str("regions of memory overlap, or are too many"),
            Self::NoRegion => f.write_str("no such region of memory is there to be removed"),
            Self::NoEventfd => f.write_str("a queue's kick, call or error is no eventfd"),
            Self::NoKick => f.write_str("a queue without an eventfd to kick is not served"),
            Self::Mtu(mtu) => write!(f, "an MTU of {mtu} makes no sense"),
            Self::Kernel(errno) => errno.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Malformed> for Refusal {
    fn from(what: Malformed) -> Self {
        Self::Malformed(what)
    }
}

impl From<MapError> for Refusal {
    fn from(why: MapError) -> Self {
        Self::Memory(why)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}
