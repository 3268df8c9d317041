//! What the two kernels do: items on their way, the socket and its end.

use super::Run;
use crate::switching_model::state::*;

impl Run<'_> {
    pub(super) fn send(&mut self, item: Item) {
        self.out().queue.push(item);
        if self.rules.instant {
            let _ = self.arrive(self.e);
        }
    }

    pub(super) fn has_room(&mut self) -> bool {
        let room = self.rules.room;
        self.out().queue.len() < room
    }

    /// The next item of direction `d` reaches the kernel of the end that reads it.
    pub(super) fn arrive(&mut self, d: usize) -> Option<()> {
        let item = self.s.dirs[d].queue.next_to_arrive()?;
        let reader = self.s.ends[1 - d];
        let queue = &mut self.s.dirs[d].queue;
        if matches!(reader.life, Life::Closed | Life::Dead) {
            queue.drop_next();
            if item != Item::Fin {
                self.send_reset(1 - d);
            }
        } else if reader.reset {
            queue.drop_next();
        } else {
            queue.arrived += 1;
        }
        Some(())
    }

    /// The kernel of end `e`, whose socket is gone, refuses a byte: what it still had to send is
    /// lost with it.
    pub(super) fn send_reset(&mut self, e: usize) {
        let told = 1 - e;
        if self.s.ends[e].life != Life::Dead && self.s.dirs[told].next == self.s.dirs[told].got {
            self.fault(Fault::ResetAfterCleanClose);
        }
        self.s.ends[told].reset = true;
        self.s.dirs[e].queue.drop_in_flight();
        let out = &mut self.s.dirs[told];
        out.queue = Queue::default();
        out.owed = 0;
        out.resend = (0, 0);
    }

    /// What the kernel does when the last descriptor of the socket goes.
    pub(super) fn release_socket(&mut self) {
        if self.end().reset {
            return;
        }
        if self.inc().queue.readable() > 0 {
            self.send_reset(self.e);
        } else if !self.out().shut {
            self.out().shut = true;
            self.send(Item::Fin);
        }
    }

    /// Whether a sleep on the TCP socket ends.
    pub(super) fn socket_wakes(&mut self) -> bool {
        self.inc().queue.front().is_some() || self.end().reset
    }
}
