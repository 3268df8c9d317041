//! The end of a direction and of a connection: shutdown, close, and letting go of the channel.

use crate::attach::Attachment;
use crate::kernel;
use crate::layout::{Channel, GATE_HOLD, GATE_TAKEN, NO_EOF, Record};
use crate::ledger::{Reason, Slot, Stage, TAKEN, flag};
use crate::rendezvous::{Entry, state};
use crate::settle::Endpoint;
use crate::waiter;
use ginnel_region::{Extent, Head, PAGE, Use, sys};
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

/// How long a close waits for tokens that were claimed and have not arrived, and for frozen bytes to be taken by the kernel, nanoseconds.
const PATIENCE: u64 = 500_000_000;

impl Endpoint<'_> {
    /// Before the kernel's `shutdown(SHUT_WR)`: no byte follows.
    pub fn finish_writing(self) {
        self.flush();
        let _held = self.send_lock();
        self.mark_end();
    }

    /// The same in a signal handler that interrupted a send: where the stream ends is not said, only that it does. The kernel's FIN comes behind what was published.
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

    /// Before the kernel's `shutdown`, after which this end neither sends nor receives: its kernel is
    /// to answer what comes from now on, with a reset. So the other end's writer goes over to TCP with
    /// its next byte; and no token of it is to come, as the kernel would answer that, too.
    pub fn ends_both_ways(self) {
        if self.slot().stage() != Stage::Active {
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

    /// Tells the other end where the stream ends, which may have been done already, unless it ends by a reset. Under the send lock.
    pub(crate) fn say_end(self) {
        let slot = self.slot();
        if self.channel().released().load(Acquire) & 0x100 << slot.side() != 0 {
            return;
        }
        // Before the kernel's FIN, whatever carries: without it a FIN is that of a process which died.
        self.channel().end(slot.side());
        let direction = self.outgoing();
        if self.tx_in_ring() && direction.eof().load(Relaxed) == NO_EOF {
            direction.eof().store(slot.tx.tail.load(Relaxed), SeqCst);
            let want = park::claim(direction.want_data());
            self.grant(want);
        }
    }

    /// Gives what is still to be re-sent, and tokens that are owed, to the kernel; waits for it, bounded.
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
            Stage::Published => {
                let entry = Entry::at(&self.attachment.segment, slot.entry.load(Relaxed).wrapping_sub(1));
                let _ = entry.step(state::PUBLISHED, state::FREE);
            }
            _ => {}
        }
    }

    /// May this very thread, which ends the process, work on the channel? Not where it is inside it already (a signal handler that ends the process).
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
            && free(&|| self.attachment.peers.is_free())
    }

    fn finish_active(self) {
        let slot = self.slot();
        self.flush();
        let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
        let _ = kernel::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_LINGER, &mut linger);
        let resets = linger.l_onoff != 0 && linger.l_linger == 0;
        if self.on_tcp() && !self.tx_in_ring() && !self.rx_in_ring() {
            // Handed over, perhaps to somebody who still uses it: the kernel's close says all there is to
            // say, but that a reset is none for a wake-up which lay unread.
            if resets {
                self.channel().released().fetch_or(0x100 << slot.side(), AcqRel);
            }
            self.channel().end(slot.side());
            park::close(self.incoming().want_data());
            return;
        }
        let something = self.tidy();
        let unread = something && self.pending_bytes() > 0;
        let abort = unread || resets;
        {
            let _held = self.send_lock();
            if abort {
                slot.set(flag::TX_SHUT, true);
                // The reset is meant: it is not the end of the stream.
                self.channel().released().fetch_or(0x100 << slot.side(), AcqRel);
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

    /// Wakes who sleeps in a receive, to look whether its number still stands for the socket: on a number that is another's by then the kernel wakes nobody, and the other end may have
    /// no reason to. Its wish remains; where several sleep, all but the last find it out by themselves, later.
    pub fn wake_receiver(self) {
        // The other half of what a sleeper does, who arms and then looks: see the shim's `Limit`.
        fence(SeqCst);
        if let Want::Waiter { page, bit } = Want::of(self.slot().rx.sleeper.load(Relaxed)) {
            let _ = waiter::ring(self.attachment, page, bit, false);
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
        // In a channel that was never left by the reader the first wish for a token was the creator's.
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

/// After the kernel's close of the last descriptor: the slot and this side of the channel are free. `cookie`: the socket's, as whose the slot was [ended](Slot::end).
pub fn forget(attachment: &Attachment, slot: &Slot, cookie: u64) {
    if matches!(cookie, 0 | TAKEN..) || !slot.seize(cookie, attachment.ticket()) {
        return;
    }
    if slot.channel.load(Relaxed) != 0 || slot.left.load(Relaxed) != 0 {
        release_channel(attachment, slot);
    }
    slot.set_stage(Stage::Closed);
    attachment.ledger.free(slot);
}

/// [`forget`] for a slot whose holders died, which this process has seized.
pub(crate) fn bury(attachment: &Attachment, slot: &Slot) {
    release_left(attachment, slot);
    let page = slot.channel.swap(0, AcqRel);
    if let Some(head) = signed(attachment, slot, page, slot.side()) {
        let _ = release_dead_side(attachment, head, slot.side());
    }
    slot.set_stage(Stage::Closed);
    attachment.ledger.free(slot);
}

/// Lets go of this side of the slot's channel, and of one that was left before. Whoever is second frees it.
pub fn release_channel(attachment: &Attachment, slot: &Slot) {
    release_left(attachment, slot);
    let page = slot.channel.swap(0, AcqRel);
    release_side(attachment, slot, page, slot.side());
}

/// In [`Slot::left`]: seen before.
const SEEN: u32 = 1 << 31;
/// In [`Slot::left`]: the side was number one.
const SIDE: u32 = 1 << 30;

/// Remembers that the slot's channel was left. A thread that is late may still write a word there, so that the page must not be another's at once.
pub(crate) fn set_left(attachment: &Attachment, slot: &Slot) {
    release_left(attachment, slot);
    let page = slot.channel.swap(0, AcqRel);
    slot.left.store(page | if slot.side() == 1 { SIDE } else { 0 }, Relaxed);
}

/// Gives back the channel that a slot left before the last call of this.
pub fn age_left(attachment: &Attachment, slot: &Slot) {
    let left = slot.left.load(Relaxed);
    if left & SEEN != 0 {
        release_left(attachment, slot);
    } else if left != 0 {
        let _ = slot.left.compare_exchange(left, left | SEEN, AcqRel, Relaxed);
    }
}

/// Gives back the channel that a slot left.
pub fn release_left(attachment: &Attachment, slot: &Slot) {
    let left = slot.left.swap(0, AcqRel);
    let (page, side) = (left & !(SEEN | SIDE), u8::from(left & SIDE != 0));
    if slot.segment.load(Relaxed) == attachment.segment.id() {
        release_side(attachment, slot, page, side);
    }
    if left != 0 && slot.channel.load(Relaxed) == 0 {
        slot.segment.store(0, Relaxed);
    }
}

/// The head of a page that is still the slot's channel. Who left a segment and came back may find others' pages under the same numbers.
fn signed(attachment: &Attachment, slot: &Slot, page: u32, side: u8) -> Option<Head> {
    // Before the look at the signature: a page that changes hands has another head then.
    let head = attachment.segment.head(page).filter(|head| head.owner().kind == Use::Channel)?;
    let channel = Channel::at(&attachment.segment, page);
    let owner = u64::from(attachment.member) << 32 | u64::from(attachment.ledger.index(slot));
    let generation = slot.generation.load(Relaxed);
    (generation != 0 && channel.owner(side).load(Relaxed) == owner && channel.generation(side).load(Relaxed) == generation)
        .then_some(head)
}

/// Marks one side of a channel, the slot's, as released; frees the channel if both are.
fn release_side(attachment: &Attachment, slot: &Slot, page: u32, side: u8) {
    let Some(head) = signed(attachment, slot, page, side) else { return };
    let segment = &attachment.segment;
    let channel = Channel::at(segment, page);
    let bit = 1 << side;
    let before = channel.released().fetch_or(bit, SeqCst);
    // Somebody who notes the other side's death there just now ([`release_dead_side`]) looks at this side's word afterwards.
    if before & bit == 0
        && (before | bit) & 3 == 3
        && !head.is_busy()
        && let Some(head) = segment.take(head)
    {
        segment.add_carried(channel.carried());
        free_channel(attachment, channel, head);
    }
}

/// In `released`: a side died, perhaps between claiming pages and describing them: every page with the channel's tag is to be looked for.
pub(crate) const DIED: u64 = 0x10000;

/// Marks a side that died as released, of a channel that was seen as `head`. The head as it is then, for [`crate::reclaim`] to free the channel if both are; `None` where it is no longer what was seen.
pub(crate) fn release_dead_side(attachment: &Attachment, head: Head, side: u8) -> Option<Head> {
    // Taken meanwhile: the page cannot become another's between the look and the mark.
    let head = attachment.segment.take(head)?;
    Channel::at(&attachment.segment, head.page()).released().fetch_or(DIED | 1 << side, SeqCst);
    attachment.segment.settle(head)
}

/// Frees a channel's pages, whose head this process has taken. The rings' places were written by peers: only pages that carry the channel's tag are freed. Where a side died
/// the head stays, for [`crate::reclaim`] to look for others.
fn free_channel(attachment: &Attachment, channel: Channel<'_>, head: Head) {
    let segment = &attachment.segment;
    for side in [0, 1] {
        for grown in [0, 1] {
            let (_, offset, size) = channel.direction(side).ring(grown);
            let place = size
                .power_of_two(PAGE, 1 << 26)
                .and_then(|size| Ok((offset.checked(|&offset| segment.holds(offset, size))?, size)));
            if let Ok((offset, size)) = place {
                let page = u32::try_from(offset / PAGE).unwrap_or(u32::MAX);
                segment.release_part(head, Extent { page, pages: u32::try_from(size / PAGE).unwrap_or(0) });
            }
        }
    }
    if channel.released().load(Acquire) & DIED != 0 {
        let _ = segment.settle(head);
    } else {
        segment.release_head(head);
    }
}

/// Says why a connection that had a channel stays on TCP from now on, and lets the peer know.
pub fn hold(endpoint: Endpoint<'_>, reason: Reason) {
    let slot = endpoint.slot();
    slot.set(flag::HOLD, true);
    slot.set_reason(reason);
    match slot.stage() {
        Stage::Candidate => slot.set_stage(Stage::Plain),
        Stage::Published => {
            let entry = Entry::at(&endpoint.attachment.segment, slot.entry.load(Relaxed).wrapping_sub(1));
            // An offer that came at the same moment is not taken up: its maker waits for an echo in vain, on TCP.
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
    /// Brings both directions back to TCP and keeps them there. True once the kernel's socket holds the whole truth; false where it cannot: the peer did not answer
    /// within `patience_ns`, or bytes stand in the way that only reading removes.
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
        }
    }

    /// The next of [`Self::detach`], after [`Self::begin_detach`]: what it will return, once it is known.
    #[must_use]
    pub fn go_on_detaching(self) -> Option<bool> {
        let slot = self.slot();
        if slot.channel.load(Relaxed) == 0 || !matches!(slot.stage(), Stage::Offered | Stage::Settling | Stage::Active) {
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

    /// Brings the outgoing direction back to TCP and keeps both there. The kernel may be sent to directly afterwards; what comes in is still received through the channel.
    /// False where the kernel took no more within `patience_ns`.
    #[must_use]
    pub fn detach_outgoing(self, reason: Reason, patience_ns: u64) -> bool {
        self.ask_for_all_back();
        {
            let _held = self.send_lock();
            hold(self, reason);
            self.restore_options();
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

    /// A writer that sees a hold without a freeze goes back to TCP behind what it has put into the ring: bytes that this end could then only read, not hand over. So the
    /// freeze comes first, or the hold comes before the upgrade.
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
    /// direction that went back by itself or ended, or TCP bytes before a switch, which only reading
    /// removes. False: nothing, and nothing follows. `None`: the writer may still answer.
    fn left_in_ring(self) -> Option<bool> {
        let (incoming, rx) = (self.incoming(), &self.slot().rx);
        let _held = self.receive_lock();
        let (phase, head) = (rx.phase.load(Relaxed), rx.head.load(Relaxed));
        // The end before the epoch: a writer may go back, send again, and end at once.
        let ended = incoming.eof().load(Acquire) != NO_EOF || sys::poll(self.fd(), libc::POLLRDHUP, 0) != 0;
        let behind = |record: &Record| if phase & 1 == 0 { record.tcp > rx.received.load(Relaxed) } else { record.ring != head };
        if incoming.epoch().load(Acquire) != phase {
            return incoming.switch(phase + 1).checked(behind).is_ok().then_some(true);
        }
        (phase & 1 == 1 && ended).then(|| incoming.tail().load(Acquire) != head)
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
        let into = phase & 1 == 0 && incoming.gate().load(SeqCst) & GATE_TAKEN == 0 && incoming.epoch().load(Acquire) == phase;
        let ended = incoming.eof().load(Acquire) != NO_EOF && incoming.eof().load(Acquire) == slot.rx.head.load(Relaxed);
        self.out_is_on_tcp() && (into || ended)
    }
}
