//! The daemon's loop: one thread, one epoll set, nothing that waits for anybody.

use crate::config::Config;
use crate::keep::{self, Name, Store};
use crate::metrics::Metrics;
use crate::rundir::RunDir;
use crate::segment::{Kept, Segment};
use crate::{log, memory, patience, sockets};
use anyhow::{Context, Result};
use ginnel_ivshmem::doorbell::Ringer;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

mod joiners;
mod page;
mod unread;
mod web;

use joiners::Joiner;

/// While something is to be tried again, the loop comes round this often.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long nobody is accepted where descriptors have run out.
const PAUSE: Duration = Duration::from_millis(500);

/// What can become ready.
pub(crate) enum Source {
    /// SIGTERM or SIGINT.
    Signal(UnixStream),
    /// A socket at which joiners of a peer id arrive.
    Door { segment: usize, peer: u16, socket: Arc<OwnedFd> },
    /// Somebody who joined, or was refused.
    Joiner(Joiner),
    /// A process of the host rings a machine.
    Relay { segment: usize, peer: u16, vector: u16, bell: Arc<OwnedFd> },
    /// A machine rings the host.
    HostBell { segment: usize, vector: u16, bell: Arc<OwnedFd> },
    /// The status page's door.
    WebDoor(TcpListener),
    /// One who asks for a page.
    Web(web::Visitor),
}

impl Source {
    fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Signal(stream) => stream.as_fd(),
            Self::Door { socket, .. } => socket.as_fd(),
            Self::Joiner(joiner) => joiner.socket.as_fd(),
            Self::Relay { bell, .. } | Self::HostBell { bell, .. } => bell.as_fd(),
            Self::WebDoor(listener) => listener.as_fd(),
            Self::Web(visitor) => visitor.stream.as_fd(),
        }
    }

    /// What to wait for. Doorbells only tell news (edge-triggered): somebody else may have emptied
    /// them, or may keep them full.
    fn events(&self) -> epoll::EventFlags {
        use epoll::EventFlags as E;
        match self {
            Self::Relay { .. } | Self::HostBell { .. } => E::IN | E::ET,
            Self::Joiner(joiner) if !joiner.outbox.is_empty() && !joiner.crowded => {
                E::IN | E::RDHUP | E::OUT
            }
            Self::Joiner(_) => E::IN | E::RDHUP,
            Self::Web(visitor) if visitor.answers() => E::OUT,
            _ => E::IN,
        }
    }
}

/// The daemon.
pub struct Server {
    pub(crate) config: Config,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sources: BTreeMap<u64, Source>,
    pub(crate) store: Store,
    pub(crate) metrics: Metrics,
    pub(crate) ringer: Ringer,
    /// A memory for one who is refused when there is no descriptor for another.
    pub(crate) dummy: Arc<OwnedFd>,
    /// Joiners whose messages met too many descriptors under way.
    pub(crate) crowded: BTreeSet<u64>,
    /// Joiners who were let go and have not read all that they were sent.
    pub(crate) parting: BTreeSet<u64>,
    /// How many descriptors each joiner may leave unread.
    pub(crate) window: usize,
    /// Refusals in this second, so that their log lines can be limited.
    pub(crate) refusals: (u64, u32),
    pub(crate) started: SystemTime,
    epoll: OwnedFd,
    next: u64,
    /// The status page is wanted and has no socket: when that is tried again.
    pub(crate) page_at: Option<Instant>,
    /// Doors that are closed until then, for want of descriptors.
    paused: Option<(Instant, Vec<u64>)>,
    ended: bool,
    _lock: OwnedFd,
}

