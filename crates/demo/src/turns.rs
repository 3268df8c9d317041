//! What being there costs: a server under `ginnel run` beside a plain one, each with the same plain load, and the loads
//! take turns of some milliseconds.
//!
//! A program is up to a tenth faster or slower from one second to the next, as the machine's other guests and its own
//! clock have it, and the cost is some hundredths: measured one after the other, a hundred rounds leave it open. What
//! changes from one turn to the next is in both figures.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use crate::child::Child;
use crate::local::{self, Begin, Local};
use crate::pair::{self, Bench, Carrier, Found, Track};
use crate::programs::{Program, Setting};
use crate::report::Row;
use crate::{diagnose, interrupt};

/// How long a turn is: a hundred of nginx's requests at least, so that those under way when it ends are few, and much
/// shorter than what the machine's speed changes in.
const TURN: Duration = Duration::from_millis(10);

/// A load's first turn: until it has connected, its own clock does not run, and would not tell how long it rested.
const START: Duration = Duration::from_millis(50);

/// A load that works in its turns, and is stopped (`SIGSTOP`) in the other's.
struct Load {
    child: Child,
    /// Ready once it has ended.
    end: OwnedFd,
    began: Instant,
    /// Stopped since then.
    stopped: Option<Instant>,
    /// For how long it was stopped before.
    rested: Duration,
    ended: Option<Instant>,
}

impl Load {
    /// It has been begun just now, and is stopped again once it is under way.
    fn new(child: Child) -> Result<Self> {
        let end = pidfd_open(child.pid(), PidfdFlags::empty())?;
        let mut load = Self { child, end, began: Instant::now(), stopped: None, rested: Duration::ZERO, ended: None };
        if load.ends_within(START)? {
            load.ended = Some(Instant::now());
        }
        load.stop()?;
        Ok(load)
    }

    fn stop(&mut self) -> Result<()> {
        if self.ended.is_none() && self.stopped.is_none() {
            self.child.signal(Signal::STOP)?;
            self.stopped = Some(Instant::now());
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        if let Some(since) = self.stopped.take() {
            self.rested += since.elapsed();
            self.child.signal(Signal::CONT)?;
        }
        Ok(())
    }

    /// Waits for its end, but no longer than `limit`.
    fn ends_within(&self, limit: Duration) -> Result<bool> {
        let limit = Timespec::try_from(limit)?;
        match poll(&mut [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)], Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            // A signal that ends this program: the caller looks for it.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(anyhow!(error).context(format!("cannot wait for {}", self.child.name))),
        }
    }

    /// So much longer than its own turns it took.
    fn stretch(&self) -> Option<f64> {
        let whole = self.ended?.duration_since(self.began);
        Some(whole.as_secs_f64() / whole.saturating_sub(self.rested).as_secs_f64())
    }
}

/// Lets the loads take turns until both have ended. False: they did not within `limit`.
fn take_turns(loads: &mut [Load; 2], limit: Duration) -> Result<bool> {
    let late = Instant::now() + limit;
    let mut turn = 0;
    while loads.iter().any(|load| load.ended.is_none()) {
        interrupt::check()?;
        if Instant::now() > late {
            return Ok(false);
        }
        if loads[turn].ended.is_none() {
            loads[turn].go_on()?;
            if loads[turn].ends_within(TURN)? {
                loads[turn].ended = Some(Instant::now());
            } else if loads[1 - turn].ended.is_none() {
                loads[turn].stop()?;
            }
        }
        turn = 1 - turn;
    }
    Ok(true)
}

/// Measures all settings of a program, as [`pair::run`] does, with two loads at a time.
pub fn run(bench: &Bench, local: &Local, program: &dyn Program) -> Result<Vec<Row>> {
    pair::each_setting(bench, program, |found, setting| measure(bench, local, found, setting))
}

fn measure(bench: &Bench, local: &Local, found: &Found, setting: &'static Setting) -> Result<Row> {
    let mut tracks = [Carrier::Plain, Carrier::Ginnel].map(|carrier| Track::new(bench, found, setting, carrier));
    let mut before = None;
    for number in 0..bench.args.rounds() {
        match round(bench, local, found, setting, number, before) {
            Ok(rates) => {
                before = rates.first().copied();
                let what = format!("{}, round {}", tracks[0].label, number + 1);
                let unit = found.program.unit();
                bench.progress.step(&format!("{what}, plain: {:.1} {unit}", rates[0]));
                bench.progress.step(&format!("{what}, ginnel: {:.1} {unit}", rates[1]));
                tracks.iter_mut().zip(rates).for_each(|(track, rate)| track.values.push(rate));
            }
            Err(error) => {
                interrupt::check()?;
                let failure = format!("{error:#}");
                bench.progress.note(&format!("{}: {failure}", tracks[0].label));
                bench.progress.skip(2 * (bench.args.rounds() - number));
                return Ok(pair::row(bench, found.program, setting, &[], Some(failure)));
            }
        }
    }
    Ok(pair::row(bench, found.program, setting, &tracks, None))
}

/// One round, with servers of its own: one start of a server is a little faster or slower than the next. Returns the plain server's figure and the other's, in the time of their own turns.
fn round(
    bench: &Bench,
    local: &Local,
    found: &Found,
    setting: &'static Setting,
    number: usize,
    before: Option<f64>,
) -> Result<[f64; 2]> {
    bench.progress.now(&format!("{}, {}, round {}", found.program.name(), setting.label, number + 1));
    let carriers = [Carrier::Plain, Carrier::Ginnel];
    let servers = [local.listen(bench, found, carriers[0])?, local.listen(bench, found, carriers[1])?];
    let ours = servers.each_ref().map(|server| &server.child);
    let counts = found.program.counts_requests();
    let begin = |at: usize, before| {
        // Half of the time is the other's. A load that counts its requests takes no notice of the time.
        let seconds = if counts { bench.args.seconds() } else { 2 * bench.args.seconds() };
        servers[at].begin(bench, found, setting, Begin { on: carriers[at], through: None, seconds, before })
    };
    let before = match before {
        None if counts => {
            let child = begin(0, None)?;
            Some(found.program.read(&local::finish(bench, &child, bench.args.seconds(), &ours)?)?)
        }
        before => before,
    };
    let first = number % 2;
    let load = |at| Load::new(begin(at, before)?);
    let mut loads = [load(first)?, load(1 - first)?];
    let limit = Track::limit(2 * bench.args.seconds());
    if !take_turns(&mut loads, limit)? {
        bench.progress.note(&format!("the loads did not end within {limit:?}; what follows shows where they stand"));
        diagnose::print(bench.ginnel, &[&loads[0].child, &loads[1].child, ours[0], ours[1]]);
        return Err(anyhow!("the loads did not end within {limit:?}"));
    }
    let mut rates = [0.0; 2];
    for (rate, load) in rates.iter_mut().zip(&loads) {
        let printed = local::finish(bench, &load.child, 0, &ours)?;
        *rate = found.program.read(&printed)? * load.stretch().unwrap_or(1.0);
    }
    if first == 1 {
        rates.reverse();
    }
    Ok(rates)
}
