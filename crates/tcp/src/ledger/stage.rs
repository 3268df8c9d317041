//! How far a socket has come towards a ring, and why it comes no further.

use std::fmt;

/// How far a socket has come towards a ring. Only grows, but for [`Stage::Candidate`] again after a
/// detach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stage {
    /// Counted, not yet published.
    Candidate = 0,
    /// In the rendezvous table; nobody came yet.
    Published = 1,
    /// This side made the channel and waits for the other to confirm it.
    Offered = 2,
    /// Both know the channel. Receives are careful from here on; waiting for calls that began
    /// before.
    Settling = 3,
    /// Both count the same bytes: each writer may upgrade.
    Active = 4,
    /// Stays on TCP, for the reason given.
    Plain = 5,
    /// A peer wrote nonsense, or the program's bytes went past the shim: ECONNRESET.
    Broken = 6,
    /// The last descriptor was closed.
    Closed = 7,
}

impl Stage {
    pub(super) fn of(value: u32) -> Self {
        match value {
            0 => Self::Candidate,
            1 => Self::Published,
            2 => Self::Offered,
            3 => Self::Settling,
            4 => Self::Active,
            5 => Self::Plain,
            6 => Self::Broken,
            _ => Self::Closed,
        }
    }
}

/// Why a connection is not accelerated (or no longer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// No reason: it is, or may yet be.
    None = 0,
    /// Too few exchanges so far.
    Young = 1,
    /// Published, and the other end was not met: no shim there, or another segment.
    NoPeer = 2,
    /// Both ends of the connection are one socket.
    SelfConnected = 3,
    /// Its address was published more than twice: two connections look the same.
    Duplicate = 4,
    /// The rendezvous table has no room.
    TableFull = 5,
    /// The segment has no free pages.
    SegmentFull = 6,
    /// The file system of the segment has no memory.
    NoMemory = 7,
    /// The two ends never agreed on the bytes so far (traffic never paused, or not one connection).
    Disagree = 8,
    /// The program uses io_uring.
    IoUring = 9,
    /// Handed over: passed to a program without the shim, spliced, used through stdio.
    HandedOver = 10,
    /// Urgent data was used.
    Urgent = 11,
    /// A socket option that only the kernel can honour (TLS, timestamps, zero-copy, signals).
    Option = 12,
    /// A peer wrote nonsense into the segment.
    Corrupt = 13,
    /// Bytes went past the shim (raw system call, stdio): the counts do not explain them.
    Bypassed = 14,
    /// No ledger, no segment, or no room for the process: see the process's reason.
    NoSegment = 15,
    /// The peer asked to stay on TCP.
    Held = 16,
    /// Detached by the user.
    Detached = 17,
    /// TCP's own packets are not answered: what TCP cannot carry, a ring must not.
    PathCut = 18,
    /// The virtual machine's device was unplugged, and the segment with it.
    Unplugged = 19,
    /// The process was to join a segment of `ginneld`, and could not.
    NotServed = 20,
    /// The shim could not start its thread.
    NoThread = 21,
    /// The user's policy keeps it on TCP.
    Denied = 22,
    /// An end could not prove that it holds the connection: see [`crate::proof`].
    Unproven = 23,
    /// The process became another user, or lost the right to what it had here.
    OtherUser = 24,
    /// The memory limit of this end's cgroup leaves no room for rings: see [`ginnel_node::budget`].
    MemoryLimit = 25,
    /// The broker gives this user, or the one at the other end, nothing more: a limit is reached.
    BrokerLimit = 26,
    /// The broker knows the other end, but the ends' networks belong to different user namespaces.
    BrokerNetwork = 27,
    /// The broker could not read the connection's sequence numbers.
    BrokerUnreadable = 28,
}

impl Reason {
    /// From the stored number.
    #[must_use]
    pub fn of(value: u32) -> Self {
        const ALL: [Reason; 29] = [
            Reason::None,
            Reason::Young,
            Reason::NoPeer,
            Reason::SelfConnected,
            Reason::Duplicate,
            Reason::TableFull,
            Reason::SegmentFull,
            Reason::NoMemory,
            Reason::Disagree,
            Reason::IoUring,
            Reason::HandedOver,
            Reason::Urgent,
            Reason::Option,
            Reason::Corrupt,
            Reason::Bypassed,
            Reason::NoSegment,
            Reason::Held,
            Reason::Detached,
            Reason::PathCut,
            Reason::Unplugged,
            Reason::NotServed,
            Reason::NoThread,
            Reason::Denied,
            Reason::Unproven,
            Reason::OtherUser,
            Reason::MemoryLimit,
            Reason::BrokerLimit,
            Reason::BrokerNetwork,
            Reason::BrokerUnreadable,
        ];
        ALL.get(value as usize).copied().unwrap_or(Reason::None)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "",
            Self::Young => "too few exchanges so far",
            Self::NoPeer => "peer has no shim or uses another segment",
            Self::SelfConnected => "connected to itself",
            Self::Duplicate => "address published more than twice",
            Self::TableFull => "rendezvous table full",
            Self::SegmentFull => "segment full",
            Self::NoMemory => "no memory left for the segment",
            Self::Disagree => "the ends never agreed on the bytes so far",
            Self::IoUring => "io_uring in use",
            Self::HandedOver => "handed over to code without the shim",
            Self::Urgent => "urgent data",
            Self::Option => "socket option that only the kernel honours",
            Self::Corrupt => "peer wrote nonsense",
            Self::Bypassed => "bytes went past the shim",
            Self::NoSegment => "no segment",
            Self::Held => "peer asked for TCP",
            Self::Detached => "detached",
            Self::PathCut => "the network path is cut",
            Self::Unplugged => "the segment's device was unplugged",
            Self::NoThread => "the process could not start one more thread (a limit, or unshare(CLONE_NEWPID))",
            Self::Denied => "the policy of this end keeps it on TCP",
            Self::Unproven => "an end could not prove that it holds the connection (ginnel doctor says what to do)",
            Self::MemoryLimit => "the memory limit of this end's cgroup leaves no room for rings",
            Self::BrokerLimit => "the broker gives this user no more memory or questions (its log says which)",
            Self::BrokerNetwork => "the ends' networks belong to different user namespaces, where the broker believes no proof",
            Self::BrokerUnreadable => "the broker could not read the connection's sequence numbers",
            Self::OtherUser => "the process became another user, or gave its rights here up",
            Self::NotServed => "ginneld does not serve the segment to this process (ginnel run --verbose says more)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip() {
        for value in 0..29 {
            assert_eq!(Reason::of(value) as u32, value);
        }
        assert_eq!(Reason::of(99), Reason::None);
    }
}
