//! Back to TCP at the reader's wish: it reads no further in the ring, and the writer sends what
//! lies there again.

use super::Sink;
use crate::endpoint::Endpoint;
use crate::kernel;
use crate::ledger::{Slot, Stage, flag};
use ginnel_node::waiter;
use ginnel_region::{Corrupt, Untrusted};
use ginnel_ring::park::Want;
use ginnel_ring::span;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

impl<'a> Endpoint<'a> {
    /// Does the writer ask for a freeze?
    #[must_use]
    pub fn asked_to_freeze(self) -> bool {
        let direction = self.incoming();
        let wish = direction.wish().load(Acquire);
        wish & 1 == 1
            && wish == direction.epoch().load(Acquire)
            && self.slot().rx.frozen.load(Relaxed) == 0
    }

    /// Asks the writer to come back to TCP: reads no further in the ring, and names where it
    /// stopped.
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

    /// Reads no further in the ring, and names where it stopped. False where no ring carries the
    /// direction, or it is frozen. Under the receive lock.
    #[cold]
    pub(crate) fn freeze(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if self.slot().stage() != Stage::Active
            || phase & 1 == 0
            || rx.frozen.load(Relaxed) != 0
            // What would be sent again its kernel answers with a reset: it is read in the ring.
            || direction.want_data().load(Relaxed) == Want::Closed.word()
            || direction.epoch().load(Acquire) != phase
        {
            return false;
        }
        rx.frozen.store(1, Relaxed);
        self.tell_frozen();
        true
    }

    /// Names where reading has stopped, which may have been done already: nothing is read since.
    /// Under the receive lock.
    pub(super) fn tell_frozen(self) {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if phase & 1 == 1 && direction.epoch().load(Acquire) == phase {
            direction.freeze_ring().store(rx.head.load(Relaxed), Relaxed);
            direction.freeze_epoch().store(phase, SeqCst);
        }
    }

    /// The first byte that a freeze left in the ring and that will not be sent again, since TCP has
    /// ended: its TCP offset, and its place in the ring.
    #[cold]
    pub(super) fn left_at_the_end(self) -> Result<Option<(u64, u64)>, Corrupt> {
        Ok(self.next_resent()?.filter(|_| kernel::nothing_follows(self.fd())))
    }

