//! Who is let in: a machine with a slot of its own or none, a process of the host, and what the
//! refused get.

use super::{Joiner, Role};
use crate::keep::Name;
use crate::memory;
use crate::metrics::{By, Of};
use crate::segment::Occupant;
use crate::server::{Server, Source};
use crate::sockets::{self, Setup};
use anyhow::Result;
use ginnel_daemon::log;
use ginnel_ivshmem::credentials::Credentials;
use ginnel_ivshmem::doorbell;
use ginnel_ivshmem::outbox::Outbox;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a machine is not sent anything because the store has yet to take its connection.
const PATIENCE_WITH_STORE: Duration = Duration::from_millis(50);

/// Log lines about refused joiners in one second.
const MAX_REFUSAL_LINES: u32 = 5;

impl Server {
    pub(super) fn decide(&mut self, segment: usize, peer: u16, socket: Arc<OwnedFd>) -> Result<()> {
        let who = Credentials::of(&socket)?;
        let there = &self.segments[segment];
        let processes = self.processes(segment);
        let refusal = if !there.admits(peer, &who) {
            Some((
                "not_allowed",
                format!(
                    "neither its user nor a group of it is in the configuration of segment.{}",
                    there.name
                ),
            ))
        } else if peer == 0 && processes >= usize::from(there.config.processes) {
            Some((
                "no_slot",
                format!(
                    "{processes} processes of the host are attached; raise segment.{}.host.processes",
                    there.name
                ),
            ))
        } else {
            there.occupants.get(&peer).map(|one| {
                (
                    "slot_taken",
                    format!(
                        "process {} is in it; give this machine another slot",
                        one.credentials.pid
                    ),
                )
            })
        };
        match refusal {
            Some((kind, why)) => self.refuse(segment, peer, socket, who, kind, &why),
            None if peer == 0 => self.admit_process(segment, socket, who),
            None => self.admit(segment, peer, socket, who),
        }
    }

    /// Lets a machine in that is new.
    fn admit(
        &mut self,
        segment: usize,
        peer: u16,
        socket: Arc<OwnedFd>,
        who: Credentials,
    ) -> Result<()> {
        // Kept before all else, and before anything is sent: until then a kill loses it, and from
        // the first byte on it must not be lost.
        self.store.keep(&Name::Connection(self.segments[segment].name.clone(), peer), &socket);
        self.store.settle(PATIENCE_WITH_STORE);
        let there = &mut self.segments[segment];
        there.silence(peer);
        there.note(peer, true, true);
        log!(Info, "joined", segment = there.name, slot = peer, pid = who.pid, uid = who.uid);
        self.metrics.joins.get_or_create(&Of { segment: there.name.clone() }).inc();
        let outbox = there.welcome(peer);
        self.occupy(segment, peer, socket, who, outbox)?;
        self.announce(segment, peer);
        Ok(())
    }

    /// Takes over a machine that an earlier instance had let in.
    pub(crate) fn take_over(
        &mut self,
        segment: usize,
        peer: u16,
        socket: Arc<OwnedFd>,
    ) -> Result<()> {
        let who = Credentials::of(&socket)?;
        let setup = sockets::setup(&socket);
        let there = &mut self.segments[segment];
        there.note(peer, true, false);
        log!(Info, "taken_over", segment = there.name, slot = peer, pid = who.pid, uid = who.uid);
        let outbox = match setup {
            Setup::Sent => Outbox::new(0),
            Setup::Unsent => there.welcome(peer),
            Setup::Begun => {
                // What it has already must not be sent twice.
                log!(
                    Warning,
                    "setup_interrupted",
                    segment = there.name,
                    slot = peer,
                    pid = who.pid,
                    so = "it may lack doorbells, or wait for its memory; unplug its device and plug it in again, or restart it"
                );
                Outbox::new(0)
            }
        };
        self.occupy(segment, peer, socket, who, outbox)
    }

