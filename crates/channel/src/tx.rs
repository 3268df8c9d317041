//! The writer's side of a direction: everything here happens under the send lock.

use crate::catchup;
use crate::finish;
use crate::growth;
use crate::kernel;
use crate::layout::{Direction, GATE_TAKEN, NO_EOF, Record};
use crate::ledger::{self, Held, Interrupted, Lock, Reason, Slot, Stage, attention, flag};
use crate::settle::Endpoint;
use crate::waiter;
use ginnel_region::{Corrupt, Untrusted, sys};
use ginnel_ring::park::{self, Want};
use ginnel_ring::span::{self, Span};
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// Bytes copied between two publications of a large write: both sides work at once.
const PIECE: u64 = 16 << 10;
/// How long a writer waits for the reader to give back what it has not read, nanoseconds.
const PATIENCE: u64 = 500_000_000;

/// How a non-blocking send ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// So many bytes were taken.
    Bytes(usize),
    /// No room: wait for the reader of the ring.
    RingFull,
    /// No room: wait for the kernel's POLLOUT.
    KernelFull,
    /// The kernel's error; the program gets it.
    Error(c_int),
    /// Let the kernel have the call as it is (it knows the right error and signal).
    Kernel,
    /// Nothing was sent: the caller is a signal handler, and the thread that it interrupted was in the middle of a send here.
    Interrupted,
}

