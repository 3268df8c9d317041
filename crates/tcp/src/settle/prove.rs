//! While two ends settle: each proves to the other that it holds the connection
//! ([`crate::proof`]). Nothing else is said or done for the other side before.

use crate::endpoint::Endpoint;
use crate::ledger::{Reason, Stage, flag};
use crate::lifetime;
use crate::proof::{Claim, Prover, Unproven, exchange};
use ginnel_region::sys;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// So many tags an end shows to sides that show no right one: after that its connection stays on
/// TCP.
const TRIES: u32 = 2;

impl Endpoint<'_> {
    /// Takes the next step of the proof. True once the other end has proved itself, or need not.
    /// Called under the send lock, while no call is in the kernel.
    pub(super) fn prove(self) -> bool {
        let slot = self.slot();
        let joined = self.joined();
        if joined.segment.is_own() && slot.has(flag::PROVED) {
            return true;
        }
        let prover = Prover::in_segment(joined);
        if prover == Prover::Nobody {
            slot.set(flag::PROVED, true);
            return true;
        }
        let trusted = self.attachment.settings.policy.trusts(&slot.tuple());
        slot.set(flag::PROVED, trusted || slot.has(flag::PROVED));
        // Also where the other end is trusted: it may not trust this one.
        let proved = match self.go_on(prover) {
            Ok(proved) => proved,
            Err(Unproven::Later) => false,
            Err(Unproven::Never) if trusted => false,
            Err(Unproven::Never) => {
                self.refuse();
                return false;
            }
        };
        slot.set(flag::PROVED, proved || slot.has(flag::PROVED));
        slot.has(flag::PROVED)
    }

    /// Shows the share, then the tag, and looks at the other's. Whether the other's tag is right;
    /// [`Unproven::Never`] where it is wrong, or there can be none.
    fn go_on(self, prover: Prover<'_>) -> Result<bool, Unproven> {
        let (slot, channel) = (self.slot(), self.channel());
        let (side, other) = (slot.side(), 1 - slot.side());
        // The own nonce as it was drawn, and the other's as it was read once, whatever stands in
        // the channel now.
        let theirs = if slot.has(flag::BEGUN) { &slot.heard } else { channel.nonce(other) };
        let (own, theirs) = (slot.nonce.load(Relaxed), theirs.load(Relaxed));
        let claim = Claim {
            side,
            connected: slot.has(flag::CONNECTED),
            nonces: if side == 0 { [own, theirs] } else { [theirs, own] },
            tuple: slot.tuple(),
        };
        if slot.refused.load(Relaxed) >= TRIES && slot.expected.load(Relaxed) == 0 {
            return Err(Unproven::Never);
        }
        // The exchange takes some twelve kilobytes of stack: a handler's own may not have them. The
        // service thread goes on, or a later call.
        if slot.expected.load(Relaxed) == 0 && sys::on_signal_stack() {
            return Err(Unproven::Later);
        }
        if !slot.has(flag::BEGUN) {
            // Who sends or receives meanwhile waits for the locks.
            let Some(_held) = slot.rx.lock.try_lock(self.ticket()) else {
                return Err(Unproven::Later);
            };
            // Whoever has it too, and no right to it, could use it meanwhile.
            let shared = slot.has(flag::SPAWNED | flag::SEVERAL);
            let begun = exchange::begin(prover.secret(self.fd(), shared, &claim)?, &claim);
            slot.keep_exchange(&begun);
            slot.heard.store(theirs, Relaxed);
            slot.set(flag::BEGUN, true);
            channel.set_share(side, &begun.share);
        }
        if slot.expected.load(Relaxed) == 0 {
            let Some(share) = channel.share(other) else { return Ok(false) };
            // From the tag the other side learns whether it has guessed right: a try is spent,
            // whatever it does next.
            slot.refused.fetch_add(1, Relaxed);
            slot.set(flag::ON_TRIAL, true);
            let tags =
                exchange::finish(&slot.take_exchange(), &share, &claim).ok_or(Unproven::Never)?;
            slot.expected.store(tags.other, Relaxed);
            channel.proof(side).store(tags.own, Release);
        }
        match channel.proof(other).load(Acquire) {
            0 => Ok(false),
            tag if tag == slot.expected.load(Relaxed) => {
                if slot.has(flag::ON_TRIAL) {
                    // It was the other end: this try was no stranger's. Also where it is trusted.
                    slot.set(flag::ON_TRIAL, false);
                    let _ =
                        slot.refused.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
                }
                Ok(true)
            }
            _ => Err(Unproven::Never),
        }
    }

    /// Leaves the channel: the other side is not the other end, as far as anybody can tell.
    fn refuse(self) {
        let slot = self.slot();
        let Some(_held) = slot.rx.lock.try_lock(self.ticket()) else { return };
        // Without a share this end has no means to tell: it is the same with everybody.
        let for_good = !slot.has(flag::BEGUN) || slot.refused.load(Relaxed) >= TRIES;
        self.channel().leave(slot.side());
        lifetime::set_left(self.attachment, slot);
        self.forget_phases();
        if for_good {
            slot.make_plain(Reason::Unproven);
        } else {
            slot.set_reason(Reason::Unproven);
            slot.set_stage(Stage::Candidate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;
    use crate::layout::{GATE_TAKEN, Record};
    use crate::proof::exchange::Begun;
    use crate::settle::tests::active_end;
    use std::sync::atomic::Ordering::SeqCst;

    /// An end that hands its socket over, or leaves its segment, waits for no word of a side that
    /// has not proved itself.
    #[test]
    fn an_unproven_side_holds_nobody_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        end.slot().set_stage(Stage::Settling);
        let lies = end.incoming();
        lies.gate().store(GATE_TAKEN, SeqCst);
        lies.set_switch(Record { epoch: 1, tcp: 4711, ring: 0 });
        lies.epoch().store(1, SeqCst);
        assert!(end.on_tcp());
        assert_eq!(end.go_on_detaching(), Some(true));
        // Once both count the same, it is the other end's word.
        end.slot().set(flag::COUNTED, true);
        assert!(!end.on_tcp());
    }

    /// The claim of a side of the channel of [`active_end`].
    fn claim(end: Endpoint<'_>, side: u8) -> Claim {
        Claim { side, connected: false, nonces: [0, 1], tuple: end.slot().tuple() }
    }

    /// Both sides show their shares, with one secret: as far as [`Endpoint::go_on`] needs a socket.
    /// Returns (this side's, the other's).
    fn both_begin(end: Endpoint<'_>) -> [Begun; 2] {
        let (slot, channel) = (end.slot(), end.channel());
        slot.set(flag::OF_PROOF, false);
        slot.expected.store(0, Relaxed);
        channel.proof(1).store(0, Relaxed);
        let begun = [0, 1].map(|side| exchange::begin(7, &claim(end, side)));
        slot.keep_exchange(&begun[0]);
        slot.heard.store(1, Relaxed);
        slot.set(flag::BEGUN, true);
        channel.set_share(0, &begun[0].share);
        channel.set_share(1, &begun[1].share);
        begun
    }

    /// Whoever detaches and attaches a connection whose other end is trusted has spent no try.
    #[test]
    fn a_right_tag_gives_its_try_back_also_where_the_other_end_is_trusted() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        for trusted in [true, true, true, false, false, false] {
            let [own, others] = both_begin(end);
            end.slot().set(flag::PROVED, trusted);
            assert_eq!(end.go_on(Prover::Nothing), Ok(false), "a tag is shown, and none is seen");
            assert_eq!(end.slot().refused.load(Relaxed), 1);
            let tags = exchange::finish(&others, &own.share, &claim(end, 1)).expect("a share");
            end.channel().proof(1).store(tags.own, Relaxed);
            for _ in 0..3 {
                assert_eq!(end.go_on(Prover::Nothing), Ok(true));
                end.slot().set(flag::PROVED, true);
                assert_eq!(end.slot().refused.load(Relaxed), 0, "given back, and once");
            }
        }
        // A tag that is wrong costs its try.
        for spent in 1..=TRIES {
            let _ = both_begin(end);
            assert_eq!(end.go_on(Prover::Nothing), Ok(false));
            end.channel().proof(1).store(4711, Relaxed);
            assert_eq!(end.go_on(Prover::Nothing), Err(Unproven::Never));
            assert_eq!(end.slot().refused.load(Relaxed), spent);
        }
    }

    /// What a member writes over the other's nonce in the midst of an exchange changes nothing.
    #[test]
    fn the_others_nonce_is_read_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        let [own, others] = both_begin(end);
        end.channel().nonce(1).store(4711, Relaxed);
        assert_eq!(end.go_on(Prover::Nothing), Ok(false));
        let tags = exchange::finish(&others, &own.share, &claim(end, 1)).expect("a share");
        end.channel().proof(1).store(tags.own, Relaxed);
        assert_eq!(end.go_on(Prover::Nothing), Ok(true));
    }
}
