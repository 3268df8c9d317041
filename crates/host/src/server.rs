//! The daemon's loop: one thread, one epoll set, nothing that waits for anybody.

mod sources;

use crate::config::Config;
use crate::keep::{self, Name, Store};
use crate::metrics::Metrics;
use crate::rundir::RunDir;
use crate::segment::{Kept, Segment};
use crate::{memory, patience, sockets};
use anyhow::{Context, Result};
use ginnel_daemon::log;
use ginnel_ivshmem::doorbell::Ringer;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
pub(crate) use sources::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

mod joiners;
mod page;
mod unread;
mod web;

/// While something is to be tried again, the loop comes round this often.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long nobody is accepted where descriptors have run out.
const PAUSE: Duration = Duration::from_millis(500);

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
        warn_of(&ringer);
        let segments = segments(&config, &run_dir, &mut kept, &mut store)?;
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

/// Says where a machine could have the daemon wait for it.
fn warn_of(ringer: &Ringer) {
    if !ringer.never_sleeps() {
        log!(
            Warning,
            "no_aio",
            so = "a hostile machine can stop this daemon by filling a doorbell",
            help = "raise fs.aio-max-nr"
        );
    }
}

/// The segments of the configuration: taken over, or new.
fn segments(
    config: &Config,
    run_dir: &RunDir,
    kept: &mut Kept,
    store: &mut Store,
) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for (name, settings) in &config.segments {
        let made = Segment::new(name, settings, kept, store);
        segments.push(made.with_context(|| format!("segment {name}"))?);
        run_dir.make_segment(name)?;
    }
    Ok(segments)
}
