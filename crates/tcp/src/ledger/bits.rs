//! What the bits of a slot's words stand for.

/// Bits of [`Slot::flags`](super::Slot::flags).
pub mod flag {
    /// This side called connect.
    pub const CONNECTED: u32 = 1;
    /// O_NONBLOCK is set.
    pub const NONBLOCKING: u32 = 2;
    /// The writing direction was shut down.
    pub const TX_SHUT: u32 = 4;
    /// TCP's path is cut, as far as this end knows: what is written goes to TCP.
    pub const CUT: u32 = 8;
    /// Keep to TCP: ask the peer's writer, and do not upgrade.
    pub const HOLD: u32 = 16;
    /// Side number in the channel.
    pub const SIDE_ONE: u32 = 32;
    /// Offsets were taken; from now on they are counted.
    pub const COUNTED: u32 = 64;
    /// Several threads, processes or epoll sets wait on this socket: wake-ups by token, which reach
    /// all.
    pub const SHARED: u32 = 128;
    /// On its way out of its channel: both directions go back to TCP, and do not upgrade.
    pub const LEAVING: u32 = 256;
    /// A program was started that may have inherited the socket, or it was passed on: the last
    /// close that is seen may not be the last.
    pub const SPAWNED: u32 = 512;
    /// The program has set TCP_CORK …
    pub const CORKED: u32 = 1024;
    /// … and the kernel knows.
    pub const KERNEL_CORKED: u32 = 2048;
    /// Its last descriptor is being closed: nobody takes it up any more.
    pub const ENDING: u32 = 4096;
    /// The program shut the receiving side down: the kernel says end of file whatever the other end
    /// does.
    pub const RX_SHUT: u32 = 8192;
    /// While settling: the other end stood still, and this one had all that it had written …
    pub const INCOMING_AGREED: u32 = 1 << 14;
    /// … and the other way round.
    pub const OUTGOING_AGREED: u32 = 1 << 15;
    /// Both.
    pub const BOTH_AGREED: u32 = INCOMING_AGREED | OUTGOING_AGREED;
    /// Several processes hold it, or once did.
    pub const SEVERAL: u32 = 1 << 16;
    /// While settling: the other end has proved that it holds the connection, or need not.
    pub const PROVED: u32 = 1 << 17;
    /// While settling: this end's share is shown.
    pub const BEGUN: u32 = 1 << 18;
    /// While settling: this end's tag is shown, and the other end has shown no right one yet.
    pub const ON_TRIAL: u32 = 1 << 20;
    /// All of the above that stand for a channel which is left.
    pub const OF_PROOF: u32 = PROVED | BEGUN | ON_TRIAL;
    /// The kernel had no room for what was sent, once since there is a channel: it may tell of
    /// room.
    pub const KERNEL_FULL: u32 = 1 << 19;
    /// The same of the ring: one of the processes that have the socket may wait for room there.
    pub const RING_FULL: u32 = 1 << 21;
    /// It is in the memory of a pair ([`crate::pairs`]), or to be there, and not in the own
    /// segment.
    pub const PAIR: u32 = 1 << 22;
    /// Of one in a pair's memory: who slept there last was to be rung by a line.
    pub const BY_LINE: u32 = 1 << 23;
    /// An error ended what comes in: it is told once, and nothing follows.
    pub const FAILED: u32 = 1 << 24;
    /// Something was sent over TCP after the other end had closed: a reset is the answer to that.
    pub const SPOKE_LATE: u32 = 1 << 25;
}

/// Bits of [`Slot::attention`](super::Slot::attention): something outside the fast path is to be
/// looked at.
pub mod attention {
    /// The kernel reported something about the socket: look before saying "nothing yet".
    pub const KERNEL: u32 = 1;
    /// The same for sends: look whether anybody is there who reads.
    pub const READER: u32 = 2;
    /// A token was refused by the kernel and is owed.
    pub const TOKEN_OWED: u32 = 4;
    /// This direction was frozen and is to be re-sent.
    pub const RESEND: u32 = 8;
}
