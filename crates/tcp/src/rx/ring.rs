//! Out of the ring: bytes, the next ring, and what an empty one means.

use super::tokens::{Sweeper, Swept};
use super::{Sink, Step, Take};
use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::{Direction, NO_EOF, Record};
use crate::ledger::{Slot, attention};
use crate::rings::LARGEST;
use ginnel_region::{Corrupt, PAGE, Untrusted, sys};
use ginnel_ring::span;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

impl<'a> Endpoint<'a> {
    /// # Safety
    /// The sink's buffers are writable memory.
    #[inline]
    pub(super) unsafe fn step_in_ring(
        self,
        sink: &mut Sink<'_>,
        sweeper: Sweeper,
    ) -> Result<Step, Corrupt> {
        let rx = &self.slot().rx;
        let direction = self.incoming();
        let head = rx.head.load(Relaxed);
        let phase = rx.phase.load(Relaxed);
        // `tail` first: the epoch that is read after it covers at least the bytes before it.
        let tail = Untrusted::new(direction.tail().load(Acquire));
        let epoch = self.epoch(direction)?;
        let size = rx.ring_size.load(Relaxed);
        let grown = direction.grown().load(Acquire);
        let mut reach = size;
        let mut end_of_ring = None;
        if grown != rx.grown.load(Relaxed) {
            let (start, _, larger) = self.next_ring(direction, grown, head)?;
            reach = reach.wrapping_add(larger);
            end_of_ring = Some(start);
        }
        if rx.frozen.load(Relaxed) != 0 {
            if epoch == phase && !self.writer_is_gone(direction) {
                return Ok(Step::Done(Take::Nothing));
            }
            rx.frozen.store(0, Relaxed);
            return Ok(Step::Again);
        }
        let mut available = span::available(tail, head, reach)?;
        let mut down = None;
        if epoch > phase {
            let record = self.record(direction, epoch)?;
            available = Untrusted::new(record.ring).ahead_of(head, reach)?;
            down = Some(record);
        }
        if let Some(start) = end_of_ring {
            // Bytes behind `head` were read already: nothing that lies there can still be to come.
            let left = Untrusted::new(start).ahead_of(head, size)?;
            if left == 0 && down.is_none_or(|record| record.ring != head) {
                self.move_to_next_ring(direction, grown)?;
                return Ok(Step::Again);
            }
            available = available.min(left);
        }
        if available == 0 {
            return self.ring_is_empty(direction, down, sweeper);
        }
        let span = self.ring(rx.ring_start.load(Relaxed), rx.ring_offset.load(Relaxed), size)?;
        // SAFETY: the caller's promise; so many bytes are in the ring, and no more than its size.
        unsafe { self.copy_from_ring(sink, direction, &span, head, available) };
        Ok(Step::Again)
    }

    /// Copies up to `available` bytes from position `head` on, as far as there is room for them.
    ///
    /// # Safety
    /// The sink's buffers are writable memory, and so many bytes lie in the ring.
    #[inline]
    unsafe fn copy_from_ring(
        self,
        sink: &mut Sink<'_>,
        direction: Direction<'_>,
        span: &span::Span,
        mut head: u64,
        mut available: u64,
    ) {
        let slot = self.slot();
        let mut unpublished = 0u64;
        while available > 0 && sink.room() > 0 {
            let Some((at, len)) = sink.next() else { break };
            let n = (len as u64).min(available).min(64 << 10);
            if !sink.discard {
                // SAFETY: `at` is writable for `len` ≥ n bytes.
                unsafe { span.copy_out(head, at, n as usize) };
            }
            sink.moved(n as usize);
            head = head.wrapping_add(n);
            available -= n;
            unpublished += n;
            slot.rx.head.store(head, Relaxed);
            if unpublished >= 64 << 10 && available > 0 && sink.room() > 0 {
                // A long copy: let the writer have the room meanwhile. Its wish, if it has one, is
                // granted at the end.
                direction.head().store(head, Release);
                unpublished = 0;
            }
            Slot::count(&slot.in_ring, n);
        }
    }

