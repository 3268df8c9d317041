//! The two directions of a slot: what the writer keeps of one, and the reader of the other.

use crate::layout::STAMPS;
use ginnel_node::processes::Lock;
use std::sync::atomic::AtomicU64;

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