impl<'a> Endpoint<'a> {
    /// The direction this endpoint writes.
    #[inline]
    pub fn outgoing(self) -> Direction<'a> {
        self.channel().direction(self.slot().side())
    }

    /// The direction this endpoint reads.
    #[inline]
    pub fn incoming(self) -> Direction<'a> {
        self.channel().direction(1 - self.slot().side())
    }

    /// Is the ring this direction's carrier?
    #[inline]
    pub fn tx_in_ring(self) -> bool {
        self.slot().tx.epoch.load(Relaxed) & 1 == 1
    }

    /// Sends without blocking. Only in [`Stage::Settling`] and later.
    ///
    /// # Safety
    /// The iovecs describe readable memory.
    pub unsafe fn put(self, iov: &[iovec], flags: c_int) -> Put {
        let slot = self.slot();
        let Ok(_held) = self.send_lock_unless_interrupted() else { return Put::Interrupted };
        if slot.has(flag::TX_SHUT) {
            // Another thread is about to end the kernel's side, too. It would still take these bytes, and the reader them for tokens.
            self.end_in_kernel();
            return Put::Kernel;
        }
        match self.arrange(flags) {
            Ok(true) => {}
            Ok(false) => return Put::KernelFull,
            Err(Corrupt) if slot.stage() == Stage::Broken => return Put::Error(libc::ECONNRESET),
            Err(Corrupt) => return self.broken(Reason::Corrupt),
        }
        if self.tx_in_ring() && Want::of(self.outgoing().want_data().load(Relaxed)) == Want::Closed {
            // The reader has closed: its kernel gives the answer that TCP gives.
            self.switch_down_silently();
        }
        if self.tx_in_ring() {
            // SAFETY: the caller's promise.
            match unsafe { self.put_in_ring(iov) } {
                Ok(put) => put,
                Err(Corrupt) => self.broken(Reason::Corrupt),
            }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.put_in_kernel(iov, flags) }
        }
    }

    fn broken(self, reason: Reason) -> Put {
        self.break_off(reason);
        Put::Error(libc::ECONNRESET)
    }

    /// Ends the connection: the shared state makes no sense. The peer's kernel sends it RST.
    #[cold]
    pub fn break_off(self, reason: Reason) {
        self.slot().set_reason(reason);
        if self.slot().stage() == Stage::Active {
            // The reset is meant: the other end is not to take it for the end of the stream.
            self.channel().released().fetch_or(0x100 << self.slot().side(), SeqCst);
        }
        self.slot().set_stage(Stage::Broken);
        // The number may be another's by now.
        if kernel::cookie(self.fd()) == Ok(self.slot().cookie.load(Relaxed)) {
            kernel::abort(self.fd());
        }
    }

    /// Takes the send lock; what a dead holder left half done is made whole.
    #[inline(always)]
    pub(crate) fn send_lock(self) -> Held<'a> {
        self.made_whole(self.slot().tx.lock.lock(&self.attachment.ledger, self.ticket()))
    }

    /// The same, for calls of signal handlers.
    #[inline(always)]
    fn send_lock_unless_interrupted(self) -> Result<Held<'a>, Interrupted> {
        let held = self.slot().tx.lock.lock_unless_interrupted(&self.attachment.ledger, self.ticket())?;
        Ok(self.made_whole(held))
    }

    #[inline]
    fn made_whole(self, held: Held<'a>) -> Held<'a> {
        if held.taken_over {
            self.recount();
        }
        held
    }

    /// Does the caller run in a signal handler that interrupted this thread's work on the connection?
    #[inline]
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        let (slot, ticket) = (self.slot(), self.ticket());
        slot.tx.lock.is_interrupted(ticket) || slot.rx.lock.is_interrupted(ticket)
    }

    /// After taking the send lock over from the dead. A thread dies as a system call returns: what the kernel took is then not counted yet. How many tokens and re-sent
    /// bytes are among it follows from where the last downgrade put them.
    #[cold]
    fn recount(self) {
        let (slot, tx) = (self.slot(), &self.slot().tx);
        // It may have died, or left by `siglongjmp`, in a stop of its stream ([`catchup`]).
        self.channel().pausing(slot.side()).store(0, SeqCst);
        if !slot.has(flag::COUNTED) {
            return;
        }
        if let Ok(facts) = kernel::facts(self.fd(), slot.has(flag::CONNECTED)) {
            tx.sent.store(facts.sent, Relaxed);
            self.count_sent(0);
        }
        if slot.stage() != Stage::Active {
            return;
        }
        let sent = tx.sent.load(Relaxed);
        let direction = self.outgoing();
        // Pages that the dead had claimed, and described nowhere yet, are to be looked for in the end.
        self.channel().released().fetch_or(finish::DIED, SeqCst);
        growth::finish(tx, direction);
        // The channel's words follow the private ones: the one that was stored first counts.
        direction.tail().store(tx.tail.load(Relaxed), Release);
        direction.epoch().store(tx.epoch.load(Relaxed), Release);
        if slot.has(flag::TX_SHUT) {
            // All that was owed had been given to the kernel before, or will never be. Its FIN wakes who sleeps.
            self.say_end();
            tx.owed.store(0, Relaxed);
            slot.attention.fetch_and(!(attention::RESEND | attention::TOKEN_OWED), Relaxed);
            return self.end_in_kernel();
        }
        if self.tx_in_ring() {
            direction.gate().fetch_or(GATE_TAKEN, SeqCst);
            slot.attention.fetch_and(!attention::RESEND, Relaxed);
            // A wish may have been claimed and not granted, or a token promised and not sent. One token too many does no harm in the ring; a close is to count it.
            if park::promise(direction.want_data()) != Want::Closed {
                Slot::count(&tx.owed, 1);
            }
        } else {
            direction.gate().fetch_and(!GATE_TAKEN, SeqCst);
            let (down, start, end) = (tx.down.load(Relaxed), tx.resend_start.load(Relaxed), tx.resend_to.load(Relaxed));
            tx.owed.store(down.saturating_sub(sent).min(tx.owed.load(Relaxed)), Relaxed);
            let again = sent.saturating_sub(down).min(end.wrapping_sub(start));
            tx.resend_from.store(start.wrapping_add(again), Relaxed);
            if tx.resend_from.load(Relaxed) != end {
                slot.attention.fetch_or(attention::RESEND, Relaxed);
            }
        }
        if tx.owed.load(Relaxed) != 0 {
            slot.attention.fetch_or(attention::TOKEN_OWED, Relaxed);
        }
    }

    /// The kernel's side of a direction that was ended. (Where the socket is being closed, the close says how: by a reset, perhaps.)
    #[cold]
    fn end_in_kernel(self) {
        if !self.slot().has(flag::ENDING) {
            kernel::end_writing(self.fd());
        }
    }

    /// Takes and gives back the locks that this thread left by `siglongjmp`: another may be waiting for them, and cannot know.
    pub fn take_back_left(self) {
        self.free_locks(|lock| lock.was_left_here(self.ticket()));
    }

    /// Frees locks of this end whose holders are dead.
    pub fn heal(self) {
        self.free_locks(|lock| lock.is_orphan(&self.attachment.ledger));
    }

    /// Takes, makes whole and gives back the `left` ones of this end's two locks.
    fn free_locks(self, left: impl Fn(&Lock) -> bool) {
        if left(&self.slot().tx.lock) {
            drop(self.send_lock());
        }
        if left(&self.slot().rx.lock) {
            drop(self.receive_lock());
        }
    }

    /// Before each send: freeze, hold, owed tokens, re-sending, upgrade. `Ok(false)`: bytes of before still wait for the kernel.
    #[inline]
    fn arrange(self, flags: c_int) -> Result<bool, Corrupt> {
        let slot = self.slot();
        let urgent = flags & libc::MSG_OOB != 0;
        match slot.stage() {
            Stage::Active => {}
            // By another thread, the service's perhaps, while this one waited for room in a ring that nobody will read.
            Stage::Broken => return Err(Corrupt),
            _ => {
                if urgent {
                    finish::hold(self, Reason::Urgent);
                }
                return Ok(true);
            }
        }
        let direction = self.outgoing();
        let epoch = slot.tx.epoch.load(Relaxed);
        let quiet = !direction.held()
            && (direction.freeze_epoch().load(Relaxed) != epoch || epoch & 1 == 0)
            && !self.owes()
            && !slot.has(flag::HOLD | flag::CUT)
            && !urgent
            && self.attachment.settings.chaos.is_none();
        if quiet && epoch & 1 == 1 { Ok(true) } else { self.arrange_slowly(urgent) }
    }

    /// The parts of [`Self::arrange`] that are rare; also what the service thread does for a program that is busy. Under the send lock.
    fn arrange_slowly(self, urgent: bool) -> Result<bool, Corrupt> {
        let slot = self.slot();
        let direction = self.outgoing();
        let chaos = self.attachment.chaos();
        if self.tx_in_ring() {
            let held = slot.has(flag::HOLD);
            if self.frozen() || held && !urgent {
                self.downgrade();
            } else if urgent || self.is_cut() {
                self.ask_for_freeze();
                self.downgrade();
            } else if direction.held() || chaos == Some(0) {
                self.leave_ring();
            }
            if slot.stage() == Stage::Broken {
                return Err(Corrupt);
            }
        }
        if urgent && !slot.has(flag::HOLD) {
            // Not before the freeze was asked for: a writer that sees the hold leaves its ring at once. Before the mark: a reader that sees the hold looks for it.
            finish::hold(self, Reason::Urgent);
        }
        if slot.attention.load(Relaxed) & attention::TOKEN_OWED != 0 {
            self.pay_tokens();
            if slot.tx.owed.load(Relaxed) != 0 && !self.tx_in_ring() {
                // Tokens go before data.
                return Ok(false);
            }
        }
        if slot.attention.load(Relaxed) & attention::RESEND != 0 && !self.resend()? {
            return Ok(false);
        }
        if !self.tx_in_ring() && !urgent && self.may_upgrade() && (chaos.is_none() || chaos.is_some_and(|roll| roll > 2)) {
            self.upgrade()?;
        }
        if chaos == Some(1) {
            self.freeze_if_idle();
        }
        Ok(true)
    }

    /// Does the reader ask for what it has not read to be sent again over TCP?
    pub(crate) fn frozen(self) -> bool {
        // SeqCst: whoever saw a hold sees the freeze that was written before it.
        self.outgoing().freeze_epoch().load(SeqCst) == self.slot().tx.epoch.load(Relaxed)
    }

    /// Bytes in the ring that the reader has not taken.
    fn unread(self) -> u64 {
        let tx = &self.slot().tx;
        let head = later(self.outgoing().head().load(Acquire), tx.begun.load(Relaxed));
        tx.tail.load(Relaxed).wrapping_sub(head)
    }

    /// Goes back to TCP as soon as the ring is empty, or the reader has given back what it has not read: bytes in the ring, with others behind them on TCP, could not
    /// be handed over to a program without the shim. Under the send lock.
    pub(crate) fn leave_ring(self) {
        if self.unread() == 0 {
            return self.downgrade();
        }
        let epoch = self.slot().tx.epoch.load(Relaxed);
        if self.outgoing().wish().swap(epoch, SeqCst) != epoch {
            self.poke_reader();
        }
    }

    /// Before this end's writer must go back to TCP: has the reader give back what it has not read, so that the reader too can hand its end over. For a
    /// moment only: it may not answer, or the kernel may not have the room; then it reads those bytes out of the ring.
    pub(crate) fn ask_for_freeze(self) {
        let mut room: c_int = 0;
        let _ = kernel::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &mut room);
        // The kernel counts its own overhead too.
        if self.unread() <= u64::from(room.unsigned_abs()) / 2 {
            self.ask_for_all_back();
        }
    }

    /// The same, however much it is: for a writer that can wait until the kernel has taken all of it.
    pub(crate) fn ask_for_all_back(self) {
        if !self.tx_in_ring() || self.unread() == 0 || self.slot().has(flag::TX_SHUT) {
            return;
        }
        self.outgoing().wish().store(self.slot().tx.epoch.load(Relaxed), SeqCst);
        let end = sys::monotonic_ns() + PATIENCE;
        while self.tx_in_ring() && !self.frozen() && sys::monotonic_ns() < end {
            self.poke_reader();
            if kernel::poll(self.fd(), 0, 1) & (libc::POLLERR | libc::POLLHUP) != 0 {
                break;
            }
        }
    }

    /// Has the reader taken everything that was sent over TCP? Otherwise tokens would come to lie behind data in its kernel, and
    /// the socket could not be handed over before the program has read that.
    fn reader_is_here(self) -> bool {
        self.outgoing().received().load(Acquire) == self.slot().tx.sent.load(Relaxed)
    }

    /// A stream without pauses: now and then, holds the next byte back, so that the reader can catch up.
    fn await_reader(self) -> bool {
        let is_here = || {
            self.push_corked();
            self.reader_is_here()
        };
        let stopped = catchup::stop(self.slot(), || self.channel(), || self.outgoing().received().load(Relaxed), is_here);
        if !stopped {
            self.settle_cork();
        }
        stopped
    }

    fn may_upgrade(self) -> bool {
        let slot = self.slot();
        let direction = self.outgoing();
        !slot.has(flag::HOLD | flag::TX_SHUT | flag::CUT | flag::LEAVING)
            && !self.owes()
            && !direction.held()
            && direction.ack().load(Acquire) == slot.tx.epoch.load(Relaxed)
            && Want::of(direction.want_data().load(Relaxed)) != Want::Closed
            && (self.reader_is_here() || self.await_reader())
            && kernel::unsent(self.fd()) == 0
            && kernel::poll(self.fd(), libc::POLLOUT, 0) == libc::POLLOUT
    }

    /// Moves the direction into the ring from here on.
    fn upgrade(self) -> Result<(), Corrupt> {
        let slot = self.slot();
        let Ok(facts) = kernel::facts(self.fd(), slot.has(flag::CONNECTED)) else { return Ok(()) };
        if facts.state != 1 {
            return Ok(());
        }
        if facts.sent != slot.tx.sent.load(Relaxed) {
            // Somebody wrote past the shim: where data ends can no longer be told.
            self.break_off(Reason::Bypassed);
            return Ok(());
        }
        // Tokens go over TCP, and at once.
        self.push_corked();
        let direction = self.outgoing();
        // Hold and upgrade meet in one word: one of the two sees the other.
        if direction.gate().compare_exchange(0, GATE_TAKEN, SeqCst, Relaxed).is_err() {
            return Ok(());
        }
        let epoch = slot.tx.epoch.load(Relaxed) + 1;
        let tail = slot.tx.tail.load(Relaxed);
        direction.set_switch(Record { epoch, tcp: facts.sent, ring: tail });
        // What lies before is past, though the reader moves its head only when it enters.
        slot.tx.head_seen.store(tail, Relaxed);
        slot.tx.begun.store(tail, Relaxed);
        slot.tx.tries.store(0, Relaxed);
        slot.tx.epoch.store(epoch, Relaxed);
        direction.epoch().store(epoch, SeqCst);
        Slot::count(&slot.upgrades, 1);
        if slot.reason() == Reason::PathCut {
            slot.set_reason(Reason::None);
        }
        if direction.held() {
            self.leave_ring();
        }
        Ok(())
    }

    /// Moves the direction back to TCP from here on, or from where the reader froze. One token goes with it: whoever sleeps on this end's tokens looks again.
    pub(crate) fn downgrade(self) {
        let direction = self.outgoing();
        if self.was_bypassed() {
            return self.break_off(Reason::Bypassed);
        }
        // Whatever the downgrade is for: a reader that hands over freezes before it holds, and what it has not read is lost to it unless sent again.
        if direction.freeze_epoch().load(Acquire) != self.slot().tx.epoch.load(Relaxed) {
            let (tx, tail) = (&self.slot().tx, self.slot().tx.tail.load(Relaxed));
            for word in [&tx.resend_start, &tx.resend_from, &tx.resend_to] {
                word.store(tail, Relaxed);
            }
            self.switch_down(tail);
        } else if self.downgrade_frozen(Untrusted::new(direction.freeze_ring().load(Relaxed))).is_err() {
            self.break_off(Reason::Corrupt);
        }
    }

    /// Did bytes go past the shim while the ring was the carrier? The reader has taken them for tokens, or would take tokens for them.
    fn was_bypassed(self) -> bool {
        let facts = kernel::facts(self.fd(), self.slot().has(flag::CONNECTED));
        // Where the counters never stood still there is nothing to compare: the next switch looks again.
        facts.is_ok_and(|facts| {
            matches!(facts.state, kernel::ESTABLISHED | kernel::CLOSE_WAIT) && facts.sent != self.slot().tx.sent.load(Relaxed)
        })
    }

    /// The reader froze at `ring`: what lies behind it goes over TCP once more.
    fn downgrade_frozen(self, ring: Untrusted<u64>) -> Result<(), Corrupt> {
        let tx = &self.slot().tx;
        let tail = tx.tail.load(Relaxed);
        let reach = tx.ring_size.load(Relaxed) + tx.old_size.load(Relaxed);
        let behind = tail.wrapping_sub(ring.checked(|&ring| tail.wrapping_sub(ring) <= reach)?);
        tx.resend_from.store(tail.wrapping_sub(behind), Relaxed);
        tx.resend_to.store(tail, Relaxed);
        tx.resend_start.store(tail.wrapping_sub(behind), Relaxed);
        if behind != 0 {
            self.slot().attention.fetch_or(attention::RESEND, Relaxed);
        }
        self.switch_down(tail.wrapping_sub(behind));
        Ok(())
    }

    fn switch_down(self, ring: u64) {
        let slot = self.slot();
        let direction = self.outgoing();
        let epoch = slot.tx.epoch.load(Relaxed) + 1;
        let want = park::promise(direction.want_data());
        // Owed tokens and the one that goes with the downgrade belong to the ring's phase. A reader that has closed gets none. One that was promised before, and may be past, is
        // not enough: whoever looks before the record is out and sleeps then is woken by the one that comes after it.
        let owed = slot.tx.owed.load(Relaxed) + u64::from(want != Want::Closed);
        direction.gate().fetch_and(!GATE_TAKEN, SeqCst);
        direction.set_switch(Record { epoch, tcp: slot.tx.sent.load(Relaxed) + owed, ring });
        slot.tx.owed.store(owed, Relaxed);
        slot.tx.down.store(slot.tx.sent.load(Relaxed) + owed, Relaxed);
        slot.attention.fetch_or(attention::TOKEN_OWED, Relaxed);
        slot.tx.epoch.store(epoch, Relaxed);
        direction.epoch().store(epoch, SeqCst);
        Slot::count(&slot.downgrades, 1);
        self.pay_tokens();
        self.settle_cork();
        // The downgrade's token reaches it too, where this does not.
        if let Want::Waiter { page, bit } = want {
            let _ = waiter::ring(self.attachment, page, bit, Some(slot));
        }
        // This end's own writer may sleep for room that will never come: it is to look again.
        match park::claim(direction.want_space()) {
            Want::Waiter { page, bit } => {
                waiter::ring(self.attachment, page, bit, None);
            }
            // Taken back: the token that was counted will not come.
            Want::Token => {
                slot.rx.armed.fetch_sub(1, Relaxed);
            }
            Want::Nothing | Want::Closed | Want::Promised(_) => {}
        }
    }

    /// The kernel took `n` bytes. The other end is to know how many there were, should a reset lose some of them.
    pub(crate) fn count_sent(self, n: u64) {
        let slot = self.slot();
        Slot::count(&slot.tx.sent, n);
        if matches!(slot.stage(), Stage::Settling | Stage::Active) {
            self.outgoing().sent().store(slot.tx.sent.load(Relaxed), Release);
        }
    }

    /// Sends the tokens that are owed, as far as the kernel takes them. Under the send lock.
    pub(crate) fn pay_tokens(self) {
        let slot = self.slot();
        let mut owed = slot.tx.owed.load(Relaxed);
        while owed > 0 {
            match kernel::token(self.fd()) {
                Ok(()) => {
                    self.count_sent(1);
                    Slot::count(&slot.tokens, 1);
                    owed -= 1;
                    slot.tx.owed.store(owed, Relaxed);
                }
                Err(libc::EAGAIN) => break,
                // The connection is gone: nobody sleeps on it any more.
                Err(errno) => {
                    owed = 0;
                    self.told(errno);
                }
            }
        }
        slot.tx.owed.store(owed, Relaxed);
        if owed == 0 {
            slot.attention.fetch_and(!attention::TOKEN_OWED, Relaxed);
        } else {
            slot.attention.fetch_or(attention::TOKEN_OWED, Relaxed);
        }
    }

    /// The kernel told this end of an error, once, in a call that is not the program's: the next receive, or a send that fails, is to know. (EPIPE is no news of the connection.)
    fn told(self, errno: c_int) {
        if errno != libc::EPIPE {
            self.keep_error(errno);
        }
    }

    /// Sends the frozen bytes over TCP. `Ok(true)` once all are sent.
    fn resend(self) -> Result<bool, Corrupt> {
        let slot = self.slot();
        let tx = &slot.tx;
        if slot.attention.load(Relaxed) & attention::TOKEN_OWED != 0 {
            return Ok(false);
        }
        loop {
            let (from, to) = (tx.resend_from.load(Relaxed), tx.resend_to.load(Relaxed));
            if from == to {
                slot.attention.fetch_and(!attention::RESEND, Relaxed);
                return Ok(true);
            }
            let (span, end) = self.span_at(from);
            let (at, len) = span.piece(from, to.wrapping_sub(from).min(end.wrapping_sub(from)));
            let piece = [iovec { iov_base: at.cast(), iov_len: len }];
            // SAFETY: the piece lies in the ring.
            match unsafe { kernel::send(self.fd(), &piece, 0) } {
                Ok(n) => {
                    tx.resend_from.store(from.wrapping_add(n as u64), Relaxed);
                    self.count_sent(n as u64);
                    Slot::count(&slot.out_tcp, n as u64);
                }
                Err(libc::EAGAIN) => return Ok(false),
                Err(errno) => {
                    // The connection is gone; the program's own call will learn how.
                    tx.resend_from.store(to, Relaxed);
                    self.told(errno);
                }
            }
        }
    }

    /// Does a switch still owe tokens, or bytes that were in the ring?
    #[must_use]
    pub fn owes(self) -> bool {
        self.slot().attention.load(Relaxed) & (attention::TOKEN_OWED | attention::RESEND) != 0
    }

    /// Sends what a switch owes, as far as the kernel takes it. False: the connection was broken off. Under the send lock.
    fn pay(self) -> bool {
        self.pay_tokens();
        let paid = self.resend();
        if paid.is_err() {
            self.break_off(Reason::Corrupt);
        }
        paid.is_ok()
    }

    /// The ring that holds `position`, and where that ring's positions end.
    fn span_at(self, position: u64) -> (Span, u64) {
        let tx = &self.slot().tx;
        let (start, old_size) = (tx.ring_start.load(Relaxed), tx.old_size.load(Relaxed));
        let in_old = old_size != 0 && start.wrapping_sub(position).wrapping_sub(1) < old_size;
        let base = self.attachment.segment.base();
        // SAFETY: offsets and sizes in the slot were checked against the segment when they were stored.
        unsafe {
            if in_old {
                (Span::new(base.add(tx.old_offset.load(Relaxed) as usize), old_size, tx.old_start.load(Relaxed)), start)
            } else {
                (
                    Span::new(base.add(tx.ring_offset.load(Relaxed) as usize), tx.ring_size.load(Relaxed), start),
                    position.wrapping_add(1 << 40),
                )
            }
        }
    }

    /// Free bytes in the ring. Looks at the reader's head only where what is known of it is not enough for `wanted`.
    #[inline]
    fn room(self, direction: Direction<'_>, wanted: u64) -> Result<u64, Corrupt> {
        let tx = &self.slot().tx;
        let (tail, size, start) = (tx.tail.load(Relaxed), tx.ring_size.load(Relaxed), tx.ring_start.load(Relaxed));
        let known = tx.head_seen.load(Relaxed);
        let room = span::free(tail, Untrusted::new(later(known, start)), size)?;
        if room >= wanted.min(size) {
            return Ok(room);
        }
        let (room, head) = self.look_for_room(direction)?;
        tx.head_seen.store(head, Relaxed);
        Ok(room)
    }

    /// Room in the ring, and how far the reader has come, going by what it says now.
    fn look_for_room(self, direction: Direction<'_>) -> Result<(u64, u64), Corrupt> {
        let tx = &self.slot().tx;
        let (tail, size, start) = (tx.tail.load(Relaxed), tx.ring_size.load(Relaxed), tx.ring_start.load(Relaxed));
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
    unsafe fn put_in_ring(self, iov: &[iovec]) -> Result<Put, Corrupt> {
        let slot = self.slot();
        let direction = self.outgoing();
        let total = iov.iter().map(|piece| piece.iov_len as u64).sum::<u64>();
        let mut room = self.room(direction, total)?;
        if room < total && self.grow_as_full(direction) || growth::is_busy(&slot.tx, total) && self.grow_as_busy(direction) {
            room = self.room(direction, total)?;
        }
        if room == 0 && total != 0 {
            return Ok(Put::RingFull);
        }
        // SAFETY: the ring's place was checked when it was stored.
        let span = unsafe {
            let base = self.attachment.segment.base().add(slot.tx.ring_offset.load(Relaxed) as usize);
            Span::new(base, slot.tx.ring_size.load(Relaxed), slot.tx.ring_start.load(Relaxed))
        };
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
                    // A write may be as long as it likes, and the reader as fast: somebody may ask for TCP meanwhile.
                    if room == 0 || direction.held() || slot.has(flag::CUT) {
                        break 'all;
                    }
                }
                let n = (piece.iov_len as u64 - done).min(room).min(PIECE - unpublished);
                // SAFETY: `n` bytes are readable in this piece and free in the ring.
                unsafe { span.copy_in(tail, piece.iov_base.cast::<u8>().add(done as usize), n as usize) };
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

    /// Publishes bytes up to `tail`, and wakes the reader. Under the send lock; `tx` is this endpoint's.
    #[inline(always)]
    pub(crate) fn publish_tail(self, tx: &ledger::Send, direction: Direction<'_>, tail: u64) {
        tx.tail.store(tail, Relaxed);
        let want = park::publish(direction.tail(), tail, direction.want_data());
        if !matches!(want, Want::Nothing | Want::Closed | Want::Promised(_)) {
            self.grant(want);
        }
    }

    /// Grants a claimed wish of the reader's. Under the send lock.
    #[cold]
    pub(crate) fn grant(self, want: Want) {
        match want {
            Want::Token => {
                Slot::count(&self.slot().tx.owed, 1);
                self.pay_tokens();
            }
            Want::Waiter { page, bit } => {
                if !waiter::ring(self.attachment, page, bit, Some(self.slot())) {
                    self.cannot_ring();
                    self.wake_by_token();
                }
            }
            Want::Nothing | Want::Closed | Want::Promised(_) => {}
        }
    }

    /// The other end sleeps, and this process has no way to ring it. Where that is so for good, it is told to ask for tokens from now on: in whatever phase, as a reader that
    /// never writes has no other.
    #[cold]
    fn cannot_ring(self) {
        if self.attachment.bells.is_none() && self.attachment.settings.deaf == 0 {
            self.outgoing().mute().store(1, SeqCst);
        }
    }

    /// Wakes a reader whose waiter cannot be rung: by a token that is promised, as a downgrade's is, so that it is counted. In ring phase, under the send lock.
    #[cold]
    fn wake_by_token(self) {
        match park::promise_one(self.outgoing().want_data()) {
            // None will be read, or one is on its way.
            Want::Closed | Want::Promised(_) => {}
            Want::Nothing | Want::Token | Want::Waiter { .. } => {
                Slot::count(&self.slot().tx.owed, 1);
                self.pay_tokens();
            }
        }
    }

    /// The daemon by whose way machines are rung is gone, perhaps with a ring that it had not passed on: wakes the reader at the other end over TCP.
    pub fn wake_again(self) {
        let _held = self.send_lock();
        if self.slot().stage() == Stage::Active && self.tx_in_ring() && !self.slot().has(flag::TX_SHUT) {
            self.wake_by_token();
        }
    }

    /// Back to TCP towards an end that will never read again: no token, for it would be taken for data after a close.
    #[cold]
    fn switch_down_silently(self) {
        let slot = self.slot();
        let epoch = slot.tx.epoch.load(Relaxed) + 1;
        self.outgoing().set_switch(Record { epoch, tcp: slot.tx.sent.load(Relaxed), ring: slot.tx.tail.load(Relaxed) });
        slot.tx.owed.store(0, Relaxed);
        slot.tx.down.store(slot.tx.sent.load(Relaxed), Relaxed);
        slot.tx.resend_start.store(slot.tx.resend_to.load(Relaxed), Relaxed);
        slot.attention.fetch_and(!(attention::TOKEN_OWED | attention::RESEND), Relaxed);
        self.outgoing().gate().fetch_and(!GATE_TAKEN, SeqCst);
        slot.tx.epoch.store(epoch, Relaxed);
        self.outgoing().epoch().store(epoch, SeqCst);
    }

    /// # Safety
    /// The iovecs describe readable memory.
    unsafe fn put_in_kernel(self, iov: &[iovec], flags: c_int) -> Put {
        // SAFETY: the caller's promise.
        match unsafe { kernel::send(self.fd(), iov, flags & !libc::MSG_NOSIGNAL) } {
            Ok(n) => {
                self.count_sent(n as u64);
                Slot::count(&self.slot().out_tcp, n as u64);
                Put::Bytes(n)
            }
            Err(libc::EAGAIN) => Put::KernelFull,
            // A reset that was only the end of the stream: TCP would have seen FIN, and say EPIPE now.
            Err(libc::ECONNRESET | libc::EPIPE) if self.reset_is_end() => Put::Kernel,
            // What the kernel told a call that was not the program's comes first, as it would have.
            Err(libc::EPIPE) => self.take_error().map_or(Put::Kernel, Put::Error),
            Err(errno) => Put::Error(errno),
        }
    }

    /// Arms the wish for room. `Some`: armed, and the ring is still full: sleep. `None`: look again at once.
    #[must_use]
    pub fn arm_space(self, want: Want) -> Option<Want> {
        let slot = self.slot();
        let _held = self.send_lock_unless_interrupted().ok()?;
        if slot.stage() != Stage::Active || !self.tx_in_ring() {
            return None;
        }
        let direction = self.outgoing();
        let want = if self.incoming().mute().load(Relaxed) == 0 { want } else { Want::Token };
        let already = Want::of(direction.want_space().load(Relaxed));
        let token = want == Want::Token || !matches!(already, Want::Nothing) && already != want;
        let mut armed = want;
        // Where no token can come, nothing is armed: whoever waits for room by token looks again after a while anyway.
        if !token || self.tokens_can_come() {
            let fresh;
            (armed, fresh) = park::arm(direction.want_space(), want);
            if armed == Want::Token {
                slot.rx.armed.fetch_add(fresh, Relaxed);
            }
        }
        let asked = self.frozen();
        let closed = Want::of(direction.want_data().load(Relaxed)) == Want::Closed;
        match self.room(direction, self.enough()) {
            Ok(room) if room < self.enough() && !asked && !closed => Some(armed),
            _ => None,
        }
    }

    /// How much room makes an upgraded socket writable: a quarter of the ring.
    fn enough(self) -> u64 {
        (self.slot().tx.ring_size.load(Relaxed) / 4).max(1)
    }

    /// Takes the wish for room back.
    pub fn disarm_space(self, want: Want) {
        park::disarm(self.outgoing().want_space(), want);
    }

    /// Can a token reach this end: is the incoming direction upgraded and open?
    fn tokens_can_come(self) -> bool {
        let incoming = self.incoming();
        incoming.epoch().load(SeqCst) & 1 == 1
            && incoming.eof().load(Acquire) == NO_EOF
            && self.slot().rx.phase.load(Relaxed) & 1 == 1
    }

    /// Would a send find room? (POLLOUT, where the ring is the carrier.)
    #[must_use]
    pub fn writable(self) -> bool {
        let direction = self.outgoing();
        let asked = self.frozen() || Want::of(direction.want_data().load(Relaxed)) == Want::Closed;
        // Judged as a send judges: one that finds no room where there is said to be some would be made again and again. Nonsense: the send will say so.
        asked || self.slot().has(flag::TX_SHUT) || self.look_for_room(direction).map_or(true, |(room, _)| room >= self.enough())
    }

    /// Would a send find room? Does first what a send would do first: a switch may owe tokens, and bytes that were in the ring and go over TCP once more; where those fill the
    /// kernel's buffer, it tells when there is room again. `told`: what the kernel says of its own room.
    #[must_use]
    pub fn sendable(self, told: bool) -> bool {
        let slot = self.slot();
        let in_ring = self.tx_in_ring();
        if slot.stage() != Stage::Active || slot.has(flag::TX_SHUT) || !(if in_ring { self.frozen() } else { self.owes() }) {
            return if in_ring { self.writable() } else { told };
        }
        {
            let Ok(_held) = self.send_lock_unless_interrupted() else { return true };
            if self.tx_in_ring() && self.frozen() {
                self.downgrade();
            }
            if !self.pay() {
                return true;
            }
        }
        if self.tx_in_ring() { self.writable() } else { !self.owes() && kernel::writable(self.fd()) }
    }

    /// Wakes the writer at the other end if it waits for room in the ring that this end reads: after the reader took bytes. Not under the receive lock. Where that cannot
    /// be (no token may be sent, or a send waits for this signal handler), a writer that waits for room looks again after a while.
    #[cold]
    pub(crate) fn grant_space(self) {
        let word = self.incoming().want_space();
        match Want::of(word.load(Relaxed)) {
            Want::Waiter { .. } => {
                if let Want::Waiter { page, bit } = park::claim_waiter(word)
                    && !waiter::ring(self.attachment, page, bit, Some(self.slot()))
                {
                    self.cannot_ring();
                    let Ok(_held) = self.send_lock_unless_interrupted() else { return };
                    if self.tx_in_ring() && !self.slot().has(flag::TX_SHUT) {
                        self.wake_by_token();
                    }
                }
            }
            Want::Token => {
                // A token may be sent only in ring phase, which the send lock keeps as it is. Outside it the downgrade's own token did the waking, or FIN.
                let Ok(_held) = self.send_lock_unless_interrupted() else { return };
                if self.tx_in_ring() && !self.slot().has(flag::TX_SHUT) && park::claim(word) == Want::Token {
                    Slot::count(&self.slot().tx.owed, 1);
                    self.pay_tokens();
                }
            }
            Want::Nothing | Want::Closed | Want::Promised(_) => {}
        }
    }

    /// Asks over TCP whether anybody is there: the kernel of a socket that is closed answers RST.
    pub fn probe(self) {
        if let Some(_held) = self.slot().tx.lock.try_lock(self.ticket())
            && self.tx_in_ring()
            && !self.slot().has(flag::TX_SHUT)
            && self.slot().tx.owed.load(Relaxed) == 0
            && Want::of(self.outgoing().want_data().load(Relaxed)) != Want::Closed
            // One that ended its stream may read on for long. What lies unread there makes its kernel answer when it dies.
            && (!self.other_end_is_meant() || self.reader_is_here())
        {
            Slot::count(&self.slot().tx.owed, 1);
            self.pay_tokens();
        }
    }

    /// Did the other end say that its stream ends, or has it not ended?
    fn other_end_is_meant(self) -> bool {
        self.incoming().eof().load(Acquire) != NO_EOF || self.channel().has_ended(1 - self.slot().side())
    }

    /// Do bytes wait in the ring for an end whose own stream has ended? Its kernel has nothing left by which it would tell of its death: see [`probe`](Self::probe).
    #[must_use]
    pub fn waits_for_half_closed(self) -> bool {
        // One that receives no more would answer even an old byte with RST.
        let reads = || !self.channel().is_shut(1 - self.slot().side());
        self.tx_in_ring() && self.other_end_is_meant() && self.unread() != 0 && self.reader_is_here() && reads()
    }

    /// [`probe`](Self::probe), where bytes wait for an end that may die without a word.
    pub fn probe_half_closed(self) {
        if self.waits_for_half_closed() {
            self.probe();
        }
    }

    /// The kernel had something to say: is nobody there any more who could read what is put into the ring? Then the kernel answers the sends from here on, as it
    /// does on TCP.
    #[must_use]
    pub fn reader_died(self) -> bool {
        const GONE: i16 = libc::POLLERR | libc::POLLHUP;
        let attention = &self.slot().attention;
        if attention.load(Relaxed) & attention::READER == 0 || !self.tx_in_ring() {
            return false;
        }
        // Asked once, unless the answer is a FIN that nobody meant.
        attention.fetch_and(!attention::READER, SeqCst);
        let mut reported = kernel::poll(self.fd(), libc::POLLRDHUP, 0);
        if reported & (libc::POLLRDHUP | GONE) == libc::POLLRDHUP && !self.other_end_is_meant() {
            attention.fetch_or(attention::READER, SeqCst);
            self.probe();
            reported = kernel::poll(self.fd(), 0, 0);
        }
        if reported & GONE != 0 {
            self.give_up_ring();
        }
        reported & GONE != 0
    }

    /// The connection is gone: from here on the kernel answers.
    pub fn give_up_ring(self) {
        let Ok(_held) = self.send_lock_unless_interrupted() else {
            // Whoever sends next asks again.
            self.slot().attention.fetch_or(attention::READER, SeqCst);
            return;
        };
        if self.tx_in_ring() {
            self.switch_down_silently();
        }
    }

    /// The ring is full and nobody reads: goes on over TCP, whose buffers have room yet. The ring is taken up again once all was read.
    pub fn spill(self) {
        let Ok(_held) = self.send_lock_unless_interrupted() else { return };
        if self.slot().stage() == Stage::Active && self.tx_in_ring() && !self.slot().has(flag::TX_SHUT) && !self.frozen() {
            self.leave_ring();
        }
    }

    /// Is there something for the service thread to do in the writing direction?
    #[must_use]
    pub fn wants_service(self) -> bool {
        let slot = self.slot();
        self.owes()
            || self.tx_in_ring()
                && (self.frozen() || slot.has(flag::HOLD) || (self.outgoing().asked_back() || self.wishes()) && self.unread() == 0)
    }

    /// Is this end's writer waiting for the reader to freeze?
    #[must_use]
    pub fn wishes(self) -> bool {
        self.tx_in_ring() && self.outgoing().wish().load(Relaxed) == self.slot().tx.epoch.load(Relaxed)
    }

    /// Bytes that were sent and not yet received or acknowledged (SIOCOUTQ).
    #[must_use]
    pub fn unread_bytes(self) -> u64 {
        let in_ring = if self.tx_in_ring() {
            self.slot().tx.tail.load(Relaxed).wrapping_sub(self.outgoing().head().load(Acquire)).min(1 << 30)
        } else {
            0
        };
        in_ring + kernel::unacknowledged(self.fd())
    }

    /// What the service thread does for the writing direction of a program that is elsewhere.
    pub fn serve_tx(self) {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return };
        if slot.stage() != Stage::Active || slot.has(flag::TX_SHUT) {
            return;
        }
        let direction = self.outgoing();
        let idle = (direction.asked_back() || self.wishes()) && self.unread() == 0;
        if self.tx_in_ring() && (self.frozen() || slot.has(flag::HOLD) || idle) {
            self.downgrade();
        }
        if self.owes() {
            let _ = self.pay();
        }
    }
}

/// The later of two ring positions that lie near each other.
#[inline]
fn later(a: u64, b: u64) -> u64 {
    if (a.wrapping_sub(b) as i64) < 0 { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;
    use crate::attach::wake_directory;
    use crate::settle::tests::active_end;
    use crate::waiter::Waiter;

    /// The other end's writer sleeps until there is room, and this process cannot ring it, nor send it a token: it would sleep its whole nap for each ring.
    #[test]
    fn a_writer_that_cannot_be_rung_hears_so_from_a_reader_that_never_writes() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        let waiter = Waiter::new(&attachment).expect("a waiter");
        std::fs::remove_dir_all(wake_directory(directory.path(), attachment.segment.path())).expect("there");
        waiter.sleeping(&attachment.segment);
        end.incoming().want_space().store(waiter.want(0).word(), Relaxed);
        assert!(!end.tx_in_ring() && end.outgoing().mute().load(Relaxed) == 0);
        end.grant_space();
        assert_eq!(end.outgoing().mute().load(Relaxed), 1, "tokens, please");
    }
}
