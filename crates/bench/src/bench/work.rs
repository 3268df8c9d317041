//! The workloads: ordinary programs that talk over an ordinary connection. `ginnel-bench work TASK`
//! is one end of one; nothing here knows of Ginnel.
//!
//! Standard output is for whoever measures, in the words of [`ginnel_bench::child`]: `listening
//! PORT`, `result key=value …`, `end`.

mod crowd;
mod duplex;
mod limits;
mod ping;
mod records;
mod setup;
mod stream;

pub use records::RECORD;

use crate::args::Pattern;
use crate::conn::{Address, Listener};
use crate::host;
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What one end is to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Task {
    /// Listens, or connects.
    pub server: bool,
    /// What the two ends do.
    pub pattern: Pattern,
    /// Where they meet, see [`Address`]; "memory" for the limits, which need no other end.
    pub address: String,
    /// Bytes of a message or a write.
    pub size: usize,
    /// Connections at once.
    pub connections: usize,
    /// How long to measure, in seconds.
    pub seconds: f64,
    /// How long to do the same before, in seconds.
    pub warm_up: f64,
    /// Pause before each message, in µs.
    #[serde(default)]
    pub pause_us: u64,
    /// Messages or requests a second, whatever becomes of them; 0: as they can.
    #[serde(default)]
    pub rate: usize,
    /// Processor to stay on.
    #[serde(default)]
    pub cpu: Option<usize>,
    /// Port at which the host tells what it spends.
    #[serde(default)]
    pub host_cpu: Option<PathBuf>,
}

impl Task {
    /// Does it, and says what came out.
    pub fn run(&self) -> Result<()> {
        if let Some(cpu) = self.cpu {
            stay_on(cpu)?;
        }
        if let Some(port) = &self.host_cpu {
            host::ask_at(port);
        }
        // 10,000 connections need as many descriptors.
        let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        files.current = files.maximum;
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, files);
        if self.address == "memory" {
            println!("{}\nend", limits::run(self)?.line());
            return Ok(());
        }
        let address: Address = self.address.parse()?;
        let values = if self.server {
            let listener = Listener::bind(&address)?;
            println!("listening {}", listener.port()?);
            match self.pattern {
                Pattern::Latency | Pattern::Paused | Pattern::Rate | Pattern::Pairs => {
                    ping::answer(self, &listener)?
                }
                Pattern::Stream | Pattern::Rings => stream::receive(self, &listener)?,
                Pattern::Both => duplex::run(self, listener.accept()?)?,
                Pattern::Connect => setup::answer(&listener)?,
                Pattern::Many => crowd::answer(self, &listener)?,
                _ => bail!("{} has a server of its own", self.pattern.name()),
            }
        } else {
            match self.pattern {
                Pattern::Latency | Pattern::Paused | Pattern::Rate | Pattern::Pairs => {
                    ping::ask(self, &address)?
                }
                Pattern::Stream | Pattern::Rings => stream::send(self, &address)?,
                Pattern::Both => duplex::run(self, crate::conn::Conn::connect(&address)?)?,
                Pattern::Connect => setup::ask(self, &address)?,
                Pattern::Many => crowd::ask(self, &address)?,
                Pattern::Memcached => records::ask(self, &address)?,
                _ => bail!("{} has a client of its own", self.pattern.name()),
            }
        };
        println!("{}\nend", values.line());
        Ok(())
    }

    fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up)
    }

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// What an end measured, as a result line.
struct Measured(String);

impl Measured {
    fn new() -> Self {
        Self("result".into())
    }

    fn with(mut self, key: &str, value: f64) -> Self {
        let _ = write!(self.0, " {key}={value}");
        self
    }

    /// Bytes or exchanges over a time, and the CPU time that went into them.
    fn amount(self, bytes: u64, count: u64, phase: &Phase) -> Self {
        let done = self.with("bytes", bytes as f64).with("count", count as f64);
        let done = done.with("seconds", phase.seconds()).with("cpu_s", phase.cpu());
        match phase.host() {
            Some(spent) => done.with("host_s", spent),
            None => done,
        }
    }

