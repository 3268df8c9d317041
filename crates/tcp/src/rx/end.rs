//! How a direction ends: FIN, a reset, or an error of the kernel's, each told to the program as TCP
//! would have told it.

use super::Take;
use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::{NO_EOF, Record};
use crate::ledger::{Slot, Stage, flag};
use ginnel_region::{Corrupt, sys};
use libc::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// By which a connection ends: of its own, and by what ICMP tells (`icmp_err_convert` in Linux).
const CONNECTIONS_END: [c_int; 13] = [
    libc::ECONNRESET,
    libc::EPIPE,
    libc::ETIMEDOUT,
    libc::ECONNABORTED,
    libc::ECONNREFUSED,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::EHOSTDOWN,
    libc::ENETDOWN,
    libc::ENONET,
    libc::EPROTO,
    libc::ENOPROTOOPT,
    libc::EACCES,
];

impl<'a> Endpoint<'a> {
    /// The kernel tells an error once. It is kept for the receive that finds nothing before it.
    /// (EBADF is no news of the connection: this process has closed its number meanwhile, and
    /// another one may have it.)
    pub fn keep_error(self, errno: c_int) {
        if errno == libc::EBADF {
            return;
        }
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
        // No other is what the kernel says of a connection, whatever the ledger says.
        let known = |errno: &c_int| CONNECTIONS_END.contains(errno);
        (kept != 0).then(|| c_int::try_from(kept).ok().filter(known).unwrap_or(libc::ECONNRESET))
    }

    /// The error that is kept, for a send that the kernel refuses by EPIPE: what it told a call
    /// that was not the program's comes first, as it would have. `None`: none is, or it was only the
    /// end of the stream, where TCP would have seen FIN, and says EPIPE, too.
    #[must_use]
    pub fn take_refusal(self) -> Option<c_int> {
        if self.reset_is_end() { None } else { self.take_error() }
    }

    /// What the kernel says of the next byte, or the error that it told before.
    pub(super) fn look_kept(self) -> Result<usize, c_int> {
        self.take_error().map_or_else(|| kernel::look(self.fd()), Err)
    }

    /// FIN on TCP: was everything that a freeze left in the ring sent again?
    pub(super) fn ended_on_tcp(self) -> Take {
        if self.slot().stage() == Stage::Active && self.reset_is_meant() {
            // The kernel told of the reset before.
            return Take::End;
        }
        if self.resent_bytes_are_due() {
            return Take::Error(libc::ECONNRESET);
        }
        if self.slot().stage() != Stage::Active || self.channel().has_ended(1 - self.slot().side())
        {
            Take::End
        } else {
            self.ended_without_mark()
        }
    }

    /// On TCP: are bytes still to come that a freeze left in the ring, for the writer to send
    /// again?
    pub(super) fn resent_bytes_are_due(self) -> bool {
        !matches!(self.next_resent(), Ok(None))
    }

    /// Has the writer gone back to TCP, and its kernel taken all that it sends once more? As far as
    /// memory tells.
    #[must_use]
    pub fn was_sent_again(self) -> bool {
        let direction = self.incoming();
        let epoch = direction.epoch().load(Acquire);
        if epoch & 1 == 1 || self.slot().stage() != Stage::Active {
            return epoch & 1 == 0;
        }
        direction.switch(epoch).checked(|record| record.epoch == epoch).is_ok_and(|record| {
            let again = direction.tail().load(Acquire).wrapping_sub(record.ring);
            direction.sent().load(Acquire).wrapping_sub(record.tcp.wrapping_add(again)) as i64 >= 0
        })
    }

    /// On TCP again, as memory tells: has nothing come by it but what lay in the ring before `tail`?
    /// (Its lower 52 bits.) Not where the writer is about to send more, which may have come.
    #[must_use]
    pub fn was_all_in_ring(self, tail: u64) -> bool {
        let direction = self.incoming();
        let epoch = direction.epoch().load(Acquire);
        let again = |record: Record| {
            let again = tail.wrapping_sub(record.ring) << 12 >> 12;
            again <= 1 << 30 && direction.sends().load(Acquire).wrapping_sub(record.tcp) <= again
        };
        epoch & 1 == 0
            && direction.switch(epoch).checked(|record| record.epoch == epoch).is_ok_and(again)
    }

    /// On TCP: the next of them, if there are any: its TCP offset, and its place in the ring. An
    /// error: what the writer says of its switch is no good.
    pub(super) fn next_resent(self) -> Result<Option<(u64, u64)>, Corrupt> {
        let phase = self.slot().rx.phase.load(Relaxed);
        if self.slot().stage() != Stage::Active || phase == 0 {
            return Ok(None);
        }
        let direction = self.incoming();
        if direction.epoch().load(Acquire) != phase {
            // Upgraded since: everything had come before.
            return Ok(None);
        }
        let record = direction.switch(phase).checked(|record| record.epoch == phase)?;
        let again = direction.tail().load(Acquire).wrapping_sub(record.ring);
        let due = |received: u64| {
            let came = received.wrapping_sub(record.tcp);
            (again <= 1 << 30 && came < again).then(|| (received, record.ring.wrapping_add(came)))
        };
        let here = self.slot().rx.received.load(Relaxed);
        if due(here).is_none() || !self.slot().has(flag::COUNTED) {
            return Ok(due(here));
        }
        // A process without the shim, which was handed the socket, may have received them: the
        // kernel counts what that one takes.
        let facts = kernel::facts(self.fd(), self.slot().has(flag::CONNECTED));
        Ok(due(facts.map_or(here, |facts| facts.received.max(here))))
    }

