//! From three numbers of a slot to a ring's memory.
//!
//! Start, offset and size of a ring lie in the ledger, which other processes write: those of the
//! same user, and before they gave it up some that are another's by now. So the numbers are checked
//! against the segment's own base and length each time that memory is reached through them, not
//! only when they are stored.

use crate::endpoint::Endpoint;
use ginnel_region::Corrupt;
use ginnel_ring::span::Span;

/// The largest ring, bytes.
pub(crate) const LARGEST: u64 = 1 << 26;

impl Endpoint<'_> {
    /// Returns the ring of `size` bytes at `offset`, whose first position is `start`.
    ///
    /// # Errors
    /// [`Corrupt`] where that is not inside the segment.
    #[inline(always)]
    pub(crate) fn ring(self, start: u64, offset: u64, size: u64) -> Result<Span, Corrupt> {
        let base = self.joined().segment.ring(offset, size)?;
        // SAFETY: `ring` found all of it inside the segment's map, which stays (zeroes take its
        // place after a leave), and the size a power of two.
        Ok(unsafe { Span::new(base, size, start) })
    }
}

#[cfg(test)]
mod tests {
    use crate::attach::tests::attached;
    use crate::ledger::attention;
    use crate::rx::{Sink, Take};
    use crate::settle::tests::active_end;
    use crate::tx::Put;
    use libc::iovec;
    use std::sync::atomic::Ordering::Relaxed;

    /// Values at the edges of what a ring's place may be.
    const EDGES: [u64; 14] = [
        0,
        1,
        7,
        4095,
        4096,
        (16 << 20) - 4096,
        16 << 20,
        (16 << 20) + 4096,
        1 << 26,
        1 << 40,
        1 << 62,
        1 << 63,
        u64::MAX - 4095,
        u64::MAX,
    ];

    #[test]
    fn a_ring_is_inside_the_segment_or_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let (end, segment) = (active_end(&attachment), &attachment.node.joined().segment);
        for offset in EDGES {
            for size in EDGES {
                let inside = size.is_power_of_two()
                    && offset.checked_add(size).is_some_and(|to| to <= segment.len());
                assert_eq!(end.ring(0, offset, size).is_ok(), inside, "{offset:#x} + {size:#x}");
            }
        }
    }

    /// What the attack `privileges` does: another process that has the ledger mapped moves the ring
    /// of this one.
    #[test]
    fn whoever_writes_the_ledger_moves_no_bytes_out_of_the_segment() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        let (tx, rx) = (&end.slot().tx, &end.slot().rx);
        let target = Box::new([7u8; 64]);
        let base = attachment.node.joined().segment.base() as u64;
        let away = (target.as_ptr() as u64).wrapping_sub(base);
        let text = [9u8; 32];
        let piece = [iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() }];
        let mut room = [0u8; 32];
        for size in [32 << 10, 1 << 63] {
            for word in [&tx.epoch, &rx.phase] {
                word.store(1, Relaxed);
            }
            end.incoming().epoch().store(1, Relaxed);
            end.incoming().tail().store(32, Relaxed);
            for (offset, bytes) in
                [(&tx.ring_offset, &tx.ring_size), (&rx.ring_offset, &rx.ring_size)]
            {
                offset.store(away, Relaxed);
                bytes.store(size, Relaxed);
            }
            // SAFETY: the pieces are this function's.
            assert!(!unsafe { end.put_quick(&piece, text.len()) });
            // SAFETY: as above.
            assert_eq!(unsafe { end.take_quick(room.as_mut_ptr(), room.len()) }, 0);
            // SAFETY: as above.
            assert_eq!(unsafe { end.put(&piece, 0) }, Put::Error(libc::ECONNRESET));
            end.slot().set_stage(crate::ledger::Stage::Active);
            let into = [iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
            assert_eq!(
                // SAFETY: as above.
                unsafe { end.take(&mut Sink::new(&into, false), false) },
                Take::Error(libc::ECONNRESET)
            );
            end.slot().set_stage(crate::ledger::Stage::Active);
        }
        assert_eq!(*target, [7; 64]);
        assert_eq!(room, [0; 32], "nor out of other memory");
        // Bytes that are to be sent again: more than there is, and from elsewhere.
        tx.epoch.store(0, Relaxed);
        tx.resend_to.store(u64::MAX / 2, Relaxed);
        end.slot().attention.store(attention::RESEND, Relaxed);
        // SAFETY: as above.
        assert_eq!(unsafe { end.put(&piece, 0) }, Put::Error(libc::ECONNRESET));
    }
}
