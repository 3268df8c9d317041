//! Giving a frame to all of its segment.

use super::Frame;
use crate::counters::Reason;
use crate::port::Port;
use crate::switch::Switch;
use crate::wire::HEADER;

impl Switch {
    /// Gives a frame to every other port of the segment, and to every host, each of which costs so
    /// much. Returns what all of it costs.
    pub(super) fn flood(
        &mut self,
        port: &mut Port,
        queue: u16,
        frame: &mut Frame<'_, '_>,
        each: usize,
    ) -> usize {
        if let Some(bucket) = &mut port.broadcasts
            && bucket.take(1, self.clock.now).is_err()
        {
            port.counters.drop_sent(Reason::BroadcastRate);
            return each;
        }
        port.counters.flooded += 1;
        // The sender itself is not there while its frames are moved.
        let ports = self.flood_ports(port.index, queue, frame, each);
        let cost = ports + self.flood_hosts(frame) * each;
        if cost == 0 {
            port.counters.drop_sent(Reason::NobodyThere);
        }
        cost.max(each)
    }

    /// Gives a frame to every port of its segment that is there, each of which costs so much.
    /// Returns what all of it costs.
    pub(super) fn flood_ports(
        &mut self,
        from: u32,
        queue: u16,
        frame: &mut Frame<'_, '_>,
        each: usize,
    ) -> usize {
        let unicast = frame.front.get(HEADER).is_some_and(|byte| byte & 1 == 0);
        let members = self.segments.get(&frame.key).map_or(0, Vec::len);
        let mut cost = 0;
        for place in 0..members {
            let Some(&to) = self.segments.get(&frame.key).and_then(|all| all.get(place)) else {
                break;
            };
            let wants = |to: &Port| {
                // Whose addresses are all known gets no frame for an unknown one.
                to.is_up() && (!unicast || to.config.filter.macs.is_empty())
            };
            if self.port(to).is_some_and(wants) {
                cost += each + self.deliver(to, from, queue, frame);
            }
        }
        cost
    }
}
