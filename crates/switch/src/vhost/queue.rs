//! One queue of a device: what the front end has said of it, and the ring once it is served.

use super::message::{Addresses, RING_LOG};
use crate::poller::{Poller, Token};
use crate::ring::{Broken, Layout, Memory, Ring};
use crate::wire::features;
use ginnel_ivshmem::doorbell::Ringer;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// An eventfd that the guest kicks, watched for its edges. It is never read: whoever else holds it
/// could make that wait. Not watched any more once it is dropped, though others still hold it.
#[derive(Debug)]
struct Kick {
    descriptor: OwnedFd,
    poller: Poller,
}

impl Drop for Kick {
    fn drop(&mut self) {
        self.poller.forget(&self.descriptor);
    }
}

/// One queue.
#[derive(Debug, Default)]
pub struct Queue {
    pub(super) size: u16,
    pub(super) base: u16,
    pub(super) addresses: Option<Addresses>,
    pub(super) enabled: bool,
    kick: Option<Kick>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    /// The ring, while it is served.
    pub ring: Option<Ring>,
    /// The same while it cannot be: it lies in memory that the front end has taken away. It may
    /// give that back, and some of its chains may be lent.
    parked: Option<Ring>,
    /// Why it is not served, although the front end wants it to be.
    pub broken: Option<Broken>,
    /// Is it looked at in each turn? Else a kick is awaited.
    pub awake: bool,
    /// For how long it is looked at before a kick is awaited.
    pub patience: Duration,
    /// When something was last there.
    pub busy: Option<Instant>,
}

impl Queue {
    /// Takes the eventfd by which the guest kicks.
    pub(super) fn set_kick(
        &mut self,
        descriptor: OwnedFd,
        poller: &Poller,
        token: Token,
    ) -> Result<(), Errno> {
        self.kick = None;
        poller.watch_edges(&descriptor, token)?;
        self.kick = Some(Kick { descriptor, poller: poller.clone() });
        Ok(())
    }

    pub(super) fn has_kick(&self) -> bool {
        self.kick.is_some()
    }

    pub(super) fn set_call(&mut self, descriptor: Option<OwnedFd>) {
        self.call = descriptor;
    }

    pub(super) fn set_error(&mut self, descriptor: Option<OwnedFd>) {
        self.error = descriptor;
    }

    /// Begins to serve it, or serves it where it lies now, if all is known that is needed.
    pub(super) fn start(&mut self, memory: &Memory, agreed: u64) {
        let before = self.ring.take().or_else(|| self.parked.take());
        let base = before.as_ref().map_or(self.base, Ring::base);
        self.base = base;
        let Some(at) = self.addresses.filter(|_| self.has_kick()) else { return };
        let layout = Layout {
            size: self.size,
            descriptors: at.descriptors,
            available: at.available,
            used: at.used,
            used_log: (at.flags & RING_LOG != 0).then_some(at.log),
            base,
            event_idx: agreed & features::EVENT_IDX != 0,
            indirect: agreed & features::INDIRECT_DESC != 0,
        };
        match Ring::new(memory, layout) {
            Ok(mut ring) => {
                if let Some(before) = before {
                    ring.go_on_from(memory, before);
                }
                (self.ring, self.broken, self.awake) = (Some(ring), None, true);
            }
            Err(why) => (self.broken, self.parked) = (Some(why), before),
        }
    }

    /// Is it served, or would it be if its memory were there?
    pub(super) fn is_placed(&self) -> bool {
        self.ring.is_some() || self.parked.is_some()
    }

    /// A chain that was [lent](Ring::lend) is done with. Is there anything to publish?
    pub fn give_back(&mut self, memory: &Memory, number: u64) -> bool {
        match (&mut self.ring, &mut self.parked) {
            (Some(ring), _) => ring.give_back(memory, number),
            (None, Some(parked)) => {
                // Its guest is told when it is served again.
                parked.settle(number);
                false
            }
            (None, None) => false,
        }
    }

    /// Serves it no further, once the guest was told of all that is done. Returns where the next
    /// device is to go on.
    pub(super) fn stop(&mut self, memory: &Memory, ringer: &Ringer) -> u16 {
        if self.ring.as_mut().is_some_and(|ring| ring.publish(memory)) {
            self.interrupt(ringer);
        }
        if let Some(ring) = self.ring.take().or_else(|| self.parked.take()) {
            self.base = ring.base();
        }
        (self.kick, self.call, self.broken, self.awake) = (None, None, None, false);
        self.base
    }

    /// The guest broke a rule: it is served no further until the front end sets it up again.
    pub fn fail(&mut self, why: Broken, ringer: &Ringer) {
        if let Some(ring) = self.ring.take() {
            self.base = ring.base();
        }
        (self.broken, self.awake) = (Some(why), false);
        if let Some(error) = &self.error {
            // A front end that passed something else hears nothing.
            let _ = ringer.ring(error);
        }
    }

    /// The guest has kicked: it is looked at from now on, for how long before it is to be kicked
    /// again. As Linux decides it (virt/kvm, halt-polling): had it been looked at a little longer,
    /// this would have been seen.
    pub fn wake(&mut self, memory: &Memory, now: Instant, poll: Duration) {
        self.awake = true;
        if let Some(ring) = &self.ring {
            ring.mute_kicked(memory);
        }
        let slept = self.busy.map_or(Duration::MAX, |busy| now.saturating_duration_since(busy));
        self.patience = if slept <= 2 * poll { poll } else { self.patience / 2 };
        self.busy = Some(now);
    }

    /// With nothing to be done, has it been looked at for long enough?
    #[must_use]
    pub fn is_tired(&self, now: Instant) -> bool {
        let since = self.busy.map(|busy| now.saturating_duration_since(busy));
        since.is_none_or(|since| since >= self.patience)
    }

    /// Index of the available ring at which it goes on.
    #[must_use]
    pub fn base(&self) -> u16 {
        self.ring.as_ref().map_or(self.base, Ring::base)
    }

    /// Interrupts the guest.
    pub fn interrupt(&self, ringer: &Ringer) {
        if let Some(call) = &self.call {
            // A front end that passed something else hears nothing.
            let _ = ringer.ring(call);
        }
    }
}
