//! The reader's side of a direction: everything here happens under the receive lock.

use crate::kernel;
use crate::layout::{Direction, NO_EOF, Record};
use crate::ledger::{Held, Interrupted, Reason, Slot, Stage, attention, flag};
use crate::settle::Endpoint;
use crate::waiter;
use ginnel_region::{Corrupt, PAGE, Untrusted};
use ginnel_ring::park::{self, Want};
use ginnel_ring::span::{self, Span};
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// How often a receive turns from one phase or ring to the next without finding a byte. An honest writer needs a few turns; one that goes on for ever would keep
/// the reader in its call.
const TURNS: u32 = 1000;

/// How a non-blocking receive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// So many bytes were received.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The receive ends here with what it has: urgent data comes next.
    Mark,
    /// End of the stream.
    End,
    /// The connection's error.
    Error(c_int),
    /// Nothing: the caller is a signal handler, and the thread that it interrupted was in the middle of a receive here.
    Interrupted,
}

/// A place in the program's buffers. Moves on as bytes are put there.
pub struct Sink<'a> {
    iov: &'a [iovec],
    index: usize,
    offset: usize,
    filled: usize,
    room: usize,
    discard: bool,
}

impl<'a> Sink<'a> {
    /// The buffers of a call. `discard`: MSG_TRUNC: count the bytes, do not store them.
    #[must_use]
    #[inline]
    pub fn new(iov: &'a [iovec], discard: bool) -> Self {
        let room = iov.iter().map(|piece| piece.iov_len).sum();
        Self { iov, index: 0, offset: 0, filled: 0, room, discard }
    }

    /// Bytes so far.
    #[must_use]
    #[inline]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes that still fit.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.room - self.filled
    }

    /// The next place: (address, bytes); never an empty one.
    fn next(&mut self) -> Option<(*mut u8, usize)> {
        self.moved(0);
        let piece = self.iov.get(self.index)?;
        // SAFETY: `offset` lies inside the piece.
        Some((unsafe { piece.iov_base.cast::<u8>().add(self.offset) }, piece.iov_len - self.offset))
    }

    /// The next places, at most `limit` bytes in all.
    fn window<'b>(&mut self, pieces: &'b mut [iovec; 16], limit: u64) -> &'b [iovec] {
        self.moved(0);
        let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut count = 0;
        for (place, piece) in pieces.iter_mut().zip(self.iov.iter().skip(self.index)) {
            if left == 0 {
                break;
            }
            let skip = if count == 0 { self.offset } else { 0 };
            let len = (piece.iov_len - skip).min(left);
            // SAFETY: `offset` lies inside the piece.
            *place = iovec { iov_base: unsafe { piece.iov_base.cast::<u8>().add(skip) }.cast(), iov_len: len };
            left -= len;
            count += 1;
        }
        pieces.get(..count).unwrap_or(&[])
    }

    fn moved(&mut self, mut n: usize) {
        self.filled += n;
        while let Some(piece) = self.iov.get(self.index) {
            let left = piece.iov_len - self.offset;
            if n < left {
                self.offset += n;
                return;
            }
            n -= left;
            self.index += 1;
            self.offset = 0;
        }
    }
}

impl<'a> Endpoint<'a> {
    /// Is the ring the carrier, as far as this reader has come?
    #[inline]
    pub fn rx_in_ring(self) -> bool {
        self.slot().rx.phase.load(Relaxed) & 1 == 1
    }

    /// May the writer switch: has this side agreed, or will it under a lock that the caller holds?
    #[inline]
    fn live(self) -> bool {
        match self.slot().stage() {
            Stage::Active => true,
            Stage::Settling => self.slot().has(flag::COUNTED),
            _ => false,
        }
    }

