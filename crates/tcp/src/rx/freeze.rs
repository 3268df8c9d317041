//! Back to TCP at the reader's wish: it reads no further in the ring, and the writer sends what lies there again.

use super::Sink;
use crate::endpoint::Endpoint;
use crate::ledger::{Slot, Stage, flag};
use ginnel_node::waiter;
use ginnel_region::{Corrupt, Untrusted};
use ginnel_ring::span;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

impl<'a> Endpoint<'a> {
    /// Does the writer ask for a freeze?
    #[must_use]
    pub fn asked_to_freeze(self) -> bool {
        let direction = self.incoming();
        let wish = direction.wish().load(Acquire);
        wish & 1 == 1 && wish == direction.epoch().load(Acquire) && self.slot().rx.frozen.load(Relaxed) == 0
    }

    /// Asks the writer to come back to TCP: reads no further in the ring, and names where it stopped.
    pub fn request_downgrade(self) {
        let frozen = {
            let _held = self.receive_lock();
            self.freeze()
        };
        if frozen {
            self.poke_service();
        }
    }

    /// Testing: freezes this phase where nobody reads. Under the send lock.
    pub(crate) fn freeze_if_idle(self) {
        let frozen = self.slot().rx.lock.try_lock(self.ticket()).is_some_and(|_held| self.freeze());
        if frozen {
            self.poke_reader();
        }
    }

    /// Reads no further in the ring, and names where it stopped. False where no ring carries the direction, or it is frozen. Under the receive lock.
    #[cold]
    pub(crate) fn freeze(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if self.slot().stage() != Stage::Active
            || phase & 1 == 0
            || rx.frozen.load(Relaxed) != 0
            || direction.epoch().load(Acquire) != phase
        {
            return false;
        }
        rx.frozen.store(1, Relaxed);
        self.tell_frozen();
        true
    }

    /// Names where reading has stopped, which may have been done already: nothing is read since. Under the receive lock.
    pub(super) fn tell_frozen(self) {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if phase & 1 == 1 && direction.epoch().load(Acquire) == phase {
            direction.freeze_ring().store(rx.head.load(Relaxed), Relaxed);
            direction.freeze_epoch().store(phase, SeqCst);
        }
    }

    /// TCP has ended, by FIN or by an error, before all was sent again that a freeze left in the ring:
    /// the writer died, or reset the connection, by which its kernel forgot what was under way. Had TCP
    /// carried those bytes they would have come before, so they are taken where they lie. False: there
    /// are none. Only where [`Self::resent_bytes_are_due`].
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    #[cold]
    pub(super) unsafe fn take_left(self, sink: &mut Sink<'_>) -> Result<bool, Corrupt> {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let (phase, received) = (rx.phase.load(Relaxed), rx.received.load(Relaxed));
        let Ok(record) = direction.switch(phase).checked(|record| record.epoch == phase) else {
            return Ok(false);
        };
        // So many of them came over TCP.
        let from = record.ring.wrapping_add(received.wrapping_sub(record.tcp));
        // They lie in this ring and the next, if there is one.
        let size = rx.ring_size.load(Relaxed);
        let grown = direction.grown().load(Acquire);
        let (mut reach, mut this_ring) = (size, size);
        if grown != rx.grown.load(Relaxed) {
            let (start, _, larger) = self.next_ring(direction, grown, from)?;
            this_ring = Untrusted::new(start).ahead_of(from, size)?;
            if this_ring == 0 {
                rx.head.store(from, Relaxed);
                self.move_to_next_ring(direction, grown)?;
                return Ok(true);
            }
            reach = reach.wrapping_add(larger);
        }
        let tail = Untrusted::new(direction.tail().load(Acquire));
        let available = span::available(tail, from, reach)?.min(this_ring);
        let Some((at, len)) = sink.next() else { return Ok(false) };
        let n = (len as u64).min(available);
        if n == 0 {
            return Ok(false);
        }
        if !sink.discard {
            let start = rx.ring_start.load(Relaxed);
            let span = self.ring(start, rx.ring_offset.load(Relaxed), size)?;
            // SAFETY: `at` is writable for `len` ≥ n bytes.
            unsafe { span.copy_out(from, at, n as usize) };
        }
        sink.moved(n as usize);
        rx.head.store(from.wrapping_add(n), Relaxed);
        // As if they had come over TCP: the next that is due lies behind them.
        Slot::count(&rx.received, n);
        Slot::count(&self.slot().in_ring, n);
        Ok(true)
    }

    /// Wakes the other end's service thread: there is a wish for it to look at.
    pub fn poke_service(self) {
        if !self.is_known() {
            return;
        }
        self.poke_reader();
        // A writer that sleeps for room looks again when it is woken.
        self.grant_space();
    }

    /// Has the other end proved itself? Before that nobody is woken for its sake.
    fn is_known(self) -> bool {
        self.slot().stage() == Stage::Active || self.slot().has(flag::PROVED)
    }

    /// [`Self::poke_service`], under the send lock.
    pub(crate) fn poke_reader(self) {
        if !self.is_known() {
            return;
        }
        let channel = self.channel();
        let other = 1 - self.slot().side();
        let page = channel.service(other).load(Relaxed);
        let index = channel.owner(other).load(Relaxed) as u32;
        fence(SeqCst);
        if let (Ok(page @ 1..), Ok(bit)) = (u32::try_from(page), u16::try_from(index % waiter::BITS)) {
            // Where it is not reached, it looks by itself after a while.
            let _ = self.attachment.node.ring(page, bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;
    use crate::layout::Record;
    use crate::rx::Take;
    use crate::settle::tests::active_end;
    use libc::iovec;

    /// The connection ends behind a freeze whose bytes were sent again in part, or not at all.
    #[test]
    fn what_was_not_sent_again_is_taken_from_the_ring() {
        for again in [0, 1, 10, 31, 32] {
            let directory = tempfile::tempdir().expect("a directory");
            let attachment = attached(directory.path());
            let end = active_end(&attachment);
            let (rx, direction) = (&end.slot().rx, end.incoming());
            let (start, offset) = (rx.ring_start.load(Relaxed), rx.ring_offset.load(Relaxed));
            let span = end.ring(start, offset, rx.ring_size.load(Relaxed)).expect("its ring");
            let text: Vec<u8> = (0..40).collect();
            // SAFETY: 40 readable bytes, and a ring has a page at least.
            unsafe { span.copy_in(0, text.as_ptr(), text.len()) };
            // 8 were read, 32 are frozen; one token came before.
            direction.tail().store(40, Relaxed);
            direction.set_switch(Record { epoch: 2, tcp: 1, ring: 8 });
            direction.epoch().store(2, Relaxed);
            rx.phase.store(2, Relaxed);
            rx.head.store(8, Relaxed);
            rx.received.store(1 + again, Relaxed);
            let mut room = [0u8; 20];
            let mut got = Vec::new();
            let last = loop {
                let into = [iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
                // No socket is behind its number, which is an error like any other.
                // SAFETY: the pieces are this function's.
                match unsafe { end.take(&mut Sink::new(&into, false), false) } {
                    Take::Bytes(n) => got.extend_from_slice(&room[..n]),
                    other => break other,
                }
            };
            assert_eq!(got, text[8 + again as usize..]);
            assert!(matches!(last, Take::Error(_)), "{last:?}");
        }
    }
}
