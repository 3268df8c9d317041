//! Agreeing with the other end on the bytes so far: the last step, once both know the channel.

use crate::catchup;
use crate::endpoint::Endpoint;
use crate::kernel::{self, Facts};
use crate::layout::Channel;
use crate::ledger::{Reason, Stage, flag};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Attempts at agreeing that are made at every operation; later ones only now and then.
const EAGER: u32 = 16;

impl Endpoint<'_> {
    /// Agrees with the other end on the bytes so far. Called under the send lock.
    pub(super) fn settle(self, patient: bool) {
        let slot = self.slot();
        let attempt = slot.attempts.fetch_add(1, Relaxed);
        let due = attempt <= EAGER
            || attempt.is_multiple_of(8)
            || stands_still(self.channel(), 1 - slot.side());
        if !(due || patient) || slot.busy_rx.load(SeqCst) != 0 || slot.busy_tx.load(SeqCst) != 0 {
            return;
        }
        if !self.prove() {
            return;
        }
        if due {
            self.compare(false);
        }
        let settled = || {
            self.push_corked();
            self.compare(true);
            slot.stage() != Stage::Settling
        };
        // Until both have agreed: what one has seen to agree, the other is to see as well.
        if patient && slot.stage() == Stage::Settling {
            if catchup::stop(slot, || self.channel(), || kernel::unacknowledged(self.fd()), settled)
            {
                // All has arrived: the reader has little left to read before the ring can be taken
                // up.
                catchup::soon(slot);
            } else {
                self.settle_cork();
            }
        }
        if slot.stage() == Stage::Settling && stands_still(self.channel(), slot.side()) {
            // It goes on.
            self.compare(false);
        }
    }

    /// One comparison of both ends' counts. `still`: this end writes nothing until the next one.
    ///
    /// Two ends that write without pause never agree both ways at one moment. It is enough that
    /// each direction's counts agreed once while its writer stood still, and said so: what the
    /// reader has then is all that was written.
    fn compare(self, still: bool) {
        let (slot, channel) = (self.slot(), self.channel());
        let (mine, theirs) = (slot.side(), 1 - slot.side());
        let agreed = channel.agreed(mine).load(Relaxed) == 1;
        if !(agreed && channel.agreed(theirs).load(Acquire) == 1) {
            let Some(_held) = slot.rx.lock.try_lock(self.ticket()) else { return };
            let Ok(facts) = kernel::facts(self.fd(), slot.has(flag::CONNECTED)) else { return };
            if facts.state != kernel::ESTABLISHED || facts.sent + facts.arrived == 0 {
                return;
            }
            // Shown until the other side agrees too: it compares with what is true now.
            show(channel, mine, facts, still);
            if !agreed {
                slot.tx.sent.store(facts.sent, Relaxed);
                slot.rx.received.store(facts.received, Relaxed);
                channel.direction(theirs).received().store(facts.received, Relaxed);
                slot.set(flag::COUNTED, true);
                self.count_sent(0);
                if !self.agrees(facts, still)
                    || channel.echo(theirs).load(Acquire) != channel.nonce(mine).load(Relaxed)
                {
                    return;
                }
                channel.agreed(mine).store(1, SeqCst);
            }
        }
        if channel.agreed(theirs).load(Acquire) == 1 && slot.advance(Stage::Settling, Stage::Active)
        {
            slot.tx.tries.store(0, Relaxed);
            slot.set_reason(Reason::None);
        }
    }

    /// Do the other side's counts mirror this side's: both ways now, or each direction's when its
    /// writer stood still?
    fn agrees(self, facts: Facts, still: bool) -> bool {
        let (slot, channel) = (self.slot(), self.channel());
        let Some((sent, arrived, scales)) = shown(channel, 1 - slot.side()) else { return false };
        if scales & !STILL != u64::from(facts.scales.1) << 8 | u64::from(facts.scales.0) {
            return false;
        }
        let (incoming, outgoing) = (sent == facts.arrived, arrived == facts.sent);
        // More than was written by one who stands still: whatever agreed before, it is another
        // connection's end, or had gone on since it said so.
        if scales & STILL != 0 && (incoming || facts.arrived > sent) {
            slot.set(flag::INCOMING_AGREED, incoming);
        }
        if still && (outgoing || arrived > facts.sent) {
            slot.set(flag::OUTGOING_AGREED, outgoing);
        }
        incoming && outgoing || slot.flags.load(Relaxed) & flag::BOTH_AGREED == flag::BOTH_AGREED
    }
}

/// In a snapshot beside the window scales: the side wrote nothing more until it took the next one.
const STILL: u64 = 1 << 16;

fn stands_still(channel: Channel<'_>, side: u8) -> bool {
    channel.snapshot_scales(side).load(Relaxed) & STILL != 0
}

/// Publishes this side's counts. The sequence is odd while they change.
fn show(channel: Channel<'_>, side: u8, facts: Facts, still: bool) {
    let sequence = channel.snapshot_sequence(side);
    let before = sequence.load(Relaxed) & !1;
    sequence.store(before + 1, Relaxed);
    fence(Release);
    channel.snapshot_sent(side).store(facts.sent, Relaxed);
    channel.snapshot_arrived(side).store(facts.arrived, Relaxed);
    let scales = u64::from(facts.scales.0) << 8 | u64::from(facts.scales.1);
    channel.snapshot_scales(side).store(scales | if still { STILL } else { 0 }, Relaxed);
    sequence.store(before + 2, Release);
}

/// A side's counts as it last published them; `None` while it does, or where it never did.
fn shown(channel: Channel<'_>, side: u8) -> Option<(u64, u64, u64)> {
    let sequence = channel.snapshot_sequence(side);
    let before = sequence.load(Acquire);
    let sent = channel.snapshot_sent(side).load(Relaxed);
    let arrived = channel.snapshot_arrived(side).load(Relaxed);
    let scales = channel.snapshot_scales(side).load(Relaxed);
    fence(Acquire);
    let whole = before != 0 && before & 1 == 0 && sequence.load(Relaxed) == before;
    whole.then_some((sent, arrived, scales))
}
