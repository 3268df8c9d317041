//! Sleeping until there is room.

use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::{Direction, NO_EOF};
use crate::ledger::{Stage, flag};
use ginnel_region::Corrupt;
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

impl<'a> Endpoint<'a> {
    /// Arms the wish for room. `Some`: armed, and the ring is still full: sleep. `None`: look again
    /// at once.
    #[must_use]
    pub fn arm_space(self, want: Want) -> Option<Want> {
        let slot = self.slot();
        let _held = self.send_lock_unless_interrupted().ok()?;
        if slot.stage() != Stage::Active || !self.tx_in_ring() {
            return None;
        }
        let direction = self.outgoing();
        let by_token = !self.joined().rings() || self.incoming().mute().load(Relaxed) != 0;
        let want = if by_token { Want::Token } else { want };
        let already = Want::of(direction.want_space().load(Relaxed));
        let token = want == Want::Token || !matches!(already, Want::Nothing) && already != want;
        let mut armed = want;
        // Where no token can come, nothing is armed: whoever waits for room by token looks again
        // after a while anyway.
        if !token || self.tokens_can_come() {
            let fresh;
            (armed, fresh) = park::arm(direction.want_space(), want);
            if armed == Want::Token {
                slot.rx.armed.fetch_add(fresh, Relaxed);
            }
        }
        let asked = self.frozen();
        let closed = Want::of(direction.want_data().load(Relaxed)) == Want::Closed;
        match self.room(direction, self.enough()) {
            Ok(room) if room < self.enough() && !asked && !closed => Some(armed),
            _ => None,
        }
    }

    /// How much room makes an upgraded socket writable: a quarter of the ring.
    fn enough(self) -> u64 {
        (self.slot().tx.ring_size.load(Relaxed) / 4).max(1)
    }

    /// Takes the wish for room back.
    pub fn disarm_space(self, want: Want) {
        park::disarm(self.outgoing().want_space(), want);
    }

    /// Nobody of this process waits for room any more. A token that was asked for would lie where
    /// none of its threads can take it, and be told of as bytes. Others that wait look again after
    /// a while.
    pub fn forgo_room(self) {
        if park::disarm(self.outgoing().want_space(), Want::Token) {
            self.slot().rx.armed.fetch_sub(1, Relaxed);
        }
    }

    /// Can a token reach this end: is the incoming direction upgraded and open?
    fn tokens_can_come(self) -> bool {
        let incoming = self.incoming();
        incoming.epoch().load(SeqCst) & 1 == 1
            && incoming.eof().load(Acquire) == NO_EOF
            && self.slot().rx.phase.load(Relaxed) & 1 == 1
    }

    /// Would a send find room? (POLLOUT, where the ring is the carrier.)
    #[must_use]
    pub fn writable(self) -> bool {
        let direction = self.outgoing();
        let asked = self.frozen() || Want::of(direction.want_data().load(Relaxed)) == Want::Closed;
        // Judged as a send judges: one that finds no room where there is said to be some would be
        // made again and again. Nonsense: the send will say so.
        asked || self.slot().has(flag::TX_SHUT) || self.has_enough(direction).unwrap_or(true)
    }

    /// Is there room for a send? Looks where the reader is only if what is known of it does not say
    /// so already: it only ever moves on, and its line is the reader's most of the time.
    fn has_enough(self, direction: Direction<'_>) -> Result<bool, Corrupt> {
        let enough = self.enough();
        Ok(self.known_room()? >= enough || self.look_for_room(direction)?.0 >= enough)
    }

    /// Would a send find room? Does first what a send would do first: a switch may owe tokens, and
    /// bytes that were in the ring and go over TCP once more; where those fill the kernel's buffer,
    /// it tells when there is room again. `told`: what the kernel says of its own room.
    #[must_use]
    pub fn sendable(self, told: bool) -> bool {
        let slot = self.slot();
        let in_ring = self.tx_in_ring();
        if slot.stage() != Stage::Active
            || slot.has(flag::TX_SHUT)
            || !(if in_ring { self.frozen() } else { self.owes() })
        {
            return if in_ring { self.writable() } else { told };
        }
        {
            let Ok(_held) = self.send_lock_unless_interrupted() else { return true };
            if self.tx_in_ring() && self.frozen() {
                self.downgrade();
            }
            if !self.pay() {
                return true;
            }
        }
        if self.tx_in_ring() {
            self.writable()
        } else {
            !self.owes() && kernel::writable(self.fd())
        }
    }
}