impl Server {
    /// Makes everything, and takes over what an earlier instance left.
    ///
    /// # Errors
    /// What failed, and what to do about it.
    pub fn new(mut config: Config) -> Result<Self> {
        let mut kept = keep::received();
        let mut store = Store::from_environment();
        let run_dir = RunDir::open(&config.run_dir)?;
        let lock = run_dir.lock("lock")?;
        run_dir.path().clone_into(&mut config.run_dir);
        let (took_over, ringer) = (kept.len(), Ringer::new());
        if !ringer.never_sleeps() {
            log!(
                Warning,
                "no_aio",
                so = "a hostile machine can stop this daemon by filling a doorbell",
                help = "raise fs.aio-max-nr"
            );
        }
        let names: Vec<String> = config.segments.keys().cloned().collect();
        let mut segments = Vec::new();
        for name in &names {
            let made = Segment::new(name, &config.segments[name], &mut kept, &mut store);
            segments.push(made.with_context(|| format!("segment {name}"))?);
            run_dir.make_segment(name)?;
        }
        let places = segments
            .iter()
            .map(|segment| {
                usize::from(segment.config.machines) + usize::from(segment.config.processes)
            })
            .sum();
        let mut server = Self {
            segments,
            sources: BTreeMap::new(),
            metrics: Metrics::new(),
            ringer,
            dummy: Arc::new(memory::dummy()?),
            crowded: BTreeSet::new(),
            parting: BTreeSet::new(),
            window: unread::window(places),
            refusals: (0, 0),
            started: SystemTime::now(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            next: 0,
            page_at: None,
            paused: None,
            ended: false,
            _lock: lock,
            store,
            config,
        };
        server.open(&mut kept)?;
        for name in kept.into_keys() {
            log!(
                Warning,
                "not_taken_over",
                kept = name,
                why = "the configuration no longer has it"
            );
            server.store.forget(&name);
        }
        // Systemd counts us as started only once it has everything: killed from here on, we lose
        // nothing.
        while !server.store.flush() {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.store.say("READY=1");
        log!(
            Info,
            "started",
            pid = std::process::id(),
            version = env!("CARGO_PKG_VERSION"),
            segments = server.segments.len(),
            run_dir = server.config.run_dir.display(),
            took_over = took_over,
            kept_for_the_next = server.store.is_there()
        );
        Ok(server)
    }

    fn open(&mut self, kept: &mut Kept) -> Result<()> {
        patience::prepare()?;
        for signal in [SIGTERM, SIGINT] {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, theirs)?;
            self.add(Source::Signal(ours))?;
        }
        for index in 0..self.segments.len() {
            self.open_segment(index, kept)?;
        }
        self.open_page(kept.remove(&Name::Page));
        Ok(())
    }

    fn open_segment(&mut self, index: usize, kept: &mut Kept) -> Result<()> {
        let (name, machines) =
            (self.segments[index].name.clone(), self.segments[index].config.machines);
        for (vector, bell) in (0..).zip(self.segments[index].bells(0).to_vec()) {
            self.add(Source::HostBell { segment: index, vector, bell })?;
        }
        // Machines that an earlier instance let in come before the doors: a slot is not free
        // because we are new.
        for peer in 1..=machines {
            let key = Name::Connection(name.clone(), peer);
            if let Some(socket) = kept.remove(&key) {
                self.take_over(index, peer, Arc::new(socket))?;
            }
        }
        for peer in 0..=machines {
            let key = Name::Listener(name.clone(), peer);
            let path = self.config.socket(&name, peer);
            let socket =
                match kept.remove(&key).filter(|socket| sockets::is_bound_to(socket, &path)) {
                    Some(socket) => Arc::new(socket),
                    None => {
                        self.store.forget(&key);
                        let socket = Arc::new(sockets::listen(&path)?);
                        self.store.keep(&key, &socket);
                        socket
                    }
                };
            self.add(Source::Door { segment: index, peer, socket })?;
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, source: Source) -> Result<u64> {
        let token = self.next;
        self.next += 1;
        epoll::add(
            &self.epoll,
            source.descriptor(),
            epoll::EventData::new_u64(token),
            source.events(),
        )?;
        self.sources.insert(token, source);
        Ok(token)
    }

    /// All of them or, where one cannot be added, none.
    pub(crate) fn add_all(&mut self, sources: impl Iterator<Item = Source>) -> Result<Vec<u64>> {
        let mut added = Vec::new();
        for source in sources {
            match self.add(source) {
                Ok(token) => added.push(token),
                Err(error) => {
                    for token in added {
                        self.remove(token);
                    }
                    return Err(error);
                }
            }
        }
        Ok(added)
    }

    /// Waits for nothing of a source any more, which stays.
    pub(crate) fn deafen(&mut self, token: u64) {
        if let Some(source) = self.sources.get(&token) {
            let _ = epoll::delete(&self.epoll, source.descriptor());
        }
    }

    /// Waits for what the source now wants.
    pub(crate) fn rearm(&mut self, token: u64) {
        if let Some(source) = self.sources.get(&token)
            && let Err(errno) = epoll::modify(
                &self.epoll,
                source.descriptor(),
                epoll::EventData::new_u64(token),
                source.events(),
            )
        {
            log!(Error, "epoll", why = errno);
        }
    }

    /// Takes a source out. Closing our descriptor would not do: the store, or QEMU, has the same
    /// open file.
    pub(crate) fn remove(&mut self, token: u64) -> Option<Source> {
        let source = self.sources.remove(&token)?;
        let _ = epoll::delete(&self.epoll, source.descriptor());
        Some(source)
    }

    /// Closes the doors for a while: accepting would fail again at once, and closing those who wait
    /// would leave QEMU spinning.
    pub(crate) fn pause_doors(&mut self, why: Errno) {
        if self.paused.is_some() {
            return;
        }
        log!(Error, "cannot_accept", why = why, help = "raise LimitNOFILE= of the service");
        let doors: Vec<u64> = self
            .sources
            .iter()
            .filter(|(_, source)| matches!(source, Source::Door { .. } | Source::WebDoor(_)))
            .map(|(token, _)| *token)
            .collect();
        for token in &doors {
            let _ = epoll::delete(&self.epoll, self.sources[token].descriptor());
        }
        self.paused = Some((Instant::now() + PAUSE, doors));
    }

    fn open_doors(&mut self) {
        if let Some((_, doors)) = self.paused.take_if(|(until, _)| *until <= Instant::now()) {
            for token in doors {
                let source = &self.sources[&token];
                let _ = epoll::add(
                    &self.epoll,
                    source.descriptor(),
                    epoll::EventData::new_u64(token),
                    source.events(),
                );
            }
        }
    }

    /// Serves until SIGTERM or SIGINT. Nothing is taken back then: machines, memory and sockets are
    /// for the next instance, if they are kept.
    ///
    /// # Errors
    /// If epoll fails, which it does not.
    pub fn run(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        while !self.ended {
            let told = self.store.flush();
            let visitors = self.sources.values().any(|source| matches!(source, Source::Web(_)));
            let unread = !self.crowded.is_empty() || !self.parting.is_empty();
            let restless = !told || visitors || self.paused.is_some() || unread;
            let pause = self.page_at.is_some().then_some(&web::PAUSE);
            events.clear();
            match epoll::wait(
                &self.epoll,
                spare_capacity(&mut events),
                if restless { Some(&TICK) } else { pause },
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("wait for events"),
            }
            let _working = patience::work();
            for event in &events {
                self.ready(event.data.u64(), event.flags);
            }
            if self.page_at.is_some_and(|at| at <= Instant::now()) {
                self.open_page(None);
            }
            if restless {
                self.open_doors();
                self.retry_crowded();
                self.part_at_last();
                self.send_visitors_away();
            }
        }
        log!(Info, "stopped", pid = std::process::id(), kept_for_the_next = self.store.is_there());
        self.store.say("STOPPING=1");
        self.store.flush();
        Ok(())
    }

    fn ready(&mut self, token: u64, flags: epoll::EventFlags) {
        match self.sources.get(&token) {
            Some(Source::Signal(_)) => self.ended = true,
            Some(Source::Door { segment, peer, .. }) => self.arrive(*segment, *peer, token),
            Some(Source::Joiner(_)) => self.attend(token, flags),
            Some(Source::Relay { segment, peer, vector, bell }) => {
                self.relay_to_machine(*segment, *peer, *vector, &bell.clone())
            }
            Some(Source::HostBell { segment, vector, bell }) => {
                self.relay_to_host(*segment, *vector, &bell.clone())
            }
            Some(Source::WebDoor(_)) => self.visit(token),
            Some(Source::Web(_)) => self.serve(token),
            // Taken out earlier in the same round.
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_ivshmem::doorbell;

    #[test]
    fn where_one_source_cannot_be_added_none_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let toml = format!(
            "run_dir = {:?}\nstatus = \"off\"\n[segment.t]\nsize = \"16M\"",
            directory.path().join("run")
        );
        let config = Config::parse(&toml, "t".as_ref()).expect("good");
        let mut server = Server::new(config).expect("made");
        let before = server.sources.len();
        let relay = |bell| Source::Relay { segment: 0, peer: 1, vector: 0, bell: Arc::new(bell) };
        let bell = || doorbell::new().expect("an eventfd");
        // A regular file cannot be waited for: epoll_ctl says EPERM.
        let file = std::fs::File::create(directory.path().join("file")).expect("made");
        server.add_all([bell(), bell(), file.into()].map(relay).into_iter()).expect_err("a file");
        assert_eq!(server.sources.len(), before);
        assert_eq!(
            server.add_all([bell(), bell()].map(relay).into_iter()).expect("added").len(),
            2
        );
    }
}
