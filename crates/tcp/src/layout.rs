//! Where every shared word of a channel lies. Offsets in bytes from the channel's page; 64 bytes
//! are a cache line.
//!
//! Side 0 created the channel, side 1 joined it. Direction 0 carries side 0's bytes to side 1,
//! direction 1 the other way: a side's writing direction has its own number.
//!
//! | offset | bytes | what | written by |
//! |---|---|---|---|
//! | 0x000 | 8 | magic | creator |
//! | 0x008 | 8 | which sides have released it (bits 0, 1); which meant to reset (bits 8, 9); which ended their stream (bits 10, 11); which left it for TCP (bits 12, 13); which receive no more (bits 14, 15); a side died (bit 16) | both |
//! | 0x010 | 2 × 8 | owner of each side: member << 32 \| ledger slot | each its own |
//! | 0x020 | 2 × 8 | generation of that slot | each its own |
//! | 0x030 | 2 × 8 | nonce of each side | creator (both) |
//! | 0x040 | 2 × 8 | echo: the other side's nonce, repeated | each its own |
//! | 0x050 | 2 × 8 | agreed: 1 once this side saw that both count the same bytes | each its own |
//! | 0x060 | 2 × 8 | service waiter: page of the side's service thread's waiter, 0 none | each its own |
//! | 0x070 | 2 × 8 | pausing: 1 while this side holds back its stream so that the other can catch up | each its own |
//! | 0x080 | 2 × 8 | proof: this side's tag, that it holds its end of the connection ([`crate::proof`]), 0 none yet | each its own |
//! | 0x090 | 2 × 8 | shown: 1 once this side's share is there | each its own |
//! | 0x0a0 | 2 × 32 | share of each side, before its tag | each its own |
//! | 0x100 | 2 × 64 | snapshot of each side: sequence, sent, arrived, scales | each its own |
//! | 0x200 | 512 | direction 0 | |
//! | 0x400 | 512 | direction 1 | |
//!
//! In a direction:
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0x000 | writer's line: `tail`, `epoch` (u64), `grown` (u64), cpu, four stamps | writer |
//! | 0x040 | writer's records: `up` {epoch, tcp, ring}, `down` {epoch, tcp, ring}, `eof` (`u64::MAX`: none) | writer |
//! | 0x080 | rings: two of {start, offset, size}, the current one at `grown & 1` | writer |
//! | 0x0c0 | `want_space`; 0x0c8 `wish`, 0x0d0 `mute`, 0x0d8 `sent`, 0x0e0 `sends` | writer arms, reader claims; writer |
//! | 0x100 | reader's line: `head`, cpu | reader |
//! | 0x140 | reader's wishes: `want_data`, `ack`, `freeze` {epoch, ring}, `gate`, `grown_ack`, `received`, `ordered` | reader (writer claims `want_data`, sets TAKEN in `gate`) |

mod words;

use ginnel_region::{Segment, Untrusted};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use words::{Words, side_words, words};

/// First word of a channel's page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GINCHAN1");
/// In `gate`: the direction is upgraded, or about to be. Set and cleared by the writer.
pub const GATE_TAKEN: u64 = 1;
/// In `gate`: no upgrade, please. Set and cleared by the reader.
pub const GATE_HOLD: u64 = 2;
/// In `gate`, beside [`GATE_HOLD`]: only because the reader found TCP's path cut. Set and cleared
/// by the reader.
pub const GATE_CUT: u64 = 4;
/// No end-of-file yet.
pub const NO_EOF: u64 = u64::MAX;
/// In [`Direction::sends`]: others may send who count nothing.
pub const UNCOUNTED: u64 = u64::MAX;
/// In [`Channel::released`], of side 0, the next bit of side 1: it resets the connection …
const RESET: u64 = 0x100;
/// … or ended its stream.
const ENDED: u64 = 0x400;

/// How many publications a writer stamps until the reader has taken them.
pub(crate) const STAMPS: usize = 4;

/// Words of a channel's page that mean anything: its head and two directions.
pub const COPIED: usize = 0x600 / 8;

