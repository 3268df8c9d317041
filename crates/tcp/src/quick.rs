//! The usual send and receive: a small piece into a ring that has room for it, or out of one that
//! holds some, while nothing else is to be done. Whatever is not as usual is left to
//! [`Endpoint::put`] and [`Endpoint::take`], which do the same and everything else; nothing is done
//! here that they would not do.

use crate::endpoint::Endpoint;
use crate::layout::{Direction, GATE_HOLD};
use crate::ledger::{Slot, Stage, attention, flag};
use crate::{growth, kernel};
use ginnel_node::processes::Held;
use ginnel_ring::park::{self, Want};
use ginnel_ring::span::Span;
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Pieces up to this are small, bytes.
pub const SMALL: usize = 16 << 10;

/// Room in the ring, under the send lock.
struct Room<'a> {
    endpoint: Endpoint<'a>,
    /// The endpoint's: found once, as after each lock and each acquire the compiler would have it
    /// looked up anew.
    slot: &'a Slot,
    direction: Direction<'a>,
    span: Span,
    tail: u64,
    _held: Held<'a>,
}

impl Room<'_> {
    /// Publishes the first `n` bytes of it.
    #[inline(always)]
    fn publish(self, n: usize) {
        let tail = self.tail.wrapping_add(n as u64);
        self.endpoint.publish_tail(&self.slot.tx, self.direction, tail);
        Slot::count(&self.slot.out_ring, n as u64);
    }
}

impl<'a> Endpoint<'a> {
    /// Puts all of `pieces`, `n` bytes, into the ring. False, and nothing done, where that is not
    /// the usual case. Only in [`crate::ledger::Stage::Active`].
    ///
    /// # Safety
    /// The pieces are readable memory, `n` bytes together.
    #[inline]
    #[must_use]
    pub unsafe fn put_quick(self, pieces: &[iovec], n: usize) -> bool {
        let Some(room) = self.room_quick(n) else { return false };
        let mut left = n;
        for piece in pieces {
            // Read once: another thread of the program may change it.
            let (from, len) = (piece.iov_base.cast::<u8>(), piece.iov_len.min(left));
            if len != 0 {
                // SAFETY: the caller's promise; `n` bytes are free here.
                unsafe { room.span.copy_in(room.tail.wrapping_add((n - left) as u64), from, len) };
                left -= len;
            }
        }
        if left == 0 {
            room.publish(n);
        }
        left == 0
    }

    /// Reads up to `n` bytes of `file`, at most [`SMALL`], at `position` into the ring, without a
    /// copy on the way. 0, and nothing done, where that is not the usual case: for what a device
    /// must be waited for, too, as the lock is held. Only in [`crate::ledger::Stage::Active`].
    #[inline]
    #[must_use]
    pub fn put_file_quick(self, file: c_int, position: i64, n: usize) -> usize {
        let n = n.min(SMALL);
        let Some(room) = self.room_quick(n) else { return 0 };
        let (at, first) = room.span.piece(room.tail, n as u64);
        let (again, rest) =
            room.span.piece(room.tail.wrapping_add(first as u64), (n - first) as u64);
        let pieces = [
            iovec { iov_base: at.cast(), iov_len: first },
            iovec { iov_base: again.cast(), iov_len: rest },
        ];
        // SAFETY: so many bytes are free here.
        let got =
            unsafe { kernel::read_cached(file, &pieces, position) }.map_or(0, |got| got.min(n));
        if got != 0 {
            room.publish(got);
        }
        got
    }

    /// Room for `n` bytes, in the usual case.
    #[inline(always)]
    fn room_quick(self, n: usize) -> Option<Room<'a>> {
        let slot = self.slot();
        let tx = &slot.tx;
        if n == 0 || n > SMALL || self.attachment.settings.chaos.is_some() {
            return None;
        }
        let held = tx.lock.try_lock(self.ticket())?;
        let direction = self.channel_of(slot).direction(slot.side());
        let (epoch, tail, size, start) = (
            tx.epoch.load(Relaxed),
            tx.tail.load(Relaxed),
            tx.ring_size.load(Relaxed),
            tx.ring_start.load(Relaxed),
        );
        let quiet = epoch & 1 == 1
            && slot.flags.load(Relaxed) & (flag::TX_SHUT | flag::HOLD | flag::CUT | flag::SHARED)
                == 0
            && slot.attention.load(Relaxed)
                & (attention::TOKEN_OWED | attention::RESEND | attention::READER)
                == 0
            && direction.gate().load(Acquire) & GATE_HOLD == 0
            && direction.freeze_epoch().load(Relaxed) != epoch
            && direction.want_data().load(Relaxed) != Want::Closed.word()
            && slot.stage() == Stage::Active;
        // The reader's place when it was last looked at (checked then), or the ring's beginning,
        // whichever is later: both lie at or before the tail.
        let used = tail.wrapping_sub(tx.head_seen.load(Relaxed)).min(tail.wrapping_sub(start));
        if !quiet || used > size || (n as u64) > size - used || growth::is_busy(tx, n as u64) {
            return None;
        }
        let span = self.ring(start, tx.ring_offset.load(Relaxed), size).ok()?;
        Some(Room { endpoint: self, slot, direction, span, tail, _held: held })
    }

    /// Takes up to `n` bytes out of the ring. 0 where that is not the usual case. Only in
    /// [`crate::ledger::Stage::Active`].
    ///
    /// # Safety
    /// `to` is writable for `n` bytes.
    #[inline]
    #[must_use]
    pub unsafe fn take_quick(self, to: *mut u8, n: usize) -> usize {
        let slot = self.slot();
        let rx = &slot.rx;
        let incoming = || self.channel_of(slot).direction(1 - slot.side());
        if incoming().tail().load(Acquire) == rx.head.load(Relaxed) {
            return 0;
        }
        let (len, wake);
        {
            let Some(_held) = rx.lock.try_lock(self.ticket()) else { return 0 };
            // Before the lock was taken it may have been another.
            let direction = incoming();
            let (head, phase, size) =
                (rx.head.load(Relaxed), rx.phase.load(Relaxed), rx.ring_size.load(Relaxed));
            // Copied once, checked, and the copy used. `tail` before `epoch`: an epoch that is this
            // phase's covers the bytes before it.
            let available = direction.tail().load(Acquire).wrapping_sub(head);
            let quiet = phase & 1 == 1
                && direction.epoch().load(Acquire) == phase
                && direction.grown().load(Acquire) == rx.grown.load(Relaxed)
                && rx.frozen.load(Relaxed) == 0
                && direction.wish().load(Relaxed) != phase
                && slot.stage() == Stage::Active
                && slot.flags.load(Relaxed) & flag::SHARED == 0;
            len = (n as u64).min(available);
            if !quiet || available > size || len > SMALL as u64 || len == 0 {
                return 0;
            }
            let Ok(span) =
                self.ring(rx.ring_start.load(Relaxed), rx.ring_offset.load(Relaxed), size)
            else {
                return 0;
            };
            // SAFETY: `len` ≤ `n` bytes are writable at `to`.
            unsafe { span.copy_out(head, to, len as usize) };
            let head = head.wrapping_add(len);
            rx.head.store(head, Relaxed);
            Slot::count(&slot.in_ring, len);
            wake = park::publish_and_look(direction.head(), head, direction.want_space());
        }
        if wake {
            self.grant_space();
        }
        len as usize
    }
}
