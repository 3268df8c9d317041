//! Giving frames to ports, and telling their guests.

use super::{Frame, PER_FRAME};
use crate::counters::Reason;
use crate::offload;
use crate::port::{Link, Port, header_len};
use crate::ring::{Memory, Refused, Ring, Slices};
use crate::scratch::Scratch;
use crate::seat::Seat;
use crate::switch::{Sender, Switch};
use crate::tap::Tap;
use crate::wire::{HEADER, features};
use ginnel_daemon::log;
use ginnel_ivshmem::doorbell::Ringer;
use std::sync::Arc;

impl Switch {
    /// Gives a frame to one port, or to a host. Returns what it costs beside itself: where it is
    /// cut, each further segment costs what a frame does.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        index: u32,
        from: u32,
        queue: u16,
        frame: &mut Frame<'_, '_>,
    ) -> usize {
        if let Some(place) = crate::hosts::place(index) {
            let Frame { key, lender, .. } = *frame;
            self.hosts.give(place, key, frame.front, frame.rest, lender);
            return 0;
        }
        let Self { ports, scratch, tracer, touched, ringer, .. } = self;
        let Some(to) = ports.get_mut(index as usize).and_then(Option::as_mut) else { return 0 };
        if to.traced {
            tracer.note(index, false, frame.front, frame.rest);
        }
        let agreed = match &to.link {
            Link::Tap(_) => Tap::AGREED,
            Link::Guest(seat) => match seat.device() {
                Some(device) => device.features(),
                None => {
                    to.counters.drop_received(Reason::ReceiverAbsent);
                    return 0;
                }
            },
        };
        if matches!(to.link, Link::Guest(_)) && frame.offload.suits(agreed) {
            let sender = u32::from(queue / 2).wrapping_add(from);
            give(to, sender, frame.front, frame.rest, touched, ringer);
            return 0;
        }
        let Scratch { frame: copy, segment, whole, .. } = scratch;
        copy.clear();
        copy.extend_from_slice(frame.front.get(HEADER..).unwrap_or_default());
        frame.rest.append_to(copy);
        let mut count = 0usize;
        let offload = frame.offload;
        let cut = offload::adapt(copy, offload, agreed, segment, |bytes, offload| {
            whole.clear();
            whole.extend_from_slice(&offload.header());
            whole.extend_from_slice(bytes);
            count += 1;
            give(to, from, whole, &Slices::new(), touched, ringer);
        });
        match cut {
            Ok(()) => to.counters.cut += u64::from(count > 1),
            Err(offload::NotTcp) => to.counters.drop_received(Reason::NotTcp),
        }
        count.saturating_sub(1) * PER_FRAME
    }

    /// Tells those guests of their frames to which some were given, and sends hosts theirs.
    pub(crate) fn tell(&mut self) {
        self.tell_guests();
        self.tell_hosts(self.gathers);
        if self.take_back() {
            self.tell_guests();
        }
    }

    /// The same without the hosts.
    pub(super) fn tell_ports(&mut self) {
        self.take_back();
        self.tell_guests();
    }

    fn tell_guests(&mut self) {
        for Sender { port, queue } in self.touched.drain(..) {
            let Some(port) = self.ports.get_mut(port as usize).and_then(Option::as_mut) else {
                continue;
            };
            let Some(device) = port.device_mut() else { continue };
            let memory = Arc::clone(&device.memory);
            let Some(queue) = device.queues.get_mut(usize::from(queue)) else { continue };
            if queue.ring.as_mut().is_some_and(|ring| ring.publish(&memory)) {
                queue.interrupt(&self.ringer);
                port.counters.interrupts += 1;
            }
        }
    }
}

/// Puts a frame, behind its header, into one of a port's queues, or counts why not.
#[inline]
fn give(
    to: &mut Port,
    sender: u32,
    front: &[u8],
    rest: &Slices<'_>,
    touched: &mut Vec<Sender>,
    ringer: &Ringer,
) {
    let len = (front.len() + rest.len()).saturating_sub(HEADER);
    let index = to.index;
    let queues = to.receives.len();
    let device = match &mut to.link {
        Link::Tap(tap) => {
            if tap.write(front) {
                to.counters.received_frames += 1;
                to.counters.received_bytes += len as u64;
            } else {
                to.counters.drop_received(Reason::TapFull);
            }
            return;
        }
        Link::Guest(Seat { peer: Some((_, device)), .. }) if queues > 0 => device,
        Link::Guest(_) => return to.counters.drop_received(Reason::ReceiverAbsent),
    };
    // One sender's queue always goes into the same one: frames of a flow stay in order.
    let number = to.receives[if queues == 1 { 0 } else { sender as usize % queues }];
    let agreed = device.features();
    let memory = &device.memory;
    let Some(queue) = device.queues.get_mut(usize::from(number)) else { return };
    let Some(ring) = &mut queue.ring else {
        return to.counters.drop_received(Reason::ReceiverAbsent);
    };
    match put(ring, memory, agreed, front, rest) {
        Ok(()) => {
            to.counters.received_frames += 1;
            to.counters.received_bytes += len as u64;
            let place = Sender { port: index, queue: number };
            if touched.last() != Some(&place) && !touched.contains(&place) {
                touched.push(place);
            }
        }
        Err(Refused::Full) => to.counters.drop_received(Reason::NoBuffers),
        Err(Refused::TooLong) => to.counters.drop_received(Reason::TooLong),
        Err(Refused::Broken(broken)) => {
            to.counters.drop_received(Reason::ReceiverBroken);
            queue.fail(broken, ringer);
            to.trouble = Some(format!("queue {number}: {broken}"));
            log!(Warning, "broken", port = to.config.name, queue = number, why = broken);
            to.renew_receives();
        }
    }
}

/// Puts a frame into a ring, behind a header of the length that was agreed on.
#[inline]
fn put(
    ring: &mut Ring,
    memory: &Memory,
    agreed: u64,
    front: &[u8],
    rest: &Slices<'_>,
) -> Result<(), Refused> {
    let header = header_len(agreed);
    let mergeable = agreed & features::MRG_RXBUF != 0;
    if header == HEADER {
        return ring.deliver(memory, front, rest, header, mergeable);
    }
    // Without a number of buffers: a driver of old.
    let mut short = front.to_vec();
    short.copy_within(..header, HEADER - header);
    ring.deliver(memory, &short[HEADER - header..], rest, header, false)
}
