//! One socket's slot in the ledger.

use crate::layout::STAMPS;
use crate::proof::exchange::{Begun, SHARE};
use crate::tuple::Tuple;
use ginnel_node::processes::{Lock, Processes};
use ginnel_region::sys;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

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
    fn of(value: u32) -> Self {
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

/// Bits of [`Slot::flags`].
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
}

/// Bits of [`Slot::attention`]: something outside the fast path is to be looked at.
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

/// The writer's private state, under its lock.
#[repr(C, align(64))]
pub struct Send {
    /// The send lock.
    pub lock: Lock,
    /// Switches so far; what the channel's word should say.
    pub epoch: AtomicU64,
    /// Ring offset after the last byte.
    pub tail: AtomicU64,
    /// The reader's head when last looked at (checked).
    pub head_seen: AtomicU64,
    /// The ring: first position, offset in the segment, size.
    pub ring_start: AtomicU64,
    /// Offset of the ring's bytes.
    pub ring_offset: AtomicU64,
    /// Bytes in the ring.
    pub ring_size: AtomicU64,
    /// TCP offset: bytes given to the kernel, tokens included.
    pub sent: AtomicU64,
    /// The ring before this one, while the reader may still be in it: start, offset, size (0:
    /// none).
    pub old_start: AtomicU64,
    /// Offset of the old ring's bytes.
    pub old_offset: AtomicU64,
    /// Bytes in the old ring.
    pub old_size: AtomicU64,
    /// Rings so far.
    pub grown: AtomicU64,
    /// Frozen ring bytes still to be re-sent over TCP: from here …
    pub resend_from: AtomicU64,
    /// … to here.
    pub resend_to: AtomicU64,
    /// Tokens that the kernel refused and that are owed.
    pub owed: AtomicU64,
    /// How often the ring was found full since the last growth.
    pub full: AtomicU64,
    /// Ring offset at which the present ring phase began.
    pub begun: AtomicU64,
    /// How often the other end was found behind since the channel was made, both agreed, or the
    /// last upgrade.
    pub tries: AtomicU64,
    /// TCP offset at which the last downgrade ends the ring part: tokens go before it, re-sent
    /// bytes behind.
    pub down: AtomicU64,
    /// Ring offset from which the last downgrade re-sends.
    pub resend_start: AtomicU64,
    /// Ring offset at which a large ring was last thought of.
    pub thought: AtomicU64,
    /// As [`Receive::unlimited`], of SO_SNDTIMEO.
    pub unlimited: AtomicU64,
    /// The growth that is under way (see [`crate::growth`]), 0 none: whoever takes the lock over
    /// from one who died in it ends it.
    pub growing: AtomicU64,
    /// What this writer's stamps say (see [`crate::order`]), 0: one that is free. To look there
    /// would fetch the line back from the reader before it is written.
    pub stamps: [AtomicU64; STAMPS],
    _pad: [AtomicU64; 5],
}

/// The reader's private state, under its lock.
#[repr(C, align(64))]
pub struct Receive {
    /// The receive lock.
    pub lock: Lock,
    /// The epoch the reader is in.
    pub phase: AtomicU64,
    /// Ring offset consumed.
    pub head: AtomicU64,
    /// The ring: first position.
    pub ring_start: AtomicU64,
    /// Offset of the ring's bytes (checked).
    pub ring_offset: AtomicU64,
    /// Bytes in the ring (checked).
    pub ring_size: AtomicU64,
    /// Rings so far.
    pub grown: AtomicU64,
    /// Non-zero: frozen in this epoch; nothing is read from the ring.
    pub frozen: AtomicU64,
    /// TCP offset: bytes taken from the kernel, tokens included.
    pub received: AtomicU64,
    /// How often a token was armed, for data or for room.
    pub armed: AtomicU64,
    /// Tokens that arrived.
    pub tokens: AtomicU64,
    /// An `errno` that the kernel told while ring bytes were unread; 0 none.
    pub error: AtomicU64,
    /// The waiter (as a wish's word) that was armed last on this end, asleep or not; 0 none.
    pub sleeper: AtomicU64,
    /// Counts the program's changes of time limits, of both directions.
    pub limits: AtomicU64,
    /// The socket had no SO_RCVTIMEO when so many changes, less one, had been counted; 0: not
    /// known.
    pub unlimited: AtomicU64,
    /// `tokens` plus 1, as it was when somebody slept in the kernel's own receive who then saw
    /// another token there; 0: nobody did. Where `tokens` is still that, it lies there yet.
    pub seen: AtomicU64,
}

