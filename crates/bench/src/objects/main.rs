//! Measures named objects as `programs/references.c` measures what they are held against, with the
//! same options and the same result lines:
//!
//! | mode | what |
//! |---|---|
//! | `queue` | ping-pong of `--size` bytes through two queues, copied in and out: half a round trip |
//! | `loan` | the same by loans, of which the first bytes are written and read |
//! | `python` | the same by two programs in Python (`programs/objects.py`) |
//! | `paused` | ping-pong with `--pause-us` before each message, so that its receiver sleeps: one way |
//! | `rate` | messages of `--size` bytes one way, as fast as it goes |
//! | `mutex` | lock and unlock by one thread |
//! | `pthread` | the same with a robust process-shared mutex of pthread's |
//! | `mutex-contended`, `pthread-contended` | two processes, each of which locks, counts and unlocks without a pause |
//!
//! It starts itself twice, in a directory of its own; both ends are pinned where that is asked for.

mod locks;
mod queues;

use ginnel::{Error, Options, Segment};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::HashMap;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

const END: &str = "GINNEL_BENCH_END";
/// How long an end waits for what the other is to make.
const PATIENCE: Duration = Duration::from_secs(10);
const PYTHON: &str = include_str!("../../programs/objects.py");

type Failed = Box<dyn std::error::Error>;

struct Asked {
    mode: String,
    size: usize,
    seconds: f64,
    count: u32,
    warm_up: u32,
    pause: Duration,
    cpus: [Option<usize>; 2],
}

impl Asked {
    fn of(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failed> {
        let mode = arguments.next().ok_or("usage: ginnel-bench-objects MODE [options]")?;
        let mut values = HashMap::new();
        while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
            values.insert(name, value);
        }
        let cpu = |name: &str| values.get(name).map(|cpu| cpu.parse::<usize>()).transpose();
        let number =
            |name: &str, else_: u32| values.get(name).map_or(Ok(else_), |text| text.parse());
        Ok(Self {
            mode,
            size: number("--size", 64)? as usize,
            seconds: values.get("--seconds").map_or(Ok(0.2), |seconds| seconds.parse())?,
            count: number("--count", 200)?,
            warm_up: number("--warmup", 200)?,
            pause: Duration::from_micros(number("--pause-us", 0)?.into()),
            cpus: [cpu("--cpu")?, cpu("--peer-cpu")?],
        })
    }

    /// Until when an end measures that begins now.
    fn until(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.seconds)
    }
}

fn main() -> ExitCode {
    match Asked::of(std::env::args().skip(1)).and_then(|asked| start(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn start(asked: &Asked) -> Result<(), Failed> {
    if let Ok(end) = std::env::var(END) {
        return be(asked, usize::from(end == "1"));
    }
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let alone = matches!(asked.mode.as_str(), "mutex" | "pthread");
    let started = (0..if alone { 1 } else { 2 }).map(|end| -> Result<Child, Failed> {
        let mut command = if asked.mode == "python" { python(asked, end) } else { again()? };
        command.env(END, end.to_string()).env("GINNEL_DIR", place.path().join("own"));
        Ok(command.env_remove("GINNEL_SEGMENT").env("GINNEL_SIZE", "256M").spawn()?)
    });
    for mut child in started.collect::<Result<Vec<_>, _>>()? {
        if !child.wait()?.success() {
            return Err("an end failed".into());
        }
    }
    Ok(())
}

fn again() -> Result<Command, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args().skip(1));
    Ok(command)
}

/// An end in Python, with the module of this repository; `GINNEL_LIBRARY` names its library.
fn python(asked: &Asked, end: usize) -> Command {
    let cpu = asked.cpus[end].map_or(String::new(), |cpu| cpu.to_string());
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON, &asked.size.to_string(), &asked.seconds.to_string(), &cpu]);
    command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/python"));
    command
}

/// Plays one of the two ends.
fn be(asked: &Asked, end: usize) -> Result<(), Failed> {
    if let Some(cpu) = asked.cpus[end] {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
    }
    match (asked.mode.as_str(), end) {
        ("queue" | "loan", 0) => queues::ping(asked),
        ("queue" | "loan", _) => queues::pong(asked),
        ("paused", 0) => queues::ping_paused(asked),
        ("paused", _) => queues::pong_paused(asked),
        ("rate", 0) => queues::send_all(asked),
        ("rate", _) => queues::take_all(),
        ("mutex" | "pthread", _) => locks::alone(asked),
        ("mutex-contended" | "pthread-contended", _) => locks::contended(asked, end),
        (mode, _) => Err(format!("no mode {mode}").into()),
    }
}

fn segment() -> Result<Segment, Error> {
    Options::new().open("bench")
}

/// Until the other end has made what is to be opened.
fn retried<T>(mut open: impl FnMut() -> ginnel::Result<T>) -> ginnel::Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        match open() {
            Err(Error::NotFound { .. }) if Instant::now() < until => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// The result line of times.
fn tell(mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
    let (least, median, most) = (at(0.), at(0.5), at(0.99));
    println!(
        "result samples={} min_ns={least:.1} p50_ns={median:.1} p99_ns={most:.1}",
        samples.len()
    );
    println!("end");
}
