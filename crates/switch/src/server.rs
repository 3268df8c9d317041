//! The loop: one thread that moves frames as long as there are any, and sleeps when there are none.

use crate::config::Config;
use crate::control::Control;
use crate::forward::Turn;
use crate::log;
use crate::poller::{Poller, Token};
use crate::ring::Room;
use crate::switch::Switch;
use crate::vsock::Hub;
use anyhow::Result;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
        Ok(Self { switch, vsock, control, poller, events: Vec::new(), aged: 0 })
    }

    /// Runs until `end` can be read.
    ///
    /// # Errors
    /// Those of the system that leave nothing to be done.
    pub fn run(&mut self, end: impl AsFd) -> Result<()> {
        self.poller.watch(&end, Token::Signal)?;
        let ports = self.switch.ports().count();
        // It ends when this end is closed.
        let (_own, other) = UnixStream::pair()?;
        let vsock = self.vsock.take().map(|(mut hub, poller)| {
            let run = move || match hub.run(&poller, other) {
                Ok(()) => {}
                Err(error) => log!(Error, "vsock", why = format!("{error:#}")),
            };
            std::thread::Builder::new().name("vsock".into()).spawn(run)
        });
        vsock.transpose()?;
        log!(Info, "started", ports = ports, pid = std::process::id());
        let mut turns = 0;
        loop {
            let turn = self.switch.turn();
            self.switch.look_for_cuts();
            if turn == Turn::Worked && turns < TURNS {
                turns += 1;
                self.switch.clock.read();
                continue;
            }
            if turn == Turn::Idle && !self.switch.awake.is_empty() && turns < TURNS {
                // Somebody is looked at for a little longer.
                turns += 1;
                std::hint::spin_loop();
                self.switch.clock.read();
                continue;
            }
            turns = 0;
            if !self.look(self.limit())? {
                log!(Info, "ended");
                return Ok(());
            }
        }
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
        let now = self.switch.clock.seconds;
        if events.is_empty() && u64::from(now - self.aged) >= HOUSEKEEPING.as_secs() {
            self.aged = now;
            self.switch.fdb.age(now);
        }
        self.events = events;
        Ok(!ends)
    }

    /// How long it may sleep.
    fn limit(&self) -> Option<Duration> {
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
            Token::Signal | Token::Door(_) | Token::Stream(_) => {}
        }
    }
}