    /// Receives without blocking. Only in [`Stage::Settling`] and later. `peek`: leaves the bytes where they are.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    pub unsafe fn take(self, sink: &mut Sink<'_>, peek: bool) -> Take {
        let slot = self.slot();
        let (wake, asked);
        let take = {
            let Ok(_held) = self.receive_lock_unless_interrupted() else { return Take::Interrupted };
            if slot.stage() == Stage::Broken {
                return Take::Error(libc::ECONNRESET);
            }
            let before = sink.filled();
            let head = slot.rx.head.load(Relaxed);
            // SAFETY: the caller's promise.
            let result = unsafe { if peek { self.peek(sink) } else { self.receive(sink) } };
            let moved = slot.rx.head.load(Relaxed) != head;
            wake = moved && self.publish_head();
            asked = moved && self.asked_to_freeze() && self.freeze();
            match result {
                Ok(Take::Mark) => Take::Mark,
                Ok(take) if sink.filled() > before => {
                    if let Take::Error(errno) = take {
                        self.keep_error(errno);
                    }
                    Take::Bytes(sink.filled() - before)
                }
                Ok(take) => take,
                Err(Corrupt) => {
                    self.break_off(Reason::Corrupt);
                    Take::Error(libc::ECONNRESET)
                }
            }
        };
        if asked {
            self.poke_service();
        } else if wake {
            self.grant_space();
        }
        take
    }

    #[inline]
    fn publish_head(self) -> bool {
        let direction = self.incoming();
        park::publish_only(direction.head(), self.slot().rx.head.load(Relaxed), direction.want_space())
    }

    /// Takes the receive lock; what a dead holder left half done is made whole.
    #[inline(always)]
    pub(crate) fn receive_lock(self) -> Held<'a> {
        self.made_whole_rx(self.slot().rx.lock.lock(&self.attachment.ledger, self.ticket()))
    }

    /// The same, for calls of signal handlers.
    #[inline(always)]
    fn receive_lock_unless_interrupted(self) -> Result<Held<'a>, Interrupted> {
        let held = self.slot().rx.lock.lock_unless_interrupted(&self.attachment.ledger, self.ticket())?;
        Ok(self.made_whole_rx(held))
    }

    #[inline]
    fn made_whole_rx(self, held: Held<'a>) -> Held<'a> {
        if held.taken_over {
            self.recount_rx();
        }
        held
    }

    #[cold]
    fn recount_rx(self) {
        let slot = self.slot();
        slot.rx.seen.store(0, Relaxed);
        if slot.has(flag::COUNTED)
            && let Ok(facts) = kernel::facts(self.fd(), slot.has(flag::CONNECTED))
        {
            let uncounted = facts.received.wrapping_sub(slot.rx.received.load(Relaxed));
            if self.rx_in_ring() && uncounted < 1 << 32 {
                // Only tokens are taken from the kernel there.
                Slot::count(&slot.rx.tokens, uncounted);
            }
            slot.rx.received.store(facts.received, Relaxed);
            self.incoming().received().store(facts.received, Relaxed);
        }
        if slot.stage() == Stage::Active {
            let direction = self.incoming();
            direction.head().store(slot.rx.head.load(Relaxed), Release);
            direction.ack().store(slot.rx.phase.load(Relaxed), Release);
            direction.grown_ack().store(slot.rx.grown.load(Relaxed), Release);
            // What the kernel had reported may not have been looked at to its end.
            slot.heed_kernel();
            if slot.rx.frozen.load(Relaxed) != 0 {
                // The writer may not have been told.
                self.tell_frozen();
            }
            // Whoever sleeps may have lost the wish that was to wake it.
            let (_, fresh) = park::arm(direction.want_data(), Want::Token);
            slot.rx.armed.fetch_add(fresh, Relaxed);
        }
    }

    /// Receives until the sink is full or nothing more is there. The answer counts only where nothing was received.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    #[inline]
    unsafe fn receive(self, sink: &mut Sink<'_>) -> Result<Take, Corrupt> {
        let mut turns = 0;
        loop {
            let filled = sink.filled();
            // SAFETY: the caller's promise.
            let step = unsafe { self.step(sink, Sweeper::ArmsNext)? };
            match step {
                Step::Again if sink.room() > 0 => {}
                Step::Again => return Ok(Take::Nothing),
                Step::Done(take) => return Ok(take),
            }
            turns = if sink.filled() == filled { turns + 1 } else { 0 };
            if turns > TURNS {
                return Err(Corrupt);
            }
        }
    }

    /// The writer's epoch, checked against the phase: at most one switch ahead in the ring, two on TCP.
    #[inline]
    fn epoch(self, direction: Direction<'_>) -> Result<u64, Corrupt> {
        let phase = self.slot().rx.phase.load(Relaxed);
        // Acquire pairs with the writer's store of `epoch`: the record is visible first.
        let epoch = Untrusted::new(direction.epoch().load(Acquire));
        epoch.within(phase, phase + if phase & 1 == 1 { 1 } else { 2 })
    }

    fn record(self, direction: Direction<'_>, number: u64) -> Result<Record, Corrupt> {
        let received = self.slot().rx.received.load(Relaxed);
        direction
            .switch(number)
            .checked(|record| record.epoch == number && record.tcp >= received && record.tcp - received < 1 << 40)
    }

    /// One step of a receive, by the carrier that this reader has come to.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    #[inline]
    unsafe fn step(self, sink: &mut Sink<'_>, sweeper: Sweeper) -> Result<Step, Corrupt> {
        // SAFETY: the caller's promise.
        unsafe { if self.rx_in_ring() { self.step_in_ring(sink, sweeper) } else { self.step_in_kernel(sink) } }
    }

    /// # Safety
    /// The sink's buffers are writable memory.
    #[inline]
    unsafe fn step_in_ring(self, sink: &mut Sink<'_>, sweeper: Sweeper) -> Result<Step, Corrupt> {
        let slot = self.slot();
        let rx = &slot.rx;
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
            reach += larger;
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
        // SAFETY: the ring's place was checked when it was stored.
        let span = unsafe {
            let base = self.attachment.segment.base().add(rx.ring_offset.load(Relaxed) as usize);
            Span::new(base, size, rx.ring_start.load(Relaxed))
        };
        let mut head = head;
        let mut unpublished = 0u64;
        while available > 0 && sink.room() > 0 {
            let Some((at, len)) = sink.next() else { break };
            let n = (len as u64).min(available).min(64 << 10);
            if !sink.discard {
                // SAFETY: `at` is writable for `len` ≥ n bytes; n ≤ available ≤ size.
                unsafe { span.copy_out(head, at, n as usize) };
            }
            sink.moved(n as usize);
            head = head.wrapping_add(n);
            available -= n;
            unpublished += n;
            rx.head.store(head, Relaxed);
            if unpublished >= 64 << 10 && available > 0 && sink.room() > 0 {
                // A long copy: let the writer have the room meanwhile. Its wish, if it has one, is granted at the end.
                direction.head().store(head, Release);
                unpublished = 0;
            }
            Slot::count(&slot.in_ring, n);
        }
        Ok(Step::Again)
    }

    /// Frozen: is there no writer any more that could answer?
    #[cold]
    pub(crate) fn writer_is_gone(self, direction: Direction<'_>) -> bool {
        direction.eof().load(Acquire) != NO_EOF
            || kernel::poll(self.fd(), libc::POLLRDHUP, 0) & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0
    }

    /// Where the ring after the present one begins, of which all up to `from` is behind the reader: (first position, offset, size), checked.
    fn next_ring(self, direction: Direction<'_>, grown: u64, from: u64) -> Result<(u64, u64, u64), Corrupt> {
        let rx = &self.slot().rx;
        if grown != rx.grown.load(Relaxed) + 1 {
            return Err(Corrupt);
        }
        let (start, offset, size) = direction.ring(grown);
        let segment = &self.attachment.segment;
        let size = size.power_of_two(PAGE, 1 << 26)?;
        let offset = offset.checked(|&offset| offset % PAGE == 0 && segment.holds(offset, size))?;
        // Ahead by what the present ring can hold at most; behind, where a whole phase was skipped.
        let room = rx.ring_size.load(Relaxed);
        let start = start.checked(|start| start.wrapping_sub(from) <= room || from.wrapping_sub(*start) < 1 << 40)?;
        Ok((start, offset, size))
    }

    #[cold]
    fn move_to_next_ring(self, direction: Direction<'_>, grown: u64) -> Result<(), Corrupt> {
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
    fn ring_is_empty(self, direction: Direction<'_>, down: Option<Record>, sweeper: Sweeper) -> Result<Step, Corrupt> {
        let slot = self.slot();
        let rx = &slot.rx;
        if let Some(record) = down {
            let missing = record.tcp - rx.received.load(Relaxed);
            self.discard_tokens(missing);
            if rx.received.load(Relaxed) < record.tcp {
                // The last tokens are on their way, unless the connection ended.
                return Ok(match kernel::look(self.fd()) {
                    // Urgent data among the tokens went past the shim, and cannot be thrown away: an honest writer sends it behind the downgrade.
                    Ok(1) if kernel::at_mark(self.fd()) => return Err(Corrupt),
                    Ok(1) => Step::Again,
                    // The writer died in the middle of a downgrade: what it was to send again is lost.
                    Ok(_) if direction.tail().load(Acquire) != record.ring => Step::Done(Take::Error(libc::ECONNRESET)),
                    Ok(_) => Step::Done(Take::End),
                    Err(libc::EAGAIN) => Step::Done(Take::Nothing),
                    Err(errno) => Step::Done(self.failed(errno)),
                });
            }
            self.enter_tcp(direction, record.epoch);
            return Ok(Step::Again);
        }
        // The mark says that the end is meant; that it has come, the kernel's FIN says, as it would on TCP.
        let eof = direction.eof().load(Acquire);
        if eof != NO_EOF {
            let tail = direction.tail().load(Acquire);
            if tail != rx.head.load(Relaxed) || direction.epoch().load(Acquire) != rx.phase.load(Relaxed) {
                return Ok(Step::Again);
            }
            if eof != tail {
                return Err(Corrupt);
            }
            return self.ask_kernel(sweeper);
        }
        if slot.attention.load(Relaxed) & attention::KERNEL != 0 {
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
                    // What lies behind it, FIN perhaps, is to be looked at once that is read: an edge tells of it once.
                    self.slot().attention.fetch_or(attention::KERNEL, Relaxed);
                    return Ok(Step::Again);
                }
                // Tokens of an empty ring stand before whatever else the kernel has to say: FIN, perhaps.
                if self.sweep(sweeper) == Swept::Tokens(0) {
                    // Urgent data that went past the shim would keep the socket readable for ever, and nothing to receive.
                    if kernel::at_mark(self.fd()) {
                        fence(SeqCst);
                        return if self.has_news(direction) { Ok(Step::Again) } else { Err(Corrupt) };
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
                // A reset that is meant was told before: then the kernel, too, says that nothing follows.
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

    /// The kernel tells an error once. It is kept for the receive that finds nothing before it.
    pub fn keep_error(self, errno: c_int) {
        self.slot().rx.error.store(u64::try_from(errno).unwrap_or(0), Relaxed);
        self.slot().heed_kernel();
    }

    /// Is an error kept that the kernel told of?
    #[must_use]
    pub fn keeps_error(self) -> bool {
        self.slot().rx.error.load(Relaxed) != 0
    }

    /// The error that is kept, for whom it is told to now: nobody else hears of it.
    #[must_use]
    pub fn take_error(self) -> Option<c_int> {
        let kept = self.slot().rx.error.swap(0, Relaxed);
        (kept != 0).then(|| c_int::try_from(kept).unwrap_or(libc::ECONNRESET))
    }

    /// What the kernel says of the next byte, or the error that it told before.
    fn look_kept(self) -> Result<usize, c_int> {
        self.take_error().map_or_else(|| kernel::look(self.fd()), Err)
    }

    /// FIN on TCP: was everything that a freeze left in the ring sent again?
    fn ended_on_tcp(self) -> Take {
        if self.slot().stage() == Stage::Active && self.reset_is_meant() {
            // The kernel told of the reset before.
            return Take::End;
        }
        if self.resent_bytes_are_due() {
            return Take::Error(libc::ECONNRESET);
        }
        if self.slot().stage() != Stage::Active || self.channel().has_ended(1 - self.slot().side()) {
            Take::End
        } else {
            self.ended_without_mark()
        }
    }

    /// On TCP: are bytes still to come that a freeze left in the ring, for the writer to send again?
    fn resent_bytes_are_due(self) -> bool {
        let phase = self.slot().rx.phase.load(Relaxed);
        if self.slot().stage() != Stage::Active || phase == 0 {
            return false;
        }
        let direction = self.incoming();
        if direction.epoch().load(Acquire) != phase {
            // Upgraded since: everything had come before.
            return false;
        }
        let Ok(record) = direction.switch(phase).checked(|record| record.epoch == phase) else { return true };
        let again = direction.tail().load(Acquire).wrapping_sub(record.ring);
        let due = |received: u64| again <= 1 << 30 && received.wrapping_sub(record.tcp) < again;
        // A process without the shim, which was handed the socket, may have received them: the kernel counts what that one takes.
        let by_kernel = || kernel::facts(self.fd(), self.slot().has(flag::CONNECTED)).map_or(true, |facts| due(facts.received));
        due(self.slot().rx.received.load(Relaxed)) && (!self.slot().has(flag::COUNTED) || by_kernel())
    }

    /// Has the writer published anything that this reader could take now? A downgrade whose token is still on its way is none: TCP wakes.
    fn has_news(self, direction: Direction<'_>) -> bool {
        let rx = &self.slot().rx;
        let (phase, head) = (rx.phase.load(Relaxed), rx.head.load(Relaxed));
        let epoch = direction.epoch().load(Acquire);
        if epoch == phase {
            return direction.tail().load(Acquire) != head;
        }
        match self.record(direction, phase + 1) {
            Ok(record) => record.ring != head || rx.received.load(Relaxed) >= record.tcp || kernel::readable(self.fd()) > 0,
            Err(Corrupt) => true,
        }
    }

    /// FIN, and no end-of-file mark: the other end died, or was shut down past the shim. What TCP would say: end-of-file if it had read
    /// everything, else a reset.
    #[cold]
    fn ended_without_mark(self) -> Take {
        let outgoing = self.outgoing();
        let unread = self.tx_in_ring() && outgoing.head().load(Acquire) != self.slot().tx.tail.load(Relaxed);
        if !unread || self.slot().has(flag::TX_SHUT | flag::RX_SHUT) {
            return Take::End;
        }
        // A token asks whether anybody is there: the kernel of a closed socket answers RST. Another thread has the lock for microseconds; this very thread for ever, where it
        // was interrupted in a send.
        let mut tries = 0;
        let held = loop {
            match self.slot().tx.lock.try_lock(self.ticket()) {
                Some(held) => break held,
                None if tries == 20 => return Take::End,
                None => drop(kernel::poll(-1, 0, 1)),
            }
            tries += 1;
        };
        if !self.tx_in_ring() || self.slot().has(flag::TX_SHUT) {
            // Another thread went back to TCP meanwhile: a token would be data there.
            return Take::End;
        }
        Slot::count(&self.slot().tx.owed, 1);
        self.pay_tokens();
        drop(held);
        let reported = kernel::poll(self.fd(), 0, 20);
        if reported & (libc::POLLERR | libc::POLLHUP) != 0 { self.failed(libc::ECONNRESET) } else { Take::End }
    }

    /// An error from the kernel: after a clean close it is the end of the stream.
    fn failed(self, errno: c_int) -> Take {
        if errno == libc::ECONNRESET && self.slot().stage() == Stage::Active {
            let direction = self.incoming();
            let clean =
                direction.eof().load(Acquire) != NO_EOF && direction.eof().load(Acquire) == self.slot().rx.head.load(Relaxed);
            // A program that ended without closing: its kernel resets for a token that lay unread. Had it read everything, TCP would have said end-of-file.
            let read_all = self.all_was_read();
            if !self.reset_is_meant() && (clean || read_all) && self.all_has_come() {
                return Take::End;
            }
        }
        Take::Error(errno)
    }

    /// Did the other end say that it resets the connection?
    fn reset_is_meant(self) -> bool {
        self.channel().released().load(Acquire) & (0x100 << (1 - self.slot().side())) != 0
    }

    /// Was a reset, which the kernel reports, only the end of the stream: for a wake-up that lay unread when the other end was gone? TCP would have sent FIN.
    #[must_use]
    pub fn reset_is_end(self) -> bool {
        let kept = i32::try_from(self.slot().rx.error.load(Relaxed)).unwrap_or(0);
        matches!(kept, 0 | libc::ECONNRESET | libc::EPIPE)
            && self.slot().stage() == Stage::Active
            && !self.reset_is_meant()
            && self.all_was_read()
            && self.all_has_come()
    }

    /// Has every byte that the other end wrote reached this one, or does it lie in the ring? A reset makes the kernels forget what is under way. Tokens do not count.
    fn all_has_come(self) -> bool {
        let (direction, phase) = (self.incoming(), self.slot().rx.phase.load(Relaxed));
        let Ok(epoch) = self.epoch(direction) else { return false };
        let sent = direction.sent().load(Acquire);
        if phase & 1 == 1 {
            let only_tokens = |record: Record| sent <= record.tcp && direction.tail().load(Acquire) == record.ring;
            return epoch == phase || self.record(direction, epoch).is_ok_and(only_tokens);
        }
        let data = if epoch == phase { Ok(sent) } else { self.record(direction, phase + 1).map(|record| record.tcp) };
        let come = self.slot().rx.received.load(Relaxed) + kernel::readable(self.fd());
        data.is_ok_and(|data| come >= data) && (epoch != phase || !self.resent_bytes_are_due())
    }

    /// Had the other end taken every byte that this end wrote, as far as shared memory tells? Tokens do not count.
    fn all_was_read(self) -> bool {
        let (outgoing, tx) = (self.outgoing(), &self.slot().tx);
        let epoch = tx.epoch.load(Relaxed);
        let head = outgoing.head().load(Acquire);
        if epoch & 1 == 1 {
            return head == tx.tail.load(Relaxed);
        }
        // Back on TCP: nothing but the downgrade's own token went out since.
        let since = |record: &Record| record.epoch == epoch && record.ring == head && tx.sent.load(Relaxed) == record.tcp;
        epoch != 0 && outgoing.switch(epoch).checked(since).is_ok()
    }

    /// Throws away up to `n` bytes that are tokens, as many as have come.
    fn discard_tokens(self, n: u64) -> u64 {
        // Asked for where nothing is, the kernel would tell, and forget, an error of the connection.
        let there = kernel::readable(self.fd()).min(n);
        if there == 0 { 0 } else { self.discard_those(there) }
    }

    /// Throws away `n` > 0 bytes that are tokens and have come.
    fn discard_those(self, n: u64) -> u64 {
        let rx = &self.slot().rx;
        let got = match kernel::discard(self.fd(), n as usize) {
            Ok(got) => got as u64,
            Err(errno) => {
                if errno != libc::EAGAIN {
                    self.keep_error(errno);
                }
                0
            }
        };
        Slot::count(&rx.received, got);
        Slot::count(&rx.tokens, got);
        if self.live() {
            self.incoming().received().store(rx.received.load(Relaxed), Relaxed);
        }
        got
    }

    fn enter_tcp(self, direction: Direction<'_>, epoch: u64) {
        let rx = &self.slot().rx;
        rx.phase.store(epoch, Relaxed);
        // From the next upgrade on, until it is entered, this reader sleeps on TCP. A promised token was counted among those that came: so it is here.
        let (_, fresh) = park::arm(direction.want_data(), Want::Token);
        rx.armed.fetch_add(fresh, Relaxed);
        direction.received().store(rx.received.load(Relaxed), Relaxed);
        direction.ack().store(epoch, SeqCst);
    }

    fn enter_ring(self, direction: Direction<'_>, record: Record) -> Result<(), Corrupt> {
        let rx = &self.slot().rx;
        let head = rx.head.load(Relaxed);
        // Frozen bytes were sent again over TCP: the ring goes on behind them.
        let skipped = Untrusted::new(record.ring).ahead_of(head, 1 << 40)?;
        rx.head.store(head.wrapping_add(skipped), Relaxed);
        // A ring that was replaced before this phase began is taken up at its present place.
        let grown = direction.grown().load(Acquire);
        if grown != rx.grown.load(Relaxed) {
            let (start, ..) = self.next_ring(direction, grown, rx.head.load(Relaxed))?;
            if record.ring.wrapping_sub(start) as i64 >= 0 {
                self.move_to_next_ring(direction, grown)?;
            }
        }
        rx.frozen.store(0, Relaxed);
        // Only where both have agreed does a writer upgrade.
        if self.slot().advance(Stage::Settling, Stage::Active) {
            self.slot().set_reason(Reason::None);
        }
        direction.head().store(rx.head.load(Relaxed), Release);
        rx.phase.store(record.epoch, Relaxed);
        direction.ack().store(record.epoch, SeqCst);
        Ok(())
    }

    /// # Safety
    /// The sink's buffers are writable memory.
    unsafe fn step_in_kernel(self, sink: &mut Sink<'_>) -> Result<Step, Corrupt> {
        let slot = self.slot();
        let rx = &slot.rx;
        let active = self.live();
        if sink.filled() > 0 && self.is_at_mark() {
            return Ok(Step::Done(Take::Mark));
        }
        // The bytes that are there first (and whether the stream ended), the records after: every upgrade that they could lie behind is then known.
        let mut there = kernel::readable(self.fd());
        let looked = if there == 0 { self.look_kept() } else { Ok(1) };
        let at_mark = there == 0
            && match looked {
                Ok(1) => kernel::at_mark(self.fd()),
                Err(libc::EAGAIN) => self.is_at_mark(),
                _ => false,
            };
        if at_mark {
            // What follows urgent data is not counted, and the kernel steps over the byte itself, in the receive. A writer that sent any never upgrades again: no boundary can come.
            there = u64::MAX;
        }
        fence(SeqCst);
        let mut limit = u64::MAX;
        if active {
            let direction = self.incoming();
            let phase = rx.phase.load(Relaxed);
            if self.epoch(direction)? > phase {
                let record = self.record(direction, phase + 1)?;
                limit = record.tcp - rx.received.load(Relaxed);
                if limit == 0 {
                    self.enter_ring(direction, record)?;
                    return Ok(Step::Again);
                }
            }
        }
        let n = there.min(limit).min(sink.room() as u64) as usize;
        if n == 0 {
            return Ok(match looked {
                Ok(1) => Step::Again,
                Ok(_) => Step::Done(self.ended_on_tcp()),
                Err(libc::EAGAIN) => Step::Done(Take::Nothing),
                Err(errno) => Step::Done(self.failed(errno)),
            });
        }
        let got = if sink.discard {
            kernel::discard(self.fd(), n)
        } else {
            let Some((at, len)) = sink.next() else { return Ok(Step::Done(Take::Nothing)) };
            let piece = [iovec { iov_base: at.cast(), iov_len: n.min(len) }];
            // SAFETY: the sink's place is writable for `len` bytes.
            unsafe { kernel::recv(self.fd(), &piece, 0) }
        };
        if at_mark && !kernel::at_mark(self.fd()) {
            // The urgent byte was stepped over.
            Slot::count(&rx.received, 1);
        }
        match got {
            Ok(got) => {
                sink.moved(got);
                Slot::count(&rx.received, got as u64);
                if active {
                    self.incoming().received().store(rx.received.load(Relaxed), Release);
                }
                Slot::count(&slot.in_tcp, got as u64);
                // Look for more only where a switch is at hand: another round costs three calls.
                let more = limit != u64::MAX || sink.next().is_some_and(|(_, len)| len > 0) && there > got as u64;
                Ok(if more && got > 0 { Step::Again } else { Step::Done(Take::Nothing) })
            }
            Err(libc::EAGAIN) => Ok(Step::Done(Take::Nothing)),
            Err(errno) => Ok(Step::Done(self.failed(errno))),
        }
    }

    /// Is urgent data next on TCP? Asked only where the other end may have sent any: it holds the direction then.
    fn is_at_mark(self) -> bool {
        (!self.live() || self.outgoing().held()) && kernel::at_mark(self.fd())
    }

    /// Is this reader on TCP, and holds the other end the direction for good? The kernel may then answer a receive that takes nothing.
    #[must_use]
    pub fn stays_on_tcp(self) -> bool {
        self.slot().stage() == Stage::Active
            && !self.slot().has(flag::LEAVING)
            && !self.rx_in_ring()
            && self.incoming().epoch().load(Acquire) == self.slot().rx.phase.load(Relaxed)
            && self.outgoing().asked_back()
    }

    /// Looks at the next bytes and leaves them, across one switch in either direction: a program may wait for a whole message by peeking.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    unsafe fn peek(self, sink: &mut Sink<'_>) -> Result<Take, Corrupt> {
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
            return Ok(unsafe { self.peek_kernel(sink, u64::MAX) });
        }
        let direction = self.incoming();
        if !self.rx_in_ring() {
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
                // TCP bytes behind the tokens of this phase keep the kernel's readiness: the tokens may go.
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
        let mut pieces = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 16];
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

    /// Copies ring bytes from `from` on without taking them. True if nothing lies behind them in the ring.
    ///
    /// # Safety
    /// The sink's buffers are writable memory.
    unsafe fn peek_ring(self, sink: &mut Sink<'_>, direction: Direction<'_>, from: u64) -> Result<bool, Corrupt> {
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
        let base = self.attachment.segment.base();
        let (mut start, mut offset, mut size_here) = (rx.ring_start.load(Relaxed), rx.ring_offset.load(Relaxed), size);
        let mut next = None;
        let mut reach = size;
        if grown != rx.grown.load(Relaxed) {
            let ring = self.next_ring(direction, grown, from)?;
            reach += ring.2;
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
            let until = next.map_or(available, |(next_start, ..)| next_start.wrapping_sub(position).min(available));
            let Some((at, len)) = sink.next() else { return Ok(false) };
            if len == 0 {
                return Ok(false);
            }
            let n = (len as u64).min(until).min(size_here);
            if !sink.discard {
                // SAFETY: the ring's place was checked; `at` is writable for `len` ≥ n bytes.
                unsafe { Span::new(base.add(offset as usize), size_here, start).copy_out(position, at, n as usize) };
            }
            sink.moved(n as usize);
            position = position.wrapping_add(n);
            available -= n;
        }
        Ok(true)
    }

    /// Would a receive return at once, as far as shared memory tells? (POLLIN, where the ring is the carrier.)
    #[must_use]
    #[inline]
    pub fn readable(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        if direction.epoch().load(Acquire) != rx.phase.load(Relaxed) {
            // A downgrade is to be entered. Whether anything is readable, only `tidy` can tell.
            return self.tidy();
        }
        self.is_filled(direction)
    }

    /// Are there bytes in the ring, no switch being under way? Looks at memory only: good without a lock, and when the descriptor may be gone.
    #[must_use]
    #[inline]
    pub fn ring_is_filled(self) -> bool {
        let direction = self.incoming();
        self.is_filled(direction) && direction.epoch().load(Acquire) == self.slot().rx.phase.load(Relaxed)
    }

    /// The same, whatever switch may be under way.
    #[inline]
    fn is_filled(self, direction: Direction<'_>) -> bool {
        let rx = &self.slot().rx;
        direction.tail().load(Acquire) != rx.head.load(Relaxed) && rx.frozen.load(Relaxed) == 0
    }

    /// Bytes that the ring says it holds. A hint, not checked.
    #[must_use]
    pub fn ring_bytes(self) -> u64 {
        self.incoming().tail().load(Acquire).wrapping_sub(self.slot().rx.head.load(Relaxed))
    }

    /// Is there nothing to receive, the ring being the carrier: no bytes, no switch, no end, and no word from the kernel? False where only a closer look could tell.
    #[must_use]
    #[inline]
    pub fn is_surely_empty(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        rx.phase.load(Relaxed) & 1 == 1
            && direction.tail().load(Acquire) == rx.head.load(Relaxed)
            && direction.epoch().load(Acquire) == rx.phase.load(Relaxed)
            && self.slot().attention.load(Relaxed) & attention::KERNEL == 0
            && direction.eof().load(Acquire) == NO_EOF
    }

    /// Where the next byte will lie, if nothing changes: for prefetching only.
    #[must_use]
    #[inline]
    pub fn next_place(self) -> *const u8 {
        let rx = &self.slot().rx;
        let size = rx.ring_size.load(Relaxed);
        let at = rx.head.load(Relaxed).wrapping_sub(rx.ring_start.load(Relaxed)) & size.wrapping_sub(1);
        self.attachment.segment.base().wrapping_add((rx.ring_offset.load(Relaxed) + at) as usize)
    }

    /// Settles what stands between the program and its bytes without taking any: enters switches that are due, throws away tokens
    /// of an empty ring. Afterwards a readable kernel socket means readable bytes, end-of-file or an error. True if there is something to receive.
    #[must_use]
    pub fn tidy(self) -> bool {
        self.tidy_for(Sweeper::Other)
    }

    /// [`Self::tidy`] by the only one who sleeps on this socket: it arms before it sleeps again.
    #[must_use]
    pub fn tidy_before_sleep(self) -> bool {
        self.tidy_for(Sweeper::ArmsNext)
    }

    fn tidy_for(self, sweeper: Sweeper) -> bool {
        let slot = self.slot();
        // What a receive has begun that waits for this handler is looked at anew.
        let Ok(_held) = self.receive_lock_unless_interrupted() else { return true };
        let nowhere = [];
        let mut none = Sink::new(&nowhere, false);
        for _ in 0..8 {
            // SAFETY: `none` has no buffers: nothing is stored.
            match unsafe { self.step(&mut none, sweeper) } {
                Err(Corrupt) => {
                    self.break_off(Reason::Corrupt);
                    return true;
                }
                Ok(Step::Done(Take::Nothing)) => {
                    if !self.rx_in_ring() {
                        let reported = kernel::poll(self.fd(), libc::POLLIN | libc::POLLRDHUP, 0);
                        match reported {
                            0 => return false,
                            // Came just now: data, or the token of a switch that came just now.
                            libc::POLLIN => continue,
                            _ => return true,
                        }
                    }
                    if slot.rx.frozen.load(Relaxed) == 0 {
                        if let Swept::Tokens(1..) = self.sweep(sweeper)
                            && kernel::poll(self.fd(), libc::POLLRDHUP, 0) != 0
                        {
                            // FIN stood behind it.
                            slot.attention.fetch_or(attention::KERNEL, Relaxed);
                            continue;
                        }
                        if self.has_news(self.incoming()) {
                            continue;
                        }
                    }
                    return false;
                }
                Ok(Step::Done(Take::Error(errno))) => {
                    self.keep_error(errno);
                    return true;
                }
                Ok(Step::Done(_)) => return true,
                Ok(Step::Again) => {
                    let there = if self.rx_in_ring() {
                        self.ring_has_bytes()
                    } else {
                        kernel::readable(self.fd()) > 0 && self.switch_is_far()
                    };
                    if there {
                        return true;
                    }
                }
            }
        }
        true
    }

    /// In the ring: are there bytes before the end of this phase?
    fn ring_has_bytes(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let (phase, head) = (rx.phase.load(Relaxed), rx.head.load(Relaxed));
        if rx.frozen.load(Relaxed) != 0 {
            return false;
        }
        match self.epoch(direction) {
            Ok(epoch) if epoch > phase => self.record(direction, epoch).is_ok_and(|record| record.ring != head),
            _ => direction.tail().load(Acquire) != head,
        }
    }

    /// On TCP: is the next byte data?
    fn switch_is_far(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if !self.live() || direction.epoch().load(Acquire) <= phase {
            return true;
        }
        self.record(direction, phase + 1).is_ok_and(|record| record.tcp > rx.received.load(Relaxed))
    }

    /// Arms the wish for data. `Some`: armed, and there is nothing: sleep. `None`: look again at once.
    #[must_use]
    pub fn arm_data(self, want: Want) -> Option<Want> {
        let slot = self.slot();
        let _held = self.receive_lock_unless_interrupted().ok()?;
        if slot.stage() != Stage::Active || !self.rx_in_ring() {
            // On TCP the kernel wakes.
            self.note(want);
            return Some(Want::Token);
        }
        (self.sweep(Sweeper::Sleeps(want)) != Swept::News).then(|| Want::of(self.incoming().want_data().load(Relaxed)))
    }

    /// Are this end's sleepers woken by tokens only? Also while one sleeps in the kernel's own receive, since TCP carried: an upgrade's first token wakes it, and
    /// nobody may throw that away.
    fn by_token(self) -> bool {
        self.is_shared() || self.slot().rx.sleeper.load(Relaxed) == Want::Token.word()
    }

    /// How many tokens had come, for one who is about to look at the kernel's next byte: see [`token_is_there`](Self::token_is_there). `None` where that byte need not be a token.
    #[must_use]
    pub fn tokens_so_far(self) -> Option<u64> {
        // In a ring's phase the next byte is one: a downgrade's goes before its data.
        let tokens = self.slot().rx.tokens.load(Relaxed);
        (self.slot().stage() == Stage::Active && self.rx_in_ring()).then_some(tokens)
    }

    /// One who had [`tokens_so_far`](Self::tokens_so_far) saw a byte, and left it: the next sleep need not ask whether there is any.
    pub fn token_is_there(self, so_far: Option<u64>) {
        if let Some(tokens) = so_far {
            self.slot().rx.seen.store(tokens.wrapping_add(1), Relaxed);
        }
    }

    /// The same, for good.
    fn is_shared(self) -> bool {
        !self.attachment.fifos || self.slot().has(flag::SHARED) || self.incoming().mute().load(Relaxed) != 0
    }

    /// The one who slept in the kernel's own receive is awake.
    pub fn woken_by_kernel(self) {
        let _ = self.slot().rx.sleeper.compare_exchange(Want::Token.word(), 0, Relaxed, Relaxed);
    }

    /// Arms a wish for data.
    fn arm(self, want: Want) {
        self.note(want);
        let want = if self.by_token() { Want::Token } else { want };
        let (_, fresh) = park::arm(self.incoming().want_data(), want);
        self.slot().rx.armed.fetch_add(fresh, Relaxed);
    }

    /// Remembers who sleeps here. A second sleeper, or one without a waiter of its own while a ring carries: from now on all are woken in the one way that
    /// reaches all.
    fn note(self, want: Want) {
        let slot = self.slot();
        if self.is_shared() {
            return;
        }
        let before = slot.rx.sleeper.swap(want.word(), Relaxed);
        let token = want == Want::Token;
        if token && self.rx_in_ring() || before != 0 && (token || before != want.word()) {
            slot.set(flag::SHARED, true);
        }
    }

    /// Throws away the tokens of an empty ring, which would only keep the kernel's readiness up.
    ///
    /// A token may be the only thing that will wake another thread or process. So: count what lies there, arm, look at the ring, and only if there is nothing
    /// throw away, and no more than was counted. Each of these was sent for bytes that were published before it and are read by now; whatever is published after
    /// the arming brings a token that is not touched; what was published in between is news, and the tokens stay.
    fn sweep(self, sweeper: Sweeper) -> Swept {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let wish = || Want::of(direction.want_data().load(Relaxed));
        // Whether any token can lie there is known without asking: all that were armed (the first by the channel's creator), less those that came.
        let tokens = rx.tokens.load(Relaxed);
        let due = rx.armed.load(Relaxed).wrapping_add(1).wrapping_sub(u64::from(wish() == Want::Token)).wrapping_sub(tokens);
        let counted = match sweeper {
            Sweeper::Sleeps(_) if due == 0 => 0,
            // The only one that can lie there was seen. (A wish for room that nobody claimed yet is counted too: then only the kernel knows.)
            Sweeper::Sleeps(_)
                if due == 1
                    && rx.seen.load(Relaxed) == tokens.wrapping_add(1)
                    && Want::of(self.outgoing().want_space().load(Relaxed)) != Want::Token =>
            {
                self.tokens_of_phase(direction, 1)
            }
            _ => self.tokens_until(direction),
        };
        match sweeper {
            Sweeper::Sleeps(want) => self.arm(want),
            _ if counted > 0 && self.by_token() => self.arm(Want::Token),
            // Whoever sleeps in the kernel was to be woken by these. A wish that stands is another, made after it was woken. (Looked at after the count: a token that was
            // counted was promised before.)
            Sweeper::Other if counted > 0 && !matches!(wish(), Want::Waiter { .. }) => {
                let (_, fresh) = park::arm(direction.want_data(), Want::Token);
                rx.armed.fetch_add(fresh, Relaxed);
            }
            _ => {}
        }
        fence(SeqCst);
        let waits = rx.frozen.load(Relaxed) != 0 && direction.epoch().load(Acquire) == rx.phase.load(Relaxed);
        if !waits && self.has_news(direction) {
            return Swept::News;
        }
        Swept::Tokens(if counted > 0 { self.discard_those(counted) } else { 0 })
    }

    /// Does a wish for data stand: will whoever sleeps here be woken by the next byte?
    #[must_use]
    pub fn will_be_woken(self) -> bool {
        matches!(Want::of(self.incoming().want_data().load(Relaxed)), Want::Waiter { .. } | Want::Token)
    }

    /// Arms the wish for data although there is unread data: for an edge-triggered waiter that was told of it. The caller looks afterwards whether more came.
    ///
    /// # Errors
    /// Not armed: a receive that waits for this signal handler is at it.
    pub fn arm_past(self, want: Want) -> Result<(), Interrupted> {
        let slot = self.slot();
        let _held = self.receive_lock_unless_interrupted()?;
        if slot.stage() == Stage::Active && self.rx_in_ring() {
            self.arm(want);
        }
        Ok(())
    }

    /// How many of the bytes in the kernel are tokens of this phase at most.
    fn tokens_until(self, direction: Direction<'_>) -> u64 {
        let there = kernel::readable(self.fd());
        self.tokens_of_phase(direction, there)
    }

    /// The same of so many that were there: before the boundary is looked at, as bytes behind one that appears in between must not be thrown away.
    fn tokens_of_phase(self, direction: Direction<'_>, there: u64) -> u64 {
        let rx = &self.slot().rx;
        let phase = rx.phase.load(Relaxed);
        fence(SeqCst);
        match self.epoch(direction) {
            Ok(epoch) if epoch > phase => {
                self.record(direction, epoch).map_or(0, |record| there.min(record.tcp - rx.received.load(Relaxed)))
            }
            Ok(_) => there,
            Err(Corrupt) => 0,
        }
    }

    /// Takes the wish for data back.
    pub fn disarm_data(self, want: Want) {
        let _ = self.slot().rx.sleeper.compare_exchange(want.word(), 0, Relaxed, Relaxed);
        park::disarm(self.incoming().want_data(), want);
    }

    /// Are bytes that were in the ring on their way to TCP? They were told of, perhaps, and cannot be received at this moment.
    #[must_use]
    #[inline]
    pub fn is_switching(self) -> bool {
        if self.rx_in_ring() {
            let (direction, rx) = (self.incoming(), &self.slot().rx);
            let leaving = rx.frozen.load(Relaxed) != 0 || direction.epoch().load(Acquire) != rx.phase.load(Relaxed);
            leaving && direction.tail().load(Acquire) != rx.head.load(Relaxed)
        } else {
            self.resent_bytes_are_due()
        }
    }

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
    fn tell_frozen(self) {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if phase & 1 == 1 && direction.epoch().load(Acquire) == phase {
            direction.freeze_ring().store(rx.head.load(Relaxed), Relaxed);
            direction.freeze_epoch().store(phase, SeqCst);
        }
    }

    /// Wakes the other end's service thread: there is a wish for it to look at.
    pub fn poke_service(self) {
        self.poke_reader();
        // A writer that sleeps for room looks again when it is woken.
        self.grant_space();
    }

    /// [`Self::poke_service`], under the send lock.
    pub(crate) fn poke_reader(self) {
        let channel = self.channel();
        let other = 1 - self.slot().side();
        let page = channel.service(other).load(Relaxed);
        let index = channel.owner(other).load(Relaxed) as u32;
        fence(SeqCst);
        if let (Ok(page @ 1..), Ok(bit)) = (u32::try_from(page), u16::try_from(index % waiter::BITS)) {
            // Where it is not reached, it looks by itself after a while.
            let _ = waiter::ring(self.attachment, page, bit, None);
        }
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
                    record.ring.wrapping_sub(rx.head.load(Relaxed)).min(1 << 30) + there.saturating_sub(record.tcp - received)
                }
                Some(Err(_)) => 0,
                None if rx.frozen.load(Relaxed) != 0 => 0,
                None => in_ring(rx.head.load(Relaxed)),
            }
        } else {
            match (epoch > phase).then(|| self.record(direction, phase + 1)) {
                Some(Ok(record)) if there < record.tcp - received => there,
                Some(Ok(record)) => {
                    // The writer may have left the ring again before this reader came to it.
                    let behind = match (epoch > phase + 1).then(|| self.record(direction, epoch)) {
                        Some(Ok(down)) => {
                            down.ring.wrapping_sub(record.ring).min(1 << 30) + there.saturating_sub(down.tcp - received)
                        }
                        Some(Err(_)) => 0,
                        None => in_ring(record.ring),
                    };
                    record.tcp - received + behind
                }
                Some(Err(_)) => 0,
                None => there,
            }
        }
    }
}

/// Who throws tokens away.
#[derive(Clone, Copy)]
enum Sweeper {
    /// Is about to sleep, to be woken so.
    Sleeps(Want),
    /// Arms before anybody sleeps again: whoever is awake is the only one who ever sleeps here.
    ArmsNext,
    /// Somebody else may be asleep.
    Other,
}

/// What [`Endpoint::sweep`] found.
#[derive(PartialEq, Eq)]
enum Swept {
    /// There is something to receive.
    News,
    /// Nothing; so many tokens were thrown away.
    Tokens(u64),
}

enum Step {
    /// Something changed: look again.
    Again,
    /// No more for now.
    Done(Take),
}