    /// The shape of a distribution of nanoseconds, each divided by `by`.
    fn times(self, times: &Histogram<u64>, by: f64) -> Self {
        let mut done = self.with("mean_ns", times.mean() / by);
        for (name, quantile) in QUANTILES {
            done = done.with(name, times.value_at_quantile(*quantile) as f64 / by);
        }
        done
    }

    fn line(&self) -> &str {
        &self.0
    }
}

/// The quantiles that are kept of every distribution.
pub const QUANTILES: &[(&str, f64)] = &[
    ("min_ns", 0.0),
    ("p10_ns", 0.1),
    ("p25_ns", 0.25),
    ("p50_ns", 0.5),
    ("p75_ns", 0.75),
    ("p90_ns", 0.9),
    ("p99_ns", 0.99),
    ("p999_ns", 0.999),
    ("p9999_ns", 0.9999),
    ("max_ns", 1.0),
];

/// A histogram of nanoseconds, from 1 to a minute, to three digits.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")
}

/// The measured part of a task: its time, and this process's CPU time in it, and what the host
/// spent meanwhile where that is told.
struct Phase {
    host_began: Option<f64>,
    began: Instant,
    cpu_began: f64,
    ended: Option<(f64, f64)>,
    host_ended: Option<f64>,
}

impl Phase {
    fn begin() -> Self {
        // The host first: asking takes a while.
        let host_began = host::seconds();
        Self {
            host_began,
            began: Instant::now(),
            cpu_began: cpu_seconds(),
            ended: None,
            host_ended: None,
        }
    }

    fn end(&mut self) {
        self.ended = Some((self.began.elapsed().as_secs_f64(), cpu_seconds() - self.cpu_began));
        self.host_ended = self.host_began.and_then(|_| host::seconds());
    }

    fn host(&self) -> Option<f64> {
        Some(self.host_ended? - self.host_began?)
    }

    fn seconds(&self) -> f64 {
        self.ended.map_or_else(|| self.began.elapsed().as_secs_f64(), |(seconds, _)| seconds)
    }

    fn cpu(&self) -> f64 {
        self.ended.map_or_else(|| cpu_seconds() - self.cpu_began, |(_, cpu)| cpu)
    }
}

/// CPU time of all threads of this process, in seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Sleeps end when they should, and not when it suits the kernel: up to 50 µs later by itself
/// (`PR_SET_TIMERSLACK`, prctl(2)).
fn sleep_exactly() -> Result<()> {
    Ok(rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?)
}

/// Binds the calling thread, and those it starts, to one processor.
fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        bail!("there is no processor {cpu}");
    }
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("staying on processor {cpu}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_a_known_distribution() {
        // 1 µs to 100 ms, each once in 1 µs: the quantile q is 100 ms times q.
        let mut times = histogram().unwrap();
        for us in 1..=100_000u64 {
            times.record(us * 1000).unwrap();
        }
        let line = Measured::new().times(&times, 2.0).0;
        let values = ginnel_bench::child::parse(&line);
        let near = |key: &str, wanted: f64| {
            let value = values[key];
            assert!((value / wanted - 1.0).abs() < 0.002, "{key}: {value}, not {wanted}");
        };
        for (key, quantile) in QUANTILES.iter().filter(|(_, quantile)| *quantile > 0.0) {
            near(key, 50e6 * quantile);
        }
        near("min_ns", 500.0);
        near("mean_ns", 25e6);
    }

    #[test]
    fn a_distribution_with_a_rare_tail_shows_it() {
        // 99.95 % at 1 µs, the rest at 10 ms.
        let mut times = histogram().unwrap();
        times.record_n(1000, 99_950).unwrap();
        times.record_n(10_000_000, 50).unwrap();
        let values = ginnel_bench::child::parse(&Measured::new().times(&times, 1.0).0);
        assert!(values["p999_ns"] < 1010.0 && values["p9999_ns"] > 9_900_000.0);
        assert!((values["mean_ns"] / 5999.5 - 1.0).abs() < 0.002);
    }
}
