//! Giving packets to machines: straight out of the sender's memory while the receiver takes them,
//! and else when it does.

use super::connection::At;
use super::hub::{BUDGET, Hub, PER_PACKET, PER_PIECE};
use super::machine::{RECEIVES, Shown};
use super::packet::{HEADER, Header, Op};
use crate::ring::{Broken, Memory, Ring, Slices};
use ginnel_daemon::log;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of one machine that may wait for all others, of which one has at most a part of what is
/// free: so those who take nothing leave something for those who do, however many they are. (In a
/// switch of packets: dynamic thresholds, Choudhury and Hahne 1998.) For the first it is 16 MiB,
/// more than the credit of many connections that Linux opens; whoever has more of them loses those.
const MOST_FOR_ALL: usize = 80 << 20;
const PART_OF_FREE: usize = 4;
/// Bytes of one packet that waited.
const PIECE: usize = 64 << 10;

/// Puts one packet into a ring: the header, and as much of `rest` as fits, which is taken off.
/// Returns what that costs; `None` where the guest has made no buffer available.
fn place(
    ring: &mut Ring,
    memory: &Memory,
    mut header: Header,
    data: &mut VecDeque<u8>,
    rest: &mut Slices<'_>,
) -> Result<Option<usize>, Broken> {
    let mut buffers = Slices::new();
    let Some(head) = ring.peek(memory, &mut buffers)? else { return Ok(None) };
    let room = buffers.len();
    let len = (room.saturating_sub(HEADER)).min(data.len().min(PIECE) + rest.len());
    if room < HEADER || (len == 0 && !(data.is_empty() && rest.is_empty())) {
        return Err(Broken::Tiny(room));
    }
    header.len = u32::try_from(len).unwrap_or(u32::MAX);
    if data.is_empty() {
        ring.fill(memory, (head, &buffers), &header.bytes(), rest);
        rest.skip(len);
    } else {
        let mut front = header.bytes().to_vec();
        front.extend(data.drain(..len));
        ring.fill(memory, (head, &buffers), &front, &Slices::new());
    }
    Ok(Some(PER_PACKET + len + buffers.descriptors().saturating_sub(1) * PER_PIECE))
}

