//! While two ends settle: each proves to the other that it holds the connection
//! ([`crate::proof`]). Nothing else is said or done for the other side before.

use crate::finish;
use crate::ledger::{Reason, Stage, flag};
use crate::proof::{Claim, Prover, Unproven};
use crate::settle::Endpoint;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// After so many others that could not prove themselves a connection stays on TCP.
const REFUSALS: u32 = 4;

impl Endpoint<'_> {
    /// Shows this end's proof, and looks at the other's. True once the other end has proved
    /// itself, or need not. Called under the send lock, while no call is in the kernel.
    pub(super) fn prove(self) -> bool {
        let (slot, channel) = (self.slot(), self.channel());
        let prover = self.attachment.prover();
        if prover == Prover::Nobody {
            slot.set(flag::PROVED, true);
            return true;
        }
        let trusted = self.attachment.settings.policy.trusts(&slot.tuple());
        if slot.expected.load(Relaxed) == 0 {
            match self.show_proof(prover) {
                Ok(()) => {}
                Err(Unproven::Later) => return false,
                Err(Unproven::Never) if trusted => {}
                Err(Unproven::Never) => {
                    self.refuse(true);
                    return false;
                }
            }
        }
        let shown = channel.proof(1 - slot.side()).load(Acquire);
        let proved = trusted || shown == slot.expected.load(Relaxed);
        if proved {
            slot.set(flag::PROVED, true);
        } else if shown != 0 {
            self.refuse(false);
        }
        proved
    }

    fn show_proof(self, prover: Prover<'_>) -> Result<(), Unproven> {
        let (slot, channel) = (self.slot(), self.channel());
        // Who sends or receives meanwhile waits for the locks.
        let Some(_held) = slot.rx.lock.try_lock(self.ticket()) else { return Err(Unproven::Later) };
        let side = slot.side();
        // The own nonce as it was drawn, whatever stands in the channel now.
        let (own, other) = (slot.nonce.load(Relaxed), channel.nonce(1 - side).load(Relaxed));
        let claim = Claim {
            side,
            connected: slot.has(flag::CONNECTED),
            nonces: if side == 0 { [own, other] } else { [other, own] },
            tuple: slot.tuple(),
        };
        let proofs = prover.prove(self.fd(), &claim)?;
        slot.expected.store(proofs.other, Relaxed);
        channel.proof(side).store(proofs.own, Release);
        Ok(())
    }

    /// Leaves the channel: the other side is not the other end, as far as anybody can tell.
    /// `for_good`: this end has no means to tell.
    fn refuse(self, for_good: bool) {
        let slot = self.slot();
        let Some(_held) = slot.rx.lock.try_lock(self.ticket()) else { return };
        self.channel().leave(slot.side());
        finish::set_left(self.attachment, slot);
        self.forget_phases();
        let refused = slot.refused.fetch_add(1, Relaxed) + 1;
        if for_good || refused >= REFUSALS {
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
}
