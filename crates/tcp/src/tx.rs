//! The writer's side of a direction: everything here happens under the send lock.

mod gone;
mod lock;
mod pipe;
mod ring;
mod space;
mod switch;
mod wake;

use crate::endpoint::Endpoint;
use crate::hand_over;
use crate::kernel;
use crate::layout::{Direction, UNCOUNTED};
use crate::ledger::{Reason, Slot, Stage, attention, flag};
use ginnel_region::{Corrupt, sys};
use ginnel_ring::park::Want;
use libc::{c_int, iovec};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

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
    /// Nothing was sent: the caller is a signal handler, and the thread that it interrupted was in
    /// the middle of a send here.
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
        let Ok(_held) = self.send_lock_unless_interrupted() else { return Put::Interrupted };
        if let Err(put) = self.prepare(flags) {
            return put;
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

    /// What comes before each send, under the send lock. `Err`: with that it has ended.
    #[inline]
    fn prepare(self, flags: c_int) -> Result<(), Put> {
        let slot = self.slot();
        if slot.has(flag::TX_SHUT) {
            // Another thread is about to end the kernel's side, too. It would still take these
            // bytes, and the reader them for tokens.
            self.end_in_kernel();
            return Err(self.kernel_refuses());
        }
        if self.tx_in_ring() && Want::of(self.outgoing().want_data().load(Relaxed)) == Want::Closed
        {
            // The reader has closed: its kernel gives the answer that TCP gives, to these bytes
            // first.
            self.switch_down_silently();
        }
        match self.arrange(flags) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.kernel_is_full()),
            Err(Corrupt) if slot.stage() == Stage::Broken => Err(Put::Error(libc::ECONNRESET)),
            Err(Corrupt) => Err(self.broken(Reason::Corrupt)),
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
            self.channel().reset(self.slot().side());
        }
        self.slot().set_stage(Stage::Broken);
        // The number may be another's by now.
        if kernel::cookie(self.fd()) == Ok(self.slot().cookie.load(Relaxed)) {
            kernel::abort(self.fd());
        }
    }

    /// Before each send: freeze, hold, owed tokens, re-sending, upgrade. `Ok(false)`: bytes of
    /// before still wait for the kernel.
    #[inline]
    fn arrange(self, flags: c_int) -> Result<bool, Corrupt> {
        let slot = self.slot();
        let urgent = flags & libc::MSG_OOB != 0;
        match slot.stage() {
            Stage::Active => {}
            // By another thread, the service's perhaps, while this one waited for room in a ring
            // that nobody will read.
            Stage::Broken => return Err(Corrupt),
            _ => {
                if urgent {
                    hand_over::hold(self, Reason::Urgent);
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

    /// The parts of [`Self::arrange`] that are rare; also what the service thread does for a
    /// program that is busy. Under the send lock.
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
            // Not before the freeze was asked for: a writer that sees the hold leaves its ring at
            // once. Before the mark: a reader that sees the hold looks for it.
            hand_over::hold(self, Reason::Urgent);
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
        if !self.tx_in_ring()
            && !urgent
            && self.may_upgrade()
            && (chaos.is_none() || chaos.is_some_and(|roll| roll > 2))
        {
            self.upgrade()?;
        }
        if chaos == Some(1) {
            self.freeze_if_idle();
        }
        Ok(true)
    }

    /// The kernel took `n` bytes. The other end is to know how many there were, should a reset lose
    /// some of them.
    pub(crate) fn count_sent(self, n: u64) {
        let slot = self.slot();
        Slot::count(&slot.tx.sent, n);
        if self.live() {
            self.outgoing().sent().store(slot.tx.sent.load(Relaxed), Release);
        }
    }

    /// Runs `call`, which gives the kernel up to `n` bytes, and counts what it took. Said before:
    /// who hears of them by the kernel, and has no number to ask it by, may look before they are
    /// counted.
    fn counted(self, n: usize, call: impl FnOnce() -> sys::Result<usize>) -> sys::Result<usize> {
        let says = |n: usize| {
            let sends = self.slot().tx.sent.load(Relaxed).wrapping_add(n as u64);
            self.outgoing().sends().store(sends, SeqCst);
        };
        let counts = self.live() && self.outgoing().sends().load(Relaxed) != UNCOUNTED;
        if counts {
            says(n);
        }
        let took = call();
        if let Ok(took) = took {
            self.count_sent(took as u64);
        }
        if counts && took != Ok(n) {
            says(0);
        }
        took
    }

    /// The kernel told this end of an error, once, in a call that is not the program's: the next
    /// receive, or a send that fails, is to know. (EPIPE is no news of the connection.)
    fn told(self, errno: c_int) {
        if errno != libc::EPIPE {
            self.keep_error(errno);
        }
    }

    /// # Safety
    /// The iovecs describe readable memory.
    unsafe fn put_in_kernel(self, iov: &[iovec], flags: c_int) -> Put {
        let total = iov.iter().map(|piece| piece.iov_len).sum();
        // SAFETY: the caller's promise.
        self.by_kernel(total, || unsafe {
            kernel::send(self.fd(), iov, flags & !libc::MSG_NOSIGNAL)
        })
    }

    /// Has the kernel send up to `total` bytes, by `call`.
    fn by_kernel(self, total: usize, call: impl FnOnce() -> sys::Result<usize>) -> Put {
        let refused = self.slot().stage() == Stage::Active
            && Want::of(self.outgoing().want_data().load(Relaxed)) == Want::Closed;
        if refused {
            // Both ends are told of a reset within the call, and are to know that bytes were lost.
            self.outgoing().sent().store(self.slot().tx.sent.load(Relaxed) + 1, Release);
        }
        let first = refused && !self.slot().has(flag::SPOKE_LATE);
        if first {
            self.slot().set(flag::SPOKE_LATE, true);
        }
        let sent = self.says_by_tcp(|| self.counted(total, call));
        if refused && sent.is_err() {
            self.outgoing().sent().store(self.slot().tx.sent.load(Relaxed), Release);
            if first {
                self.slot().set(flag::SPOKE_LATE, false);
            }
        }
        match sent {
            Ok(n) => {
                Slot::count(&self.slot().out_tcp, n as u64);
                if n < total {
                    // Who was given less may wait for the kernel to tell of room, and not ask
                    // again.
                    self.kernel_is_full();
                }
                Put::Bytes(n)
            }
            Err(libc::EAGAIN) => self.kernel_is_full(),
            Err(libc::ECONNRESET) if self.reset_is_end() => Put::Kernel,
            Err(libc::EPIPE) => self.kernel_refuses(),
            Err(errno) => Put::Error(errno),
        }
    }

    /// The kernel takes no byte of this end any more.
    #[cold]
    fn kernel_refuses(self) -> Put {
        self.take_refusal().map_or(Put::Kernel, Put::Error)
    }

    #[cold]
    fn kernel_is_full(self) -> Put {
        self.slot().set(flag::KERNEL_FULL, true);
        Put::KernelFull
    }

    /// Is there something for the service thread to do in the writing direction?
    #[must_use]
    pub fn wants_service(self) -> bool {
        let slot = self.slot();
        self.owes()
            || self.tx_in_ring()
                && (self.frozen()
                    || slot.has(flag::HOLD)
                    || (self.outgoing().asked_back() || self.wishes()) && self.unread() == 0)
    }

    /// Bytes that were sent and not yet received or acknowledged (SIOCOUTQ).
    #[must_use]
    pub fn unread_bytes(self) -> u64 {
        if !self.tx_in_ring() {
            return kernel::unacknowledged(self.fd());
        }
        // What the kernel has is wake-ups: all that went before the ring was received.
        let tail = self.slot().tx.tail.load(Relaxed);
        tail.wrapping_sub(self.outgoing().head().load(Acquire)).min(1 << 30)
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
