//! Measures named objects as `programs/references.c` measures what they are held against, with the
//! same options and the same result lines:
//!
//! | mode | what |
//! |---|---|
//! | `queue` | ping-pong of `--size` bytes through two queues, half a round trip |
//! | `mutex` | lock and unlock by one thread, in turn with a robust process-shared mutex of pthread |
//!
//! It starts itself twice, in a directory of its own; both ends are pinned where that is asked for.

use ginnel::{Mutex, Options, Queue, Receiver, Segment, Sender};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::HashMap;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Exchanges that are timed together, as in `references.c`.
const BATCH: u32 = 16;
const END: &str = "GINNEL_BENCH_END";

type Failed = Box<dyn std::error::Error>;

struct Asked {
    mode: String,
    size: usize,
    seconds: f64,
    cpus: [Option<usize>; 2],
}

impl Asked {
    fn of(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failed> {
        let mode = arguments.next().ok_or("usage: ginnel-bench-objects queue|mutex [options]")?;
        let mut values = HashMap::new();
        while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
            values.insert(name, value);
        }
        let cpu = |name: &str| values.get(name).map(|cpu| cpu.parse::<usize>()).transpose();
        Ok(Self {
            mode,
            size: values.get("--size").map_or(Ok(64), |size| size.parse())?,
            seconds: values.get("--seconds").map_or(Ok(0.2), |seconds| seconds.parse())?,
            cpus: [cpu("--cpu")?, cpu("--peer-cpu")?],
        })
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
        let number = usize::from(end == "pong");
        if let Some(cpu) = asked.cpus[number] {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set)?;
        }
        return match (asked.mode.as_str(), number) {
            ("queue", 0) => ping(asked),
            ("queue", _) => pong(),
            ("mutex", 0) => mutex(asked),
            _ => Err("no such mode".into()),
        };
    }
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let again = |end| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args().skip(1)).env(END, end).env("GINNEL_DIR", place.path().join("own"));
        command.env_remove("GINNEL_SEGMENT").spawn()
    };
    let ping = again("ping")?;
    let pong = (asked.mode == "queue").then(|| again("pong")).transpose()?;
    for mut child in std::iter::once(ping).chain(pong) {
        if !child.wait()?.success() {
            return Err("an end failed".into());
        }
    }
    Ok(())
}

fn segment() -> Result<Segment, ginnel::Error> {
    Options::new().size(64 << 20).open("bench")
}

fn ping(asked: &Asked) -> Result<(), Failed> {
    let segment = segment()?;
    let queue = Queue::new().capacity(16).message_size(asked.size as u64).senders(1).loans(1);
    queue.create(&segment, "there")?;
    let back = queue.create(&segment, "back").and_then(|()| Receiver::open(&segment, "back"))?;
    let there = Sender::open(&segment, "there")?;
    let (message, mut answer) = (vec![1; asked.size], vec![0; asked.size]);
    let mut exchange = || -> Result<(), ginnel::Error> {
        there.send(&message)?;
        back.recv()?.read(0, &mut answer);
        Ok(())
    };
    (0..200).try_for_each(|_| exchange())?;
    let mut samples = Vec::new();
    let until = Instant::now() + Duration::from_secs_f64(asked.seconds);
    while Instant::now() < until {
        let began = Instant::now();
        (0..BATCH).try_for_each(|_| exchange())?;
        samples.push(began.elapsed().as_nanos() as f64 / f64::from(2 * BATCH));
    }
    drop(there);
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
    println!("result samples={} min_ns={:.1} p50_ns={:.1} p99_ns={:.1}", samples.len(), at(0.), at(0.5), at(0.99));
    println!("end");
    Ok(())
}

fn pong() -> Result<(), Failed> {
    let segment = segment()?;
    let until = Instant::now() + Duration::from_secs(10);
    let there = retried(until, || Receiver::open(&segment, "there"))?;
    let back = retried(until, || Sender::open(&segment, "back"))?;
    loop {
        match there.recv() {
            Ok(message) => {
                let mut loan = back.loan(message.len())?;
                loan.write(0, &message.to_vec());
                drop(message);
                loan.send()?;
            }
            Err(ginnel::Error::Ended { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Until the other end has made what is to be opened.
fn retried<T>(until: Instant, mut open: impl FnMut() -> ginnel::Result<T>) -> ginnel::Result<T> {
    loop {
        match open() {
            Err(ginnel::Error::NotFound { .. }) if Instant::now() < until => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// Rounds of each in turn, so that both meet the same machine.
fn mutex(asked: &Asked) -> Result<(), Failed> {
    const ROUND: u32 = 10_000;
    let own = Mutex::create(&segment()?, "lock")?;
    let mut theirs = Pthread::new()?;
    let mut samples = [Vec::new(), Vec::new()];
    let until = Instant::now() + Duration::from_secs_f64(asked.seconds);
    while Instant::now() < until {
        let began = Instant::now();
        for _ in 0..ROUND {
            drop(own.lock().map_err(|error| error.to_string())?);
        }
        samples[0].push(began.elapsed().as_nanos() as f64 / f64::from(ROUND));
        let began = Instant::now();
        for _ in 0..ROUND {
            theirs.lock_and_unlock()?;
        }
        samples[1].push(began.elapsed().as_nanos() as f64 / f64::from(ROUND));
    }
    let [own, theirs] = samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    });
    println!("result mutex_ns={own:.1} pthread_ns={theirs:.1} ratio={:.2}", own / theirs);
    println!("end");
    Ok(())
}

/// pthread's robust mutex, shared by processes.
struct Pthread(Box<libc::pthread_mutex_t>);

impl Pthread {
    fn new() -> Result<Self, Failed> {
        let mut mutex = Box::new(libc::PTHREAD_MUTEX_INITIALIZER);
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: attributes are made, set and used before they go; the mutex does not move.
        let failed = unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr())
                | libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED)
                | libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST)
                | libc::pthread_mutex_init(&raw mut *mutex, attributes.as_ptr())
        };
        if failed == 0 { Ok(Self(mutex)) } else { Err("no robust mutex".into()) }
    }

    fn lock_and_unlock(&mut self) -> Result<(), Failed> {
        // SAFETY: a mutex that was made, and does not move.
        let failed = unsafe { libc::pthread_mutex_lock(&raw mut *self.0) | libc::pthread_mutex_unlock(&raw mut *self.0) };
        if failed == 0 { Ok(()) } else { Err("the robust mutex".into()) }
    }
}
