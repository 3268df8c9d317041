//! From one carrier to the other, at an exact byte: up once the reader has everything, down where
//! it stopped.

use crate::catchup;
use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::{GATE_TAKEN, Record};
use crate::ledger::{Reason, Slot, Stage, attention, flag};
use crate::order;
use crate::rings::LARGEST;
use ginnel_region::{Corrupt, Untrusted, sys};
use ginnel_ring::park::{self, Want};
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// How long a writer waits for the reader to give back what it has not read, nanoseconds.
const PATIENCE: u64 = 500_000_000;

impl<'a> Endpoint<'a> {
    /// Does the reader ask for what it has not read to be sent again over TCP?
    pub(crate) fn frozen(self) -> bool {
        // SeqCst: whoever saw a hold sees the freeze that was written before it.
        self.outgoing().freeze_epoch().load(SeqCst) == self.slot().tx.epoch.load(Relaxed)
    }

    /// Goes back to TCP as soon as the ring is empty, or the reader has given back what it has not
    /// read: bytes in the ring, with others behind them on TCP, could not be handed over to a
    /// program without the shim. Under the send lock.
    pub(crate) fn leave_ring(self) {
        if self.unread() == 0 {
            return self.downgrade();
        }
        let epoch = self.slot().tx.epoch.load(Relaxed);
        if self.outgoing().wish().swap(epoch, SeqCst) != epoch {
            self.poke_reader();
        }
    }

