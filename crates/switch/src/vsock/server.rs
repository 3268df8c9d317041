//! The hub's thread: its loop, and front ends that come and go.

use super::hub::Hub;
use super::machine::{SENDS, Shown};
use crate::poller::{Poller, Token, UNHEARD};
use crate::rests::EXHAUSTED;
use crate::seat::{Accepted, Heard};
use crate::vhost::connection::Over;
use anyhow::Result;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Turns without a look at what else there is.
const TURNS: u32 = 32;
/// Messages of one front end before others are heard again.
const BURST: usize = 16;

impl Hub {
    /// Runs until `end` can be read.
    ///
    /// # Errors
    /// Those of the system that leave nothing to be done.
    pub fn run(&mut self, poller: &Poller, end: impl AsFd) -> Result<()> {
        poller.watch(&end, Token::Signal)?;
        let (mut events, mut turns) = (Vec::new(), 0);
        loop {
            let worked = self.turn() | self.serve_streams();
            self.look_for_cuts();
            let more = turns < TURNS && self.cost < UNHEARD;
            if (worked || !self.awake.is_empty()) && more {
                turns += 1;
                self.clock.read();
                continue;
            }
            (turns, self.cost) = (0, 0);
            let busy = worked || !self.awake.is_empty() || !self.ready.is_empty();
            let rest = self.rests.first();
            let rest = rest.map(|until| until.saturating_duration_since(self.clock.now));
            poller.wait(if busy { Some(Duration::ZERO) } else { rest }, &mut events)?;
            self.clock.read();
            for &event in &events {
                self.handle(event);
            }
            for what in self.rests.due(self.clock.now) {
                self.watch(what);
            }
            self.tell();
            if events.contains(&Token::Signal) {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, event: Token) {
        match event {
            Token::Kick { port, queue } => self.kicked(port, queue),
            Token::Listen(index) => self.accept(index),
            Token::FrontEnd(index) => self.hear(index),
            Token::Door(index) => self.accept_at_door(index),
            Token::Stream(id) => self.hear_stream(id),
            Token::Reload => self.hear_orders(),
            Token::Signal
            | Token::Prepared
            | Token::Tap(_)
            | Token::Control
            | Token::Visitor(_)
            | Token::Hosts
            | Token::Host(_)
            | Token::Desk => {}
        }
    }

    /// Has it anything in hand: a connection, or bytes that wait? For tests.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let waits = self.held.values().any(|&bytes| bytes > 0);
        let held = |one: &super::machine::Machine| one.held > 0 || one.began > 0 || one.kept > 0;
        let none = self.connections.is_empty() && self.kept.is_empty();
        none && !waits && !self.machines.iter().any(held)
    }

    /// Reads from programs that have something, each once.
    fn serve_streams(&mut self) -> bool {
        let mut worked = false;
        let mut ready = std::mem::take(&mut self.ready);
        // Whatever named it, and however often.
        ready.sort_unstable();
        ready.dedup();
        for id in ready {
            if self.pump(id) {
                worked = true;
                self.ready.push(id);
            }
        }
        self.tell();
        worked
    }

    fn accept(&mut self, index: u32) {
        self.hear(index);
        if self.machine(index).is_some_and(|one| one.seat.is_deserted()) {
            self.detach(index, &Over::Closed.to_string());
        }
        let (poller, now) = (self.poller.clone(), self.clock.now);
        let Some(machine) = self.machine(index) else { return };
        match machine.seat.accept(&poller) {
            Accepted::Seated => machine.shown.set_trouble(None),
            Accepted::Nobody => {}
            Accepted::Later(pause) => self.rests.add(Token::Listen(index), now + pause),
        }
    }

    fn hear(&mut self, index: u32) {
        // A queue may be stopped: what was put there before is told of first.
        self.tell();
        for _ in 0..BURST {
            let Some(machine) = self.machines.get_mut(index as usize) else { return };
            match machine.seat.hear(&self.poller, &self.ringer) {
                Heard::Nothing => return,
                Heard::Changed(_) => self.look_at(index),
                Heard::Over(why) => return self.detach(index, &why),
                Heard::Later(pause) => {
                    return self.rests.add(Token::FrontEnd(index), self.clock.now + pause);
                }
            }
        }
    }

    pub(super) fn detach(&mut self, index: u32, why: &str) {
        let poller = self.poller.clone();
        let Some(machine) = self.machine(index) else { return };
        if machine.seat.leave(&poller, why) {
            machine.shown.set_trouble(Some(why.into()));
        }
        machine.stopped = None;
        self.look_at(index);
        self.end_all(index);
    }

    /// A machine's queues may have been set up, stopped, or broken.
    pub(super) fn look_at(&mut self, index: u32) {
        let Some(machine) = self.machine(index) else { return };
        let up = machine.is_up();
        let was = machine.shown.up.swap(up, Ordering::Relaxed);
        let queue = machine.seat.device_mut().and_then(|one| one.queues.get_mut(SENDS as usize));
        let base = queue.as_ref().map(|queue| queue.base());
        if up {
            if let Some(queue) = queue {
                queue.awake = true;
            }
            // A machine that stood still goes on where it was. One that has booted again knows
            // nothing of its connections.
            let begins = !was && machine.stopped.take() != base;
            if !self.awake.contains(&index) {
                self.awake.push(index);
            }
            if begins {
                self.end_all(index);
            }
            self.flush(index);
            return;
        }
        self.awake.retain(|&one| one != index);
        let Some(machine) = self.machine(index) else { return };
        let device = machine.seat.device();
        let broken = device.is_some_and(|one| one.queues.iter().any(|one| one.broken.is_some()));
        if broken {
            self.end_all(index);
        } else if was {
            machine.stopped = base;
        }
    }

    pub(super) fn watch(&mut self, what: Token) {
        let (Token::Listen(index) | Token::FrontEnd(index) | Token::Door(index)) = what else {
            return;
        };
        let Some(machine) = self.machines.get(index as usize) else { return };
        let watched = match (what, &machine.door) {
            // It may be another since, which is watched already.
            (Token::Door(_), Some(door)) => {
                matches!(self.poller.watch(door, what), Ok(()) | Err(Errno::EXIST))
            }
            (Token::Door(_), None) => true,
            _ => machine.seat.watch(&self.poller, what),
        };
        if !watched {
            self.rests.add(what, self.clock.now + EXHAUSTED);
        }
    }

    /// Lets those machines go whose memory was cut short.
    fn look_for_cuts(&mut self) {
        let cuts = crate::ring::cuts();
        if cuts == self.cuts {
            return;
        }
        self.cuts = cuts;
        for index in 0..self.machines.len() as u32 {
            let device = self.machine(index).and_then(|one| one.seat.device());
            if device.is_some_and(|device| device.memory.is_cut()) {
                self.detach(index, "its memory was cut short while it was in use");
            }
        }
    }

    /// What others are told of each machine.
    #[must_use]
    pub fn shown(&self) -> Vec<(crate::config::VsockConfig, std::sync::Arc<Shown>)> {
        let one = |one: &super::machine::Machine| (one.config.clone(), one.shown.clone());
        self.machines.iter().map(one).collect()
    }
}
