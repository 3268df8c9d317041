//! What is counted of each port. Every frame that a guest sends and that reaches nobody is counted
//! under one reason.

use serde::Serialize;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Why a frame was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Reason { $($(#[$doc])* $name),* }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// As it is shown.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

reasons! {
    /// Shorter than its headers, or longer than a frame can be.
    BadLength = "bad_length",
    /// Its virtio-net header makes no sense.
    BadOffload = "bad_offload",
    /// Its sender's address is a group's.
    BadSource = "bad_source",
    /// It is addressed to whatever is at the other end of a link (IEEE 802.1Q, 8.6.3).
    LinkLocal = "link_local",
    /// `mac =` says that its sender's address is not this guest's, or that it is another's.
    SpoofedMac = "spoofed_mac",
    /// `address =` says that its address of IP is not this guest's.
    SpoofedAddress = "spoofed_address",
    /// More to all than `broadcasts =` allows.
    BroadcastRate = "broadcast_rate",
    /// It is for whom it came from, or for one behind the same port.
    SamePort = "same_port",
    /// Nobody else is in the segment.
    NobodyThere = "nobody_there",
    /// The front end has switched the queue off.
    QueueDisabled = "queue_disabled",
    /// The receiver's guest is not there, or has not set its queues up.
    ReceiverAbsent = "receiver_absent",
    /// The receiver has made too few buffers available.
    NoBuffers = "no_buffers",
    /// It is longer than the receiver's buffers.
    TooLong = "too_long",
    /// The receiver takes no large segments, and it cannot be cut.
    NotTcp = "not_tcp",
    /// The receiver broke a rule of virtio.
    ReceiverBroken = "receiver_broken",
    /// The tap device did not take it.
    TapFull = "tap_full",
    /// The host takes less than it is sent: all that can be on its way is.
    HostFull = "host_full",
    /// A host sent it with the key of a segment that this host does not have.
    NoSuchKey = "no_such_key",
    /// A host sent it here and elsewhere, and it is for another host.
    Elsewhere = "elsewhere",
}

/// How many reasons there are.
pub const REASONS: usize = Reason::ALL.len();

/// The counters of one port, from the guest's point of view.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counters {
    /// Frames that the guest sent.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that it was given.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames of it that were dropped: where the sender is to blame.
    #[serde(skip)]
    pub dropped: [u64; REASONS],
    /// Frames for it that were dropped: where the receiver is.
    #[serde(skip)]
    pub missed: [u64; REASONS],
    /// Frames of it that went to every port of the segment.
    pub flooded: u64,
    /// Addresses that were not learned, since it has as many as it may.
    pub unlearned: u64,
    /// Frames that it was given from where they lay, without a copy: hosts alone.
    pub in_place: u64,
    /// Large segments that were cut for it.
    pub cut: u64,
    /// Looks at its queues that found something: how many frames came at once is what it sent by
    /// these.
    pub bursts: u64,
    /// Kicks that were heard.
    pub kicks: u64,
    /// Interrupts that it was given.
    pub interrupts: u64,
}

impl Counters {
    /// Counts a frame of this port.
    pub fn drop_sent(&mut self, reason: Reason) {
        self.dropped[reason as usize] += 1;
    }

    /// Counts a frame for this port.
    pub fn drop_received(&mut self, reason: Reason) {
        self.missed[reason as usize] += 1;
    }

    /// Reasons and how often, without those of which there were none.
    pub fn reasons(of: &[u64; REASONS]) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::ALL
            .iter()
            .map(|&reason| (reason.name(), of[reason as usize]))
            .filter(|&(_, count)| count > 0)
    }
}
