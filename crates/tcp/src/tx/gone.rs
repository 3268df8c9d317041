//! Is anybody there who reads what is put into the ring?

use crate::endpoint::Endpoint;
use crate::layout::NO_EOF;
use crate::ledger::{Slot, attention, flag};
use ginnel_region::sys;
use ginnel_ring::park::Want;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

impl<'a> Endpoint<'a> {
    /// Asks over TCP whether anybody is there: the kernel of a socket that is closed answers RST.
    pub fn probe(self) {
        if let Some(_held) = self.slot().tx.lock.try_lock(self.ticket())
            && self.tx_in_ring()
            && !self.slot().has(flag::TX_SHUT)
            && self.slot().tx.owed.load(Relaxed) == 0
            && Want::of(self.outgoing().want_data().load(Relaxed)) != Want::Closed
            // One that ended its stream may read on for long. What lies unread there makes its
            // kernel answer when it dies.
            && (!self.other_end_is_meant() || self.reader_is_here())
        {
            Slot::count(&self.slot().tx.owed, 1);
            self.pay_tokens();
        }
    }

    /// Did the other end say that its stream ends, or has it not ended?
    fn other_end_is_meant(self) -> bool {
        self.incoming().eof().load(Acquire) != NO_EOF
            || self.channel().has_ended(1 - self.slot().side())
    }

    /// Do bytes wait in the ring for an end whose own stream has ended? Its kernel has nothing left
    /// by which it would tell of its death: see [`probe`](Self::probe).
    #[must_use]
    pub fn waits_for_half_closed(self) -> bool {
        // One that receives no more would answer even an old byte with RST.
        let reads = || !self.channel().is_shut(1 - self.slot().side());
        self.tx_in_ring()
            && self.other_end_is_meant()
            && self.unread() != 0
            && self.reader_is_here()
            && reads()
    }

    /// [`probe`](Self::probe), where bytes wait for an end that may die without a word.
    pub fn probe_half_closed(self) {
        if self.waits_for_half_closed() {
            self.probe();
        }
    }

    /// The kernel had something to say: is nobody there any more who could read what is put into
    /// the ring? Then the kernel answers the sends from here on, as it does on TCP.
    #[must_use]
    pub fn reader_died(self) -> bool {
        const GONE: i16 = libc::POLLERR | libc::POLLHUP;
        let attention = &self.slot().attention;
        if attention.load(Relaxed) & attention::READER == 0 || !self.tx_in_ring() {
            return false;
        }
        // Asked once, unless the answer is a FIN that nobody meant.
        attention.fetch_and(!attention::READER, SeqCst);
        let mut reported = sys::poll(self.fd(), libc::POLLRDHUP, 0);
        if reported & (libc::POLLRDHUP | GONE) == libc::POLLRDHUP && !self.other_end_is_meant() {
            attention.fetch_or(attention::READER, SeqCst);
            self.probe();
            reported = sys::poll(self.fd(), 0, 0);
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
}
