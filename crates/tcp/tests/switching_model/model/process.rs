//! Closing, and being killed.

use super::{Broken, Run};
use crate::switching_model::state::*;

impl Run<'_> {
    pub(super) fn close(&mut self) -> Option<()> {
        match self.end().life {
            Life::Open => self.begin_close(),
            Life::Closing => {
                self.set_want_data(Word::Closed);
                self.end().life = Life::DataClosed;
                Some(())
            }
            Life::DataClosed => {
                if !self.is_broken(Broken::SpaceLeftArmed) {
                    self.set_want_space(Word::None);
                }
                self.end().life = Life::Waiting;
                Some(())
            }
            Life::Waiting => self.finish_close(),
            Life::Closed | Life::Dead => None,
        }
    }

    fn begin_close(&mut self) -> Option<()> {
        let reading = matches!(
            self.end().reading,
            Reading::Idle | Reading::Asleep | Reading::AsleepTcp | Reading::Eof | Reading::Reset
        );
        let writing = matches!(
            self.end().writing,
            Writing::Idle | Writing::Asleep | Writing::Done | Writing::Broken
        );
        (self.rules.close[self.e] && reading && writing).then(|| {
            let out = self.out();
            if out.epoch % 2 == 1 && !out.shut {
                out.eof = out.tail;
            }
            let end = self.end();
            end.writing = Writing::Done;
            end.reading = Reading::Idle;
            end.kick = false;
            end.token_kept = false;
            end.life = Life::Closing;
        })
    }

    /// Throws tokens away until the last that was promised has come, then lets the kernel close.
    fn finish_close(&mut self) -> Option<()> {
        let reset = self.end().reset;
        let inc = *self.inc();
        let (bytes, switched) = (inc.queue.readable(), inc.epoch > inc.phase);
        let on_ring = inc.phase % 2 == 1;
        let limit = if switched { inc.down.ring } else { inc.tail };
        let unread = if on_ring {
            inc.head < limit
        } else {
            bytes > 0 && !(switched && inc.received == inc.up.tcp)
        };
        if unread && !reset {
            self.end().life = Life::Closed;
            self.send_reset(self.e);
            return Some(());
        }
        if switched && !on_ring && inc.received == inc.up.tcp {
            self.enter_ring();
            return Some(());
        }
        let tokens = if switched {
            bytes.min((inc.down.tcp - inc.received).max(0).cast_unsigned())
        } else {
            bytes
        };
        if on_ring && tokens > 0 {
            (0..tokens).for_each(|_| self.throw_token_away());
            return Some(());
        }
        if on_ring && switched && inc.received == inc.down.tcp {
            self.enter_tcp();
            return Some(());
        }
        let out = self.out();
        let all_sent = out.owed == 0 && out.resend.0 == out.resend.1;
        let all_come = self.end().to_come == 0 || inc.queue.fin_arrived();
        let may = (all_sent && (all_come || self.is_broken(Broken::CloseWithoutWaiting))) || reset;
        may.then(|| {
            self.end().life = Life::Closed;
            self.release_socket();
        })
    }

    pub(super) fn kill(&mut self) -> Option<()> {
        self.rules.kill[self.e].then(|| {
            let end = self.end();
            end.life = Life::Dead;
            end.writing = Writing::Done;
            end.reading = Reading::Idle;
            self.release_socket();
        })
    }
}
