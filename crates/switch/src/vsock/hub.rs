//! The hub: machines, connections, and where packets go.

use super::connection::{At, Connection, End, State};
use super::host::Greeting;
use super::machine::{Machine, RECEIVES, SENDS, Shown};
use super::packet::{HEADER, HOST, Header, Op, STREAM};
use super::reload::{Heard, Orders};

use crate::clock::Clock;
use crate::config::Config;
use crate::places::Places;
use crate::poller::{Poller, Token};
use crate::rests::Rests;
use crate::ring::{Room, Slices};
use crate::vhost::Limits;
use anyhow::Context;
use ginnel_ivshmem::doorbell::Ringer;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What one machine may cost in one turn, bytes, by what it sends and what that becomes where it
/// goes; and by what waited for it. And what a packet costs beside its own.
pub(super) const BUDGET: usize = 256 << 10;
pub(super) const PER_PACKET: usize = 1024;
/// The longest packet. Linux sends 64 KiB.
const LONGEST: u32 = 1 << 20;
/// Connections that one machine may have begun.
pub(super) const MAX_BEGUN: usize = 1024;
/// Descriptors of a packet cost so much each, bytes.
pub(super) const PER_PIECE: usize = 64;
/// Answers to packets that belong to nothing which wait for one machine. Further ones it does not
/// get: it may take nothing before it is heard (Linux stops while its own answers wait, in
/// `virtio_transport_rx_work`), so whatever waits for it, it is (virtio 1.2, 5.10.6.2.2).
const MAX_REPLIES: usize = 1024;

/// The hub.
pub struct Hub {
    /// By their numbers.
    pub machines: Vec<Machine>,
    pub(super) by_cid: HashMap<(u32, u64), u32>,
    pub(super) connections: HashMap<u64, Connection>,
    /// The next number of a connection or greeting.
    pub(super) next: u64,
    /// Programs of the host that have not said yet to which port they want.
    pub(super) greetings: HashMap<u64, Greeting>,
    pub(super) next_port: u32,
    /// Bytes that wait, of one machine for another.
    pub(super) held: HashMap<(u32, u32), usize>,
    /// How many connections there are of one machine with another, which it began, or with programs
    /// of the host, over or not: of some an end is still to be told.
    pub(super) kept: HashMap<(u32, At), usize>,
    /// What all that machines were given has cost.
    pub(super) given: usize,
    /// Turns so far.
    pub(super) round: u64,
    /// What packets have cost since it was last looked at what else there is, bytes.
    pub(super) cost: usize,
    /// Machines whose senders are looked at in each turn.
    pub(super) awake: Vec<u32>,
    /// Machines that were given something that they were not told of yet.
    pub(super) touched: Vec<u32>,
    /// Machines that take more than one turn may give them.
    pub(super) behind: Vec<u32>,
    /// Machines that broke a rule, whose connections are to end.
    pub(super) fallen: Vec<u32>,
    /// Connections whose program may have something to be read.
    pub(super) ready: Vec<u64>,
    pub(super) scratch: Vec<u8>,
    pub(super) poller: Poller,
    pub(super) ringer: Ringer,
    pub(super) rests: Rests,
    pub(super) clock: Clock,
    pub(super) cuts: usize,
    pub(super) poll: Duration,
    /// Where a change is heard of, and told.
    pub(super) orders: Heard,
    teller: Orders,
}

