//! Back to TCP for good: because the program, its user or the other end will have it so.

use crate::endpoint::Endpoint;
use crate::layout::{GATE_HOLD, GATE_TAKEN, NO_EOF, Record, UNCOUNTED};
use crate::ledger::{Reason, Stage, flag};
use crate::rendezvous::{Entry, state};
use ginnel_region::sys;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// Says why a connection that had a channel stays on TCP from now on, and lets the peer know.
pub fn hold(endpoint: Endpoint<'_>, reason: Reason) {
    let slot = endpoint.slot();
    slot.set(flag::HOLD, true);
    slot.set_reason(reason);
    match slot.stage() {
        Stage::Candidate => slot.set_stage(Stage::Plain),
        Stage::Published => {
            let entry =
                Entry::at(&endpoint.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
            // An offer that came at the same moment is not taken up: its maker waits for an echo in
            // vain, on TCP.
            if !entry.step(state::PUBLISHED, state::FREE) {
                slot.entry.store(0, Relaxed);
            }
            slot.set_stage(Stage::Plain);
        }
        Stage::Offered | Stage::Settling | Stage::Active => {
            // The peer's writer reads this before it upgrades and at every send.
            endpoint.incoming().gate().fetch_or(GATE_HOLD, SeqCst);
        }
        Stage::Plain | Stage::Broken | Stage::Closed => {}
    }
}

impl Endpoint<'_> {
    /// Brings both directions back to TCP and keeps them there. True once the kernel's socket holds
    /// the whole truth; false where it cannot: the peer did not answer within `patience_ns`, or
    /// bytes stand in the way that only reading removes.
    #[must_use]
    pub fn detach(self, reason: Reason, patience_ns: u64) -> bool {
        self.begin_detach(reason);
        let end = sys::monotonic_ns() + patience_ns;
        loop {
            if let Some(done) = self.go_on_detaching() {
                return done;
            }
            if sys::monotonic_ns() > end {
                return false;
            }
            let _ = sys::poll(self.fd(), 0, 1);
        }
    }

    /// The first step of [`Self::detach`].
    pub fn begin_detach(self, reason: Reason) {
        self.freeze_or_hold();
        self.ask_for_freeze();
        {
            // Not while a step towards a channel is being taken.
            let _held = self.send_lock();
            hold(self, reason);
            self.restore_options();
            // For the sake of an option it stays the shim's.
            if reason != Reason::Option {
                self.will_be_sent_uncounted();
            }
        }
    }

    /// The kernel may be given bytes past [`Endpoint::put`] from now on.
    fn will_be_sent_uncounted(self) {
        if self.live() {
            self.outgoing().sends().store(UNCOUNTED, SeqCst);
        }
    }

    /// The next of [`Self::detach`], after [`Self::begin_detach`]: what it will return, once it is
    /// known.
    #[must_use]
    pub fn go_on_detaching(self) -> Option<bool> {
        let slot = self.slot();
        if slot.channel.load(Relaxed) == 0
            || !matches!(slot.stage(), Stage::Offered | Stage::Settling | Stage::Active)
        {
            return Some(true);
        }
        self.serve_tx();
        let _ = self.tidy();
        self.request_downgrade();
        if sys::poll(self.fd(), 0, 0) & (libc::POLLERR | libc::POLLHUP) != 0 {
            // Nobody answers any more.
            self.give_up_ring();
        }
        // A connection that was broken off meanwhile is nobody's any more, and the kernel says so.
        if self.on_tcp() || slot.stage() == Stage::Broken {
            return Some(true);
        }
        if self.out_is_on_tcp()
            && let Some(bytes) = self.left_in_ring()
        {
            return Some(!bytes);
        }
        self.poke_service();
        None
    }

    /// Brings the outgoing direction back to TCP and keeps both there. The kernel may be sent to
    /// directly afterwards; what comes in is still received through the channel. False where the
    /// kernel took no more within `patience_ns`.
    #[must_use]
    pub fn detach_outgoing(self, reason: Reason, patience_ns: u64) -> bool {
        self.ask_for_all_back();
        {
            let _held = self.send_lock();
            hold(self, reason);
            self.restore_options();
            self.will_be_sent_uncounted();
        }
        let end = sys::monotonic_ns() + patience_ns;
        while self.slot().stage() == Stage::Active && !self.out_is_on_tcp() {
            if sys::monotonic_ns() > end {
                return false;
            }
            self.serve_tx();
            let _ = sys::poll(self.fd(), libc::POLLOUT, 1);
        }
        true
    }

    /// A writer that sees a hold without a freeze goes back to TCP behind what it has put into the
    /// ring: bytes that this end could then only read, not hand over. So the freeze comes first, or
    /// the hold comes before the upgrade.
    pub(crate) fn freeze_or_hold(self) {
        let slot = self.slot();
        for _ in 0..8 {
            if slot.stage() != Stage::Active
                || slot.has(flag::HOLD)
                || self.incoming().gate().compare_exchange(0, GATE_HOLD, SeqCst, Relaxed).is_ok()
            {
                return;
            }
            let _ = self.tidy();
            let _held = self.receive_lock();
            if self.freeze() || slot.rx.frozen.load(Relaxed) != 0 {
                return;
            }
        }
    }

    /// What the incoming ring holds, where its writer will send none of it again. True: bytes of a
    /// direction that went back by itself or ended, or TCP bytes before a switch, which only
    /// reading removes. False: nothing, and nothing follows. `None`: the writer may still answer.
    fn left_in_ring(self) -> Option<bool> {
        let (incoming, rx) = (self.incoming(), &self.slot().rx);
        let _held = self.receive_lock();
        let (phase, head) = (rx.phase.load(Relaxed), rx.head.load(Relaxed));
        // The end before the epoch: a writer may go back, send again, and end at once.
        let ended =
            incoming.eof().load(Acquire) != NO_EOF || sys::poll(self.fd(), libc::POLLRDHUP, 0) != 0;
        let behind = |record: &Record| {
            if phase & 1 == 0 {
                record.tcp > rx.received.load(Relaxed)
            } else {
                record.ring != head
            }
        };
        if incoming.epoch().load(Acquire) != phase {
            return incoming.switch(phase + 1).checked(behind).is_ok().then_some(true);
        }
        (phase & 1 == 1 && ended).then(|| incoming.tail().load(Acquire) != head)
    }

    /// Would a kernel answer with a reset what lies in a ring, sent over TCP? Of an end that
    /// neither sends nor receives (shutdown(2), both ways), which can read all of it in the ring.
    #[must_use]
    pub fn is_best_read_in_ring(self) -> bool {
        if self.slot().stage() != Stage::Active {
            return false;
        }
        let channel = self.channel();
        let shut = |side| channel.is_shut(side) && channel.has_ended(side);
        let side = self.slot().side();
        shut(1 - side) && self.tx_in_ring() && self.unread() > 0
            || shut(side) && self.ring_is_filled()
    }

    fn out_is_on_tcp(self) -> bool {
        let slot = self.slot();
        !self.owes() && (!self.tx_in_ring() || slot.has(flag::TX_SHUT))
    }

    /// Are both directions on TCP, with nothing left in a ring or to be re-sent?
    #[must_use]
    pub fn on_tcp(self) -> bool {
        let slot = self.slot();
        if !self.live() {
            // Nobody upgrades before this end has agreed. What the channel says is anybody's word.
            return true;
        }
        let incoming = self.incoming();
        let phase = slot.rx.phase.load(Relaxed);
        let into = phase & 1 == 0
            && incoming.gate().load(SeqCst) & GATE_TAKEN == 0
            && incoming.epoch().load(Acquire) == phase;
        let ended = incoming.eof().load(Acquire) != NO_EOF
            && incoming.eof().load(Acquire) == slot.rx.head.load(Relaxed);
        self.out_is_on_tcp() && (into || ended)
    }
}