/// A channel in a segment: its page, seen from one process.
#[derive(Clone, Copy)]
pub struct Channel<'a> {
    words: Words<'a>,
    page: u32,
}

/// One direction of a channel.
#[derive(Clone, Copy)]
pub struct Direction<'a> {
    words: Words<'a>,
}

/// Where a switch happens, in all three counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Number of the switch.
    pub epoch: u64,
    /// Bytes sent over TCP before it, tokens included.
    pub tcp: u64,
    /// Bytes put into the ring before it.
    pub ring: u64,
}

impl<'a> Channel<'a> {
    /// The channel whose page is `page`.
    #[must_use]
    #[inline]
    pub fn at(segment: &'a Segment, page: u32) -> Self {
        Self { words: Words { first: segment.page(page).cast(), segment: PhantomData }, page }
    }

    /// The same over a copy of a channel's page, for one who looks on.
    #[must_use]
    pub fn in_copy(copy: &'a [AtomicU64; COPIED]) -> Self {
        Self { words: Words { first: copy.as_ptr(), segment: PhantomData }, page: 0 }
    }

    /// A page that is nobody's channel: for an endpoint that has none, or has just left it. What is
    /// written there says nothing.
    #[must_use]
    pub fn nowhere() -> Self {
        static NOWHERE: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];
        Self { words: Words { first: NOWHERE.as_ptr(), segment: PhantomData }, page: 0 }
    }

    /// Remembers that `side` left the channel: both directions are on TCP, and stay there.
    pub fn leave(self, side: u8) {
        self.released().fetch_or(0x1000 << (side & 1), Ordering::SeqCst);
    }

    /// See [`Self::leave`].
    #[must_use]
    pub fn was_left(self, side: u8) -> bool {
        self.released().load(Ordering::Acquire) & 0x1000 << (side & 1) != 0
    }

    /// Remembers that `side` ended its stream by itself: shut down or closed, while its process
    /// lived.
    pub fn end(self, side: u8) {
        self.released().fetch_or(ENDED << (side & 1), Ordering::AcqRel);
    }

    /// See [`Self::end`].
    #[must_use]
    pub fn has_ended(self, side: u8) -> bool {
        self.released().load(Ordering::Acquire) & ENDED << (side & 1) != 0
    }

    /// Remembers that `side` receives no more: its kernel answers what comes over TCP with RST.
    pub fn shut(self, side: u8) {
        self.released().fetch_or(0x4000 << (side & 1), Ordering::AcqRel);
    }

    /// See [`Self::shut`].
    #[must_use]
    pub fn is_shut(self, side: u8) -> bool {
        self.released().load(Ordering::Acquire) & 0x4000 << (side & 1) != 0
    }

    /// The channel's page number, which tags everything that belongs to it.
    #[must_use]
    pub fn page(self) -> u32 {
        self.page
    }

    /// The direction that `side` writes.
    #[must_use]
    #[inline]
    pub fn direction(self, side: u8) -> Direction<'a> {
        // SAFETY: the page's second and third 512 bytes.
        let first = unsafe { self.words.first.byte_add(0x200 + usize::from(side & 1) * 0x200) };
        Direction { words: Words { first, segment: PhantomData } }
    }

    /// Remembers that `side` ends the connection by a reset, and means it: what the other end's
    /// kernel tells then is not the end of the stream.
    pub fn reset(self, side: u8) {
        self.released().fetch_or(RESET << (side & 1), Ordering::SeqCst);
    }

    /// See [`Self::reset`].
    #[must_use]
    #[inline]
    pub fn was_reset(self, side: u8) -> bool {
        self.released().load(Ordering::Acquire) & RESET << (side & 1) != 0
    }

    /// Has `side` said that it is at an end, in whatever way: its direction, its stream, or the
    /// connection by a reset?
    #[must_use]
    #[inline]
    pub fn says_end(self, side: u8) -> bool {
        let said = (RESET | ENDED) << (side & 1);
        self.direction(side).eof().load(Ordering::Acquire) != NO_EOF
            || self.released().load(Ordering::Acquire) & said != 0
    }

    /// Bytes that the rings carried, both ways: what the writers published, unchecked.
    #[must_use]
    pub fn carried(self) -> u64 {
        self.direction(0)
            .tail()
            .load(Ordering::Relaxed)
            .wrapping_add(self.direction(1).tail().load(Ordering::Relaxed))
    }

    words! {
        /// [`MAGIC`].
        magic = 0x000;
        /// Bit per side that has let go.
        released = 0x008;
    }
    side_words! {
        /// Member and ledger slot of a side.
        owner = 0x010, 8;
        /// Generation of that slot.
        generation = 0x020, 8;
        /// A side's nonce.
        nonce = 0x030, 8;
        /// The other side's nonce, repeated.
        echo = 0x040, 8;
        /// 1 once a side saw that both count the same bytes.
        agreed = 0x050, 8;
        /// Page of a side's service waiter.
        service = 0x060, 8;
        /// 1 while a side writes nothing, so that the other can catch up.
        pausing = 0x070, 8;
        /// A side's tag: that it holds its end of the connection ([`crate::proof`]); 0 none.
        proof = 0x080, 8;
        /// 1 once a side's share is there.
        shown = 0x090, 8;
        /// Sequence of a side's snapshot: odd while it is written.
        snapshot_sequence = 0x100, 64;
        /// Bytes that a side sent over TCP.
        snapshot_sent = 0x108, 64;
        /// Bytes that arrived at a side over TCP.
        snapshot_arrived = 0x110, 64;
        /// A side's window scales: own << 8 | other's.
        snapshot_scales = 0x118, 64;
    }
}

