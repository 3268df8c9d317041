//! The switch: its ports, its table, and which queues are looked at now.
//!
//! One thread does everything, so nothing here is locked. [`crate::forward`] moves frames,
//! [`crate::attach`] lets front ends in and out, [`crate::server`] is the loop.

use crate::clock::Clock;
use crate::closer::Closer;
use crate::config::{Config, VsockConfig};
use crate::fdb::Fdb;
use crate::hosts::Hosts;
use crate::loan::Desk;
use crate::places::Places;
use crate::poller::{Poller, Token};
use crate::port::Port;
use crate::reload::Reloads;
use crate::rests::Rests;
use crate::ring::Room;
use crate::scratch::Scratch;
use crate::trace::Tracer;
use crate::vhost::Limits;
use crate::vsock::machine::Shown;
use anyhow::Context;
use ginnel_ivshmem::doorbell::Ringer;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

mod reload;

/// A queue from which a guest sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Its port.
    pub port: u32,
    /// The queue's number.
    pub queue: u16,
}

/// The switch.
pub struct Switch {
    /// By number. `None` while a port's own frames are being moved, and where there is none.
    pub(crate) ports: Vec<Option<Box<Port>>>,
    /// Ports of each segment.
    pub(crate) segments: HashMap<u32, Vec<u32>>,
    /// Where addresses are.
    pub fdb: Fdb,
    pub(crate) poller: Poller,
    pub(crate) ringer: Ringer,
    /// Turns so far.
    pub(crate) round: u64,
    /// What frames have cost since it was last looked at what else there is, bytes.
    pub(crate) cost: usize,
    /// Queues that are looked at in each turn.
    pub(crate) awake: Vec<Sender>,
    /// Queues into which frames were put that their guests were not told of yet.
    pub(crate) touched: Vec<Sender>,
    pub(crate) scratch: Scratch,
    pub(crate) tracer: Tracer,
    /// What is not looked at for a moment.
    pub(crate) rests: Rests,
    pub(crate) clock: Clock,
    pub(crate) poll: Duration,
    pub(crate) busy: bool,
    /// What is told of sockets between machines, which have a thread of their own.
    pub(crate) vsock: Vec<(VsockConfig, Arc<Shown>)>,
    /// What all front ends together may share.
    pub(crate) room: Arc<Room>,
    /// The configuration that holds now, and what comes of another.
    pub config: Config,
    /// See above.
    pub reloads: Reloads,
    /// How many mappings were cut short, when it was last looked.
    pub(crate) cuts: usize,
    /// Other hosts.
    pub hosts: Hosts,
    /// Ports had more in the last turn than one turn takes: what is gathered for hosts waits for
    /// it.
    pub(crate) gathers: bool,
    /// Where machines' memory comes back that was lent to them, …
    pub(crate) desk: Arc<Desk>,
    /// … and who unmaps it where nobody else has it any more.
    pub(crate) closer: Arc<Closer>,
    /// Machines' memory may be another since devices were told of it.
    pub(crate) memory_changed: bool,
    /// Sockets of ports that are no more, of whose last machines something is still lent: a port
    /// that comes there may be for the same one.
    pub(crate) lent: Vec<(PathBuf, Weak<()>)>,
}

impl Switch {
    /// Opens every port. What their front ends share is mapped in `room`.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn new(config: &Config, room: &Arc<Room>, poller: Poller) -> anyhow::Result<Self> {
        let hosts = Hosts::new(config, &poller).context("other hosts")?;
        let reloads = Reloads::new(&poller)?;
        let desk = Desk::new()?;
        poller.watch(&*desk, Token::Desk)?;
        let mut switch = Self {
            hosts,
            gathers: false,
            desk,
            closer: Arc::default(),
            memory_changed: true,
            lent: Vec::new(),
            ports: Vec::new(),
            segments: HashMap::new(),
            fdb: Fdb::default(),
            poller,
            ringer: Ringer::new(),
            round: 0,
            cost: 0,
            awake: Vec::new(),
            touched: Vec::new(),
            scratch: Scratch::default(),
            tracer: Tracer::default(),
            rests: Rests::default(),
            clock: Clock::new(),
            poll: config.poll,
            busy: config.busy,
            vsock: Vec::new(),
            room: Arc::clone(room),
            config: config.clone(),
            reloads,
            cuts: crate::ring::cuts(),
        };
        for port in &config.ports {
            let own = port.memory.unwrap_or_else(|| config.share(room.limit()));
            let limits = Limits { own, room: Arc::clone(room) };
            switch.insert(port.clone(), limits, &mut Places::default())?;
        }
        switch.list_segments();
        Ok(switch)
    }

    /// A port by its number.
    #[must_use]
    pub fn port(&self, index: u32) -> Option<&Port> {
        self.ports.get(index as usize)?.as_deref()
    }

    /// The same, to be changed.
    pub fn port_mut(&mut self, index: u32) -> Option<&mut Port> {
        self.ports.get_mut(index as usize)?.as_deref_mut()
    }

    /// All ports.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter_map(|port| port.as_deref())
    }

    /// Looks at this port's queues anew: which are looked at, and which can be received into.
    pub(crate) fn relist(&mut self, index: u32) {
        self.awake.retain(|sender| sender.port != index);
        self.memory_changed = true;
        let Some(port) = self.ports.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        port.renew_receives();
        self.fdb.set_inhabited(index, port.is_up());
        if let Some(device) = port.device() {
            let senders = device.queues.iter().enumerate().skip(1).step_by(2);
            let awake = senders.filter(|(_, queue)| queue.awake && queue.ring.is_some());
            let sender = |(queue, _)| Sender { port: index, queue: queue as u16 };
            self.awake.extend(awake.map(sender));
        }
    }

    /// Is anything looked at in each turn?
    #[must_use]
    pub fn is_awake(&self) -> bool {
        !self.awake.is_empty() || self.hosts.any_awake()
    }

    /// A guest has kicked a queue.
    pub(crate) fn kicked(&mut self, index: u32, number: u16) {
        let (now, poll) = (self.clock.now, self.poll);
        let Some(port) = self.ports.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        port.counters.kicks += 1;
        // Of queues to receive into nothing is asked: whether there are buffers is looked at when
        // there is a frame.
        let Some(device) = port.device_mut().filter(|_| !number.is_multiple_of(2)) else { return };
        let Some(queue) = device.queues.get_mut(usize::from(number)) else { return };
        if queue.awake || queue.ring.is_none() {
            return;
        }
        queue.wake(&device.memory, now, poll);
        self.awake.push(Sender { port: index, queue: number });
    }
}
