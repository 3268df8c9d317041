//! Moving frames: run to completion, in bursts. A turn looks at every queue that is awake, takes
//! what waits there up to a budget, and copies each frame straight from its sender's memory into
//! its receivers'. Guests are told once, at the end of the burst.

use crate::counters::Reason;
use crate::fdb::Learned;
use crate::filter::Spoofed;
use crate::offload;
use crate::port::{Link, Port, header_len};
use crate::ring::{Refused, Ring, Slices};
use crate::switch::{Sender, Switch};
use crate::tap::Tap;
use crate::wire::{ETHERNET, FRONT, HEADER, LONGEST, Mac, Offload, is_group};
use ginnel_ivshmem::doorbell::Ringer;
use std::sync::Arc;

/// What one port may cost in one turn: a few large segments, or some dozen small frames.
const BUDGET: usize = 128 << 10;
/// What a frame costs beside its bytes, and each piece that it is in.
const PER_FRAME: usize = 1024;
const PER_PIECE: usize = 64;
/// Frames that are taken from a tap device in one turn.
const TAP_BURST: usize = 32;

/// Memory that is used again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A frame that is not copied straight, behind its header.
    frame: Vec<u8>,
    /// A segment that was cut out of it.
    segment: Vec<u8>,
    /// The same behind a header.
    whole: Vec<u8>,
    /// What a tap device gave.
    tap: Vec<u8>,
}

/// A frame on its way.
struct Frame<'a, 'm> {
    /// A header of [`HEADER`] bytes and the frame's first bytes, copied and checked.
    front: &'a mut [u8],
    /// The rest of it, in the sender's memory.
    rest: &'a Slices<'m>,
    offload: Offload,
}

/// What a turn found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    Idle,
    /// Some frames.
    Worked,
}

impl Switch {
    /// One turn: every queue that is awake.
    pub fn turn(&mut self) -> Turn {
        let mut found = Turn::Idle;
        let mut place = 0;
        while let Some(&sender) = self.awake.get(place) {
            let taken = self.serve(sender);
            if taken.frames > 0 {
                found = Turn::Worked;
            }
            if taken.asleep {
                self.awake.swap_remove(place);
            } else {
                place += 1;
            }
        }
        found
    }

    /// Takes what waits in one queue.
    fn serve(&mut self, sender: Sender) -> Taken {
        let Some(mut port) = self.ports.get_mut(sender.port as usize).and_then(Option::take) else {
            return Taken { frames: 0, asleep: true };
        };
        let taken = self.serve_port(&mut port, sender.queue);
        self.ports[sender.port as usize] = Some(port);
        self.tell();
        taken
    }

    fn serve_port(&mut self, port: &mut Port, number: u16) -> Taken {
        let asleep = Taken { frames: 0, asleep: true };
        if port.resume.is_some_and(|resume| resume > self.clock.now) {
            return Taken { frames: 0, asleep: false };
        }
        port.resume = None;
        let Some(device) = port.device_mut() else { return asleep };
        let agreed = device.features();
        let (memory, enabled) = (Arc::clone(&device.memory), device.is_enabled(number.into()));
        let Some(queue) = device.queues.get_mut(usize::from(number)) else { return asleep };
        let Some(mut ring) = queue.ring.take() else {
            queue.awake = false;
            return asleep;
        };
        let mut chain = Slices::new();
        let (mut frames, mut cost) = (0, 0);
        let result = loop {
            if cost >= BUDGET || !self.may_send(port) {
                break Ok(());
            }
            match ring.take(&memory, &mut chain) {
                Ok(Some(head)) => {
                    frames += 1;
                    cost += PER_FRAME + chain.count() * PER_PIECE;
                    cost += self.send(port, number, &mut chain, header_len(agreed), enabled);
                    ring.complete(&memory, head, 0);
                }
                Ok(None) => break Ok(()),
                Err(broken) => break Err(broken),
            }
        };
        let interrupt = ring.publish(&memory);
        port.counters.interrupts += u64::from(interrupt);
        let waits = port.resume.is_some();
        let Some(queue) = port.device_mut().and_then(|one| one.queues.get_mut(usize::from(number)))
        else {
            return asleep;
        };
        if interrupt {
            queue.interrupt(&self.ringer);
        }
        if frames > 0 {
            queue.busy = Some(self.clock.now);
        }
        let result = result.and_then(|()| {
            let idle = frames == 0 && !waits && !self.busy;
            let since = queue.busy.map(|busy| self.clock.now.saturating_duration_since(busy));
            // With nothing more to be done, is it to be looked at further?
            let done = idle && since.is_none_or(|since| since >= queue.patience);
            Ok(done && !ring.arm()?)
        });
        match result {
            Ok(sleeps) => {
                queue.awake = !sleeps;
                queue.ring = Some(ring);
                Taken { frames, asleep: sleeps }
            }
            Err(broken) => {
                queue.ring = Some(ring);
                queue.fail(broken, &self.ringer);
                port.trouble = Some(format!("queue {number}: {broken}"));
                crate::log!(
                    Warning,
                    "broken",
                    port = port.config.name,
                    queue = number,
                    why = broken
                );
                Taken { frames, asleep: true }
            }
        }
    }