impl Channel<'_> {
    const SHARES: usize = 0x0a0;

    /// Shows the share of `side`.
    pub fn set_share(self, side: u8, share: &[u8; 32]) {
        for (at, piece) in (0..).step_by(8).zip(share.chunks_exact(8)) {
            let word = piece.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            // SAFETY: 32 bytes from 0x0a0 or 0x0c0 on lie in the head's 512.
            unsafe { self.words.at(Self::SHARES + usize::from(side & 1) * 32 + at) }
                .store(word, Ordering::Relaxed);
        }
        self.shown(side).store(1, Ordering::Release);
    }

    /// The share of `side`, copied; `None` where it shows none. What a peer wrote, unchecked.
    #[must_use]
    pub fn share(self, side: u8) -> Option<[u8; 32]> {
        if self.shown(side).load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut share = [0u8; 32];
        for (at, piece) in (0..).step_by(8).zip(share.chunks_exact_mut(8)) {
            // SAFETY: as above.
            let word = unsafe { self.words.at(Self::SHARES + usize::from(side & 1) * 32 + at) }
                .load(Ordering::Relaxed);
            piece.copy_from_slice(&word.to_le_bytes());
        }
        Some(share)
    }
}

impl<'a> Direction<'a> {
    /// Does the reader ask for TCP?
    #[must_use]
    #[inline]
    pub fn held(self) -> bool {
        self.gate().load(Ordering::Acquire) & GATE_HOLD != 0
    }

    /// Did the reader find TCP's path cut?
    #[must_use]
    pub fn cut(self) -> bool {
        self.gate().load(Ordering::Acquire) & GATE_CUT != 0
    }

    /// Does the reader ask for TCP, whether the writer has anything to send or not?
    #[must_use]
    pub fn asked_back(self) -> bool {
        self.gate().load(Ordering::Acquire) & (GATE_HOLD | GATE_CUT) == GATE_HOLD
    }

