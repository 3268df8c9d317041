//! Another configuration, taken over between two turns.

use super::Switch;
use crate::closer::Closer;
use crate::config::{Config, PortConfig};
use crate::places::{Places, take_away};
use crate::poller::Token;
use crate::port::{Link, Port};
use crate::reload::{Outcome, link};
use crate::seat::GONE;
use crate::vhost::Limits;
use anyhow::Context;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

impl Switch {
    /// Has the ports and hosts of this configuration from now on, and opens none: what is new is in
    /// `places`.
    pub(crate) fn take_over(&mut self, config: Config, places: &mut Places, outcome: &mut Outcome) {
        let mut troubles = Vec::new();
        // What was learned of these is not known any more.
        let mut unknown = HashSet::new();
        let wanted: HashSet<_> = config.ports.iter().map(link).collect();
        let mut known = HashMap::new();
        for index in 0..self.ports.len() as u32 {
            let Some(port) = self.port(index) else { continue };
            if wanted.contains(&link(&port.config)) {
                let (socket, tap) = (port.config.socket.clone(), port.config.tap.clone());
                known.insert((socket, tap), index);
            } else {
                outcome.removed.push(port.config.name.clone());
                unknown.insert(index);
                self.remove(index);
            }
        }
        for port in &config.ports {
            let own = port.memory.unwrap_or_else(|| config.share(self.room.limit()));
            let limits = Limits { own, room: Arc::clone(&self.room) };
            let index = known.get(&(port.socket.clone(), port.tap.clone())).copied();
            let Some((index, old)) = index.and_then(|index| Some((index, self.port(index)?)))
            else {
                match self.insert(port.clone(), limits, places) {
                    Ok(()) => outcome.added.push(port.name.clone()),
                    Err(error) => troubles.push(format!("{error:#}")),
                }
                continue;
            };
            if old.config != *port {
                outcome.changed.push(port.name.clone());
            }
            // What it may not say any more is not known of it either.
            let says = |one: &PortConfig| (one.key, one.macs, one.filter.clone());
            if says(&old.config) != says(port) {
                unknown.insert(index);
            }
            self.change(index, port.clone(), limits);
        }
        self.fdb.forget_all(&unknown);
        self.list_segments();
        (self.poll, self.busy) = (config.poll, config.busy);
        if config.fabric == self.config.fabric {
            self.hosts.renew_keys(&config.ports);
        } else {
            outcome.changed.push("fabric".into());
            if let Err(error) = self.renew_hosts(&config) {
                troubles.push(format!("other hosts: {error:#}"));
            }
        }
        self.config = config;
        outcome.add(&troubles);
    }

    /// The configuration is to be read again. `visitor` is told what came of it.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn reload(&mut self, visitor: Option<u32>) -> Result<(), String> {
        self.reloads.begin(visitor.as_slice(), &self.config)
    }

    /// Opens a port in a place that is free. (A port is out of its place only while its own frames
    /// are being moved.)
    pub(super) fn insert(
        &mut self,
        config: PortConfig,
        limits: Limits,
        places: &mut Places,
    ) -> anyhow::Result<()> {
        let free = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        let (index, name) = (u32::try_from(free)?, config.name.clone());
        let port = Port::open(index, config, limits, (places, &self.poller));
        let mut port = port.with_context(|| format!("port {name}"))?;
        self.wait_for_loans(&mut port);
        let port = Some(Box::new(port));
        match self.ports.get_mut(free) {
            Some(place) => *place = port,
            None => self.ports.push(port),
        }
        Ok(())
    }

    /// Has the first front end of a new port wait as long as something is lent of the last one that
    /// was at the same socket: it may be for the same machine, which has its memory back then.
    fn wait_for_loans(&mut self, port: &mut Port) {
        self.lent.retain(|(_, loans)| loans.strong_count() > 0);
        let socket = port.config.socket.as_ref();
        let before = self.lent.iter().find(|(before, _)| Some(before) == socket);
        if let (Link::Guest(seat), Some((_, loans))) = (&mut port.link, before) {
            seat.former = Weak::clone(loans);
        }
    }

    fn change(&mut self, index: u32, config: PortConfig, limits: Limits) {
        let now = self.clock.now;
        if let Some(port) = self.port_mut(index) {
            port.change(config, limits, now);
            if matches!(port.link, Link::Tap(_)) {
                // It may rest for a rate that it had.
                self.rests.add(Token::Tap(index), now);
            }
        }
    }

    /// Lets a port's front end go, and has its number free. (What was learned of it is forgotten by
    /// whoever calls, with that of others: each time it takes a look at the whole table.)
    fn remove(&mut self, index: u32) {
        let poller = self.poller.clone();
        let Some(mut port) = self.ports.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        let socket = port.config.socket.clone();
        match &mut port.link {
            // What may take long to be closed it gives to its closer.
            Link::Guest(seat) => {
                seat.close(&poller, GONE);
                let lent = socket.clone().filter(|_| seat.former.strong_count() > 0);
                self.lent.extend(lent.map(|socket| (socket, Weak::clone(&seat.former))));
            }
            Link::Tap(tap) => poller.forget(&*tap),
        }
        self.relist(index);
        if matches!(port.link, Link::Tap(_)) {
            // The kernel may take its time to let a device go.
            Arc::new(Closer::default()).close(port);
        }
        self.tracer.forget(index);
        if let Some(path) = socket {
            take_away(&path);
        }
    }

    /// Which ports are of which segment, and which addresses are theirs for ever.
    pub(super) fn list_segments(&mut self) {
        self.segments.clear();
        self.fdb.unfix();
        for port in self.ports.iter().flatten() {
            self.segments.entry(port.config.key).or_default().push(port.index);
            for &mac in &port.config.filter.macs {
                self.fdb.fix(port.config.key, mac, port.index);
            }
            self.fdb.set_inhabited(port.index, port.is_up());
        }
    }
}