    fn occupy(
        &mut self,
        segment: usize,
        peer: u16,
        socket: Arc<OwnedFd>,
        who: Credentials,
        outbox: Outbox,
    ) -> Result<()> {
        let occupant = Occupant { credentials: who.clone(), since: SystemTime::now() };
        self.segments[segment].occupants.insert(peer, occupant);
        let begun = self.begin(Joiner::new(segment, peer, Role::Machine, socket, outbox, who));
        if begun.is_err() {
            let there = &mut self.segments[segment];
            there.occupants.remove(&peer);
            there.note(peer, false, false);
            self.store.forget(&Name::Connection(there.name.clone(), peer));
        }
        begun
    }

    fn admit_process(
        &mut self,
        segment: usize,
        socket: Arc<OwnedFd>,
        who: Credentials,
    ) -> Result<()> {
        let there = &self.segments[segment];
        let (machines, vectors) = (there.config.machines, there.config.vectors);
        // All that can fail for want of descriptors comes before anything is noted.
        let doorbells =
            || (0..vectors).map(|_| doorbell::new().map(Arc::new)).collect::<Result<Vec<_>, _>>();
        let bells = doorbells()?;
        let others = (1..=machines).map(|_| doorbells()).collect::<Result<Vec<_>, _>>()?;
        let outbox =
            Outbox::welcome(0, &there.memory, (1..).zip(others.iter().map(Vec::as_slice)), &bells);
        let relays = (1..).zip(others).flat_map(|(peer, relayed)| {
            (0..).zip(relayed).map(move |(vector, bell)| Source::Relay {
                segment,
                peer,
                vector,
                bell,
            })
        });
        let relays = self.add_all(relays)?;
        // It may have missed something: an earlier instance of this daemon may have died with its
        // wake-up.
        for bell in &bells {
            let _ = self.ringer.ring(bell);
        }
        let there = &mut self.segments[segment];
        there.note(0, true, true);
        log!(Info, "process_joined", segment = there.name, pid = who.pid, uid = who.uid);
        self.metrics.joins.get_or_create(&Of { segment: there.name.clone() }).inc();
        let role = Role::Process { bells, relays: relays.clone() };
        if let Err(error) = self.begin(Joiner::new(segment, 0, role, socket, outbox, who)) {
            for relay in relays {
                self.remove(relay);
            }
            let others = self.processes(segment) > 0;
            self.segments[segment].note(0, others, false);
            return Err(error);
        }
        self.announce(segment, 0);
        Ok(())
    }

    fn refuse(
        &mut self,
        segment: usize,
        peer: u16,
        socket: Arc<OwnedFd>,
        who: Credentials,
        kind: &'static str,
        why: &str,
    ) -> Result<()> {
        let name = &self.segments[segment].name;
        self.metrics.refused.get_or_create(&By { segment: name.clone(), kind }).inc();
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.refusals = if self.refusals.0 == second {
            (second, self.refusals.1.saturating_add(1))
        } else {
            (second, 1)
        };
        match self.refusals.1 {
            ..=MAX_REFUSAL_LINES => {
                log!(
                    Warning,
                    "refused",
                    segment = name,
                    slot = peer,
                    pid = who.pid,
                    uid = who.uid,
                    reason = kind,
                    why = why
                )
            }
            count if count == MAX_REFUSAL_LINES + 1 => {
                log!(Warning, "refused_many", why = "more in this second are only counted")
            }
            _ => {}
        }
        if !self.make_room_for_refused(who.uid) {
            // Closed before it is sent anything: what its own user left unread is in its way, or
            // all of a crowd's.
            return Ok(());
        }
        // One that was made at the start, where descriptors have run out: whoever gets none at all
        // hangs.
        let dummy = memory::dummy().map_or_else(|_| self.dummy.clone(), Arc::new);
        let outbox = Outbox::refusal(peer, &dummy);
        self.begin(Joiner::new(segment, peer, Role::Refused, socket, outbox, who))
    }
}
