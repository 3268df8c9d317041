//! Looking at bytes without taking them (MSG_PEEK), and counting them (FIONREAD).

use super::tokens::Sweeper;
use super::{Sink, Step, Take};
use crate::cursor::WINDOW;
use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::Direction;
use ginnel_region::{Corrupt, Untrusted};
use libc::iovec;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

impl<'a> Endpoint<'a> {
    /// Looks at the next bytes and leaves them, across one switch in either direction: a program
    /// may wait for a whole message by peeking.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    pub(super) unsafe fn peek(self, sink: &mut Sink<'_>) -> Result<Take, Corrupt> {
        let slot = self.slot();
        let rx = &slot.rx;
        // Settle at the present phase: an empty receive enters whatever switch is due.
        let nowhere = [];
        let mut none = Sink::new(&nowhere, false);
        // SAFETY: `none` has no buffers: nothing is stored.
        let mut answer = unsafe { self.step(&mut none, Sweeper::ArmsNext)? };
        for _ in 0..4 {
            let Step::Again = answer else { break };
            if self.peekable()? {
                break;
            }
            // SAFETY: as above.
            answer = unsafe { self.step(&mut none, Sweeper::ArmsNext)? };
        }
        if !self.live() {
            // SAFETY: the caller's promise.
            let take = unsafe { self.peek_kernel(sink, u64::MAX) };
            return Ok(match answer {
                // The kernel tells an error once, and has told it.
                Step::Done(error @ Take::Error(_)) if sink.filled() == 0 => error,
                _ => take,
            });
        }
        let direction = self.incoming();
        if !self.rx_in_ring() {
            // SAFETY: the caller's promise.
            let first = unsafe { self.peek_on_tcp(sink, direction)? };
            return Ok(match answer {
                Step::Done(take) if sink.filled() == 0 => take,
                _ => first,
            });
        }
        let head = rx.head.load(Relaxed);
        // SAFETY: the caller's promise.
        let drained = unsafe { self.peek_ring(sink, direction, head)? };
        if let (true, true) = (drained, sink.room() > 0) {
            let phase = rx.phase.load(Relaxed);
            if self.epoch(direction)? > phase && rx.frozen.load(Relaxed) == 0 {
                // TCP bytes behind the tokens of this phase keep the kernel's readiness: the tokens
                // may go.
                let record = self.record(direction, phase + 1)?;
                self.discard_tokens(record.tcp - rx.received.load(Relaxed));
                if rx.received.load(Relaxed) == record.tcp {
                    if sink.filled() > 0 && self.is_at_mark() {
                        return Ok(Take::Mark);
                    }
                    let there = kernel::readable(self.fd());
                    // SAFETY: the caller's promise.
                    unsafe { self.peek_kernel(sink, there) };
                }
            }
        }
        if sink.filled() > 0 {
            return Ok(Take::Nothing);
        }
        Ok(match answer {
            Step::Done(take) => take,
            Step::Again => Take::Nothing,
        })
    }

    /// Looks at what TCP has, and behind that at the ring's, if a switch is at hand. Returns what
    /// the kernel said.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    unsafe fn peek_on_tcp(
        self,
        sink: &mut Sink<'_>,
        direction: Direction<'_>,
    ) -> Result<Take, Corrupt> {
        let rx = &self.slot().rx;
        let there = if kernel::at_mark(self.fd()) { u64::MAX } else { kernel::readable(self.fd()) };
        fence(SeqCst);
        let phase = rx.phase.load(Relaxed);
        let mut limit = u64::MAX;
        let mut ring = None;
        if self.epoch(direction)? > phase {
            let record = self.record(direction, phase + 1)?;
            limit = record.tcp - rx.received.load(Relaxed);
            ring = Some(record.ring);
        }
        // SAFETY: the caller's promise.
        let first = unsafe { self.peek_kernel(sink, there.min(limit)) };
        if let (Some(ring), true) = (ring, there >= limit && sink.filled() as u64 == limit) {
            // SAFETY: the caller's promise.
            unsafe { self.peek_ring(sink, direction, ring)? };
        }
        if let Some((_, left)) = self.left_at_the_end()? {
            // SAFETY: the caller's promise.
            unsafe { self.peek_ring(sink, direction, left)? };
        }
        Ok(first)
    }

    /// Is there a byte to look at in the present phase?
    fn peekable(self) -> Result<bool, Corrupt> {
        let direction = self.incoming();
        if self.rx_in_ring() {
            Ok(direction.tail().load(Acquire) != self.slot().rx.head.load(Relaxed))
        } else {
            Ok(kernel::readable(self.fd()) > 0)
        }
    }

    /// Looks at up to `limit` of the kernel's bytes.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    unsafe fn peek_kernel(self, sink: &mut Sink<'_>, limit: u64) -> Take {
        let mut pieces = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; WINDOW];
        let window = sink.window(&mut pieces, limit);
        if window.is_empty() {
            return Take::Nothing;
        }
        let flags = libc::MSG_PEEK | if sink.discard { libc::MSG_TRUNC } else { 0 };
        // SAFETY: the window lies in the sink's buffers.
        match unsafe { kernel::recv(self.fd(), window, flags) } {
            Ok(0) => Take::End,
            Ok(got) => {
                sink.moved(got);
                Take::Nothing
            }
            Err(libc::EAGAIN) => Take::Nothing,
            Err(errno) => self.failed(errno),
        }
    }

    /// Copies ring bytes from `from` on without taking them. True if nothing lies behind them in
    /// the ring.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    unsafe fn peek_ring(
        self,
        sink: &mut Sink<'_>,
        direction: Direction<'_>,
        from: u64,
    ) -> Result<bool, Corrupt> {
        let rx = &self.slot().rx;
        if rx.frozen.load(Relaxed) != 0 {
            return Ok(false);
        }
        let size = rx.ring_size.load(Relaxed);
        let tail = Untrusted::new(direction.tail().load(Acquire));
        let mut end = tail;
        let phase = rx.phase.load(Relaxed);
        let epoch = self.epoch(direction)?;
        if epoch & 1 == 0 && epoch > phase {
            end = Untrusted::new(self.record(direction, epoch)?.ring);
        }
        let mut position = from;
        let grown = direction.grown().load(Acquire);
        let (mut start, mut offset, mut size_here) =
            (rx.ring_start.load(Relaxed), rx.ring_offset.load(Relaxed), size);
        let mut next = None;
        let mut reach = size;
        if grown != rx.grown.load(Relaxed) {
            let ring = self.next_ring(direction, grown, from)?;
            reach = reach.wrapping_add(ring.2);
            next = Some(ring);
        }
        let mut available = end.ahead_of(position, reach)?;
        while available > 0 {
            if let Some((next_start, next_offset, next_size)) = next
                && position.wrapping_sub(next_start) as i64 >= 0
            {
                (start, offset, size_here) = (next_start, next_offset, next_size);
                next = None;
            }
            let until = next.map_or(available, |(next_start, ..)| {
                next_start.wrapping_sub(position).min(available)
            });
            let Some((at, len)) = sink.next() else { return Ok(false) };
            if len == 0 {
                return Ok(false);
            }
            let n = (len as u64).min(until).min(size_here);
            let span = self.ring(start, offset, size_here)?;
            if !sink.discard {
                // SAFETY: `at` is writable for `len` ≥ n bytes.
                unsafe { span.copy_out(position, at, n as usize) };
            }
            sink.moved(n as usize);
            position = position.wrapping_add(n);
            available -= n;
        }
        Ok(true)
    }

    /// Bytes that a receive could return now (FIONREAD).
    #[must_use]
    pub fn pending_bytes(self) -> u64 {
        let held = self.receive_lock_unless_interrupted();
        let rx = &self.slot().rx;
        let direction = self.incoming();
        let there = kernel::readable(self.fd());
        fence(SeqCst);
        if !self.live() {
            return there;
        }
        let phase = rx.phase.load(Relaxed);
        let Ok(epoch) = self.epoch(direction) else { return 0 };
        let received = rx.received.load(Relaxed);
        let in_ring = |from: u64| direction.tail().load(Acquire).wrapping_sub(from).min(1 << 30);
        if held.is_err() {
            // A switch may be half made.
            return if phase & 1 == 1 { in_ring(rx.head.load(Relaxed)) } else { there };
        }
        if phase & 1 == 1 {
            match (epoch > phase).then(|| self.record(direction, epoch)) {
                Some(Ok(record)) => {
                    record.ring.wrapping_sub(rx.head.load(Relaxed)).min(1 << 30)
                        + there.saturating_sub(record.tcp - received)
                }
                Some(Err(_)) => 0,
                None if rx.frozen.load(Relaxed) != 0 && !self.writer_is_gone(direction) => 0,
                None => in_ring(rx.head.load(Relaxed)),
            }
        } else {
            match (epoch > phase).then(|| self.record(direction, phase + 1)) {
                Some(Ok(record)) if there < record.tcp - received => there,
                Some(Ok(record)) => {
                    // The writer may have left the ring again before this reader came to it.
                    let behind = match (epoch > phase + 1).then(|| self.record(direction, epoch)) {
                        Some(Ok(down)) => {
                            down.ring.wrapping_sub(record.ring).min(1 << 30)
                                + there.saturating_sub(down.tcp - received)
                        }
                        Some(Err(_)) => 0,
                        None => in_ring(record.ring),
                    };
                    record.tcp - received + behind
                }
                Some(Err(_)) => 0,
                None => match self.left_at_the_end() {
                    Ok(Some((_, left))) => in_ring(left),
                    Ok(None) => there,
                    Err(Corrupt) => 0,
                },
            }
        }
    }
}