    /// TCP has ended before all was sent again that a freeze left in the ring: the writer died, or
    /// reset the connection, by which its kernel forgot what was under way. Had TCP carried those
    /// bytes they would have come before. So they are taken where they lie, and counted as if they
    /// had come. `next`: as [`Self::next_resent`] says. False: the sink is full.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    #[cold]
    pub(super) unsafe fn take_left(
        self,
        sink: &mut Sink<'_>,
        next: (u64, u64),
    ) -> Result<bool, Corrupt> {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let (received, from) = next;
        // They lie in this ring and the next, if there is one.
        let size = rx.ring_size.load(Relaxed);
        let grown = direction.grown().load(Acquire);
        let (mut reach, mut this_ring) = (size, size);
        if grown != rx.grown.load(Relaxed) {
            let (start, _, larger) = self.next_ring(direction, grown, from)?;
            // Zero, too, where TCP brought what this ring ends with.
            this_ring = Some(start.wrapping_sub(from)).filter(|&left| left <= size).unwrap_or(0);
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
        if !sink.discard {
            let start = rx.ring_start.load(Relaxed);
            let span = self.ring(start, rx.ring_offset.load(Relaxed), size)?;
            // SAFETY: `at` is writable for `len` ≥ n bytes.
            unsafe { span.copy_out(from, at, n as usize) };
        }
        sink.moved(n as usize);
        rx.head.store(from.wrapping_add(n), Relaxed);
        rx.received.store(received.wrapping_add(n), Relaxed);
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
        if !self.is_known() || self.is_in_pair() {
            // There it looks by itself, after a while.
            return;
        }
        self.poke_service_of(1 - self.slot().side());
    }

    /// Wakes the service thread of this end's owner: there is something to be sent, which this
    /// process cannot.
    pub(crate) fn poke_own_service(self) {
        if !self.is_in_pair() {
            self.poke_service_of(self.slot().side());
        }
    }

    fn poke_service_of(self, side: u8) {
        let channel = self.channel();
        let page = channel.service(side).load(Relaxed);
        let index = channel.owner(side).load(Relaxed) as u32;
        fence(SeqCst);
        if let (Ok(page @ 1..), Ok(bit)) =
            (u32::try_from(page), u16::try_from(index % waiter::BITS))
        {
            // Where it is not reached, it looks by itself after a while.
            let _ = self.attachment.node.ring(page, bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attachment;
    use crate::attach::tests::attached;
    use crate::layout::Record;
    use crate::rx::Take;
    use crate::settle::tests::active_end;
    use libc::iovec;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    const TEXT: [u8; 40] = {
        let mut text = [0; 40];
        let mut i = 0;
        while i < text.len() {
            text[i] = i as u8;
            i += 1;
        }
        text
    };

    /// An end on TCP behind a freeze: of 40 bytes in its ring 8 were read there, and `again` were
    /// sent again and received.
    fn frozen<'a>(attachment: &'a Attachment, socket: &TcpStream, again: u64) -> Endpoint<'a> {
        let end = active_end(attachment);
        let end =
            Endpoint::new(attachment, attachment.ledger.index(end.slot()), socket.as_raw_fd());
        let (rx, direction) = (&end.slot().rx, end.incoming());
        let (start, offset) = (rx.ring_start.load(Relaxed), rx.ring_offset.load(Relaxed));
        let span = end.ring(start, offset, rx.ring_size.load(Relaxed)).expect("its ring");
        // SAFETY: readable bytes, and a ring has a page at least.
        unsafe { span.copy_in(0, TEXT.as_ptr(), TEXT.len()) };
        direction.tail().store(40, Relaxed);
        // One token came before.
        direction.set_switch(Record { epoch: 2, tcp: 1, ring: 8 });
        direction.epoch().store(2, Relaxed);
        rx.phase.store(2, Relaxed);
        rx.head.store(8, Relaxed);
        rx.received.store(1 + again, Relaxed);
        end
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let other = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        (listener.accept().expect("it came").0, other)
    }

    /// At most 20 bytes, and how the call ended where there are none.
    fn take(end: Endpoint<'_>, peek: bool) -> Result<Vec<u8>, Take> {
        let mut room = [0u8; 20];
        let into = [iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
        // SAFETY: the pieces are this function's.
        match unsafe { end.take(&mut Sink::new(&into, false), peek) } {
            Take::Bytes(n) => Ok(room[..n].to_vec()),
            other => Err(other),
        }
    }

    fn wait_for_the_end(end: Endpoint<'_>) {
        while !kernel::nothing_follows(end.fd()) {
            std::thread::yield_now();
        }
    }

    /// The connection ends behind a freeze whose bytes were sent again in part, or not at all.
    /// However often they are looked at before.
    #[test]
    fn what_was_not_sent_again_is_taken_from_the_ring() {
        for (again, resets, looks) in
            (0..4).flat_map(|n| [0, 1, 10, 31, 32].map(|again| (again, n & 1 == 0, n & 2 == 0)))
        {
            let directory = tempfile::tempdir().expect("a directory");
            let attachment = attached(directory.path());
            let (socket, other) = pair();
            let end = frozen(&attachment, &socket, again);
            if resets {
                let linger = libc::linger { l_onoff: 1, l_linger: 0 };
                kernel::setsockopt(other.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger)
                    .expect("set");
            }
            drop(other);
            wait_for_the_end(end);
            let left = &TEXT[8 + again as usize..];
            let mut got = Vec::new();
            let last = loop {
                if looks {
                    let rest = &left[got.len()..];
                    assert_eq!(end.pending_bytes(), rest.len() as u64);
                    assert_eq!(take(end, true).unwrap_or_default(), rest[..rest.len().min(20)]);
                    if rest.is_empty() {
                        break None;
                    }
                }
                match take(end, false) {
                    Ok(bytes) => got.extend(bytes),
                    Err(other) => break Some(other),
                }
            };
            assert_eq!(got, left, "{again} {resets} {looks}");
            assert!(
                matches!(last, None | Some(Take::End | Take::Error(libc::ECONNRESET))),
                "{last:?}"
            );
        }
    }

    /// As long as they can still come they are not taken in the ring: they would be told twice. So
    /// it is where only this end receives no more.
    #[test]
    fn what_may_still_come_is_left_in_the_ring() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let (socket, mut other) = pair();
        let end = frozen(&attachment, &socket, 0);
        socket.shutdown(Shutdown::Read).expect("open");
        for peek in [true, false] {
            assert!(take(end, peek).is_err());
        }
        assert_eq!(end.pending_bytes(), 0);
        other.write_all(&TEXT[8..]).expect("sent");
        while kernel::readable(end.fd()) < 32 {
            std::thread::yield_now();
        }
        let mut got = take(end, false).expect("20");
        got.extend(take(end, false).expect("12"));
        assert_eq!(got, TEXT[8..]);
        drop(other);
        wait_for_the_end(end);
        assert!(take(end, false).is_err(), "they came once");
    }
}