const _: () = assert!(size_of::<Send>() == 256 && size_of::<Receive>() == 128);

/// Everything that the processes sharing a socket have in common. What a call needs that goes to
/// the kernel lies in the first cache line.
#[repr(C, align(1024))]
pub struct Slot {
    /// `SO_COOKIE`; 0: free; [`TAKEN`] and a ticket: that process fills or frees it. The first
    /// word.
    pub cookie: AtomicU64,
    /// Which process's calls are not counted in `busy_rx` and `busy_tx`: see [`crate::uncounted`].
    /// 0: none's.
    pub uncounted: AtomicU64,
    stage: AtomicU32,
    /// See [`flag`].
    pub flags: AtomicU32,
    /// See [`attention`].
    pub attention: AtomicU32,
    /// Calls inside the kernel that the shim does not bound: receives …
    pub busy_rx: AtomicU32,
    /// … and sends.
    pub busy_tx: AtomicU32,
    /// The channel's page; 0 none.
    pub channel: AtomicU32,
    /// Rendezvous entry + 1; 0 none.
    pub entry: AtomicU32,
    /// Attempts at settling.
    pub attempts: AtomicU32,
    /// Bytes received over TCP (data only).
    pub in_tcp: AtomicU64,
    /// Bytes sent over TCP (data only).
    pub out_tcp: AtomicU64,
    /// This endpoint's nonce.
    pub nonce: AtomicU64,
    /// Segment id of the channel.
    pub segment: AtomicU64,
    /// Holders: process entries + 1; 0 free.
    pub holders: [AtomicU32; 16],
    /// The tuple, packed by [`Slot::set_tuple`].
    tuple: [AtomicU64; 6],
    /// Monotonic milliseconds at which all holders were first seen dead; 0 not.
    pub dead_since: AtomicU64,
    /// Writer's side.
    pub tx: Send,
    /// Reader's side.
    pub rx: Receive,
    /// Bytes received from the ring.
    pub in_ring: AtomicU64,
    /// Bytes sent into the ring.
    pub out_ring: AtomicU64,
    /// Wake-ups sent through waiters.
    pub wakes: AtomicU64,
    /// Tokens sent.
    pub tokens: AtomicU64,
    /// Upgrades of the writing direction.
    pub upgrades: AtomicU64,
    /// Downgrades of the writing direction.
    pub downgrades: AtomicU64,
    /// How much of the counters above the processes that had the socket have reported so far, in
    /// their order.
    pub reported: [AtomicU64; 8],
    /// The program's own keepalive settings while others stand in the kernel (see [`crate::path`]);
    /// 0: the program's stand there.
    pub keepalive: AtomicU64,
    /// Its TCP_USER_TIMEOUT at such a time, milliseconds.
    pub user_timeout: AtomicU64,
    /// Monotonic milliseconds at which the path was found cut.
    pub cut_at: AtomicU64,
    /// How far the incoming ring was written then.
    pub cut_tail: AtomicU64,
    /// Counts changes of its registrations in epoll sets that several processes have.
    pub registered: AtomicU32,
    /// Counts how often programs asked for its events in such sets, each before the kernel is told.
    pub armings: AtomicU32,
    /// Edge-triggered, in a set that several processes have: up to which byte of the incoming ring
    /// one of them was told (its lower 52 bits, then 11 of the channel's number), and [`TOLD`]; 0:
    /// of none.
    pub told: AtomicU64,
    /// Which registration that is of: a number of the shim's; 0: of none, all ones: there were
    /// several.
    pub told_of: AtomicU64,
    /// Counts what programs did that is an edge of all that the connection has to report: see the
    /// shim's `sets::edge`.
    pub edges: AtomicU32,
    /// Counts the channels that it has had: positions in the rings of one mean nothing in the next.
    pub channels: AtomicU32,
    /// Counts the uses of this slot.
    pub generation: AtomicU64,
    reason: AtomicU32,
    /// Data operations so far.
    pub operations: AtomicU32,
    /// Forks under way: children that will hold it and have not said so yet.
    pub forking: AtomicU32,
    /// A channel that was left and is not given back yet: its page; the highest bit: it was seen
    /// before.
    pub left: AtomicU32,
    /// While settling: the tag that the other end is to show; 0: not known yet.
    pub expected: AtomicU64,
    /// While settling: this end's number and its share ([`crate::proof::exchange`]), little-endian.
    exchange: [AtomicU64; 8],
    /// To how many others a tag was shown who have shown no right one since.
    pub refused: AtomicU32,
    /// While settling: the other end's nonce, as it was read when this end's share was made.
    pub heard: AtomicU64,
    /// TCP is the carrier of what comes in: [`Receive::received`] (its lower 48 bits) when a
    /// receive last got less than it asked for, and above it a count of these.
    pub dry: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 1024 && std::mem::offset_of!(Slot, cookie) == 0);

