//! The end of a direction and of a connection: shutdown, close, and letting go of the channel.

use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::{GATE_HOLD, GATE_TAKEN, NO_EOF};
use crate::ledger::{Stage, flag};
use crate::rendezvous::{Entry, state};
use ginnel_region::sys;
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

/// How long a close waits for tokens that were claimed and have not arrived, and for frozen bytes
/// to be taken by the kernel, nanoseconds.
const PATIENCE: u64 = 500_000_000;

impl Endpoint<'_> {
    /// Before the kernel's `shutdown(SHUT_WR)`: no byte follows.
    pub fn finish_writing(self) {
        self.flush();
        let _held = self.send_lock();
        self.mark_end();
    }

    /// The same in a signal handler that interrupted a send: where the stream ends is not said,
    /// only that it does. The kernel's FIN comes behind what was published.
    pub fn finish_writing_unlocked(self) {
        self.slot().set(flag::TX_SHUT, true);
        if self.slot().stage() == Stage::Active {
            self.channel().end(self.slot().side());
        }
    }

    /// After the kernel's `shutdown(SHUT_RD)`.
    pub fn receives_no_more(self) {
        self.slot().set(flag::RX_SHUT, true);
        if self.slot().stage() == Stage::Active {
            self.channel().shut(self.slot().side());
        }
    }

    /// Before the kernel's `shutdown`, after which this end neither sends nor receives: its kernel
    /// is to answer what comes from now on, with a reset. So the other end's writer goes over to
    /// TCP with its next byte; and no token of it is to come, as the kernel would answer that, too.
    pub fn ends_both_ways(self) {
        let stage = self.slot().stage();
        if stage != Stage::Active && !(stage == Stage::Settling && self.is_carried()) {
            return;
        }
        let Some(unclaimed) = self.take_wishes_back() else { return };
        let end = sys::monotonic_ns() + PATIENCE;
        let on_their_way = || self.tokens_missing(unclaimed) > kernel::readable(self.fd());
        while self.rx_in_ring() && on_their_way() && sys::monotonic_ns() < end {
            // A FIN comes behind them.
            if sys::poll(self.fd(), libc::POLLRDHUP, 1) != 0 {
                break;
            }
        }
        // It may sleep on a full ring.
        self.grant_space();
    }

    /// Under the send lock.
    fn mark_end(self) {
        let slot = self.slot();
        if slot.has(flag::TX_SHUT) {
            return;
        }
        slot.set(flag::TX_SHUT, true);
        if slot.stage() == Stage::Active {
            self.say_end();
        }
    }

    /// Tells the other end where the stream ends, which may have been done already, unless it ends
    /// by a reset. Under the send lock.
    pub(crate) fn say_end(self) {
        let slot = self.slot();
        if self.channel().was_reset(slot.side()) {
            return;
        }
        // Before the kernel's FIN, whatever carries: without it a FIN is that of a process which
        // died.
        self.channel().end(slot.side());
        let direction = self.outgoing();
        if self.tx_in_ring() && direction.eof().load(Relaxed) == NO_EOF {
            direction.eof().store(slot.tx.tail.load(Relaxed), SeqCst);
            let want = park::claim(direction.want_data());
            self.grant(want);
        }
    }

    /// Gives what is still to be re-sent, and tokens that are owed, to the kernel; waits for it,
    /// bounded.
    pub(crate) fn flush(self) {
        let end = sys::monotonic_ns() + PATIENCE;
        while self.owes() && sys::monotonic_ns() < end {
            self.serve_tx();
            if sys::poll(self.fd(), libc::POLLOUT, 10) & (libc::POLLERR | libc::POLLHUP) != 0 {
                break;
            }
        }
    }

    /// Before the kernel's close of the last descriptor.
    pub fn finish(self) {
        let slot = self.slot();
        match slot.stage() {
            Stage::Active => self.finish_active(),
            Stage::Settling if self.is_carried() => self.finish_active(),
            Stage::Published => {
                let entry =
                    Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
                let _ = entry.step(state::PUBLISHED, state::FREE);
            }
            _ => {}
        }
    }

    /// May this very thread, which ends the process, work on the channel? Not where it is inside it
    /// already (a signal handler that ends the process).
    #[must_use]
    pub fn is_free(self) -> bool {
        let (slot, ticket) = (self.slot(), self.ticket());
        // Other threads hold these for microseconds; this one would hold them for ever.
        let free = |look: &dyn Fn() -> bool| {
            (0..200).any(|_| {
                look() || {
                    let _ = sys::poll(self.fd(), 0, 1);
                    false
                }
            })
        };
        free(&|| slot.tx.lock.try_lock(ticket).is_some())
            && free(&|| slot.rx.lock.try_lock(ticket).is_some())
            && free(&|| self.attachment.node.joined().rings_nobody())
    }

    /// Settling, and about to receive no more: did the other end see that both have agreed, and
    /// take up its ring, before this one looked again? Then the channel is active. Else that end
    /// never takes it up: hold and upgrade meet in one word.
    fn is_carried(self) -> bool {
        let slot = self.slot();
        // Under which an end settles.
        let _held = self.send_lock();
        if slot.stage() == Stage::Settling && slot.has(flag::COUNTED) {
            let taken = self.incoming().gate().fetch_or(GATE_HOLD, SeqCst) & GATE_TAKEN != 0;
            return taken && slot.advance(Stage::Settling, Stage::Active);
        }
        slot.stage() == Stage::Active
    }

    fn finish_active(self) {
        let slot = self.slot();
        self.flush();
        let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
        let _ = kernel::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_LINGER, &mut linger);
        let resets = linger.l_onoff != 0 && linger.l_linger == 0;
        if self.on_tcp() && !self.tx_in_ring() && !self.rx_in_ring() {
            // Handed over, perhaps to somebody who still uses it: the kernel's close says all there
            // is to say, but that a reset is none for a wake-up which lay unread.
            if resets {
                self.channel().reset(slot.side());
            } else {
                self.channel().end(slot.side());
            }
            park::close(self.incoming().want_data());
            return;
        }
        let something = self.tidy();
        // (Urgent data is counted by nobody, and called readable by nobody: the kernel, which
        // answers it with a reset where it is not read, knows of it. Nor is what a freeze left in
        // the ring, and the writer is yet to send again.)
        let unread =
            something && self.pending_bytes() > 0 || self.is_switching() || self.is_at_mark();
        let abort = unread || resets;
        {
            let _held = self.send_lock();
            if abort {
                slot.set(flag::TX_SHUT, true);
                // The reset is meant: it is not the end of the stream.
                self.channel().reset(slot.side());
            } else {
                self.mark_end();
            }
        }
        self.close_wishes(abort);
        if unread && linger.l_onoff == 0 {
            let reset = libc::linger { l_onoff: 1, l_linger: 0 };
            let _ = kernel::setsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_LINGER, &reset);
        }
    }

    /// Wakes who sleeps in a receive, to look whether its number still stands for the socket: on a
    /// number that is another's by then the kernel wakes nobody, and the other end may have no
    /// reason to. Its wish remains; where several sleep, all but the last find it out by
    /// themselves, later.
    pub fn wake_receiver(self) {
        // The other half of what a sleeper does, who arms and then looks: see the shim's `Limit`.
        fence(SeqCst);
        if let Want::Waiter { page, bit } = Want::of(self.slot().rx.sleeper.load(Relaxed)) {
            self.ring_own(page, bit);
        }
    }

    /// No more tokens, please: closes the wish for data and takes back the wish for room. How many
    /// tokens were asked for that way, which nobody will send. `None`: that was done before.
    fn take_wishes_back(self) -> Option<u64> {
        let slot = self.slot();
        let (incoming, outgoing) = (self.incoming(), self.outgoing());
        let mut unclaimed = 0;
        match park::close(incoming.want_data()) {
            Want::Token => unclaimed += 1,
            Want::Promised(count) => {
                slot.rx.armed.fetch_add(u64::from(count), Relaxed);
            }
            Want::Closed => return None,
            _ => {}
        }
        if Want::of(outgoing.want_space().swap(0, SeqCst)) == Want::Token {
            unclaimed += 1;
        }
        Some(unclaimed)
    }

    /// How many tokens were asked for, less `unclaimed`, and were not thrown away yet.
    fn tokens_missing(self, unclaimed: u64) -> u64 {
        let rx = &self.slot().rx;
        // In a channel that was never left by the reader the first wish for a token was the
        // creator's.
        (rx.armed.load(Relaxed) + 1).saturating_sub(unclaimed + rx.tokens.load(Relaxed))
    }

    /// [Takes the wishes back](Self::take_wishes_back), and waits for tokens that are on their way.
    fn close_wishes(self, abort: bool) {
        let (incoming, rx) = (self.incoming(), &self.slot().rx);
        // Done before, through another descriptor, or at a shutdown.
        let Some(unclaimed) = self.take_wishes_back().filter(|_| !abort) else { return };
        let end = sys::monotonic_ns() + PATIENCE;
        loop {
            let _ = self.tidy();
            let missing = self.tokens_missing(unclaimed);
            let boundary = incoming.epoch().load(Acquire) != rx.phase.load(Relaxed);
            if (missing == 0 && !boundary) || !self.rx_in_ring() || sys::monotonic_ns() > end {
                return;
            }
            let reported = sys::poll(self.fd(), libc::POLLIN | libc::POLLRDHUP, 5);
            if reported & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0 {
                // The other end is closing too: what it sent before its FIN is here.
                let _ = self.tidy();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;
    use crate::settle::tests::active_end;

    /// What the other end writes after that would lie in a ring that nobody reads, where TCP says
    /// EPIPE.
    #[test]
    fn an_end_that_still_settles_is_read_no_more() {
        for taken in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let attachment = attached(directory.path());
            let end = active_end(&attachment);
            end.slot().set_stage(Stage::Settling);
            end.slot().set(flag::COUNTED, true);
            end.incoming().gate().store(if taken { GATE_TAKEN } else { 0 }, Relaxed);
            end.finish();
            let closed = Want::of(end.incoming().want_data().load(Relaxed)) == Want::Closed;
            let held = end.incoming().held();
            assert!(if taken { closed } else { held }, "taken: {taken}");
        }
    }
}
