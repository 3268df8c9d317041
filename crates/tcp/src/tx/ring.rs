//! Into the ring: room, copies and their publication.

use super::Put;
use crate::endpoint::Endpoint;
use crate::growth;
use crate::layout::Direction;
use crate::ledger::{self, Slot, flag};
use crate::order;
use ginnel_region::{Corrupt, Untrusted};
use ginnel_ring::park::{self, Want};
use ginnel_ring::span::{self, Span};
use libc::iovec;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Bytes copied between two publications of a large write: both sides work at once.
const PIECE: u64 = 16 << 10;

impl<'a> Endpoint<'a> {
    /// Bytes in the ring that the reader has not taken.
    pub(crate) fn unread(self) -> u64 {
        let tx = &self.slot().tx;
        let head = later(self.outgoing().head().load(Acquire), tx.begun.load(Relaxed));
        tx.tail.load(Relaxed).wrapping_sub(head)
    }

    /// The ring that holds `position`, and where that ring's positions end.
    ///
    /// # Errors
    /// [`Corrupt`] where the slot names a place that is not in the segment.
    pub(super) fn span_at(self, position: u64) -> Result<(Span, u64), Corrupt> {
        let tx = &self.slot().tx;
        let (start, old_size) = (tx.ring_start.load(Relaxed), tx.old_size.load(Relaxed));
        if old_size != 0 && start.wrapping_sub(position).wrapping_sub(1) < old_size {
            return Ok((
                self.ring(tx.old_start.load(Relaxed), tx.old_offset.load(Relaxed), old_size)?,
                start,
            ));
        }
        let span = self.ring(start, tx.ring_offset.load(Relaxed), tx.ring_size.load(Relaxed))?;
        Ok((span, position.wrapping_add(1 << 40)))
    }

    /// Free bytes in the ring. Looks at the reader's head only where what is known of it is not
    /// enough for `wanted`.
    #[inline]
    pub(super) fn room(self, direction: Direction<'_>, wanted: u64) -> Result<u64, Corrupt> {
        let tx = &self.slot().tx;
        let room = self.known_room()?;
        if room >= wanted.min(tx.ring_size.load(Relaxed)) {
            return Ok(room);
        }
        let (room, head) = self.look_for_room(direction)?;
        tx.head_seen.store(head, Relaxed);
        Ok(room)
    }

    /// Free bytes in the ring, going by what was last seen of the reader: there are no fewer.
    #[inline]
    pub(super) fn known_room(self) -> Result<u64, Corrupt> {
        let tx = &self.slot().tx;
        let (tail, size, start) =
            (tx.tail.load(Relaxed), tx.ring_size.load(Relaxed), tx.ring_start.load(Relaxed));
        span::free(tail, Untrusted::new(later(tx.head_seen.load(Relaxed), start)), size)
    }

    /// Room in the ring, and how far the reader has come, going by what it says now.
    pub(super) fn look_for_room(self, direction: Direction<'_>) -> Result<(u64, u64), Corrupt> {
        let tx = &self.slot().tx;
        let (tail, size, start) =
            (tx.tail.load(Relaxed), tx.ring_size.load(Relaxed), tx.ring_start.load(Relaxed));
        let known = tx.head_seen.load(Relaxed);
        let begun = later(start, tx.begun.load(Relaxed));
        // Acquire pairs with the reader's Release of `head`: it has copied the bytes before.
        let head = direction.head().load(Acquire);
        if (head.wrapping_sub(begun) as i64) < 0 {
            // Not entered yet, or still in the ring before.
            return Ok((span::free(tail, Untrusted::new(later(begun, known)), size)?, known));
        }
        // Never behind what was seen before: the same question asked twice has one answer.
        let moved = Untrusted::new(later(head, known)).ahead_of(known, tail.wrapping_sub(known))?;
        let head = known.wrapping_add(moved);
        Ok((span::free(tail, Untrusted::new(later(head, start)), size)?, head))
    }

    /// # Safety
    /// The iovecs describe readable memory.
    #[inline]
    pub(super) unsafe fn put_in_ring(self, iov: &[iovec]) -> Result<Put, Corrupt> {
        let slot = self.slot();
        let direction = self.outgoing();
        let total = iov.iter().map(|piece| piece.iov_len as u64).sum::<u64>();
        let mut room = self.room(direction, total)?;
        if room < total && self.grow_as_full(direction)
            || growth::is_busy(&slot.tx, total) && self.grow_as_busy(direction)
        {
            room = self.room(direction, total)?;
        }
        if room == 0 && total != 0 {
            return Ok(Put::RingFull);
        }
        let tx = &slot.tx;
        let span = self.ring(
            tx.ring_start.load(Relaxed),
            tx.ring_offset.load(Relaxed),
            tx.ring_size.load(Relaxed),
        )?;
        let mut tail = slot.tx.tail.load(Relaxed);
        let mut taken = 0u64;
        let mut unpublished = 0u64;
        'all: for piece in iov {
            let mut done = 0u64;
            while done < piece.iov_len as u64 {
                if room == 0 {
                    self.publish_tail(&slot.tx, direction, tail);
                    unpublished = 0;
                    room = self.room(direction, 1)?;
                    // A write may be as long as it likes, and the reader as fast: somebody may ask
                    // for TCP meanwhile.
                    if room == 0 || direction.held() || slot.has(flag::CUT) {
                        break 'all;
                    }
                }
                let n = (piece.iov_len as u64 - done).min(room).min(PIECE - unpublished);
                // SAFETY: `n` bytes are readable in this piece.
                unsafe {
                    span.copy_in(tail, piece.iov_base.cast::<u8>().add(done as usize), n as usize)
                };
                tail = tail.wrapping_add(n);
                done += n;
                taken += n;
                room -= n;
                unpublished += n;
                if unpublished == PIECE {
                    self.publish_tail(&slot.tx, direction, tail);
                    unpublished = 0;
                }
            }
        }
        if unpublished != 0 {
            self.publish_tail(&slot.tx, direction, tail);
        }
        Slot::count(&slot.out_ring, taken);
        if taken == 0 && total != 0 { Ok(Put::RingFull) } else { Ok(Put::Bytes(taken as usize)) }
    }

    /// Publishes bytes up to `tail`, and wakes the reader. Under the send lock; `tx` is this
    /// endpoint's.
    #[inline(always)]
    pub(crate) fn publish_tail(self, tx: &ledger::Send, direction: Direction<'_>, tail: u64) {
        let before = tx.tail.load(Relaxed);
        tx.tail.store(tail, Relaxed);
        let renew = order::note(tx, direction, before);
        let want = park::publish(direction.tail(), tail, direction.want_data());
        if renew {
            order::renew(tx, direction, tail);
        }
        if !matches!(want, Want::Nothing | Want::Closed | Want::Promised(_)) {
            self.grant(want);
        }
    }
}

/// The later of two ring positions that lie near each other.
#[inline]
fn later(a: u64, b: u64) -> u64 {
    if (a.wrapping_sub(b) as i64) < 0 { b } else { a }
}