    /// FIN, and no end-of-file mark: the other end died, or was shut down past the shim. What TCP
    /// would say: end-of-file if it had read everything, else a reset.
    #[cold]
    pub(super) fn ended_without_mark(self) -> Take {
        if self.slot().has(flag::FAILED) {
            return Take::End;
        }
        let outgoing = self.outgoing();
        let unread =
            self.tx_in_ring() && outgoing.head().load(Acquire) != self.slot().tx.tail.load(Relaxed);
        if !unread || self.slot().has(flag::TX_SHUT | flag::RX_SHUT) {
            return Take::End;
        }
        // A token asks whether anybody is there: the kernel of a closed socket answers RST. Another
        // thread has the lock for microseconds; this very thread for ever, where it was interrupted
        // in a send.
        let mut tries = 0;
        let held = loop {
            match self.slot().tx.lock.try_lock(self.ticket()) {
                Some(held) => break held,
                None if tries == 20 => return Take::End,
                None => sys::sleep_ms(1),
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
        let reported = sys::poll(self.fd(), 0, 20);
        if reported & (libc::POLLERR | libc::POLLHUP) == 0 {
            return Take::End;
        }
        // The kernel would tell it once more.
        let _ = kernel::look(self.fd());
        self.failed(libc::ECONNRESET)
    }

    /// An error from the kernel: after a clean close it is the end of the stream.
    pub(super) fn failed(self, errno: c_int) -> Take {
        if errno == libc::ECONNRESET && self.slot().stage() == Stage::Active {
            let direction = self.incoming();
            let clean = direction.eof().load(Acquire) != NO_EOF
                && direction.eof().load(Acquire) == self.slot().rx.head.load(Relaxed);
            // A program that ended without closing: its kernel resets for a token that lay unread.
            // Had it read everything, TCP would have said end-of-file.
            let read_all = self.all_was_read();
            if !self.reset_is_meant() && (clean || read_all) && self.all_has_come() {
                return Take::End;
            }
        }
        self.slot().set(flag::FAILED, true);
        Take::Error(errno)
    }

    /// Did the other end say that it resets the connection?
    #[must_use]
    pub fn reset_is_meant(self) -> bool {
        self.channel().was_reset(1 - self.slot().side())
    }

    /// Was a reset, which the kernel reports, only the end of the stream: for a wake-up that lay
    /// unread when the other end was gone? TCP would have sent FIN.
    #[must_use]
    pub fn reset_is_end(self) -> bool {
        let kept = i32::try_from(self.slot().rx.error.load(Relaxed)).unwrap_or(0);
        matches!(kept, 0 | libc::ECONNRESET | libc::EPIPE)
            && self.slot().stage() == Stage::Active
            && !self.reset_is_meant()
            && !self.slot().has(flag::SPOKE_LATE)
            && self.all_was_read()
            && self.all_has_come()
    }

    /// Has every byte that the other end wrote reached this one, or does it lie in the ring? A
    /// reset makes the kernels forget what is under way. Tokens do not count.
    fn all_has_come(self) -> bool {
        let (direction, phase) = (self.incoming(), self.slot().rx.phase.load(Relaxed));
        let Ok(epoch) = self.epoch(direction) else { return false };
        let sent = direction.sent().load(Acquire);
        if phase & 1 == 1 {
            let only_tokens = |record: Record| {
                sent <= record.tcp && direction.tail().load(Acquire) == record.ring
            };
            return epoch == phase || self.record(direction, epoch).is_ok_and(only_tokens);
        }
        let data = if epoch == phase {
            Ok(sent)
        } else {
            self.record(direction, phase + 1).map(|record| record.tcp)
        };
        let come = self.slot().rx.received.load(Relaxed) + kernel::readable(self.fd());
        data.is_ok_and(|data| come >= data) && (epoch != phase || !self.resent_bytes_are_due())
    }

    /// Had the other end taken every byte that this end wrote, as far as shared memory tells?
    /// Tokens do not count.
    fn all_was_read(self) -> bool {
        let (outgoing, tx) = (self.outgoing(), &self.slot().tx);
        let epoch = tx.epoch.load(Relaxed);
        let head = outgoing.head().load(Acquire);
        if epoch & 1 == 1 {
            return head == tx.tail.load(Relaxed);
        }
        // Back on TCP: nothing but the downgrade's own token went out since.
        let since = |record: &Record| {
            record.epoch == epoch && record.ring == head && tx.sent.load(Relaxed) == record.tcp
        };
        epoch != 0 && outgoing.switch(epoch).checked(since).is_ok()
    }
}
