//! The writer's switches, checked, and entering the carrier that they lead to.

use crate::endpoint::Endpoint;
use crate::layout::{Direction, Record};
use crate::ledger::{Reason, Stage};
use ginnel_region::{Corrupt, Untrusted};
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

impl<'a> Endpoint<'a> {
    /// The writer's epoch, checked against the phase: at most one switch ahead in the ring, two on
    /// TCP.
    #[inline]
    pub(super) fn epoch(self, direction: Direction<'_>) -> Result<u64, Corrupt> {
        let phase = self.slot().rx.phase.load(Relaxed);
        // Acquire pairs with the writer's store of `epoch`: the record is visible first.
        let epoch = Untrusted::new(direction.epoch().load(Acquire));
        epoch.within(phase, phase.wrapping_add(if phase & 1 == 1 { 1 } else { 2 }))
    }

    pub(super) fn record(self, direction: Direction<'_>, number: u64) -> Result<Record, Corrupt> {
        let received = self.slot().rx.received.load(Relaxed);
        direction.switch(number).checked(|record| {
            record.epoch == number && record.tcp >= received && record.tcp - received < 1 << 40
        })
    }

    pub(super) fn enter_tcp(self, direction: Direction<'_>, epoch: u64) {
        let rx = &self.slot().rx;
        rx.phase.store(epoch, Relaxed);
        // From the next upgrade on, until it is entered, this reader sleeps on TCP. A promised
        // token was counted among those that came: so it is here.
        let (_, fresh) = park::arm(direction.want_data(), Want::Token);
        rx.armed.fetch_add(fresh, Relaxed);
        direction.received().store(rx.received.load(Relaxed), Relaxed);
        direction.ack().store(epoch, SeqCst);
    }

    pub(super) fn enter_ring(
        self,
        direction: Direction<'_>,
        record: Record,
    ) -> Result<(), Corrupt> {
        let rx = &self.slot().rx;
        let head = rx.head.load(Relaxed);
        // Frozen bytes were sent again over TCP: the ring goes on behind them.
        let skipped = Untrusted::new(record.ring).ahead_of(head, 1 << 40)?;
        rx.head.store(head.wrapping_add(skipped), Relaxed);
        // A ring that was replaced before this phase began is taken up at its present place.
        let grown = direction.grown().load(Acquire);
        if grown != rx.grown.load(Relaxed) {
            let (start, ..) = self.next_ring(direction, grown, rx.head.load(Relaxed))?;
            if record.ring.wrapping_sub(start) as i64 >= 0 {
                self.move_to_next_ring(direction, grown)?;
            }
        }
        rx.frozen.store(0, Relaxed);
        // Only where both have agreed does a writer upgrade.
        if self.slot().advance(Stage::Settling, Stage::Active) {
            self.slot().set_reason(Reason::None);
        }
        direction.head().store(rx.head.load(Relaxed), Release);
        rx.phase.store(record.epoch, Relaxed);
        direction.ack().store(record.epoch, SeqCst);
        Ok(())
    }
}