    words! {
        /// Ring offset after the last published byte.
        tail = 0x000;
        /// Number of switches.
        epoch = 0x008;
        /// How often the ring was replaced by another size.
        grown = 0x010;
        /// Processor on which the writer last published.
        writer_cpu = 0x018;
        /// End of the ring part, once there is one.
        eof = 0x070;
        /// How the writer wants to be woken when there is room.
        want_space = 0x0c0;
        /// The ring phase that the writer asks the reader to freeze: it would go back to TCP
        /// without leaving unread bytes in the ring.
        wish = 0x0c8;
        /// Not zero: this direction's writer cannot ring the other end's waiters (no descriptor
        /// left, another user's FIFOs): tokens, please.
        mute = 0x0d0;
        /// TCP offset up to which the writer has given bytes to its kernel.
        sent = 0x0d8;
        /// TCP offset up to which its kernel may have bytes: said before each call that gives it
        /// some, and after one that gave it fewer; or [`UNCOUNTED`].
        sends = 0x0e0;
        /// Ring offset up to which the reader has consumed.
        head = 0x100;
        /// Processor on which the reader last consumed.
        reader_cpu = 0x108;
        /// How the reader wants to be woken when there is data.
        want_data = 0x140;
        /// The last switch that the reader entered.
        ack = 0x148;
        /// Which ring phase the reader froze.
        freeze_epoch = 0x150;
        /// Where.
        freeze_ring = 0x158;
        /// [`GATE_TAKEN`], [`GATE_HOLD`] and [`GATE_CUT`].
        gate = 0x160;
        /// The last ring that the reader moved to.
        grown_ack = 0x168;
        /// TCP offset up to which the reader has taken what came over TCP. Kept while TCP is the
        /// carrier.
        received = 0x170;
        /// Not zero: the reader asks for stamps.
        ordered = 0x178;
    }

    /// When bytes were published: [`STAMPS`] words of the writer's line, see [`crate::order`].
    #[inline]
    pub(crate) fn stamps(self) -> [&'a AtomicU64; STAMPS] {
        const { assert!(0x020 + STAMPS * 8 <= 0x040) };
        // SAFETY: they lie inside the direction's 512 bytes.
        core::array::from_fn(|i| unsafe { self.words.at(0x020 + i * 8) })
    }

    fn record(self, at: usize) -> Record {
        debug_assert!(at + 24 <= 0x200);
        // SAFETY: the records lie inside the direction's 512 bytes.
        let word = |i: usize| unsafe { self.words.at(at + i * 8) }.load(Ordering::Relaxed);
        Record { epoch: word(0), tcp: word(1), ring: word(2) }
    }

    fn set_record(self, at: usize, record: Record) {
        debug_assert!(at + 24 <= 0x200);
        for (i, value) in [record.epoch, record.tcp, record.ring].into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.words.at(at + i * 8) }.store(value, Ordering::Relaxed);
        }
    }

    /// The record of switch `epoch`: an upgrade if odd. What a peer wrote, unchecked.
    pub fn switch(self, epoch: u64) -> Untrusted<Record> {
        Untrusted::new(self.record(if epoch & 1 == 1 { 0x040 } else { 0x058 }))
    }

    /// Writes the record of a switch. Made visible by storing `epoch` with Release.
    pub fn set_switch(self, record: Record) {
        self.set_record(if record.epoch & 1 == 1 { 0x040 } else { 0x058 }, record);
    }

    /// (start, offset, size) of ring number `grown`. What a peer wrote, unchecked.
    pub fn ring(self, grown: u64) -> (Untrusted<u64>, Untrusted<u64>, Untrusted<u64>) {
        let record = self.record(0x080 + usize::from(grown & 1 == 1) * 24);
        (Untrusted::new(record.epoch), Untrusted::new(record.tcp), Untrusted::new(record.ring))
    }

    /// Describes ring number `grown`: positions from `start` on lie in `size` bytes at `offset` of
    /// the segment.
    pub fn set_ring(self, grown: u64, start: u64, offset: u64, size: u64) {
        self.set_record(
            0x080 + usize::from(grown & 1 == 1) * 24,
            Record { epoch: start, tcp: offset, ring: size },
        );
    }
}

const RECORD: u64 = 24;
const _: () = assert!(0x058 + RECORD == 0x070 && 0x080 + 2 * RECORD <= 0x0c0);