impl Hub {
    /// Gives an end of a connection something; it is in a machine. What is not taken waits.
    pub(super) fn give(&mut self, id: u64, to: usize, op: Op, flags: u32, rest: &mut Slices<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let At::Machine(index) = connection.ends[to].at else { return };
        let from = connection.ends[1 - to].at;
        let waits = self.machines.get(index as usize).is_some_and(|one| !one.queue.is_empty());
        if waits && !self.behind.contains(&index) {
            self.flush(index);
        }
        let free = self.machines.get(index as usize).is_some_and(|one| one.queue.is_empty());
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.ends[to].waiting.flags |= flags;
        if free && connection.ends[to].waiting.is_empty() && self.give_now(id, index, to, op, rest)
        {
            return self.tidy(id);
        }
        if let (Op::Rw, At::Machine(from)) = (op, from)
            && !self.hold(from, index, rest.len())
        {
            return self.reset(id, Some(index));
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let waiting = &mut connection.ends[to].waiting;
        if op == Op::Rw {
            self.scratch.clear();
            rest.append_to(&mut self.scratch);
            waiting.data.extend(&self.scratch);
        } else {
            waiting.add(op, flags);
        }
        let listed = std::mem::replace(&mut waiting.listed, true);
        let Some(machine) = self.machines.get_mut(index as usize) else { return };
        if !listed {
            machine.queue.push_back(id);
        }
    }

    /// So many bytes of a machine are to wait for another. False where that is too much.
    fn hold(&mut self, from: u32, to: u32, bytes: usize) -> bool {
        let Some(sender) = self.machines.get_mut(from as usize) else { return false };
        let one = self.held.entry((from, to)).or_default();
        let free = MOST_FOR_ALL.saturating_sub(sender.held + bytes);
        // `one` is a part of what is held: so at first this is 1/5 of all.
        if *one + bytes > free / PART_OF_FREE {
            return false;
        }
        *one += bytes;
        sender.held += bytes;
        true
    }

    /// The same while nothing waits. False where something is left.
    fn give_now(&mut self, id: u64, index: u32, to: usize, op: Op, rest: &mut Slices<'_>) -> bool {
        let before = rest.len();
        let done = self.with_ring(index, |hub, ring, memory| {
            let Some(connection) = hub.connections.get_mut(&id) else { return Ok(true) };
            let mut cost = 0;
            while cost < BUDGET {
                let header = connection.header(to, op);
                let placed = place(ring, memory, header, &mut VecDeque::new(), rest)?;
                let given = placed.unwrap_or_default();
                (cost, hub.given) = (cost + given, hub.given.wrapping_add(given));
                if placed.is_some() && rest.is_empty() {
                    return Ok(true);
                }
                if placed.is_none() && !ring.arm(memory)? {
                    return Ok(false);
                }
            }
            hub.fall_behind(index);
            Ok(false)
        });
        let given = before - rest.len();
        self.count(index, |shown| Shown::add(&shown.received, given as u64));
        done
    }

    /// A machine is given more in the next turn.
    fn fall_behind(&mut self, index: u32) {
        if !self.behind.contains(&index) {
            self.behind.push(index);
        }
    }

    /// Gives a machine what waits for it, as far as it takes it; after a turn of it others come
    /// first.
    pub(super) fn flush(&mut self, index: u32) {
        let round = self.round;
        let Some(machine) = self.machine(index) else { return };
        if std::mem::replace(&mut machine.round, round) != round {
            machine.left = BUDGET;
        }
        let (mut served, mut left) = (Vec::new(), machine.left);
        self.with_ring(index, |hub, ring, memory| {
            loop {
                let Some(machine) = hub.machines.get_mut(index as usize) else { return Ok(true) };
                let (reply, first) = (machine.replies.front().copied(), machine.queue.front());
                let first = first.copied();
                if reply.is_none() && first.is_none() {
                    return Ok(true);
                }
                if left == 0 {
                    hub.fall_behind(index);
                    return Ok(false);
                }
                if let Some(header) = reply {
                    let (mut none, mut no) = (VecDeque::new(), Slices::new());
                    match place(ring, memory, header, &mut none, &mut no)? {
                        Some(cost) => {
                            machine.replies.pop_front();
                            hub.given = hub.given.wrapping_add(cost);
                            left = left.saturating_sub(cost);
                        }
                        None if !ring.arm(memory)? => return Ok(false),
                        None => {}
                    }
                } else if let Some(id) = first
                    && hub.flush_one((index, id), ring, memory, &mut left)?
                {
                    if let Some(machine) = hub.machines.get_mut(index as usize) {
                        machine.queue.pop_front();
                    }
                    served.push(id);
                } else if left > 0 && !ring.arm(memory)? {
                    return Ok(false);
                }
            }
        });
        if let Some(machine) = self.machine(index) {
            machine.left = left;
        }
        for id in served {
            self.tidy(id);
            if self.connections.get(&id).is_some_and(|one| one.stream.is_some()) {
                self.ready.push(id);
            }
        }
    }

    /// Gives a machine what waits of one connection, for so much at most: is that all?
    fn flush_one(
        &mut self,
        (index, id): (u32, u64),
        ring: &mut Ring,
        memory: &Memory,
        left: &mut usize,
    ) -> Result<bool, Broken> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(true) };
        let Some(to) = (0..2).find(|&to| {
            let end = &connection.ends[to];
            end.at == At::Machine(index) && end.waiting.listed
        }) else {
            return Ok(true);
        };
        let mut given = 0;
        let result = loop {
            let Some(op) = connection.ends[to].waiting.next() else { break Ok(true) };
            if *left == 0 {
                break Ok(false);
            }
            let header = connection.header(to, op);
            let waiting = &mut connection.ends[to].waiting;
            let (before, mut none) = (waiting.data.len(), VecDeque::new());
            let data = if op == Op::Rw { &mut waiting.data } else { &mut none };
            match place(ring, memory, header, data, &mut Slices::new()) {
                Ok(Some(cost)) => {
                    self.given = self.given.wrapping_add(cost);
                    *left = left.saturating_sub(cost);
                }
                Ok(None) => break Ok(false),
                Err(broken) => break Err(broken),
            }
            waiting.done(op);
            given += before - waiting.data.len();
        };
        // What was given before the guest broke a rule waits no longer, either.
        let waiting = &mut connection.ends[to].waiting;
        waiting.listed = !matches!(result, Ok(true));
        if waiting.data.capacity() > 4 * waiting.data.len().max(PIECE) {
            // Only what waits is counted, so nothing else is kept.
            waiting.data.shrink_to_fit();
        }
        let from = connection.ends[1 - to].at;
        self.release(from, index, given);
        self.count(index, |shown| Shown::add(&shown.received, given as u64));
        result
    }

    /// So many bytes wait no longer.
    fn release(&mut self, from: At, to: u32, bytes: usize) {
        let At::Machine(from) = from else { return };
        if let Some(held) = self.held.get_mut(&(from, to)) {
            *held = held.saturating_sub(bytes);
        }
        if let Some(sender) = self.machine(from) {
            sender.held = sender.held.saturating_sub(bytes);
        }
    }

    /// Nothing waits any longer for an end that is not there.
    pub(super) fn drop_waiting(&mut self, id: u64, place: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let waiting = std::mem::take(&mut connection.ends[place].waiting);
        let (at, from) = (connection.ends[place].at, connection.ends[1 - place].at);
        if let At::Machine(index) = at {
            self.release(from, index, waiting.data.len());
            if let Some(machine) = self.machine(index)
                && waiting.listed
            {
                machine.queue.retain(|&one| one != id);
            }
        }
    }

    /// Does something with the ring into which a machine receives. False where it is not there, or
    /// is broken.
    fn with_ring(
        &mut self,
        index: u32,
        act: impl FnOnce(&mut Self, &mut Ring, &Memory) -> Result<bool, Broken>,
    ) -> bool {
        let Some(machine) = self.machine(index) else {
            return false;
        };
        let Some(device) = machine.seat.device_mut() else { return false };
        let memory = Arc::clone(&device.memory);
        let Some(queue) = device.queues.get_mut(usize::from(RECEIVES)) else { return false };
        let Some(mut ring) = queue.ring.take() else { return false };
        let result = act(self, &mut ring, &memory);
        if !self.touched.contains(&index) {
            self.touched.push(index);
        }
        let ringer = &self.ringer;
        let device = self.machines.get_mut(index as usize).and_then(|one| one.seat.device_mut());
        let queue = device.and_then(|device| device.queues.get_mut(usize::from(RECEIVES)));
        let Some(queue) = queue else { return false };
        queue.ring = Some(ring);
        match result {
            Ok(done) => done,
            Err(broken) => {
                queue.fail(broken, ringer);
                self.broken(index, RECEIVES, broken);
                false
            }
        }
    }

    /// A guest broke a rule of virtio: its connections end when it is looked at next.
    pub(super) fn broken(&mut self, index: u32, number: u16, why: Broken) {
        let Some(machine) = self.machine(index) else { return };
        machine.shown.set_trouble(Some(format!("queue {number}: {why}")));
        log!(Warning, "broken", vsock = machine.config.name, queue = number, why = why);
        self.fallen.push(index);
    }

    /// Tells those guests of what they were given.
    pub(super) fn tell(&mut self) {
        while let Some(index) = self.touched.pop() {
            let ringer = &self.ringer;
            let machine = self.machines.get_mut(index as usize);
            let Some(device) = machine.and_then(|one| one.seat.device_mut()) else { continue };
            let memory = Arc::clone(&device.memory);
            let Some(queue) = device.queues.get_mut(usize::from(RECEIVES)) else { continue };
            if queue.ring.as_mut().is_some_and(|ring| ring.publish(&memory)) {
                queue.interrupt(ringer);
            }
        }
        while let Some(index) = self.fallen.pop() {
            self.look_at(index);
        }
    }
}
