//! Other machines while the hub runs: what the thread of the frames hands to the hub's.

use super::hub::Hub;
use super::machine::{Machine, Shown};
use crate::config::VsockConfig;
use crate::places::{Place, Places, take_away};
use crate::poller::Token;
use crate::reload::Pending;
use crate::seat::shut;
use crate::vhost::{Limits, Model};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The machines from now on, and what is open for those that are new.
#[derive(Debug)]
pub struct Change {
    /// Each with what its front end may share, and where others are told of it.
    pub machines: Vec<(VsockConfig, Limits, Arc<Shown>)>,
    /// Sockets of those that are new.
    pub places: Places,
    /// How long a queue is looked at.
    pub poll: Duration,
    /// Who is told once it is done.
    pub pending: Pending,
}

/// Where the hub is told of a change.
#[derive(Debug, Clone)]
pub struct Orders {
    sender: Sender<Change>,
    bell: Arc<OwnedFd>,
}

/// Where the hub hears of it.
#[derive(Debug)]
pub(super) struct Heard {
    receiver: Receiver<Change>,
    bell: Arc<OwnedFd>,
}

impl Orders {
    /// Both ends.
    pub(super) fn new() -> Result<(Self, Heard), Errno> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, receiver) = channel();
        let heard = Heard { receiver, bell: Arc::clone(&bell) };
        Ok((Self { sender, bell }, heard))
    }

    /// Has the hub change.
    pub fn send(&self, change: Change) {
        // Without a hub, who waits is told so.
        let _ = self.sender.send(change);
        // A full counter has been rung.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl Heard {
    pub(super) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    fn next(&self) -> Option<Change> {
        // It may have been read already.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        self.receiver.try_recv().ok()
    }
}

impl Hub {
    /// Changes as the thread of the frames says.
    pub(super) fn hear_orders(&mut self) {
        while let Some(Change { machines, mut places, poll, pending }) = self.orders.next() {
            self.poll = poll;
            let mut troubles = Vec::new();
            for index in 0..self.machines.len() as u32 {
                let Some(machine) = self.machine(index).filter(|one| !one.gone) else { continue };
                let socket = machine.config.socket.clone();
                if !machines.iter().any(|(config, ..)| config.socket == socket) {
                    self.remove(index);
                }
            }
            for (config, limits, shown) in machines {
                let same = |one: &Machine| !one.gone && one.config.socket == config.socket;
                let name = config.name.clone();
                let done = match self.machines.iter().position(same) {
                    Some(index) => self.change(index as u32, config, limits, &mut places),
                    None => self.insert(config, limits, shown, &mut places),
                };
                troubles.extend(done.err().map(|error| format!("vsock {name}: {error:#}")));
            }
            let live = self.machines.iter().enumerate().filter(|(_, one)| !one.gone);
            let known = |(index, one): (usize, &Machine)| {
                ((one.config.key, u64::from(one.config.cid)), index as u32)
            };
            self.by_cid = live.map(known).collect();
            drop(places);
            pending.done(troubles);
        }
    }

    fn insert(
        &mut self,
        config: VsockConfig,
        limits: Limits,
        shown: Arc<Shown>,
        places: &mut Places,
    ) -> anyhow::Result<()> {
        let index = u32::try_from(self.machines.len())?;
        let machine = Machine::open(index, config, limits, (places, &self.poller));
        let machine = machine.inspect_err(|why| shown.set_trouble(Some(format!("{why:#}"))))?;
        self.machines.push(Machine { shown, ..machine });
        Ok(())
    }

    /// A machine has another configuration, with the same socket.
    fn change(
        &mut self,
        index: u32,
        config: VsockConfig,
        limits: Limits,
        places: &mut Places,
    ) -> anyhow::Result<()> {
        let Some(machine) = self.machine(index) else { return Ok(()) };
        machine.seat.change(&config.name, (Model::vsock(config.cid), limits));
        let old = std::mem::replace(&mut machine.config, config.clone());
        if (old.cid, old.key) != (config.cid, config.key) {
            // Its connections are with others than it may reach now.
            self.end_all(index);
        }
        if old.cid != config.cid {
            // A front end reads it when it connects, and a guest when it boots.
            self.detach(index, "it has another context id now");
        }
        if old.host == config.host {
            return Ok(());
        }
        self.close_door(index, &old);
        let Some(socket) = &config.host else { return Ok(()) };
        let door = places.socket(Place { socket, mode: config.mode, group: config.group })?;
        self.poller.watch(&door, Token::Door(index))?;
        if let Some(machine) = self.machine(index) {
            machine.door = Some(door);
        }
        Ok(())
    }

    fn close_door(&mut self, index: u32, config: &VsockConfig) {
        let poller = self.poller.clone();
        let machine = self.machine(index);
        if let Some((door, machine)) = machine.and_then(|one| Some((one.door.take()?, one))) {
            shut(door, &poller, &machine.closer);
        }
        if let Some(path) = &config.host {
            take_away(path);
        }
        self.dismiss_all(index);
    }

    /// A machine is there no more. Its number is given to none after it: what others still hold of
    /// its connections bears it.
    fn remove(&mut self, index: u32) {
        self.detach(index, crate::switch::GONE);
        let poller = self.poller.clone();
        let Some(machine) = self.machine(index) else { return };
        machine.gone = true;
        machine.seat.close(&poller, crate::switch::GONE);
        let config = machine.config.clone();
        self.close_door(index, &config);
        take_away(&config.socket);
    }
}