    /// Before this end's writer must go back to TCP: has the reader give back what it has not read,
    /// so that the reader too can hand its end over. For a moment only: it may not answer, or the
    /// kernel may not have the room; then it reads those bytes out of the ring.
    pub(crate) fn ask_for_freeze(self) {
        let mut room: c_int = 0;
        let _ = kernel::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &mut room);
        // The kernel counts its own overhead too.
        if self.unread() <= u64::from(room.unsigned_abs()) / 2 {
            self.ask_for_all_back();
        }
    }

    /// The same, however much it is: for a writer that can wait until the kernel has taken all of
    /// it.
    pub(crate) fn ask_for_all_back(self) {
        if !self.tx_in_ring() || self.unread() == 0 || self.slot().has(flag::TX_SHUT) {
            return;
        }
        self.outgoing().wish().store(self.slot().tx.epoch.load(Relaxed), SeqCst);
        let end = sys::monotonic_ns() + PATIENCE;
        while self.tx_in_ring() && !self.frozen() && sys::monotonic_ns() < end {
            self.poke_reader();
            if sys::poll(self.fd(), 0, 1) & (libc::POLLERR | libc::POLLHUP) != 0 {
                break;
            }
        }
    }

    /// Has the reader taken everything that was sent over TCP? Otherwise tokens would come to lie
    /// behind data in its kernel, and the socket could not be handed over before the program has
    /// read that.
    pub(super) fn reader_is_here(self) -> bool {
        self.outgoing().received().load(Acquire) == self.slot().tx.sent.load(Relaxed)
    }

    /// A stream without pauses: now and then, holds the next byte back, so that the reader can
    /// catch up.
    fn await_reader(self) -> bool {
        let is_here = || {
            self.push_corked();
            self.reader_is_here()
        };
        let stopped = catchup::stop(
            self.slot(),
            || self.channel(),
            || self.outgoing().received().load(Relaxed),
            is_here,
        );
        if !stopped {
            self.settle_cork();
        }
        stopped
    }

    pub(super) fn may_upgrade(self) -> bool {
        let slot = self.slot();
        let direction = self.outgoing();
        !slot.has(flag::HOLD | flag::TX_SHUT | flag::CUT | flag::LEAVING)
            && !self.owes()
            && !direction.held()
            && direction.ack().load(Acquire) == slot.tx.epoch.load(Relaxed)
            && Want::of(direction.want_data().load(Relaxed)) != Want::Closed
            && (self.reader_is_here() || self.await_reader())
            && kernel::unsent(self.fd()) == 0
            && sys::poll(self.fd(), libc::POLLOUT, 0) == libc::POLLOUT
    }

    /// Moves the direction into the ring from here on.
    pub(super) fn upgrade(self) -> Result<(), Corrupt> {
        let slot = self.slot();
        let Ok(facts) = kernel::facts(self.fd(), slot.has(flag::CONNECTED)) else { return Ok(()) };
        if facts.state != kernel::ESTABLISHED {
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
        order::begin(&slot.tx, direction, tail);
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

    /// Moves the direction back to TCP from here on, or from where the reader froze. One token goes
    /// with it: whoever sleeps on this end's tokens looks again.
    pub(crate) fn downgrade(self) {
        let direction = self.outgoing();
        if self.was_bypassed() {
            return self.break_off(Reason::Bypassed);
        }
        // Whatever the downgrade is for: a reader that hands over freezes before it holds, and what
        // it has not read is lost to it unless sent again.
        if direction.freeze_epoch().load(Acquire) != self.slot().tx.epoch.load(Relaxed) {
            let (tx, tail) = (&self.slot().tx, self.slot().tx.tail.load(Relaxed));
            for word in [&tx.resend_start, &tx.resend_from, &tx.resend_to] {
                word.store(tail, Relaxed);
            }
            self.switch_down(tail);
        } else if self
            .downgrade_frozen(Untrusted::new(direction.freeze_ring().load(Relaxed)))
            .is_err()
        {
            self.break_off(Reason::Corrupt);
        }
    }

    /// Did bytes go past the shim while the ring was the carrier? The reader has taken them for
    /// tokens, or would take tokens for them.
    fn was_bypassed(self) -> bool {
        let facts = kernel::facts(self.fd(), self.slot().has(flag::CONNECTED));
        // Where the counters never stood still there is nothing to compare: the next switch looks
        // again.
        facts.is_ok_and(|facts| {
            matches!(facts.state, kernel::ESTABLISHED | kernel::CLOSE_WAIT)
                && facts.sent != self.slot().tx.sent.load(Relaxed)
        })
    }

    /// The reader froze at `ring`: what lies behind it goes over TCP once more.
    fn downgrade_frozen(self, ring: Untrusted<u64>) -> Result<(), Corrupt> {
        let tx = &self.slot().tx;
        let tail = tx.tail.load(Relaxed);
        let reach = tx.ring_size.load(Relaxed).wrapping_add(tx.old_size.load(Relaxed));
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
        // Owed tokens and the one that goes with the downgrade belong to the ring's phase. A reader
        // that has closed gets none. One that was promised before, and may be past, is not enough:
        // whoever looks before the record is out and sleeps then is woken by the one that comes
        // after it.
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
            let _ = self.ring_waiter(page, bit);
        }
        // This end's own writer may sleep for room that will never come: it is to look again.
        match park::claim(direction.want_space()) {
            Want::Waiter { page, bit } => self.ring_own(page, bit),
            // Taken back: the token that was counted will not come.
            Want::Token => {
                slot.rx.armed.fetch_sub(1, Relaxed);
            }
            Want::Nothing | Want::Closed | Want::Promised(_) => {}
        }
    }

    /// Sends the frozen bytes over TCP. `Ok(true)` once all are sent.
    pub(super) fn resend(self) -> Result<bool, Corrupt> {
        let slot = self.slot();
        let tx = &slot.tx;
        if slot.attention.load(Relaxed) & attention::TOKEN_OWED != 0 {
            return Ok(false);
        }
        // What both rings hold at most: whoever writes the ledger keeps nobody in here for longer.
        let mut left = 2 * LARGEST;
        loop {
            let (from, to) = (tx.resend_from.load(Relaxed), tx.resend_to.load(Relaxed));
            if from == to {
                slot.attention.fetch_and(!attention::RESEND, Relaxed);
                return Ok(true);
            }
            // More than both rings hold was never in them: whoever says so writes the ledger.
            let reach = tx.ring_size.load(Relaxed).wrapping_add(tx.old_size.load(Relaxed));
            if to.wrapping_sub(from) > reach.min(left) {
                return Err(Corrupt);
            }
            let (span, end) = self.span_at(from)?;
            let (at, len) = span.piece(from, to.wrapping_sub(from).min(end.wrapping_sub(from)));
            let piece = [iovec { iov_base: at.cast(), iov_len: len }];
            // SAFETY: the piece lies in the ring.
            match self.counted(len, || unsafe { kernel::send(self.fd(), &piece, 0) }) {
                Ok(n) => {
                    tx.resend_from.store(from.wrapping_add(n as u64), Relaxed);
                    left = left.saturating_sub(n as u64);
                    Slot::count(&slot.out_tcp, n as u64);
                }
                Err(libc::EAGAIN) => return Ok(false),
                Err(libc::EBADF) => {
                    // As in `pay_some`.
                    self.poke_own_service();
                    return Ok(false);
                }
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

    /// Sends what a switch owes, as far as the kernel takes it. False: the connection was broken
    /// off. Under the send lock.
    pub(super) fn pay(self) -> bool {
        self.pay_tokens();
        let paid = self.resend();
        if paid.is_err() {
            self.break_off(Reason::Corrupt);
        }
        paid.is_ok()
    }

    /// Back to TCP towards an end that will never read again: no token, for it would be taken for
    /// data after a close.
    #[cold]
    pub(super) fn switch_down_silently(self) {
        let slot = self.slot();
        let epoch = slot.tx.epoch.load(Relaxed) + 1;
        self.outgoing().set_switch(Record {
            epoch,
            tcp: slot.tx.sent.load(Relaxed),
            ring: slot.tx.tail.load(Relaxed),
        });
        slot.tx.owed.store(0, Relaxed);
        slot.tx.down.store(slot.tx.sent.load(Relaxed), Relaxed);
        slot.tx.resend_start.store(slot.tx.resend_to.load(Relaxed), Relaxed);
        slot.attention.fetch_and(!(attention::TOKEN_OWED | attention::RESEND), Relaxed);
        self.outgoing().gate().fetch_and(!GATE_TAKEN, SeqCst);
        slot.tx.epoch.store(epoch, Relaxed);
        self.outgoing().epoch().store(epoch, SeqCst);
    }

    /// The ring is full and nobody reads: goes on over TCP, whose buffers have room yet. The ring
    /// is taken up again once all was read.
    pub fn spill(self) {
        let Ok(_held) = self.send_lock_unless_interrupted() else { return };
        if self.slot().stage() == Stage::Active
            && self.tx_in_ring()
            && !self.slot().has(flag::TX_SHUT)
            && !self.frozen()
        {
            self.leave_ring();
        }
    }

    /// Is this end's writer waiting for the reader to freeze?
    #[must_use]
    pub fn wishes(self) -> bool {
        self.tx_in_ring()
            && self.outgoing().wish().load(Relaxed) == self.slot().tx.epoch.load(Relaxed)
    }
}
