//! Moving frames: run to completion, in bursts. A turn looks at every queue that is awake, takes
//! what waits there up to a budget, and copies each frame straight from its sender's memory into
//! its receivers'. Guests are told once, at the end of the burst.

mod flood;
mod give;
mod hosts;
mod loans;
mod tap;

use crate::counters::Reason;
use crate::fdb::Learned;
use crate::filter::Spoofed;
use crate::loan::{Lender, Ticket};
use crate::port::{Port, header_len};
use crate::ring::{Broken, Memory, Ring, Slices};
use crate::switch::{Sender, Switch};
use crate::wire::{ETHERNET, FRONT, HEADER, LONGEST, Mac, Offload, is_group};
use std::cell::Cell;
use std::sync::Arc;

/// What all queues of a port may cost in one turn: a few large segments, or some dozen frames.
const BUDGET: usize = 128 << 10;
/// What a frame costs beside its bytes, and each descriptor that it is in.
const PER_FRAME: usize = 1024;
const PER_PIECE: usize = 64;
/// A frame on its way.
struct Frame<'a, 'm> {
    /// Its segment.
    key: u32,
    /// A header of [`HEADER`] bytes and the frame's first bytes, copied and checked.
    front: &'a mut [u8],
    /// The rest of it, in the sender's memory.
    rest: &'a Slices<'m>,
    offload: Offload,
    /// It may be lent.
    lender: Option<&'a Lender<'a>>,
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
    /// One turn: every queue and every host that is awake. Queues come first: to look at a host is
    /// a system call or two, for which no frame that waits already is to wait.
    pub fn turn(&mut self) -> Turn {
        let (mut found, mut place, mut more) = (Turn::Idle, 0, false);
        self.round += 1;
        // Of a port's queues another one comes first in each turn.
        let several = usize::from(self.awake.len() > 1);
        self.awake.rotate_left(several);
        while let Some(&sender) = self.awake.get(place) {
            let taken = self.serve(sender);
            more |= taken.more;
            if taken.frames > 0 {
                found = Turn::Worked;
            }
            if taken.asleep {
                self.awake.swap_remove(place);
            } else {
                place += 1;
            }
        }
        if self.gathers || more {
            self.tell_hosts(more);
        }
        self.gathers = more;
        if self.serve_hosts() { Turn::Worked } else { found }
    }

    /// Takes what waits in one queue.
    fn serve(&mut self, sender: Sender) -> Taken {
        let Some(mut port) = self.ports.get_mut(sender.port as usize).and_then(Option::take) else {
            return Taken { frames: 0, asleep: true, more: false };
        };
        let taken = self.serve_port(&mut port, sender.queue);
        self.ports[sender.port as usize] = Some(port);
        if taken.more || self.gathers {
            // What is gathered for hosts is looked at when the turn ends.
            self.tell_ports();
        } else {
            self.tell();
        }
        taken
    }

    fn serve_port(&mut self, port: &mut Port, number: u16) -> Taken {
        let asleep = Taken { frames: 0, asleep: true, more: false };
        if port.resume.is_some_and(|resume| resume > self.clock.now) {
            return Taken { frames: 0, asleep: false, more: false };
        }
        port.resume = None;
        let Some(device) = port.device_mut() else { return asleep };
        let agreed = device.features();
        let (memory, enabled) = (Arc::clone(&device.memory), device.is_enabled(number.into()));
        // Nothing is lent but to other hosts.
        let lends = device.lends && enabled && !self.hosts.is_empty();
        let lends = lends.then(|| (Arc::clone(&device.loans), Arc::clone(&self.desk)));
        let Some(queue) = device.queues.get_mut(usize::from(number)) else { return asleep };
        let Some(mut ring) = queue.ring.take() else {
            queue.awake = false;
            return asleep;
        };
        let mut chain = Slices::new();
        let before = port.spent.of(self.round);
        let (mut frames, mut cost) = (0, before);
        let result = loop {
            if cost >= BUDGET || !self.may_send(port) {
                break Ok(());
            }
            match ring.take(&memory, &mut chain) {
                Ok(Some(head)) => {
                    frames += 1;
                    cost += PER_FRAME + chain.descriptors() * PER_PIECE;
                    let lender = lends.as_ref().map(|(device, desk)| {
                        let ticket =
                            Ticket { port: port.index, queue: number, number: ring.number() };
                        Lender { memory: &memory, device, ticket, desk, lent: Cell::new(false) }
                    });
                    let header = header_len(agreed);
                    cost += self.send(port, (number, enabled), &mut chain, header, &lender);
                    if lender.is_some_and(|lender| lender.lent.get()) {
                        ring.lend(head);
                    } else {
                        ring.complete(&memory, head, 0);
                    }
                }
                Ok(None) => break Ok(()),
                Err(broken) => break Err(broken),
            }
        };
        port.spent.set(self.round, cost);
        self.cost += cost - before;
        let more = cost >= BUDGET && result.is_ok();
        let taken = self.settle(port, number, (ring, &memory), frames, result);
        Taken { more, ..taken }
    }

