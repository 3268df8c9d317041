//! The reading half of an end: what the kernel says, bytes of either carrier, sleeping, and asking
//! for TCP.

use super::{Broken, Run};
use crate::switching_model::state::*;

impl Run<'_> {
    pub(super) fn ask_kernel(&mut self) -> Option<()> {
        (self.end().reading == Reading::Idle).then(|| {
            let epoch = self.inc().epoch;
            self.end().reading = if self.is_broken(Broken::RecordsBeforeFionread) {
                Reading::ReadEpoch { epoch }
            } else {
                self.kernel_says()
            };
            if self.rules.coarse {
                let _ = self.receive(false);
                if self.end().reading == Reading::Empty {
                    let _ = self.finish_read();
                }
            }
        })
    }

    fn kernel_says(&mut self) -> Reading {
        let reset = self.end().reset;
        let queue = &self.inc().queue;
        Reading::Looked { bytes: queue.readable(), fin: queue.fin_arrived(), reset }
    }

    pub(super) fn receive(&mut self, all: bool) -> Option<()> {
        let (bytes, mut fin, reset, epoch) = match (self.end().reading, self.inc().epoch) {
            (Reading::Looked { bytes, fin, reset }, epoch) => (bytes, fin, reset, epoch),
            (Reading::ReadEpoch { epoch }, _) => match self.kernel_says() {
                Reading::Looked { bytes, fin, reset } => (bytes, fin, reset, epoch),
                _ => return None,
            },
            (Reading::HandedOver, _) if !all => return self.read_bare_socket(),
            _ => return None,
        };
        if self.is_broken(Broken::FinAfterRecords) {
            fin = self.inc().queue.fin_arrived();
        }
        self.end().reading = Reading::Idle;
        if self.inc().phase.is_multiple_of(2) {
            self.receive_from_tcp(all, bytes, fin, reset, epoch)
        } else if !all {
            self.receive_from_ring(bytes, fin, reset, epoch);
            Some(())
        } else {
            None
        }
    }

    fn receive_from_tcp(
        &mut self,
        all: bool,
        bytes: u8,
        fin: bool,
        reset: bool,
        epoch: u8,
    ) -> Option<()> {
        let inc = self.inc();
        let upgraded = epoch > inc.phase;
        let most = if upgraded {
            bytes.min((inc.up.tcp - inc.received).max(0).cast_unsigned())
        } else {
            bytes
        };
        if all && most < 2 {
            return None;
        }
        if most > 0 {
            (0..if all { most } else { 1 }).for_each(|_| self.take_from_tcp());
        } else if upgraded && inc.received == inc.up.tcp {
            self.enter_ring();
        } else if fin {
            // Bytes of a frozen ring that were to come over TCP, and their writer died.
            let short = inc.phase > 0
                && inc.received < inc.down.tcp + (inc.tail - inc.down.ring).cast_signed();
            if upgraded || (short && !self.is_broken(Broken::ShortResendBelieved)) {
                self.read_reset();
            } else {
                self.read_eof();
            }
        } else if reset {
            self.read_reset();
        } else {
            self.end().reading = Reading::AsleepTcp;
        }
        Some(())
    }

    fn take_from_tcp(&mut self) {
        let inc = self.inc();
        inc.received += 1;
        match inc.queue.pop() {
            Item::Data(byte) => self.hand_out(byte),
            _ => self.fault(Fault::TokenAsData),
        }
    }

    fn hand_out(&mut self, byte: u8) {
        if byte != self.inc().got {
            self.fault(Fault::WrongByte);
        }
        self.inc().got += 1;
    }

    pub(super) fn enter_ring(&mut self) {
        let inc = self.inc();
        inc.phase += 1;
        inc.head = inc.up.ring;
        inc.ack = inc.phase;
    }

    pub(super) fn enter_tcp(&mut self) {
        self.inc().phase += 1;
        if self.end().life == Life::Open {
            self.set_want_data(Word::Token);
        }
        self.inc().ack = self.inc().phase;
        self.end().token_kept = false;
    }

    fn receive_from_ring(&mut self, bytes: u8, fin: bool, reset: bool, epoch: u8) {
        let eager = self.is_broken(Broken::TokensLeaveBeforeData) && bytes > 0;
        let past = self.is_broken(Broken::TokensPastDowngrade);
        let size = self.rules.ring;
        let inc = self.inc();
        let downgraded = epoch > inc.phase;
        let alive = inc.eof == NO_EOF && !fin && !reset;
        let frozen = !downgraded && alive && inc.freeze.is_some_and(|f| f.0 == inc.phase);
        let limit = if downgraded {
            inc.down.ring
        } else if frozen {
            inc.head
        } else {
            inc.tail
        };
        if inc.head < limit && !eager {
            let byte = inc.ring[(inc.head % size) as usize];
            inc.head += 1;
            self.hand_out(byte);
            self.end().reading = Reading::HeadMoved;
            return;
        }
        let tokens = if downgraded && !past {
            bytes.min((inc.down.tcp - inc.received).max(0).cast_unsigned())
        } else {
            bytes
        };
        if tokens > 0 {
            self.end().token_kept &= eager;
            (0..tokens).for_each(|_| self.throw_token_away());
        } else if downgraded && inc.received >= inc.down.tcp {
            self.enter_tcp();
        } else if !downgraded && inc.eof == inc.head {
            self.read_eof();
        } else if fin && downgraded {
            // The writer died before the tokens it had counted: nothing follows.
            inc.received = inc.down.tcp;
            self.enter_tcp();
        } else if fin {
            self.ask_whether_dead();
        } else if reset {
            self.read_reset();
        } else {
            self.end().token_kept = false;
            self.end().reading = if downgraded { Reading::AsleepTcp } else { Reading::Empty };
        }
    }

    pub(super) fn throw_token_away(&mut self) {
        let wakes_all = !self.is_broken(Broken::TokenWakesOneThread);
        let inc = self.inc();
        inc.received += 1;
        if inc.queue.pop() != Item::Token {
            self.fault(Fault::DataAsToken);
        }
        self.end().to_come -= 1;
        if wakes_all {
            self.wake_own_writer();
        }
    }

    /// Bids the other thread of this end look again.
    fn wake_own_writer(&mut self) {
        let end = self.end();
        end.kick |= matches!(end.writing, Writing::Armed | Writing::Asleep);
    }

    fn ask_whether_dead(&mut self) {
        let out = *self.out();
        let consumed = out.epoch % 2 == 1 && out.ack == out.epoch && out.head == out.tail;
        if consumed {
            self.read_eof();
        } else if Self::carries_tokens(&out) && self.send_lock_is_free() {
            self.out().owed += 1;
            self.end().reading = Reading::Probed;
        } else {
            self.read_reset();
        }
    }

    fn read_eof(&mut self) {
        self.end().reading = Reading::Eof;
        let dead = self.s.ends[self.p].life == Life::Dead;
        let inc = self.inc();
        let ended = inc.shut || inc.eof != NO_EOF || dead;
        if !ended || inc.got != inc.next {
            self.fault(Fault::EarlyEof);
        }
    }

    fn read_reset(&mut self) {
        self.end().reading = Reading::Reset;
        let unread = self.out().next > self.out().got;
        match self.s.ends[self.p].life {
            Life::Dead => {}
            Life::Closed if unread => {}
            _ => self.fault(Fault::ResetForNothing),
        }
    }

    pub(super) fn finish_read(&mut self) -> Option<()> {
        let next = match self.end().reading {
            Reading::HeadMoved => {
                if !self.send_lock_is_free() {
                    return None;
                }
                let out = *self.out();
                if Self::carries_tokens(&out) {
                    self.claim_want_space();
                }
                Reading::Idle
            }
            Reading::Empty => {
                let unheard = self.rules.unheard[self.e] && self.inc().want_data != Word::Token;
                self.set_want_data(if unheard { Word::Unheard } else { Word::Token });
                Reading::Armed
            }
            Reading::Armed => {
                let unchecked = self.is_broken(Broken::SleepOnEmptyUnchecked);
                let inc = self.inc();
                let frozen = inc.freeze.is_some_and(|f| f.0 == inc.phase) && inc.eof == NO_EOF;
                let nothing =
                    (inc.tail == inc.head || frozen) && inc.epoch == inc.phase && inc.eof == NO_EOF;
                if nothing || unchecked { Reading::Asleep } else { Reading::Idle }
            }
            _ => return None,
        };
        self.end().reading = next;
        Some(())
    }

    pub(super) fn wake_reader(&mut self) -> Option<()> {
        let next = match self.end().reading {
            Reading::Asleep => Reading::Idle,
            Reading::AsleepTcp => Reading::Idle,
            Reading::Probed => return self.end().reset.then(|| self.read_reset()),
            _ => return None,
        };
        self.socket_wakes().then(|| {
            let keeps = self.rules.level_sets && self.end().reading == Reading::Asleep;
            self.end().token_kept = keeps && !self.end().reset;
            self.end().reading = next;
            if self.rules.coarse {
                let _ = self.ask_kernel();
            }
        })
    }

    /// The program read a little and asks its kernel set again: the unread token must report what
    /// is left.
    pub(super) fn sleep_in_level_set(&mut self) -> Option<()> {
        (self.end().token_kept && self.end().reading == Reading::Idle && !self.socket_wakes()).then(
            || {
                self.end().reading = Reading::Asleep;
            },
        )
    }

    pub(super) fn freeze(&mut self) -> Option<()> {
        let may = self.end().reading == Reading::Idle && self.end().freezes > 0;
        (may && self.inc().phase % 2 == 1).then(|| {
            let inc = self.inc();
            inc.freeze = Some((inc.phase, inc.head));
            self.end().freezes -= 1;
            self.end().reading = Reading::HeadMoved;
        })
    }

    pub(super) fn hold(&mut self) -> Option<()> {
        let may = self.rules.hand_over[self.e] && self.end().reading == Reading::Idle;
        (may && !self.inc().hold).then(|| {
            self.inc().hold = true;
            self.wake_own_writer();
        })
    }

    pub(super) fn hand_over(&mut self) -> Option<()> {
        let calm = self.end().reading == Reading::Idle
            && !self.end().armed_space
            && self.end().to_come == 0;
        let apart = self.is_broken(Broken::HoldApart);
        let inc = self.inc();
        let free = !inc.taken || apart;
        (calm && inc.hold && free && inc.phase.is_multiple_of(2) && inc.epoch == inc.phase).then(
            || {
                self.end().reading = Reading::HandedOver;
            },
        )
    }

    fn read_bare_socket(&mut self) -> Option<()> {
        match self.inc().queue.front()? {
            Item::Fin => self.read_eof(),
            _ => self.take_from_tcp(),
        }
        Some(())
    }
}