    /// Frozen: is there no writer any more that could answer?
    #[cold]
    pub(super) fn writer_is_gone(self, direction: Direction<'_>) -> bool {
        direction.eof().load(Acquire) != NO_EOF
            || sys::poll(self.fd(), libc::POLLRDHUP, 0)
                & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP)
                != 0
    }

    /// Where the ring after the present one begins, of which all up to `from` is behind the reader:
    /// (first position, offset, size), checked.
    pub(super) fn next_ring(
        self,
        direction: Direction<'_>,
        grown: u64,
        from: u64,
    ) -> Result<(u64, u64, u64), Corrupt> {
        let rx = &self.slot().rx;
        if grown != rx.grown.load(Relaxed).wrapping_add(1) {
            return Err(Corrupt);
        }
        let (start, offset, size) = direction.ring(grown);
        let segment = &self.joined().segment;
        let size = size.power_of_two(PAGE, LARGEST)?;
        let offset = offset.checked(|&offset| offset % PAGE == 0 && segment.holds(offset, size))?;
        // Ahead by what the present ring can hold at most; behind, where a whole phase was skipped.
        let room = rx.ring_size.load(Relaxed);
        let start = start.checked(|start| {
            start.wrapping_sub(from) <= room || from.wrapping_sub(*start) < 1 << 40
        })?;
        Ok((start, offset, size))
    }

    #[cold]
    pub(super) fn move_to_next_ring(
        self,
        direction: Direction<'_>,
        grown: u64,
    ) -> Result<(), Corrupt> {
        let rx = &self.slot().rx;
        let (start, offset, size) = self.next_ring(direction, grown, rx.head.load(Relaxed))?;
        rx.ring_start.store(start, Relaxed);
        rx.ring_offset.store(offset, Relaxed);
        rx.ring_size.store(size, Relaxed);
        rx.grown.store(grown, Relaxed);
        direction.grown_ack().store(grown, Release);
        Ok(())
    }

    /// The ring holds nothing more (for now, or up to the downgrade).
    #[cold]
    fn ring_is_empty(
        self,
        direction: Direction<'_>,
        down: Option<Record>,
        sweeper: Sweeper,
    ) -> Result<Step, Corrupt> {
        let slot = self.slot();
        let rx = &slot.rx;
        if let Some(record) = down {
            let missing = record.tcp - rx.received.load(Relaxed);
            self.discard_tokens(missing);
            if rx.received.load(Relaxed) < record.tcp {
                // The last tokens are on their way, unless the connection ended.
                return Ok(match kernel::look(self.fd()) {
                    // Urgent data among the tokens went past the shim, and cannot be thrown away:
                    // an honest writer sends it behind the downgrade.
                    Ok(1) if kernel::at_mark(self.fd()) => return Err(Corrupt),
                    Ok(1) => Step::Again,
                    // The writer died in the middle of a downgrade: what it was to send again is
                    // lost.
                    Ok(_) if direction.tail().load(Acquire) != record.ring => {
                        Step::Done(Take::Error(libc::ECONNRESET))
                    }
                    Ok(_) => Step::Done(Take::End),
                    Err(libc::EAGAIN) => Step::Done(Take::Nothing),
                    Err(errno) => Step::Done(self.failed(errno)),
                });
            }
            self.enter_tcp(direction, record.epoch);
            return Ok(Step::Again);
        }
        // The mark says that the end is meant; that it has come, the kernel's FIN says, as it would
        // on TCP.
        let eof = direction.eof().load(Acquire);
        if eof != NO_EOF {
            let tail = direction.tail().load(Acquire);
            if tail != rx.head.load(Relaxed)
                || direction.epoch().load(Acquire) != rx.phase.load(Relaxed)
            {
                return Ok(Step::Again);
            }
            if eof != tail {
                return Err(Corrupt);
            }
            return self.ask_kernel(sweeper);
        }
        // A reset that is meant was said before the kernel's, which may have come by now.
        if slot.attention.load(Relaxed) & attention::KERNEL != 0 || self.reset_is_meant() {
            return self.ask_kernel(sweeper);
        }
        Ok(Step::Done(Take::Nothing))
    }

    /// The ring is empty and the kernel reported something: a token, FIN, or an error.
    #[cold]
    fn ask_kernel(self, sweeper: Sweeper) -> Result<Step, Corrupt> {
        self.slot().attention.fetch_and(!attention::KERNEL, SeqCst);
        let direction = self.incoming();
        match self.look_kept() {
            // A token, or bytes of what comes after a switch that was published meanwhile.
            Ok(1) => {
                fence(SeqCst);
                if self.has_news(direction) {
                    // What lies behind it, FIN perhaps, is to be looked at once that is read: an
                    // edge tells of it once.
                    self.slot().attention.fetch_or(attention::KERNEL, Relaxed);
                    return Ok(Step::Again);
                }
                // Tokens of an empty ring stand before whatever else the kernel has to say: FIN,
                // perhaps.
                if self.sweep(sweeper) == Swept::Tokens(0) {
                    // Urgent data that went past the shim would keep the socket readable for ever,
                    // and nothing to receive.
                    if kernel::at_mark(self.fd()) {
                        fence(SeqCst);
                        return if self.has_news(direction) {
                            Ok(Step::Again)
                        } else {
                            Err(Corrupt)
                        };
                    }
                    return Ok(Step::Done(Take::Nothing));
                }
                self.slot().attention.fetch_or(attention::KERNEL, Relaxed);
                Ok(Step::Again)
            }
            Ok(_) => {
                // FIN. Whatever was published before it is visible now.
                fence(SeqCst);
                if self.has_news(direction) {
                    self.slot().attention.fetch_or(attention::KERNEL, Relaxed);
                    return Ok(Step::Again);
                }
                self.slot().attention.fetch_or(attention::KERNEL, Relaxed);
                // A reset that is meant was told before: then the kernel, too, says that nothing
                // follows.
                let meant = direction.eof().load(Acquire) != NO_EOF || self.reset_is_meant();
                Ok(Step::Done(if meant { Take::End } else { self.ended_without_mark() }))
            }
            Err(libc::EAGAIN) => Ok(Step::Done(Take::Nothing)),
            Err(errno) => {
                fence(SeqCst);
                if self.has_news(direction) {
                    self.keep_error(errno);
                    return Ok(Step::Again);
                }
                let take = self.failed(errno);
                if take == Take::End {
                    // It stays the end, however often it is asked.
                    self.keep_error(errno);
                }
                // Behind it the kernel says that nothing follows.
                self.slot().attention.fetch_or(attention::KERNEL, Relaxed);
                Ok(Step::Done(take))
            }
        }
    }
}
