//! Those who join: letting them in or refusing them, and what follows when they come and go;
//! wake-ups between host and machines.

mod admission;

use super::{Server, Source};
use crate::keep::Name;
use crate::metrics::{By, Of};
use crate::sockets::{self, Setup};
use anyhow::Result;
use ginnel_daemon::log;
use ginnel_ivshmem::{credentials::Credentials, doorbell, outbox::Outbox, outbox::Progress};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Joiners taken from one door in one round.
const MAX_ARRIVALS: usize = 16;
/// Somebody on a socket of ours.
pub(crate) struct Joiner {
    pub segment: usize,
    /// Its id: the slot, or 0 for processes of the host.
    pub peer: u16,
    pub role: Role,
    pub socket: Arc<OwnedFd>,
    /// What it has not been sent yet.
    pub outbox: Outbox,
    /// Sending has met too many descriptors under way: it is tried again after a while, not when
    /// the socket is writable.
    pub crowded: bool,
    pub who: Credentials,
    /// It was let go, for this reason, and has yet to read what it was sent: see [`super::unread`].
    pub parting: Option<String>,
}

impl Joiner {
    /// One whose setup is `outbox`, which is not sent yet.
    fn new(
        segment: usize,
        peer: u16,
        role: Role,
        socket: Arc<OwnedFd>,
        outbox: Outbox,
        who: Credentials,
    ) -> Self {
        Self { segment, peer, role, socket, outbox, crowded: false, who, parting: None }
    }
}

/// What a joiner has become.
pub(crate) enum Role {
    /// A virtual machine in its slot.
    Machine,
    /// A process of the host, with its own doorbells and the relays by which it rings machines: it
    /// never gets a machine's doorbell.
    Process { bells: Vec<Arc<OwnedFd>>, relays: Vec<u64> },
    /// One who may not join and has been given a memory in which there is nothing.
    Refused,
}

