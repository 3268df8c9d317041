//! The loop: one thread that moves frames as long as there are any, and sleeps when there are none.

use crate::config::Config;
use crate::control::Control;
use crate::forward::Turn;
use crate::hosts::Hosts;
use crate::hosts::link::Link;
use crate::poller::{Poller, Token, UNHEARD};
use crate::ring::Room;
use crate::switch::Switch;
use crate::vsock::Hub;
use crate::vsock::reload::Orders;
use anyhow::Result;
use ginnel_daemon::log;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

mod reload;

/// Turns without a look at what else there is: new connections, kicks of queues that sleep.
const TURNS: u32 = 32;
/// A guest that is gone is forgotten also where nothing else happens; table and clock are looked
/// at this often, while there is anything in the table.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// The switch, and all that is beside it.
pub struct Server {
    switch: Switch,
    /// Sockets between machines, until their thread has them.
    vsock: Option<(Hub, Poller)>,
    /// Where that is told of other machines.
    orders: Option<Orders>,
    /// It ends when this is closed.
    hub_ends: Option<UnixStream>,
    /// Can be read when the configuration is to be read again.
    asks: Option<UnixStream>,
    control: Control,
    poller: Poller,
    events: Vec<Token>,
    /// When the table was looked at, seconds.
    aged: u32,
}

impl Server {
    /// Opens every port and the control socket.
    ///
    /// # Errors
    /// What cannot be opened.
    pub fn new(config: &Config) -> Result<Self> {
        let poller = Poller::new()?;
        let control = Control::new(&config.control(), &poller)?;
        let room = Room::new(config.memory.unwrap_or_else(Room::half_of_all));
        let switch = Switch::new(config, &room, poller.clone())?;
        let mut vsock = None;
        if !config.vsock.is_empty() {
            let poller = Poller::new()?;
            vsock = Some((Hub::new(config, &room, poller.clone())?, poller));
        }
        let mut switch = switch;
        switch.vsock = vsock.as_ref().map(|(hub, _)| hub.shown()).unwrap_or_default();
        let orders = vsock.as_ref().map(|(hub, _)| hub.orders());
        let (hub_ends, asks, events) = (None, None, Vec::new());
        Ok(Self { switch, vsock, orders, hub_ends, asks, control, poller, events, aged: 0 })
    }

    /// Has other hosts that nobody calls, each with a connection whose other end the caller has:
    /// for tests and fuzzing.
    pub fn join(&mut self, hosts: Hosts, links: Vec<Link>) {
        self.switch.hosts = hosts;
        for (place, link) in links.into_iter().enumerate() {
            self.switch.made(place, link);
        }
    }

    /// The switch itself.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Runs until `end` can be read.
    ///
    /// # Errors
    /// Those of the system that leave nothing to be done.
    pub fn run(&mut self, end: impl AsFd) -> Result<()> {
        self.poller.watch(&end, Token::Signal)?;
        let ports = self.switch.ports().count();
        self.start_hub()?;
        log!(Info, "started", ports = ports, pid = std::process::id());
        loop {
            self.turns();
            let limit = self.limit();
            if !self.look(limit)? {
                log!(Info, "ended");
                self.hub_ends = None;
                return Ok(());
            }
        }
    }

    /// Turns, until there is nothing to be moved or looked at, or it is to be looked at what else
    /// there is.
    pub fn turns(&mut self) {
        for _ in 0..TURNS {
            let turn = self.switch.turn();
            self.switch.look_for_cuts();
            let awake = turn == Turn::Worked || self.switch.is_awake();
            if !awake || self.switch.cost >= UNHEARD {
                return;
            }
            if turn == Turn::Idle {
                // Somebody is looked at for a little longer.
                std::hint::spin_loop();
            }
            self.switch.clock.read();
        }
    }

    /// Gives the hub a thread of its own, if there is one that has none.
    fn start_hub(&mut self) -> Result<()> {
        let Some((mut hub, poller)) = self.vsock.take() else { return Ok(()) };
        let (own, other) = UnixStream::pair()?;
        let run = move || match hub.run(&poller, other) {
            Ok(()) => {}
            Err(error) => log!(Error, "vsock", why = format!("{error:#}")),
        };
        std::thread::Builder::new().name("vsock".into()).spawn(run)?;
        self.hub_ends = Some(own);
        Ok(())
    }

    /// One turn of the frames: what the loop does most of the time. For measuring.
    pub fn turn(&mut self) -> Turn {
        self.switch.turn()
    }

    /// Looks at everything but frames, and sleeps for `limit` if there is nothing (`None`: until
    /// there is). False once it is to end.
    ///
    /// # Errors
    /// Those of the system that leave nothing to be done.
    pub fn look(&mut self, limit: Option<Duration>) -> Result<bool> {
        self.switch.cost = 0;
        self.control.pass_on(&mut self.switch);
        let mut events = std::mem::take(&mut self.events);
        self.poller.wait(limit, &mut events)?;
        self.switch.clock.read();
        let ends = events.contains(&Token::Signal);
        for &event in &events {
            self.handle(event);
        }
        for what in self.switch.rests.due(self.switch.clock.now) {
            match what {
                Token::Control => self.control.watch(&mut self.switch),
                _ => self.switch.watch(what),
            }
        }
        self.switch.keep_hosts();
        self.switch.pass_on_memory();
        let now = self.switch.clock.seconds;
        if events.is_empty() && u64::from(now - self.aged) >= HOUSEKEEPING.as_secs() {
            self.aged = now;
            self.switch.fdb.age(now);
        }
        self.events = events;
        Ok(!ends)
    }

    /// How long it may sleep.
    fn limit(&mut self) -> Option<Duration> {
        let ports = self.ports_limit();
        // Those that are awake are looked at in each turn.
        if ports == Some(Duration::ZERO) {
            return ports;
        }
        ports.into_iter().chain(self.switch.hosts_limit()).min()
    }

    fn ports_limit(&self) -> Option<Duration> {
        let switch = &self.switch;
        let mut first = switch.rests.first();
        if switch.awake.is_empty() {
            let learned = switch.fdb.iter().any(|(_, _, entry)| !entry.fixed);
            let rest = first.map(|until| until.saturating_duration_since(switch.clock.now));
            return rest.into_iter().chain(learned.then_some(HOUSEKEEPING)).min();
        }
        // All of those that are awake may be waiting for their rate.
        for &sender in &switch.awake {
            let Some(resume) = switch.resumes(sender) else { return Some(Duration::ZERO) };
            first = Some(first.map_or(resume, |one: std::time::Instant| one.min(resume)));
        }
        first.map(|resume| resume.saturating_duration_since(switch.clock.now))
    }

    fn handle(&mut self, event: Token) {
        match event {
            Token::Kick { port, queue } => self.switch.kicked(port, queue),
            Token::Listen(port) => self.switch.accept(port),
            Token::FrontEnd(port) => self.switch.hear(port),
            Token::Tap(port) => self.switch.serve_tap(port),
            Token::Control => self.control.accept(&mut self.switch),
            Token::Visitor(visitor) => self.control.hear(visitor, &mut self.switch),
            Token::Hosts => self.switch.hear_of_hosts(),
            Token::Host(host) => self.switch.host_rang(host as usize),
            Token::Reload => self.asked(),
            Token::Prepared => self.hear_of_reloads(),
            Token::Desk => self.switch.hear_of_loans(),
            Token::Signal | Token::Door(_) | Token::Stream(_) => {}
        }
    }
}