impl Hub {
    /// Opens every machine's sockets. What their front ends share is mapped in `room`.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn new(config: &Config, room: &Arc<Room>, poller: Poller) -> anyhow::Result<Self> {
        let (teller, orders) = Orders::new()?;
        poller.watch(orders.bell(), Token::Reload)?;
        let mut hub = Self {
            orders,
            teller,
            machines: Vec::new(),
            by_cid: HashMap::new(),
            connections: HashMap::new(),
            next: 0,
            greetings: HashMap::new(),
            next_port: 0,
            held: HashMap::new(),
            kept: HashMap::new(),
            given: 0,
            round: 0,
            cost: 0,
            awake: Vec::new(),
            touched: Vec::new(),
            behind: Vec::new(),
            fallen: Vec::new(),
            ready: Vec::new(),
            scratch: Vec::new(),
            poller,
            ringer: Ringer::new(),
            rests: Rests::default(),
            clock: Clock::new(),
            cuts: crate::ring::cuts(),
            poll: config.poll,
        };
        for one in &config.vsock {
            let index = u32::try_from(hub.machines.len())?;
            let own = one.memory.unwrap_or_else(|| config.share(room.limit()));
            let limits = Limits { own, room: Arc::clone(room) };
            let open = (&mut Places::default(), &hub.poller);
            let machine = Machine::open(index, one.clone(), limits, open);
            hub.machines.push(machine.with_context(|| format!("vsock {}", one.name))?);
            hub.by_cid.insert((one.key, u64::from(one.cid)), index);
        }
        Ok(hub)
    }

    /// Where it is told of other machines while it runs.
    #[must_use]
    pub fn orders(&self) -> Orders {
        self.teller.clone()
    }

    pub(super) fn machine(&mut self, index: u32) -> Option<&mut Machine> {
        self.machines.get_mut(index as usize)
    }

    /// One turn: every machine that is awake, or to which something is to be given. True where
    /// there was something.
    pub fn turn(&mut self) -> bool {
        let (mut found, mut place) = (!self.behind.is_empty(), 0);
        self.round += 1;
        for index in std::mem::take(&mut self.behind) {
            self.flush(index);
            self.tell();
        }
        while let Some(&index) = self.awake.get(place) {
            let (worked, asleep) = self.serve(index);
            found |= worked;
            self.tell();
            if asleep {
                self.awake.retain(|&one| one != index);
            } else {
                place += 1;
            }
        }
        found
    }

    /// A guest has kicked a queue.
    pub(super) fn kicked(&mut self, index: u32, number: u16) {
        if number == RECEIVES {
            self.mute_kicked(index);
            self.flush(index);
        } else {
            self.hear_again(index);
        }
        self.tell();
    }

    /// A machine need not say again that there is room to receive into.
    fn mute_kicked(&mut self, index: u32) {
        let device = self.machine(index).and_then(|one| one.seat.device_mut());
        if let Some(device) = device
            && let Some(queue) = device.queues.get(usize::from(RECEIVES))
            && let Some(ring) = &queue.ring
        {
            ring.mute_kicked(&device.memory);
        }
    }

    /// A machine's sender is looked at in each turn again, until it has nothing. Whose queue is
    /// stopped is heard when it goes on: it goes on where it was stopped.
    fn hear_again(&mut self, index: u32) {
        let (now, poll) = (self.clock.now, self.poll);
        let Some(machine) = self.machine(index).filter(|one| one.is_up()) else { return };
        let Some(device) = machine.seat.device_mut() else { return };
        let Some(queue) = device.queues.get_mut(usize::from(SENDS)) else { return };
        if queue.ring.is_some() && !queue.awake {
            queue.wake(&device.memory, now, poll);
            self.awake.push(index);
        }
    }

    /// Takes what a machine sends: was there anything, and is it not to be looked at further?
    fn serve(&mut self, index: u32) -> (bool, bool) {
        let now = self.clock.now;
        let Some(device) = self.machine(index).and_then(|one| one.seat.device_mut()) else {
            return (false, true);
        };
        let memory = Arc::clone(&device.memory);
        let Some(queue) = device.queues.get_mut(usize::from(SENDS)) else { return (false, true) };
        let Some(mut ring) = queue.ring.take() else {
            queue.awake = false;
            return (false, true);
        };
        let (mut cost, mut chain) = (0, Slices::new());
        let result = loop {
            if cost >= BUDGET {
                break Ok(());
            }
            match ring.take(&memory, &mut chain) {
                Ok(Some(head)) => {
                    let own = PER_PACKET + chain.len();
                    cost += own + chain.descriptors() * PER_PIECE;
                    let (mut bytes, given) = ([0; HEADER], self.given);
                    if chain.take_front(&mut bytes) == HEADER {
                        self.packet(index, &Header::parse(&bytes), &mut chain);
                    } else {
                        self.count(index, |shown| Shown::add(&shown.bad, 1));
                    }
                    // Whoever takes it in crumbs makes more of it than it was.
                    cost += self.given.wrapping_sub(given).saturating_sub(own);
                    ring.complete(&memory, head, 0);
                }
                Ok(None) => break Ok(()),
                Err(broken) => break Err(broken),
            }
        };
        self.cost += cost;
        let interrupt = ring.publish(&memory);
        let ringer = &self.ringer;
        let Some(machine) = self.machines.get_mut(index as usize) else { return (false, true) };
        let Some(device) = machine.seat.device_mut() else { return (false, true) };
        let Some(queue) = device.queues.get_mut(usize::from(SENDS)) else { return (false, true) };
        if interrupt {
            queue.interrupt(ringer);
        }
        if cost > 0 {
            queue.busy = Some(now);
        }
        let done = cost == 0 && queue.is_tired(now);
        match result.and_then(|()| Ok(done && !ring.arm(&memory)?)) {
            Ok(sleeps) => {
                (queue.awake, queue.ring) = (!sleeps, Some(ring));
                (cost > 0, sleeps)
            }
            Err(broken) => {
                queue.ring = Some(ring);
                queue.fail(broken, ringer);
                self.broken(index, SENDS, broken);
                (cost > 0, true)
            }
        }
    }

    pub(super) fn count(&mut self, index: u32, count: impl Fn(&Shown)) {
        if let Some(machine) = self.machine(index) {
            count(&machine.shown);
        }
    }

    /// A packet of a machine: `rest` is what lies behind its header.
    fn packet(&mut self, index: u32, header: &Header, rest: &mut Slices<'_>) {
        let Some(machine) = self.machine(index) else { return };
        let own = u64::from(machine.config.cid);
        let key = (header.from.port, header.to.cid, header.to.port);
        let known = machine.connections.get(&key).copied();
        if header.from.cid != own {
            // There is nobody whom an answer would reach.
            return Shown::add(&machine.shown.bad, 1);
        }
        let op = Op::of(header.op).filter(|_| header.kind == STREAM);
        let fits = rest.len() >= header.len as usize && header.len <= LONGEST;
        let Some(op) = op.filter(|_| fits) else {
            Shown::add(&machine.shown.bad, 1);
            return match known {
                Some(id) => self.reset(id, Some(index)),
                None => self.refuse(index, header),
            };
        };
        rest.keep(if op == Op::Rw { header.len as usize } else { 0 });
        match (op, known) {
            (Op::Request, _) => self.request(index, header, known),
            (_, Some(id)) => self.known(id, index, op, header, rest),
            (Op::Rst, None) => {}
            (_, None) => self.refuse(index, header),
        }
    }

    /// A packet that belongs to nothing is answered by a reset.
    fn refuse(&mut self, index: u32, header: &Header) {
        let Some(machine) = self.machine(index) else { return };
        if machine.replies.len() < MAX_REPLIES {
            machine.replies.push_back(header.refusal());
        }
        self.flush(index);
    }

    fn request(&mut self, index: u32, header: &Header, known: Option<u64>) {
        if let Some(old) = known {
            // Its guest has forgotten that.
            self.end(old, Some(index));
        }
        let Some(machine) = self.machine(index) else { return };
        let group = machine.config.key;
        if machine.began >= MAX_BEGUN {
            self.forget_unanswered(index);
        }
        let room = self.machine(index).is_some_and(|one| one.began < MAX_BEGUN);
        let made = if !room {
            None
        } else if header.to.cid == HOST {
            self.call_host(index, header)
        } else {
            self.by_cid.get(&(group, header.to.cid)).copied().and_then(|other| {
                if !self.may_keep(index, other) {
                    self.forget_unanswered(index);
                }
                // One that stands still answers when it goes on.
                let one = self.machines.get(other as usize)?;
                let up = other != index
                    && (one.is_up() || one.stopped.is_some())
                    && self.may_keep(index, other);
                let ends = [(At::Machine(index), header.from), (At::Machine(other), header.to)];
                up.then(|| self.connect(ends.map(|(at, address)| End::new(at, address))))
            })
        };
        let Some(id) = made else {
            self.count(index, |shown| Shown::add(&shown.refused, 1));
            return self.refuse(index, header);
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            // Nothing was given yet, so nothing can be wrong.
            let _ = connection.ends[0].announce(header.buf_alloc, 0, 0);
            let open = connection.state == State::Open;
            let (to, op) = if open { (0, Op::Response) } else { (1, Op::Request) };
            self.give(id, to, op, 0, &mut Slices::new());
        }
    }

    /// A packet of a connection that is known.
    fn known(&mut self, id: u64, index: u32, op: Op, header: &Header, rest: &mut Slices<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let from = usize::from(connection.ends[0].at != At::Machine(index));
        if op == Op::Rst {
            return self.end(id, Some(index));
        }
        let given = connection.given(from);
        let good = connection.ends[from].announce(header.buf_alloc, header.fwd_cnt, given);
        let len = header.len * u32::from(op == Op::Rw);
        let credit = connection.ends[1 - from].credit(connection.ends[from].sent);
        match (connection.state, op) {
            _ if !good || len > credit => return self.reset(id, Some(index)),
            (State::Asked, Op::Response) if from == 1 => connection.state = State::Open,
            (State::Asked, Op::CreditUpdate | Op::CreditRequest) => return,
            (State::Open, Op::Rw | Op::CreditUpdate | Op::CreditRequest) => {}
            (State::Open, Op::Shutdown) => connection.ends[from].shut |= header.flags & 3,
            // It does not wait for the answer.
            (State::Asked, Op::Shutdown) if from == 0 => return self.reset(id, None),
            _ => return self.reset(id, Some(index)),
        }
        let sent = &mut connection.ends[from].sent;
        *sent = sent.wrapping_add(len);
        let to_host = connection.ends[1 - from].at == At::Host;
        self.count(index, |shown| Shown::add(&shown.sent, len.into()));
        if to_host {
            self.tell_host(id, op, rest);
        } else {
            self.give(id, 1 - from, op, header.flags & 3, rest);
        }
    }
}
