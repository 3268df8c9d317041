//! How far a socket has come towards a ring, and why it comes no further.

use std::fmt;

ginnel_region::numbered! {
    /// How far a socket has come towards a ring. Only grows, but for [`Stage::Candidate`] again
    /// after a detach.
    #[derive(PartialOrd, Ord)]
    pub enum Stage: u32 {
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
}

impl Stage {
    pub(super) fn of(value: u32) -> Self {
        Self::numbered(value).unwrap_or(Self::Closed)
    }
}

/// Defines [`Reason`]: of each its number, and what the user is told.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal: $words:literal,)*) => {
        ginnel_region::numbered! {
            /// Why a connection is not accelerated (or no longer).
            pub enum Reason: u32 {
                $($(#[$doc])* $name = $number,)*
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $words,)* })
            }
        }
    };
}

reasons! {
    /// No reason: it is, or may yet be.
    None = 0: "",
    /// Too few exchanges so far.
    Young = 1: "too few exchanges so far",
    /// Published, and the other end was not met: no shim there, or another segment.
    NoPeer = 2: "peer has no shim or uses another segment",
    /// Both ends of the connection are one socket.
    SelfConnected = 3: "connected to itself",
    /// Its address was published more than twice: two connections look the same.
    Duplicate = 4: "address published more than twice",
    /// The rendezvous table has no room.
    TableFull = 5: "rendezvous table full",
    /// The segment has no free pages.
    SegmentFull = 6: "segment full",
    /// The file system of the segment has no memory.
    NoMemory = 7: "no memory left for the segment",
    /// The two ends never agreed on the bytes so far (traffic never paused, or not one connection).
    Disagree = 8: "the ends never agreed on the bytes so far",
    /// The program uses io_uring.
    IoUring = 9: "io_uring in use",
    /// Handed over: passed to a program without the shim, spliced, used through stdio.
    HandedOver = 10: "handed over to code without the shim",
    /// Urgent data was used.
    Urgent = 11: "urgent data",
    /// A socket option that only the kernel can honour (TLS, timestamps, zero-copy, signals).
    Option = 12: "socket option that only the kernel honours",
    /// A peer wrote nonsense into the segment.
    Corrupt = 13: "peer wrote nonsense",
    /// Bytes went past the shim (raw system call, stdio): the counts do not explain them.
    Bypassed = 14: "bytes went past the shim",
    /// No ledger, no segment, or no room for the process: see the process's reason.
    NoSegment = 15: "no segment",
    /// The peer asked to stay on TCP.
    Held = 16: "peer asked for TCP",
    /// Detached by the user.
    Detached = 17: "detached",
    /// TCP's own packets are not answered: what TCP cannot carry, a ring must not.
    PathCut = 18: "the network path is cut",
    /// The virtual machine's device was unplugged, and the segment with it.
    Unplugged = 19: "the segment's device was unplugged",
    /// The process was to join a segment of `ginneld`, and could not.
    NotServed = 20:
        "ginneld does not serve the segment to this process (ginnel run --verbose says more)",
    /// The shim could not start its thread.
    NoThread = 21:
        "the process could not start one more thread (a limit, or unshare(CLONE_NEWPID))",
    /// The user's policy keeps it on TCP.
    Denied = 22: "the policy of this end keeps it on TCP",
    /// An end could not prove that it holds the connection: see [`crate::proof`].
    Unproven = 23:
        "an end could not prove that it holds the connection (ginnel doctor says what to do)",
    /// The process became another user, or lost the right to what it had here.
    OtherUser = 24: "the process became another user, or gave its rights here up",
    /// The memory limit of this end's cgroup leaves no room for rings: see [`ginnel_node::budget`].
    MemoryLimit = 25: "the memory limit of this end's cgroup leaves no room for rings",
    /// The broker gives this user, or the one at the other end, nothing more: a limit is reached.
    BrokerLimit = 26: "the broker gives this user no more memory or questions (its log says which)",
    /// The broker knows the other end, but the ends' networks belong to different user namespaces.
    BrokerNetwork = 27:
        "the ends' networks belong to different user namespaces, where the broker believes no \
         proof",
    /// The broker could not read the connection's sequence numbers.
    BrokerUnreadable = 28: "the broker could not read the connection's sequence numbers",
}

impl Reason {
    /// From the stored number.
    #[must_use]
    pub fn of(value: u32) -> Self {
        Self::numbered(value).unwrap_or(Self::None)
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