    /// Has the port's rate anything left? Else its queues are looked at again when it has.
    #[inline]
    fn may_send(&self, port: &mut Port) -> bool {
        let Some(rate) = &mut port.rate else { return true };
        match rate.check(self.clock.now) {
            Ok(()) => true,
            Err(wait) => {
                port.resume = Some(self.clock.now + wait);
                false
            }
        }
    }

    /// Sends one chain of a guest. Returns what its bytes cost.
    #[inline]
    fn send(
        &mut self,
        port: &mut Port,
        queue: u16,
        chain: &mut Slices<'_>,
        header: usize,
        enabled: bool,
    ) -> usize {
        let mut bytes = [0; HEADER + FRONT];
        // A header without a number of buffers is two bytes shorter.
        let short = HEADER - header;
        let got = chain.take_front(&mut bytes[short..]);
        bytes.copy_within(short..HEADER, 0);
        let Some(front) = bytes.get_mut(..short + got) else { return 0 };
        if !enabled {
            port.counters.drop_sent(Reason::QueueDisabled);
            return 0;
        }
        self.switch(port, queue, front, chain)
    }

    /// Sends a frame behind a header: `front`, and then `rest`. Returns what its bytes cost.
    #[inline]
    pub(crate) fn switch(
        &mut self,
        port: &mut Port,
        queue: u16,
        front: &mut [u8],
        rest: &Slices<'_>,
    ) -> usize {
        let len = (front.len() + rest.len()).saturating_sub(HEADER);
        port.counters.sent_frames += 1;
        port.counters.sent_bytes += len as u64;
        if let Some(rate) = &mut port.rate {
            rate.owe(len as u64);
        }
        let destination = match self.admit(port, front, len) {
            Ok(destination) => destination,
            Err(reason) => {
                port.counters.drop_sent(reason);
                return len;
            }
        };
        let Some(offload) = front.first_chunk().and_then(|header| Offload::parse(header, len))
        else {
            port.counters.drop_sent(Reason::BadOffload);
            return len;
        };
        if let Some(header) = front.first_chunk_mut() {
            *header = offload.header();
        }
        if port.traced {
            self.tracer.note(port.index, true, front, rest);
        }
        let mut frame = Frame { front, rest, offload };
        match destination {
            Some(to) if to == port.index => {
                port.counters.drop_sent(Reason::SamePort);
                len
            }
            Some(to) => {
                self.deliver(to, port.index, queue, &mut frame);
                len
            }
            None => self.flood(port, queue, &mut frame) * (len + PER_FRAME),
        }
    }

    /// May this frame be sent, and to which port? `None`: to all of its segment.
    #[inline]
    fn admit(&mut self, port: &mut Port, front: &[u8], len: usize) -> Result<Option<u32>, Reason> {
        let frame = front.get(HEADER..).unwrap_or_default();
        if !(ETHERNET..=LONGEST).contains(&len) || frame.len() < ETHERNET {
            return Err(Reason::BadLength);
        }
        let (to, from): (Mac, Mac) = match (frame.first_chunk(), frame[6..].first_chunk()) {
            (Some(to), Some(from)) => (*to, *from),
            _ => return Err(Reason::BadLength),
        };
        if is_group(from) {
            return Err(Reason::BadSource);
        }
        if !port.config.filter.is_empty() {
            port.config.filter.check(frame).map_err(|spoofed| match spoofed {
                Spoofed::Mac => Reason::SpoofedMac,
                Spoofed::Address => Reason::SpoofedAddress,
            })?;
        }
        self.learn(port, from)?;
        if !is_group(to) {
            return Ok(self.find(port, to));
        }
        if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 16 {
            return Err(Reason::LinkLocal);
        }
        Ok(None)
    }

    #[inline]
    fn learn(&mut self, port: &mut Port, from: Mac) -> Result<(), Reason> {
        let (now, key, index) = (self.clock.seconds, port.config.key, port.index);
        if port.sources.get(from, self.fdb.generation(), now) == Some(index) {
            return Ok(());
        }
        match self.fdb.learn(key, from, index, now, port.config.macs) {
            Learned::Known | Learned::New => {
                port.sources.put(from, self.fdb.generation(), now, index);
                Ok(())
            }
            Learned::TooMany => {
                port.counters.unlearned += 1;
                Ok(())
            }
            Learned::Taken => Err(Reason::SpoofedMac),
        }
    }