impl Server {
    /// Somebody is at a door.
    pub(crate) fn arrive(&mut self, segment: usize, peer: u16, door: u64) {
        for _ in 0..MAX_ARRIVALS {
            let Some(Source::Door { socket, .. }) = self.sources.get(&door) else { return };
            let joiner = match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(joiner) => Arc::new(joiner),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(errno) => return self.pause_doors(errno),
            };
            if let Err(error) = self.decide(segment, peer, joiner) {
                log!(
                    Error,
                    "join_failed",
                    segment = self.segments[segment].name,
                    slot = peer,
                    why = format!("{error:#}")
                );
            }
        }
    }

    /// Sends what a joiner is to have and waits for its end.
    fn begin(&mut self, joiner: Joiner) -> Result<()> {
        sockets::limit_unread(&joiner.socket, self.window);
        let token = self.add(Source::Joiner(joiner))?;
        self.send(token);
        Ok(())
    }

    /// Processes of the host that are attached.
    pub(crate) fn processes(&self, segment: usize) -> usize {
        self.host_processes(segment).count()
    }

    /// The same, each.
    pub(crate) fn host_processes(
        &self,
        segment: usize,
    ) -> impl Iterator<Item = (&Joiner, &[Arc<OwnedFd>])> {
        self.sources.values().filter_map(move |source| match source {
            Source::Joiner(joiner) if joiner.segment == segment => match &joiner.role {
                Role::Process { bells, .. } => Some((joiner, bells.as_slice())),
                _ => None,
            },
            _ => None,
        })
    }

    fn send(&mut self, token: u64) {
        let Some(Source::Joiner(joiner)) = self.sources.get_mut(&token) else { return };
        let unsent = !joiner.outbox.is_empty();
        if unsent {
            sockets::note_setup(&joiner.socket, Setup::Begun);
        }
        match joiner.outbox.flush(&joiner.socket) {
            Ok(Progress::Done) => {
                joiner.crowded = false;
                if unsent {
                    sockets::note_setup(&joiner.socket, Setup::Sent);
                }
                self.crowded.remove(&token);
                self.rearm(token);
            }
            Ok(progress) => {
                joiner.crowded = progress == Progress::Crowded;
                if joiner.crowded {
                    self.crowded.insert(token);
                }
                self.rearm(token);
            }
            Err(error) => self.part(token, &error.to_string()),
        }
    }

    /// Tries again to send to those who met too many descriptors under way.
    pub(crate) fn retry_crowded(&mut self) {
        for token in self.crowded.clone() {
            self.send(token);
        }
    }

    /// A joiner's socket is ready.
    pub(crate) fn attend(&mut self, token: u64, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.send(token);
        }
        let Some(Source::Joiner(joiner)) = self.sources.get(&token) else { return };
        let mut bytes = [0u8; 64];
        match recv(&joiner.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((_, 0)) => self.part(token, "it closed the connection"),
            Ok(_) => self.part(token, "it spoke, which only the server does"),
            Err(errno) => self.part(token, &errno.to_string()),
        }
    }

    /// A joiner is gone, or was let go and has read all that it was sent.
    pub(crate) fn leave(&mut self, token: u64, why: &str) {
        self.crowded.remove(&token);
        let Some(Source::Joiner(joiner)) = self.remove(token) else { return };
        let others = self.processes(joiner.segment);
        let there = &mut self.segments[joiner.segment];
        let (pid, name) = (joiner.who.pid, there.name.clone());
        match joiner.role {
            Role::Refused => return,
            Role::Machine => {
                there.occupants.remove(&joiner.peer);
                there.note(joiner.peer, false, false);
                self.store.forget(&Name::Connection(name.clone(), joiner.peer));
                if there.occupants.is_empty() {
                    there.renew_bells(&mut self.store);
                }
                log!(
                    Info,
                    "left",
                    segment = name,
                    slot = joiner.peer,
                    pid = pid,
                    why = why,
                    unsent = joiner.outbox.len()
                );
            }
            Role::Process { relays, .. } => {
                there.note(0, others > 0, false);
                for relay in relays {
                    self.remove(relay);
                }
                log!(
                    Info,
                    "process_left",
                    segment = name,
                    pid = pid,
                    why = why,
                    unsent = joiner.outbox.len()
                );
            }
        }
        self.metrics.leaves.get_or_create(&Of { segment: name }).inc();
        // Told by a doorbell and the table in the segment, never by the protocol's own notice: QEMU
        // frees the doorbells of a peer that was reported gone a second time when the device is
        // unplugged.
        self.announce(joiner.segment, joiner.peer);
    }

    /// Rings vector 0 of all others: somebody came or left, the table of peers has changed.
    fn announce(&self, segment: usize, peer: u16) {
        let there = &self.segments[segment];
        let machines = there
            .occupants
            .keys()
            .filter(|&&other| other != peer)
            .filter_map(|&other| there.bell(other, 0));
        let processes = self.host_processes(segment).filter_map(|(_, bells)| bells.first());
        for bell in machines.chain(processes) {
            let _ = self.ringer.ring(bell);
        }
    }

    /// A process of the host rings a machine.
    pub(crate) fn relay_to_machine(&self, segment: usize, peer: u16, vector: u16, relay: &OwnedFd) {
        let there = &self.segments[segment];
        if doorbell::drain(relay).unwrap_or(false)
            && let Some(bell) = there.bell(peer, vector)
            && self.ringer.ring(bell).is_ok()
        {
            self.metrics
                .relayed
                .get_or_create(&By { segment: there.name.clone(), kind: "to_machine" })
                .inc();
        }
    }

    /// A machine rings the host: each of its processes is woken, and looks for itself whether it
    /// was meant.
    pub(crate) fn relay_to_host(&self, segment: usize, vector: u16, bell: &OwnedFd) {
        if !doorbell::drain(bell).unwrap_or(false) {
            return;
        }
        for (_, bells) in self.host_processes(segment) {
            if bells.get(usize::from(vector)).is_some_and(|own| self.ringer.ring(own).is_ok()) {
                let kind = By { segment: self.segments[segment].name.clone(), kind: "to_host" };
                self.metrics.relayed.get_or_create(&kind).inc();
            }
        }
    }
}
