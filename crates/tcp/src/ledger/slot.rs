//! One socket's slot in the ledger.

use super::{Reason, Receive, Send, Stage, attention, flag};
use crate::proof::exchange::{Begun, SHARE};
use crate::tuple::Tuple;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
    /// Holders: process entries + 1, and whether they are about to find out; 0 free. See
    /// [`super::holders`].
    pub(super) holders: [AtomicU32; 16],
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
        self.cookie
            .compare_exchange(cookie, TAKEN | u64::from(me), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
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
        let _ = self
            .forking
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| count.checked_sub(1));
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
        self.stage
            .compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
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
            let value = bytes
                .by_ref()
                .take(8)
                .enumerate()
                .fold(0, |value, (at, byte)| value | u64::from(byte) << (8 * at));
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

    /// Remembers the tuple.
    pub fn set_tuple(&self, tuple: &Tuple) {
        for (place, word) in self.tuple.iter().zip(tuple.words()) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// The tuple that was remembered; all zeroes before.
    pub fn tuple(&self) -> Tuple {
        let word = |i: usize| self.tuple.get(i).map_or(0, |word| word.load(Ordering::Relaxed));
        let address =
            |high: u64, low: u64| (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
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
