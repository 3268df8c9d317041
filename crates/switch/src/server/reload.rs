//! Another configuration: when it is asked for, and what comes of it.

use super::Server;
use crate::poller::{Poller, Token};
use crate::reload::{News, Outcome, Pending, Prepared, Source};
use crate::vhost::Limits;
use crate::vsock::Hub;
use crate::vsock::machine::Shown;
use crate::vsock::reload::Change;
use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

impl Server {
    /// From now on the configuration can be read again: when somebody asks for it at the control
    /// socket, or when something can be read from `asks`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn reload_from(&mut self, source: Source, asks: UnixStream) -> anyhow::Result<()> {
        asks.set_nonblocking(true)?;
        self.poller.watch(&asks, Token::Reload)?;
        self.asks = Some(asks);
        self.switch.reloads.read_from(source);
        Ok(())
    }

    /// A signal asks for it.
    pub(super) fn asked(&mut self) {
        let Some(asks) = &mut self.asks else { return };
        // However often it was asked, once is enough.
        let (mut bytes, mut asked) = ([0; 64], false);
        let ends = loop {
            match asks.read(&mut bytes) {
                Ok(0) => break true,
                Ok(_) => asked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        if ends {
            // Nobody can ask any more.
            self.poller.forget(&*asks);
            self.asks = None;
        }
        if !asked {
            return;
        }
        if let Err(why) = self.switch.reload(None) {
            Outcome::refused(why).log();
        }
    }

    /// A configuration is prepared, or was refused, or is taken over as a whole.
    pub(super) fn hear_of_reloads(&mut self) {
        while let Some(news) = self.switch.reloads.news() {
            match news {
                News::Prepared(Ok(prepared)) => {
                    let (outcome, waits) = self.take(*prepared);
                    self.switch.reloads.outcome = Some(outcome);
                    if !waits {
                        self.tell_outcome();
                    }
                }
                News::Prepared(Err(why)) => {
                    self.switch.reloads.outcome = Some(Outcome::refused(why));
                    self.tell_outcome();
                }
                News::Machines(troubles) => {
                    if let Some(outcome) = &mut self.switch.reloads.outcome {
                        outcome.add(&troubles);
                    }
                    self.tell_outcome();
                }
            }
        }
    }

    fn tell_outcome(&mut self) {
        let Some(outcome) = self.switch.reloads.outcome.take() else { return };
        outcome.log();
        let (visitors, late) = self.switch.reloads.end();
        self.tell_all(&visitors, &outcome);
        self.control.end_traces(&self.switch);
        if let Some(late) = late
            && let Err(why) = self.switch.reloads.begin(&late, &self.switch.config)
        {
            self.tell_all(&late, &Outcome::refused(why));
        }
    }

    fn tell_all(&mut self, visitors: &[u32], outcome: &Outcome) {
        let text = serde_json::to_string(outcome).unwrap_or_default();
        for &visitor in visitors {
            self.control.tell(visitor, &text, &mut self.switch);
        }
    }

    /// Takes it over: what came of it, and whether machines that have sockets are still to follow.
    fn take(&mut self, prepared: Prepared) -> (Outcome, bool) {
        let Prepared { config, mut places } = prepared;
        let mut outcome = Outcome::default();
        let before = std::mem::take(&mut self.switch.vsock);
        let room = Arc::clone(&self.switch.room);
        let (mut machines, mut shown) = (Vec::new(), Vec::new());
        let old: HashMap<_, _> = before.iter().map(|one| (&one.0.socket, one)).collect();
        for one in &config.vsock {
            let known = old.get(&one.socket).copied();
            let list = match known {
                Some((old, _)) if old != one => Some(&mut outcome.changed),
                Some(_) => None,
                None => Some(&mut outcome.added),
            };
            list.into_iter().for_each(|list| list.push(format!("vsock {}", one.name)));
            let told = known.map_or_else(Arc::<Shown>::default, |(_, shown)| Arc::clone(shown));
            let own = one.memory.unwrap_or_else(|| config.share(room.limit()));
            let limits = Limits { own, room: Arc::clone(&room) };
            machines.push((one.clone(), limits, Arc::clone(&told)));
            shown.push((one.clone(), told));
        }
        let stay: HashSet<_> = config.vsock.iter().map(|one| &one.socket).collect();
        let removed = before.iter().map(|(old, _)| old).filter(|old| !stay.contains(&old.socket));
        outcome.removed.extend(removed.map(|old| format!("vsock {}", old.name)));
        self.switch.vsock = shown;
        let poll = config.poll;
        self.switch.take_over(config, &mut places, &mut outcome);
        if machines.is_empty() && self.orders.is_none() {
            return (outcome, false);
        }
        let pending = Pending::new(self.switch.reloads.teller());
        let changed = self.change_machines(Change { machines, places, poll, pending });
        if let Err(why) = &changed {
            outcome.add(&[format!("vsock: {why:#}")]);
        }
        // Whatever becomes of it, there will be news.
        (outcome, true)
    }

    /// Has the hub change, which begins with the first machine.
    fn change_machines(&mut self, change: Change) -> anyhow::Result<()> {
        if self.orders.is_none() {
            let poller = Poller::new()?;
            let none = self.switch.config.without_machines();
            let hub = Hub::new(&none, &self.switch.room, poller.clone())?;
            self.orders = Some(hub.orders());
            self.vsock = Some((hub, poller));
            self.start_hub()?;
        }
        if let Some(orders) = &self.orders {
            orders.send(change);
        }
        Ok(())
    }
}
