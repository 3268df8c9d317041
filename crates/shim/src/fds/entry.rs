//! What a descriptor number may stand for, as the word that the table has of it.

use core::sync::atomic::{AtomicU32, Ordering};

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Not looked at yet.
    Unknown,
    /// Never ours.
    Plain,
    /// A TCP socket of this process alone that has no slot: unconnected, or not looked at.
    Tcp,
    /// The same, which another process may have too: it came here from elsewhere, or there was a
    /// fork.
    Shared,
    /// A TCP socket that listens.
    Listener,
    /// A connection that this process made or accepted and that has no slot yet.
    Young(Young),
    /// An endpoint: its slot.
    Endpoint(u32),
    /// An endpoint inherited over fork, not used in this process yet: its slot.
    Inherited(u32),
    /// An epoll set of this process: its number.
    Epoll(u32),
    /// The shim's own.
    Own,
    /// An io_uring whose submissions are looked at.
    Uring,
}

impl Entry {
    /// Does it stand for a TCP socket?
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::Endpoint(_) | Self::Inherited(_)) || self.has_no_slot()
    }

    /// Does it stand for a TCP socket that has no slot?
    #[must_use]
    pub const fn has_no_slot(self) -> bool {
        matches!(self, Self::Tcp | Self::Shared | Self::Listener | Self::Young(_))
    }

    /// Is it a socket of which no ring can know, whoever else has it: one that listens, or a
    /// connection of this process alone that has hardly been used?
    #[must_use]
    pub const fn is_apart(self) -> bool {
        match self {
            Self::Listener => true,
            Self::Young(young) => !young.is_heir(),
            _ => false,
        }
    }

    pub(super) const fn word(self) -> u64 {
        match self {
            // These two are the least: see `is_plain`.
            Self::Unknown => 0,
            Self::Plain => 1,
            Self::Tcp => 2,
            Self::Endpoint(slot) => 3 | (slot as u64) << 8,
            Self::Inherited(slot) => 4 | (slot as u64) << 8,
            Self::Epoll(set) => 5 | (set as u64) << 8,
            Self::Own => 6,
            Self::Young(young) => 7 | (young.0 as u64) << 8,
            Self::Listener => 8,
            Self::Shared => 9,
            Self::Uring => 10,
        }
    }

    #[inline]
    pub(super) const fn of(word: u64) -> Self {
        let payload = (word >> 8) as u32;
        match word & 0xff {
            1 => Self::Plain,
            2 => Self::Tcp,
            3 => Self::Endpoint(payload),
            4 => Self::Inherited(payload),
            5 => Self::Epoll(payload),
            6 => Self::Own,
            7 => Self::Young(Young(payload)),
            8 => Self::Listener,
            9 => Self::Shared,
            10 => Self::Uring,
            _ => Self::Unknown,
        }
    }
}

/// What is known of a connection that was accepted and not used yet: it gets its slot with its
/// first use, for from then on its calls must be counted where every process that has it sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Young(u32);

impl Young {
    const HEIR: u32 = 1;
    const PASSED: u32 = 1 << 1;
    const CORKED: u32 = 1 << 2;
    const CONNECTED: u32 = 1 << 3;
    /// The other bits: which connection of this number it is, so that what was found out about one
    /// is not said of a later one.
    const SERIAL: u32 = 4;

    /// A connection that was accepted now.
    #[must_use]
    pub fn accepted() -> Self {
        static SERIALS: AtomicU32 = AtomicU32::new(0);
        Self(SERIALS.fetch_add(1, Ordering::Relaxed) << Self::SERIAL)
    }

    /// May another process have it, since a fork?
    #[must_use]
    pub const fn is_heir(self) -> bool {
        self.0 & Self::HEIR != 0
    }

    /// The same, from now on.
    #[must_use]
    pub const fn heir(self) -> Self {
        Self(self.0 | Self::HEIR)
    }

    /// Was it sent over a unix socket?
    #[must_use]
    pub const fn is_passed(self) -> bool {
        self.0 & Self::PASSED != 0
    }

    /// The same, from now on.
    #[must_use]
    pub const fn passed(self) -> Self {
        Self(self.0 | Self::PASSED | Self::HEIR)
    }

    /// Did this side call connect? (Of one that had a slot before: see [`crate::identity`].)
    #[must_use]
    pub const fn is_connecting(self) -> bool {
        self.0 & Self::CONNECTED != 0
    }

    /// It did, or did not.
    #[must_use]
    pub const fn connected(self, on: bool) -> Self {
        Self(if on { self.0 | Self::CONNECTED } else { self.0 & !Self::CONNECTED })
    }

    /// Is it corked (TCP_CORK)?
    #[must_use]
    pub const fn is_corked(self) -> bool {
        self.0 & Self::CORKED != 0
    }

    /// Corked, or not.
    #[must_use]
    pub const fn corked(self, on: bool) -> Self {
        Self(if on { self.0 | Self::CORKED } else { self.0 & !Self::CORKED })
    }
}
