//! Frames that are sent from where they lie in a machine's memory.

use super::{AT_ONCE, Batch, COPIES, Link, Lost, SLOW};
use crate::hosts::message::{self, HEAD};
use crate::loan::Lender;
use crate::ring::Slices;
use std::time::{Duration, Instant};

impl Link {
    /// Sends a frame whose end stays where it is, in a message of its own. False: it is to be
    /// copied.
    ///
    /// With a secret every frame is copied: a seal is made over bytes that must not change before
    /// they are sent, and a machine could change them to have the other host refuse the connection.
    /// And no more is lent than would be sent at once: a host that takes little is sent copies, for
    /// which no machine's queue waits. So is one that was [slow](SLOW) of late.
    pub(super) fn put_in_place(
        &mut self,
        key: u32,
        front: &[u8],
        rest: &Slices<'_>,
        lender: &Lender<'_>,
    ) -> Result<bool, Lost> {
        let pieces = self.wire.pieces();
        // What lies in more pieces than can be sent has its first ones copied.
        let kept = rest.len_of_last(pieces);
        if kept < self.in_place || self.is_secret() || self.slow.is_some() {
            return Ok(false);
        }
        if self.wire.sending() >= AT_ONCE {
            self.wire.look()?;
        }
        if self.wire.sending() >= AT_ONCE {
            return Ok(false);
        }
        // Frames stay in order.
        self.go()?;
        if self.batch.is_some() {
            return Ok(false);
        }
        let Some(index) = self.wire.take() else { return Ok(false) };
        let (len, copied) = (front.len() + rest.len(), rest.len() - kept);
        let own = front.len() + copied;
        let place = message::put(self.wire.buffer(index), HEAD, key, len);
        let parts = place.and_then(|place| place.get_mut(..own)?.split_at_mut_checked(front.len()));
        let good = parts.map(|(head, tail)| {
            head.copy_from_slice(front);
            rest.copy_to(tail);
        });
        let wire = &self.wire;
        let loan = good.and_then(|()| lender.lend(rest, pieces, |region| wire.takes(region)));
        let Some(loan) = loan else {
            self.wire.untake(index);
            return Ok(false);
        };
        let (len, loan) = (HEAD + message::taken(own), Some(loan));
        self.batch = Some(Batch { len, frames: 1, loan, ..Batch::new(index) });
        self.lends = true;
        self.go()?;
        Ok(true)
    }

    /// Looks how long what was lent first is on its way, and notes whether the host is slow.
    /// Returns how long.
    pub(super) fn watch_loans(&mut self, now: Instant) -> Duration {
        self.slow = self.slow.filter(|&until| now < until);
        if !self.lends {
            return Duration::ZERO;
        }
        let own = self.batch.as_ref().is_some_and(|batch| batch.loan.is_some());
        let oldest = self.wire.oldest().or(own.then_some(u64::MAX));
        let before = self.waits.map(|(first, since)| (first, now.saturating_duration_since(since)));
        if let Some((_, took)) = before.filter(|&(_, took)| took >= SLOW) {
            self.slow = self.slow.max(Some(now + COPIES * took));
        }
        match (before, oldest) {
            (Some((first, took)), Some(oldest)) if first == oldest => return took,
            _ => (self.waits, self.lends) = (oldest.map(|first| (first, now)), oldest.is_some()),
        }
        Duration::ZERO
    }
}