/// In [`Slot::dry`]: at which byte.
pub const DRY_AT: u64 = u64::MAX >> 16;

/// In [`Slot::told`]: it says how far.
pub const TOLD: u64 = 1 << 63;

/// In [`Slot::cookie`], above the ticket of who seized it. Not in a socket's: those count up.
pub const TAKEN: u64 = 1 << 63;

impl Slot {
    /// Makes a slot with this cookie (0: a free one; with [`TAKEN`]: of a process that died) the
    /// caller's alone. The lock of a stripe does not: it may guard other sockets than those whose
    /// places are the same. `me`: this process's ticket.
    #[must_use]
    pub fn seize(&self, cookie: u64, me: u32) -> bool {
        self.cookie.compare_exchange(cookie, TAKEN | u64::from(me), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Is it a socket's?
    pub(super) fn is_in_use(&self) -> bool {
        !matches!(self.cookie.load(Ordering::Acquire), 0 | TAKEN..)
    }

    /// Clears a slot that was seized, for a socket.
    pub(super) fn clear(&self, generation: u64) {
        let words = std::ptr::from_ref(self).cast::<AtomicU64>();
        for word in 1..size_of::<Self>() / 8 {
            // SAFETY: the slot is made of atomics only, 1024 bytes, aligned.
            unsafe { &*words.add(word) }.store(0, Ordering::Relaxed);
        }
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Gives the slot back: see [`super::Ledger::free`].
    pub(super) fn free(&self) {
        self.generation.store(0, Ordering::Relaxed);
        self.dead_since.store(0, Ordering::Relaxed);
        self.cookie.store(0, Ordering::Release);
    }

    /// One fork less is under way: its child has said that it holds the socket, or there is none.
    pub fn forked(&self) {
        let _ = self.forking.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| count.checked_sub(1));
    }

    /// The kernel reported something about the socket: the next receive that finds nothing asks it,
    /// and the next send.
    pub fn heed_kernel(&self) {
        self.attention.fetch_or(attention::KERNEL | attention::READER, Ordering::SeqCst);
    }

    /// How far it has come.
    #[inline]
    pub fn stage(&self) -> Stage {
        Stage::of(self.stage.load(Ordering::Acquire))
    }

    /// Is it in rings, or may it come to be?
    #[must_use]
    pub fn may_move(&self) -> bool {
        !matches!(self.stage(), Stage::Plain | Stage::Broken | Stage::Closed)
    }

    /// Has it come so far that there is a channel, and is not beyond it?
    #[must_use]
    pub fn is_in_channel(&self) -> bool {
        matches!(self.stage(), Stage::Offered | Stage::Settling | Stage::Active)
    }

    /// Moves on.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u32, Ordering::SeqCst);
    }

    /// Moves on from `from`, unless somebody else did.
    pub fn advance(&self, from: Stage, to: Stage) -> bool {
        self.stage.compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Why it is on TCP.
    pub fn reason(&self) -> Reason {
        Reason::of(self.reason.load(Ordering::Relaxed))
    }

    /// Says why it is on TCP.
    pub fn set_reason(&self, reason: Reason) {
        self.reason.store(reason as u32, Ordering::Relaxed);
    }

    /// Stays on TCP for good.
    pub fn make_plain(&self, reason: Reason) {
        self.set_reason(reason);
        self.set_stage(Stage::Plain);
    }

    /// Is a flag set?
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// Keeps this end's part of an exchange.
    pub fn keep_exchange(&self, begun: &Begun) {
        let bytes = begun.scalar.iter().chain(&begun.share);
        let mut bytes = bytes.copied();
        for word in &self.exchange {
            let value = bytes.by_ref().take(8).enumerate().fold(0, |value, (at, byte)| value | u64::from(byte) << (8 * at));
            word.store(value, Ordering::Relaxed);
        }
    }

    /// This end's part of an exchange, which is not kept any longer.
    pub fn take_exchange(&self) -> Begun {
        let mut begun = Begun { scalar: [0; SHARE], share: [0; SHARE] };
        let pieces = begun.scalar.chunks_exact_mut(8).chain(begun.share.chunks_exact_mut(8));
        for (piece, word) in pieces.zip(&self.exchange) {
            piece.copy_from_slice(&word.swap(0, Ordering::Relaxed).to_le_bytes());
        }
        begun
    }

    /// This side's number in its channel.
    #[inline]
    pub fn side(&self) -> u8 {
        u8::from(self.has(flag::SIDE_ONE))
    }

    /// Adds a holder; `false` where there is no room.
    pub fn hold(&self, process: u32) -> bool {
        let holds = self.is_held_by(process) || self.add(process).is_some();
        self.heed_others();
        holds
    }

    fn add(&self, process: u32) -> Option<&AtomicU32> {
        self.holders.iter().find(|holder| holder.compare_exchange(0, process + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// After a process came to hold it, or found that it does: a signal handler may have left by
    /// `siglongjmp` in between.
    fn heed_others(&self) {
        // Of two who come at once, one sees the other.
        fence(Ordering::SeqCst);
        if self.holder_count() > 1 {
            self.set(flag::SEVERAL, true);
        }
    }

    /// Is this process among its holders?
    pub fn is_held_by(&self, process: u32) -> bool {
        self.holders.iter().any(|holder| holder.load(Ordering::Relaxed) == process + 1)
    }

    /// [`Self::hold`] by a process that has come to the socket with this cookie by itself. `None`:
    /// it is another's by now, or its last descriptor is being closed, as far as who closes it
    /// knew; look again.
    pub fn take_up(&self, process: u32, cookie: u64) -> Option<bool> {
        let held = self.is_held_by(process);
        let added = if held { None } else { self.add(process) };
        self.heed_others();
        // One of the two sees the other: here, and in `end` and `seize_dead`.
        fence(Ordering::SeqCst);
        if self.has(flag::ENDING) || self.cookie.load(Ordering::Acquire) != cookie {
            // Only what was put there now: another thread may have taken it up for the socket that
            // it is by now.
            if let Some(place) = added {
                let _ = place.compare_exchange(process + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
            return None;
        }
        Some(held || added.is_some())
    }

    /// Nobody holds it any more: from here on nobody takes it up, and `process`, which ends it,
    /// holds it so that nobody takes it for a dead one's. False where somebody has taken it up, or
    /// ends it too.
    #[must_use]
    pub fn end(&self, processes: &Processes, process: u32, cookie: u64) -> bool {
        for _ in 0..200 {
            if self.flags.fetch_or(flag::ENDING, Ordering::SeqCst) & flag::ENDING == 0 {
                self.dead_since.store(0, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let ends = self.cookie.load(Ordering::Acquire) == cookie
                    && !self.is_held(processes)
                    && self.forking.load(Ordering::SeqCst) == 0;
                if ends {
                    self.purge(processes);
                    self.hold(process);
                } else {
                    self.set(flag::ENDING, false);
                }
                return ends;
            }
            // Somebody ends it, and holds it in a moment; or sees in a moment that somebody held it
            // just now, and would have been too late.
            if self.is_held(processes) || self.cookie.load(Ordering::Acquire) != cookie {
                break;
            }
            sys::sleep_ms(1);
        }
        false
    }

    /// Takes a slot with this cookie whose holders have been seen dead for burial: nobody takes it
    /// up from here on. False where somebody has, or buries it too. `me`: this process's ticket.
    #[must_use]
    pub fn seize_dead(&self, processes: &Processes, cookie: u64, me: u32) -> bool {
        let ended = self.flags.fetch_or(flag::ENDING, Ordering::SeqCst) & flag::ENDING != 0;
        fence(Ordering::SeqCst);
        let seized = !self.is_held(processes) && self.seize(cookie, me);
        if !seized {
            self.dead_since.store(0, Ordering::Relaxed);
            if !ended {
                self.set(flag::ENDING, false);
            }
        }
        seized
    }

    /// Does any of its holders live?
    pub fn is_held(&self, processes: &Processes) -> bool {
        let held = |holder: &AtomicU32| {
            let seen = holder.load(Ordering::Acquire);
            seen != 0 && processes.alive(seen - 1)
        };
        self.holders.iter().any(held)
    }

    /// Takes holders off that are dead.
    pub fn purge(&self, processes: &Processes) {
        for holder in &self.holders {
            let seen = holder.load(Ordering::Acquire);
            if seen != 0 && !processes.alive(seen - 1) {
                let _ = holder.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Takes a holder off; returns how many remain.
    pub fn let_go(&self, process: u32) -> usize {
        for holder in &self.holders {
            let _ = holder.compare_exchange(process + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.holder_count()
    }

    /// How many processes hold it.
    pub fn holder_count(&self) -> usize {
        self.holders.iter().filter(|holder| holder.load(Ordering::Acquire) != 0).count()
    }

    /// Do several processes hold it? Cheap where that never was so.
    #[must_use]
    #[inline]
    pub fn has_several_holders(&self) -> bool {
        self.has(flag::SEVERAL) && self.holder_count() > 1
    }

    /// Has one process it, and no other is about to have it? False where that is not known. A fork
    /// that begins afterwards is another matter.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        // In this order: a child says that it holds the socket, and then that it is forked no more.
        // Asked the other way round it might not be there yet, and not be under way any more.
        self.forking.load(Ordering::SeqCst) == 0 && self.holder_count() < 2 && !self.has(flag::SPAWNED)
    }

    /// Remembers the tuple.
    pub fn set_tuple(&self, tuple: &Tuple) {
        for (place, word) in self.tuple.iter().zip(tuple.words()) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// The tuple that was remembered; all zeroes before.
    pub fn tuple(&self) -> Tuple {
        let word = |i: usize| self.tuple.get(i).map_or(0, |word| word.load(Ordering::Relaxed));
        let address = |high: u64, low: u64| (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Tuple {
            label: word(0),
            local: address(word(1), word(2)),
            remote: address(word(3), word(4)),
            local_port: (word(5) >> 16) as u16,
            remote_port: word(5) as u16,
        }
    }

    /// Adds to a counter that only one thread at a time writes (under the direction's lock), or one
    /// that need not be exact where several do: cheaper than an atomic addition.
    #[inline]
    pub fn count(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn reasons_round_trip() {
        for value in 0..29 {
            assert_eq!(Reason::of(value) as u32, value);
        }
        assert_eq!(Reason::of(99), Reason::None);
    }

    /// A child that is made, says that it holds the socket, and lets go of it: at no time between
    /// the first and the last of these is the parent alone, however long the look takes.
    #[test]
    fn a_child_on_its_way_is_never_overlooked() {
        let (slot, phase, over) = (zeroed(), AtomicU64::new(0), AtomicBool::new(false));
        assert!(slot.hold(0) && slot.is_alone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..300_000 {
                    slot.forking.fetch_add(1, Ordering::SeqCst);
                    phase.fetch_add(1, Ordering::SeqCst);
                    slot.hold(1);
                    slot.forked();
                    std::hint::spin_loop();
                    phase.fetch_add(1, Ordering::SeqCst);
                    slot.let_go(1);
                }
                over.store(true, Ordering::SeqCst);
            });
            while !over.load(Ordering::SeqCst) {
                let before = phase.load(Ordering::SeqCst);
                let alone = slot.is_alone();
                if before % 2 == 1 && phase.load(Ordering::SeqCst) == before {
                    assert!(!alone, "a child has it");
                }
            }
        });
    }

    fn zeroed() -> Slot {
        // SAFETY: all of it are atomics, for which zeroes are valid.
        unsafe { std::mem::zeroed() }
    }
}