    /// Tells the guest what was taken, and decides whether its queue is looked at further.
    fn settle(
        &mut self,
        port: &mut Port,
        number: u16,
        (mut ring, memory): (Ring, &Memory),
        frames: usize,
        result: Result<(), Broken>,
    ) -> Taken {
        let asleep = Taken { frames: 0, asleep: true, more: false };
        let interrupt = ring.publish(memory);
        port.counters.interrupts += u64::from(interrupt);
        port.counters.bursts += u64::from(frames > 0);
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
            // With nothing more to be done, is it to be looked at further?
            let done = idle && queue.is_tired(self.clock.now);
            Ok(done && !ring.arm(memory)?)
        });
        match result {
            Ok(sleeps) => {
                queue.awake = !sleeps;
                queue.ring = Some(ring);
                Taken { frames, asleep: sleeps, more: false }
            }
            Err(broken) => {
                queue.ring = Some(ring);
                queue.fail(broken, &self.ringer);
                port.trouble = Some(format!("queue {number}: {broken}"));
                ginnel_daemon::log!(
                    Warning,
                    "broken",
                    port = port.config.name,
                    queue = number,
                    why = broken
                );
                Taken { frames, asleep: true, more: false }
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
        (queue, enabled): (u16, bool),
        chain: &mut Slices<'_>,
        header: usize,
        lender: &Option<Lender<'_>>,
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
        self.switch(port, queue, front, chain, lender.as_ref())
    }

    /// Sends a frame behind a header: `front`, and then `rest`. Returns what its bytes cost.
    #[inline]
    pub(crate) fn switch(
        &mut self,
        port: &mut Port,
        queue: u16,
        front: &mut [u8],
        rest: &Slices<'_>,
        lender: Option<&Lender<'_>>,
    ) -> usize {
        let len = (front.len() + rest.len()).saturating_sub(HEADER);
        port.counters.sent_frames += 1;
        port.counters.sent_bytes += len as u64;
        if let Some(rate) = &mut port.rate {
            rate.owe(len as u64);
        }
        let (destination, offload) = match self.admit(port, front, len) {
            Ok(admitted) => admitted,
            Err(reason) => {
                port.counters.drop_sent(reason);
                return len;
            }
        };
        if let Some(header) = front.first_chunk_mut() {
            *header = offload.header();
        }
        if port.traced {
            self.tracer.note(port.index, true, front, rest);
        }
        let key = port.config.key;
        let mut frame = Frame { key, front, rest, offload, lender };
        match destination {
            Some(to) if to == port.index => {
                port.counters.drop_sent(Reason::SamePort);
                len
            }
            Some(to) => len + self.deliver(to, port.index, queue, &mut frame),
            None => self.flood(port, queue, &mut frame, len + PER_FRAME),
        }
    }

    /// May this frame be sent, and to which port? `None`: to all of its segment. And what is still
    /// to be done of it?
    #[inline]
    fn admit(
        &mut self,
        port: &mut Port,
        front: &[u8],
        len: usize,
    ) -> Result<(Option<u32>, Offload), Reason> {
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
        let offload = front.first_chunk().and_then(|header| Offload::parse(header, len));
        let offload = offload.ok_or(Reason::BadOffload)?;
        if !port.config.filter.is_empty() {
            // Whoever completes the checksum writes it behind the filter's back.
            let written =
                offload.checksum.map(|sum| usize::from(sum.start) + usize::from(sum.offset));
            port.config.filter.check(frame, written).map_err(|spoofed| match spoofed {
                Spoofed::Mac => Reason::SpoofedMac,
                Spoofed::Address => Reason::SpoofedAddress,
            })?;
        }
        self.learn(port, from)?;
        if !is_group(to) {
            return Ok((self.find(port, to), offload));
        }
        if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 16 {
            return Err(Reason::LinkLocal);
        }
        Ok((None, offload))
    }

    #[inline]
    fn learn(&mut self, port: &mut Port, from: Mac) -> Result<(), Reason> {
        let (now, key, index) = (self.clock.seconds, port.config.key, port.index);
        if port.sources.get(key, from, self.fdb.generation(), now) == Some(index) {
            return Ok(());
        }
        match self.fdb.learn(key, from, index, now, port.config.macs) {
            Learned::Known | Learned::New => {
                port.sources.put(key, from, self.fdb.generation(), now, index);
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
        let (now, generation, key) = (self.clock.seconds, self.fdb.generation(), port.config.key);
        if let Some(found) = port.destinations.get(key, to, generation, now) {
            return Some(found);
        }
        let found = self.fdb.find(key, to, now)?;
        port.destinations.put(key, to, generation, now, found);
        Some(found)
    }
}

/// What was taken from a queue.
struct Taken {
    frames: usize,
    /// It is not to be looked at again before it is kicked.
    asleep: bool,
    /// The turn ended with its budget: most likely there is more.
    more: bool,
}
