//! Other machines while the hub runs: what the thread of the frames hands to the hub's.

use super::connection::At;
use super::hub::Hub;
use super::machine::{Machine, Shown};
use crate::config::VsockConfig;
use crate::places::{Place, Places, take_away};
use crate::poller::Token;
use crate::reload::Pending;
use crate::seat::{GONE, shut};
use crate::vhost::{Limits, Model};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
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
            self.hand_over_doors(&machines, &mut places);
            let wanted: HashSet<_> = machines.iter().map(|(one, ..)| &one.socket).collect();
            let mut known = HashMap::new();
            for index in 0..self.machines.len() as u32 {
                let Some(machine) = self.machine(index).filter(|one| !one.gone) else { continue };
                if wanted.contains(&machine.config.socket) {
                    known.insert(machine.config.socket.clone(), index);
                } else {
                    self.remove(index);
                }
            }
            for (config, limits, shown) in machines {
                let name = config.name.clone();
                let done = match known.get(&config.socket) {
                    Some(&index) => self.change(index, config, limits, &mut places),
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

    /// Takes those doors from their machines that are others' from now on: into `places`, where
    /// these find them.
    fn hand_over_doors(&mut self, machines: &[(VsockConfig, Limits, Arc<Shown>)], to: &mut Places) {
        let owners = machines.iter().filter_map(|(one, ..)| Some((one.host.clone()?, &one.socket)));
        let owners: HashMap<_, _> = owners.collect();
        for index in 0..self.machines.len() as u32 {
            let Some(machine) = self.machine(index).filter(|one| !one.gone) else { continue };
            let owner = machine.config.host.as_ref().and_then(|path| owners.get(path));
            if owner.is_none_or(|&socket| *socket == machine.config.socket) {
                continue;
            }
            let (door, path) = (machine.door.take(), machine.config.host.take());
            if let (Some(door), Some(path)) = (door, path) {
                self.poller.forget(&door);
                to.put_socket(path, door);
            }
            self.dismiss_all(index);
        }
    }

    /// The number of a machine that is no more, if nothing of it is left that bears it, or a new
    /// one.
    fn free_number(&mut self) -> anyhow::Result<u32> {
        let mut gone: HashSet<u32> = (0u32..)
            .zip(&self.machines)
            .filter(|(_, one)| one.gone)
            .map(|(index, _)| index)
            .collect();
        for end in self.connections.values().flat_map(|one| &one.ends) {
            if let At::Machine(index) = end.at {
                gone.remove(&index);
            }
        }
        let Some(free) = gone.into_iter().min() else {
            return Ok(u32::try_from(self.machines.len())?);
        };
        self.held.retain(|&(from, to), _| from != free && to != free);
        Ok(free)
    }

    fn insert(
        &mut self,
        config: VsockConfig,
        limits: Limits,
        shown: Arc<Shown>,
        places: &mut Places,
    ) -> anyhow::Result<()> {
        let index = self.free_number()?;
        let machine = Machine::open(index, config, limits, (places, &self.poller));
        let machine = machine.inspect_err(|why| shown.set_trouble(Some(format!("{why:#}"))))?;
        let machine = Machine { shown, ..machine };
        match self.machines.get_mut(index as usize) {
            Some(place) => *place = machine,
            None => self.machines.push(machine),
        }
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

    /// A machine is there no more. Its number is given to another only once nothing of its
    /// connections is left ([`Self::free_number`]): others may still be told of those.
    fn remove(&mut self, index: u32) {
        self.detach(index, GONE);
        let poller = self.poller.clone();
        let Some(machine) = self.machine(index) else { return };
        machine.gone = true;
        machine.seat.close(&poller, GONE);
        let config = machine.config.clone();
        self.close_door(index, &config);
        take_away(&config.socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::poller::Poller;
    use crate::reload::{News, Reloads};
    use crate::ring::Room;
    use crate::vsock::connection::End;
    use crate::vsock::packet::Address;
    use std::path::Path;

    /// A hub, and who changes its machines to those of these names.
    fn hub(place: &Path) -> (Hub, impl FnMut(&mut Hub, &[&str])) {
        let config = Config::new(place.into(), Vec::new());
        let room = Room::new(1 << 40);
        let hub = Hub::new(&config, &room, Poller::new().expect("a set")).expect("a hub");
        let reloads = Reloads::new(&Poller::new().expect("a set")).expect("none yet");
        let place = place.to_owned();
        let change = move |hub: &mut Hub, names: &[&str]| {
            let machine = |(cid, name): (u32, &&str)| {
                let config = VsockConfig::new(name, cid, place.join(name), 0);
                (config, Limits { own: 1 << 30, room: Arc::clone(&room) }, Arc::default())
            };
            let machines = (3..).zip(names).map(machine).collect();
            let pending = Pending::new(reloads.teller());
            let places = Places::default();
            hub.orders().send(Change { machines, places, poll: Duration::ZERO, pending });
            hub.hear_orders();
            let Some(News::Machines(troubles)) = reloads.news() else { panic!("news") };
            assert!(troubles.is_empty(), "{troubles:?}");
        };
        (hub, change)
    }

    #[test]
    fn numbers_of_machines_that_are_gone_are_given_again() {
        let place = tempfile::tempdir().expect("a directory");
        let (mut hub, mut change) = hub(place.path());
        for _ in 0..20 {
            change(&mut hub, &["a", "b"]);
            change(&mut hub, &["b", "c", "d"]);
            change(&mut hub, &[]);
        }
        assert!(hub.machines.len() <= 4, "{}", hub.machines.len());
        // Of one others are still to be told that it is gone: it keeps its number until they are.
        change(&mut hub, &["a", "b"]);
        let [a, b] = [3, 4].map(|cid| hub.by_cid[&(0, cid)]);
        let end = |index, cid| End::new(At::Machine(index), Address { cid, port: 1 });
        hub.connect([end(a, 3), end(b, 4)]);
        change(&mut hub, &["c", "b"]);
        assert_eq!(hub.connections.len(), 1);
        assert_ne!(hub.by_cid[&(0, 3)], a);
        change(&mut hub, &["c"]);
        assert_eq!(hub.connections.len(), 0);
    }

    #[test]
    fn a_door_that_rested_while_it_was_replaced_rests_no_more() {
        let place = tempfile::tempdir().expect("a directory");
        let (mut hub, mut change) = hub(place.path());
        change(&mut hub, &["a"]);
        let index = hub.by_cid[&(0, 3)];
        hub.watch(Token::Door(index));
        assert_eq!(hub.rests.first(), None, "it is watched already");
    }
}