    #[inline]
    fn find(&mut self, port: &mut Port, to: Mac) -> Option<u32> {
        let (now, generation) = (self.clock.seconds, self.fdb.generation());
        if let Some(found) = port.destinations.get(to, generation, now) {
            return Some(found);
        }
        let found = self.fdb.find(port.config.key, to, now)?;
        port.destinations.put(to, generation, now, found);
        Some(found)
    }

    /// Gives a frame to every other port of the segment. Returns to how many.
    fn flood(&mut self, port: &mut Port, queue: u16, frame: &mut Frame<'_, '_>) -> usize {
        if let Some(bucket) = &mut port.broadcasts
            && bucket.take(1, self.clock.now).is_err()
        {
            port.counters.drop_sent(Reason::BroadcastRate);
            return 1;
        }
        port.counters.flooded += 1;
        let unicast = frame.front.get(HEADER).is_some_and(|byte| byte & 1 == 0);
        let members = self.segments.get(&port.config.key).map_or(0, Vec::len);
        let mut given = 0;
        for place in 0..members {
            let Some(&to) = self.segments.get(&port.config.key).and_then(|all| all.get(place))
            else {
                break;
            };
            let wants = |to: &Port| {
                // Whose addresses are all known gets no frame for an unknown one.
                to.is_up() && (!unicast || to.config.filter.macs.is_empty())
            };
            // The sender itself is not there while its frames are moved.
            if self.port(to).is_some_and(wants) {
                self.deliver(to, port.index, queue, frame);
                given += 1;
            }
        }
        if given == 0 {
            port.counters.drop_sent(Reason::NobodyThere);
        }
        given.max(1)
    }

    /// Gives a frame to one port.
    #[inline]
    fn deliver(&mut self, index: u32, from: u32, queue: u16, frame: &mut Frame<'_, '_>) {
        let Self { ports, scratch, tracer, touched, ringer, .. } = self;
        let Some(to) = ports.get_mut(index as usize).and_then(Option::as_mut) else { return };
        if to.traced {
            tracer.note(index, false, frame.front, frame.rest);
        }
        let agreed = match &to.link {
            Link::Tap(_) => Tap::AGREED,
            Link::Guest { peer: Some((_, device)), .. } => device.features(),
            Link::Guest { peer: None, .. } => {
                return to.counters.drop_received(Reason::ReceiverAbsent);
            }
        };
        if matches!(to.link, Link::Guest { .. }) && frame.offload.suits(agreed) {
            let sender = u32::from(queue / 2).wrapping_add(from);
            return give(to, sender, frame.front, frame.rest, touched, ringer);
        }
        let Scratch { frame: copy, segment, whole, .. } = scratch;
        copy.clear();
        copy.extend_from_slice(frame.front.get(HEADER..).unwrap_or_default());
        frame.rest.append_to(copy);
        let mut count = 0;
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
    }

    /// Tells those guests of their frames to which some were given.
    pub(crate) fn tell(&mut self) {
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

    /// Takes what a tap device has. It is asked again as long as it has more.
    pub(crate) fn serve_tap(&mut self, index: u32) {
        let Some(mut port) = self.ports.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        let mut buffer = std::mem::take(&mut self.scratch.tap);
        buffer.resize(HEADER + LONGEST, 0);
        for _ in 0..TAP_BURST {
            let read = match &port.link {
                Link::Tap(tap) => tap.read(&mut buffer),
                Link::Guest { .. } => break,
            };
            match read {
                Ok(Some(len)) => {
                    if let Some(front) = buffer.get_mut(..len) {
                        self.switch(&mut port, 0, front, &Slices::new());
                    }
                }
                Ok(None) => break,
                Err(errno) => {
                    port.trouble = Some(errno.to_string());
                    break;
                }
            }
        }
        self.scratch.tap = buffer;
        self.ports[index as usize] = Some(port);
        self.tell();
    }
}

/// What was taken from a queue.
struct Taken {
    frames: usize,
    /// It is not to be looked at again before it is kicked.
    asleep: bool,
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
        Link::Guest { peer: Some((_, device)), .. } if queues > 0 => device,
        Link::Guest { .. } => return to.counters.drop_received(Reason::ReceiverAbsent),
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
            crate::log!(Warning, "broken", port = to.config.name, queue = number, why = broken);
            to.renew_receives();
        }
    }
}

/// Puts a frame into a ring, behind a header of the length that was agreed on.
#[inline]
fn put(
    ring: &mut Ring,
    memory: &crate::ring::Memory,
    agreed: u64,
    front: &[u8],
    rest: &Slices<'_>,
) -> Result<(), Refused> {
    let header = header_len(agreed);
    let mergeable = agreed & crate::wire::features::MRG_RXBUF != 0;
    if header == HEADER {
        return ring.deliver(memory, front, rest, header, mergeable);
    }
    // Without a number of buffers: a driver of old.
    let mut short = front.to_vec();
    short.copy_within(..header, HEADER - header);
    ring.deliver(memory, &short[HEADER - header..], rest, header, false)
}
