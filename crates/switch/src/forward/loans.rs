//! Frames that are sent to other hosts from where they lie: giving their chains back to the guests.

use crate::loan::Back;
use crate::ring::{Held, Region};
use crate::switch::{Sender, Switch};
use std::sync::Arc;

impl Switch {
    /// Gives those chains back whose frames were sent. Is there anything to be told of?
    pub(super) fn take_back(&mut self) -> bool {
        let mut any = false;
        for Back { ticket, held, beside, .. } in self.desk.take() {
            // Its guest may be gone, and another may be in its place, to whom the number says
            // nothing.
            let port = self.ports.get_mut(ticket.port as usize).and_then(Option::as_mut);
            if let Some(device) = port.and_then(|port| port.device_mut())
                && let Some(queue) = device.queues.get_mut(usize::from(ticket.queue))
                && queue.give_back(&device.memory, ticket.number)
            {
                let place = Sender { port: ticket.port, queue: ticket.queue };
                if !self.touched.contains(&place) {
                    self.touched.push(place);
                }
                any = true;
            }
            // To unmap the memory of a machine that is gone may take long, and to have a device
            // forget it.
            let known = beside.iter().any(|one| Arc::strong_count(one) == 1);
            if known || held.as_ref().is_some_and(Held::is_last) {
                self.closer.close((beside, held));
            }
        }
        any
    }

    /// Something came back from a connection that was closed.
    pub(crate) fn hear_of_loans(&mut self) {
        self.desk.quiet();
        self.tell();
    }

    /// Tells devices which memory of machines there is, if it may be another.
    ///
    /// Memory that a device knows cannot be taken from its machine's front end any more, and all
    /// its pages come into being: so only that of ports is, of which it is said how much it may be.
    pub(crate) fn pass_on_memory(&mut self) {
        self.closer.go_on();
        if !std::mem::take(&mut self.memory_changed) || !self.hosts.registers() {
            return;
        }
        let mut regions: Vec<Arc<Region>> = Vec::new();
        for port in self.ports().filter(|port| port.config.memory.is_some()) {
            if self.hosts.keys.binary_search(&port.config.key).is_ok() {
                regions.extend(port.device().iter().flat_map(|one| one.memory.regions()).cloned());
            }
        }
        self.hosts.know(regions);
    }
}
