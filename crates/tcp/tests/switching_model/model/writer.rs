//! The writing half of an end: bytes, switches, sleeping for room, and the end of its stream.

use super::{Broken, Run};
use crate::switching_model::state::*;

impl Run<'_> {
    pub(super) fn write(&mut self) -> Option<()> {
        let bytes = self.rules.bytes[self.e];
        if self.end().writing != Writing::Idle || self.out().next == bytes {
            return None;
        }
        if self.end().reset {
            self.end().writing = Writing::Broken;
            return Some(());
        }
        if self.out().epoch % 2 == 1 { self.write_to_ring() } else { self.write_to_tcp() }
    }

    fn write_to_tcp(&mut self) -> Option<()> {
        let out = self.out();
        let in_turn = out.owed == 0 && out.resend.0 == out.resend.1;
        (in_turn && self.has_room()).then(|| {
            let out = self.out();
            let byte = out.next;
            out.next += 1;
            out.sent += 1;
            self.send(Item::Data(byte));
        })
    }

    fn write_to_ring(&mut self) -> Option<()> {
        if self.ring_is_full() {
            if self.tokens_can_come() || self.is_broken(Broken::TokenWithoutSource) {
                self.end().writing = Writing::Full;
                if self.rules.coarse {
                    let _ = self.finish_write();
                }
            } else {
                let ring = self.out().tail;
                self.leave(ring);
            }
        } else {
            let size = self.rules.ring;
            let out = self.out();
            out.ring[(out.tail % size) as usize] = out.next;
            out.tail += 1;
            out.next += 1;
            self.end().writing = Writing::Published;
        }
        Some(())
    }

    fn ring_is_full(&mut self) -> bool {
        let stale = self.is_broken(Broken::StaleHeadCounts);
        let size = self.rules.ring;
        let out = self.out();
        let head = if stale { out.head } else { out.head.max(out.up.ring) };
        out.tail - head >= size
    }

    /// Whether a writer that sleeps on a full ring could be woken with a token.
    fn tokens_can_come(&mut self) -> bool {
        let inc = self.inc();
        Self::carries_tokens(inc) && !inc.queue.fin_arrived() && !inc.hold
    }

    pub(super) fn finish_write(&mut self) -> Option<()> {
        let next = match self.end().writing {
            Writing::Published => return self.wake_reader_of_ring(),
            Writing::Unrung => {
                self.wake_by_token();
                Writing::Idle
            }
            Writing::Upgrading => {
                let out = self.out();
                out.up = Record { tcp: out.sent, ring: out.tail };
                out.epoch += 1;
                Writing::Upgraded
            }
            Writing::Upgraded => {
                if self.out().hold && !self.is_broken(Broken::HoldUnchecked) {
                    let ring = self.out().tail;
                    self.leave(ring);
                    return Some(());
                }
                Writing::Idle
            }
            Writing::Downgrading { ring } => {
                let counted =
                    if self.is_broken(Broken::OwedTokensUncounted) { 0 } else { self.out().owed };
                let out = self.out();
                out.down = Record { tcp: out.sent + counted.cast_signed(), ring };
                if ring < out.tail {
                    out.resend = (ring, out.tail);
                }
                out.taken = false;
                out.epoch += 1;
                Writing::Idle
            }
            Writing::Ending => {
                self.out().shut = true;
                self.send(Item::Fin);
                Writing::Done
            }
            Writing::Full => {
                self.set_want_space(Word::Token);
                self.end().kick = false;
                Writing::Armed
            }
            Writing::Armed => self.look_again_at_full_ring(),
            _ => return None,
        };
        self.end().writing = next;
        Some(())
    }

    fn wake_reader_of_ring(&mut self) -> Option<()> {
        self.end().writing = Writing::Idle;
        if self.out().want_data == Word::Closed {
            let ring = self.out().tail;
            self.leave(ring);
            return Some(());
        }
        let out = self.out();
        let unentered = out.want_data == Word::None && out.ack < out.epoch;
        if unentered && self.is_broken(Broken::UnenteredCountsAsArmed) {
            self.out().owed += 1;
        }
        if self.out().want_data == Word::Unheard {
            self.out().want_data = Word::None;
            self.end().writing = Writing::Unrung;
        }
        self.claim_want_data();
        Some(())
    }

    /// Wakes a reader that cannot be rung, by a token that is promised.
    fn wake_by_token(&mut self) {
        let (silent, unpromised) =
            (self.is_broken(Broken::UnrungInSilence), self.is_broken(Broken::UnrungUnpromised));
        let word = self.out().want_data;
        if silent || matches!(word, Word::Closed | Word::Promised(_)) {
            return;
        }
        self.out().owed += 1;
        if !unpromised {
            self.out().want_data = if word == Word::Token { Word::None } else { Word::Promised(1) };
        }
    }

    pub(super) fn nudge(&mut self) -> Option<()> {
        let out = *self.out();
        let may = self.end().nudges > 0
            && self.send_lock_is_free()
            && Self::carries_tokens(&out)
            && !self.end().reset;
        may.then(|| {
            self.end().nudges -= 1;
            self.wake_by_token();
        })
    }

    fn look_again_at_full_ring(&mut self) -> Writing {
        if self.is_broken(Broken::SleepOnFullUnchecked) {
            return Writing::Asleep;
        }
        let unchecked = self.is_broken(Broken::TokenSourceUnchecked)
            || self.is_broken(Broken::TokenWithoutSource);
        if !unchecked && !self.tokens_can_come() {
            self.set_want_space(Word::None);
            return Writing::Idle;
        }
        if !self.ring_is_full() || self.freeze_in_force() { Writing::Idle } else { Writing::Asleep }
    }

    pub(super) fn wake_writer(&mut self) -> Option<()> {
        let wakes = self.socket_wakes() || self.end().kick;
        (self.end().writing == Writing::Asleep && wakes).then(|| {
            self.end().kick = false;
            self.end().writing = Writing::Idle;
            if self.rules.coarse {
                let _ = self.write();
            }
        })
    }

    pub(super) fn resend(&mut self) -> Option<()> {
        let may = self.send_lock_is_free() && self.has_room() && !self.end().reset;
        let out = self.out();
        (may && out.owed == 0 && out.resend.0 < out.resend.1).then(|| {
            let size = self.rules.ring;
            let out = self.out();
            let byte = out.ring[(out.resend.0 % size) as usize];
            out.resend.0 += 1;
            out.sent += 1;
            if out.resend.0 == out.resend.1 {
                out.resend = (0, 0);
            }
            self.send(Item::Data(byte));
        })
    }

    pub(super) fn upgrade(&mut self) -> Option<()> {
        let (early, unsent) =
            (self.is_broken(Broken::UpgradeBeforeAck), self.is_broken(Broken::UpgradeBeforeResent));
        let idle =
            self.end().writing == Writing::Idle && self.end().upgrades > 0 && !self.end().reset;
        let out = self.out();
        let entered = out.ack == out.epoch || early;
        let all_sent = out.queue.arrived == out.queue.len() && out.owed == 0;
        let resent = out.resend.0 == out.resend.1 || unsent;
        let may = out.epoch.is_multiple_of(2) && !out.hold && !out.shut;
        (idle && entered && all_sent && resent && may).then(|| {
            self.out().taken = true;
            self.end().upgrades -= 1;
            self.end().writing = Writing::Upgrading;
        })
    }

    pub(super) fn downgrade(&mut self) -> Option<()> {
        let idle =
            self.end().writing == Writing::Idle && self.end().downgrades > 0 && !self.end().reset;
        (idle && self.out().epoch % 2 == 1).then(|| {
            self.end().downgrades -= 1;
            let ring = self.out().tail;
            self.leave(ring);
        })
    }

    /// A freeze of the epoch we are in.
    fn freeze_in_force(&mut self) -> bool {
        let any_epoch = self.is_broken(Broken::FreezeWithoutEpoch);
        let out = self.out();
        out.epoch % 2 == 1
            && out.eof == NO_EOF
            && out.freeze.is_some_and(|f| f.0 == out.epoch || any_epoch)
    }

    pub(super) fn answer_freeze(&mut self) -> Option<()> {
        (self.send_lock_is_free() && self.freeze_in_force() && !self.end().reset).then(|| {
            let (_, ring) = self.out().freeze.unwrap_or_default();
            self.leave(ring);
        })
    }

    /// Begins a downgrade at this ring offset. Its one token wakes the reader and a writer on a
    /// full ring alike.
    fn leave(&mut self, ring: u8) {
        let word = self.out().want_data;
        let armed = word == Word::Token || self.inc().want_space == Word::Token;
        let silent = self.is_broken(Broken::DowngradeInSilence)
            || (self.is_broken(Broken::DowngradeWakesTheArmed) && !armed);
        let unpromised = self.is_broken(Broken::DowngradeTokenUnpromised);
        self.end().writing = Writing::Downgrading { ring };
        let enough = matches!(word, Word::Promised(_)) && self.is_broken(Broken::PromisedOnce);
        if word == Word::Closed || enough || silent {
            return;
        }
        self.out().owed += 1;
        self.out().want_data = match word {
            Word::Promised(count) if !unpromised => Word::Promised(count + 1),
            Word::None | Word::Unheard if !unpromised => Word::Promised(1),
            _ => Word::None,
        };
    }

    pub(super) fn shutdown(&mut self) -> Option<()> {
        let may =
            self.rules.shutdown[self.e] && self.end().writing == Writing::Idle && !self.end().reset;
        let out = self.out();
        (may && out.owed == 0 && out.resend.0 == out.resend.1).then(|| {
            let out = self.out();
            if out.epoch % 2 == 1 {
                out.eof = out.tail;
            }
            self.end().writing = Writing::Ending;
        })
    }
}
