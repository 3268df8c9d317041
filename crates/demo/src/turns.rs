//! What being there costs: a server under `ginnel run` beside a plain one, each with the same plain
//! load, and the two pairs take turns of some milliseconds.
//!
//! A program is up to a tenth faster or slower from one second to the next, as the machine's other
//! guests and its own clock have it, and the cost is some hundredths: measured one after the other,
//! a hundred rounds leave it open. What changes from one turn to the next is in both figures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use crate::child::Child;
use crate::local::{self, Begin, Local};
use crate::pair::{self, Bench, Carrier, Found, Track};
use crate::programs::{Program, Setting};
use crate::report::Row;
use crate::{diagnose, interrupt};

/// How long a turn is: much shorter than what the machine's speed changes in, and long beside what
/// a switch takes.
const TURN: Duration = Duration::from_millis(10);

/// A load's first turn: until it has connected, its own clock does not run, and would not tell how
/// long it rested.
const START: Duration = Duration::from_millis(50);

/// A load and its server, which work in their turns and are stopped (`SIGSTOP`) in the others'.
/// Both: a server that went on would answer in the other's time what is under way, which is most
/// where there are many connections.
struct Pair<'a> {
    load: Child,
    server: &'a Child,
    /// Ready once the load has ended.
    end: OwnedFd,
    began: Instant,
    /// Stopped since then.
    stopped: Option<Instant>,
    /// For how long it was stopped before.
    rested: Duration,
    ended: Option<Instant>,
}

impl<'a> Pair<'a> {
    /// The load has been begun just now; both are stopped again once it is under way.
    fn new(load: Child, server: &'a Child) -> Result<Self> {
        let end = pidfd_open(load.pid(), PidfdFlags::empty())?;
        let mut pair = Self {
            load,
            server,
            end,
            began: Instant::now(),
            stopped: None,
            rested: Duration::ZERO,
            ended: None,
        };
        pair.works_until(START)?;
        pair.stop()?;
        Ok(pair)
    }

    fn stop(&mut self) -> Result<()> {
        if self.ended.is_none() && self.stopped.is_none() {
            self.load.signal(Signal::STOP)?;
            self.server.signal(Signal::STOP)?;
            self.stopped = Some(Instant::now());
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        if let Some(since) = self.stopped.take() {
            self.rested += since.elapsed();
            self.server.signal(Signal::CONT)?;
            self.load.signal(Signal::CONT)?;
        }
        Ok(())
    }

    /// Waits for the load's end, but no longer than `limit`.
    fn works_until(&mut self, limit: Duration) -> Result<()> {
        let limit = Timespec::try_from(limit)?;
        match poll(&mut [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)], Some(&limit)) {
            Ok(1..) => self.ended = Some(Instant::now()),
            // A signal that ends this program: the caller looks for it.
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(anyhow!(error).context(format!("cannot wait for {}", self.load.name)));
            }
        }
        Ok(())
    }

    /// So much longer than its own turns it took.
    fn stretch(&self) -> Result<f64> {
        let ended = self.ended.with_context(|| format!("{} has not ended", self.load.name))?;
        let whole = ended.duration_since(self.began);
        Ok(whole.as_secs_f64() / whole.saturating_sub(self.rested).as_secs_f64())
    }
}

/// Lets the pairs take turns until both loads have ended. False: they did not within `limit`.
fn take_turns(pairs: &mut [Pair<'_>; 2], limit: Duration) -> Result<bool> {
    let late = Instant::now() + limit;
    let mut turn = 0;
    while pairs.iter().any(|pair| pair.ended.is_none()) {
        interrupt::check()?;
        if Instant::now() > late {
            // For whoever looks where they stand.
            pairs.iter_mut().try_for_each(Pair::go_on)?;
            return Ok(false);
        }
        if pairs[turn].ended.is_none() {
            pairs[turn].go_on()?;
            pairs[turn].works_until(TURN)?;
            if pairs[1 - turn].ended.is_none() {
                pairs[turn].stop()?;
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
    let mut tracks =
        [Carrier::Plain, Carrier::Ginnel].map(|carrier| Track::new(bench, found, setting, carrier));
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

/// One round, with servers of its own: one start of a server is a little faster or slower than the
/// next. Returns the plain server's figure and the other's, in the time of their own turns.
fn round(
    bench: &Bench,
    local: &Local,
    found: &Found,
    setting: &'static Setting,
    number: usize,
    before: Option<f64>,
) -> Result<[f64; 2]> {
    bench.progress.now(&format!(
        "{}, {}, round {}",
        found.program.name(),
        setting.label,
        number + 1
    ));
    let carriers = [Carrier::Plain, Carrier::Ginnel];
    let servers =
        [local.listen(bench, found, carriers[0])?, local.listen(bench, found, carriers[1])?];
    let ours = servers.each_ref().map(|server| &server.child);
    let counts = found.program.counts_requests();
    let begin = |at: usize, setting, before| {
        // Half of the time is the other's. A load that counts its requests takes no notice of the
        // time.
        let seconds = if counts { bench.args.seconds() } else { 2 * bench.args.seconds() };
        servers[at].begin(
            bench,
            found,
            setting,
            Begin { on: carriers[at], carrier: Carrier::Plain, report: None, seconds, before },
        )
    };
    let first = number % 2;
    let order = [first, 1 - first];
    let mut known = before;
    if counts {
        // What the first setting leaves in a server (redis: the value), the others find.
        let leaves = found.program.settings().first().unwrap_or(setting);
        for at in order {
            for setting in [leaves, setting] {
                let load = begin(at, setting, None)?;
                let rate = found.program.read(&local::finish(
                    bench,
                    &load,
                    bench.args.seconds(),
                    &ours,
                )?)?;
                known = before.or(Some(rate));
            }
        }
    }
    let pair = |at: usize| Pair::new(begin(at, setting, known)?, ours[at]);
    let mut pairs = [pair(order[0])?, pair(order[1])?];
    let limit = Track::limit(2 * bench.args.seconds());
    if !take_turns(&mut pairs, limit)? {
        bench.progress.note(&format!(
            "the loads did not end within {limit:?}; what follows shows where they stand"
        ));
        diagnose::print(bench.ginnel, &[&pairs[0].load, &pairs[1].load, ours[0], ours[1]]);
        return Err(anyhow!("the loads did not end within {limit:?}"));
    }
    let mut rates = [0.0; 2];
    for (at, pair) in order.into_iter().zip(&pairs) {
        let printed = local::finish(bench, &pair.load, 0, &ours)?;
        rates[at] = found.program.read(&printed)? * pair.stretch()?;
    }
    Ok(rates)
}
