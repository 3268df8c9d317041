//! Ping-pong through iceoryx2: what a program gets that is written for shared memory, where
//! Ginnel's are written for sockets.
//!
//! Two processes, both polling. A message is written into memory that the other maps, and read
//! there: no copy is made on the way. The sender writes all of it, the receiver looks at every
//! cache line, since a message that nobody writes or reads costs the same whatever its size.
//!
//! Options, result lines and what is timed are those of `crates/bench/programs/pingpong.c`;
//! `--addr` is the name of the service, with which the names of all files in `/dev/shm` begin, and
//! of the folder in `/tmp`: iceoryx2 keeps some of them, so whoever started this removes them.

#![forbid(unsafe_code)]

use iceoryx2::port::{publisher::Publisher, subscriber::Subscriber};
use iceoryx2::prelude::*;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::error::Error;
use std::time::{Duration, Instant};

/// Exchanges that are timed together.
const BATCH: u32 = 16;
const WARM_UP: u32 = 1000;
/// Bytes between those that a receiver looks at.
const LINE: usize = 64;
/// Of a message: its first byte says that it is the last.
const LAST: u8 = 255;

type Done<T = ()> = Result<T, Box<dyn Error>>;

struct Options {
    server: bool,
    name: String,
    size: usize,
    seconds: f64,
    cpu: Option<usize>,
}

impl Options {
    fn parse() -> Done<Self> {
        let mut arguments = std::env::args().skip(1);
        let server = arguments.next().ok_or("usage: server|client --addr NAME --size BYTES [--seconds S] [--cpu N]")? == "server";
        let mut options = Self { server, name: String::new(), size: 64, seconds: 0.2, cpu: None };
        while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
            match name.as_str() {
                "--addr" => options.name = value,
                "--size" => options.size = value.parse()?,
                "--seconds" => options.seconds = value.parse()?,
                "--cpu" => options.cpu = Some(value.parse()?),
                // Sockets have modes; here there is one.
                "--mode" => {}
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        Ok(options)
    }
}

/// One end: what it sends and what it receives, messages of N bytes.
struct End<const N: usize> {
    out: Publisher<ipc::Service, [u8; N], ()>,
    into: Subscriber<ipc::Service, [u8; N], ()>,
    buffer: [u8; N],
}

impl<const N: usize> End<N> {
    fn new(node: &Node<ipc::Service>, options: &Options) -> Done<Self> {
        let service = |way: &str| -> Done<_> {
            let name = format!("{}/{way}", options.name);
            let service = node.service_builder(&name.as_str().try_into()?).publish_subscribe::<[u8; N]>();
            // As its authors' own benchmark has it: what one pair needs, and no more.
            Ok(service
                .max_publishers(1)
                .max_subscribers(1)
                .history_size(0)
                .subscriber_max_buffer_size(1)
                .enable_safe_overflow(true)
                .open_or_create()?)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (out, into) = if options.server { (back, there) } else { (there, back) };
        let (out, into) = (out.publisher_builder().create()?, into.subscriber_builder().create()?);
        Ok(Self { out, into, buffer: [1; N] })
    }

    fn send(&mut self, first: u8) -> Done {
        self.buffer[0] = first;
        self.out.loan_uninit()?.write_payload(self.buffer).send()?;
        Ok(())
    }

    fn receive(&self) -> Done<u8> {
        loop {
            if let Some(sample) = self.into.receive()? {
                let lines = sample.payload().iter().step_by(LINE);
                std::hint::black_box(lines.fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
                return Ok(sample.payload()[0]);
            }
        }
    }

    fn exchange(&mut self, first: u8) -> Done {
        self.send(first)?;
        match self.receive()? {
            answer if answer == first => Ok(()),
            answer => Err(format!("{first} was sent, {answer} came").into()),
        }
    }

    fn serve(&mut self) -> Done {
        println!("listening 0");
        loop {
            let first = self.receive()?;
            self.send(first)?;
            if first == LAST {
                println!("result served=1\nend");
                return Ok(());
            }
        }
    }

    fn ask(&mut self, seconds: f64) -> Done {
        for i in 0..WARM_UP {
            self.exchange((i % 100) as u8)?;
        }
        let mut samples = Vec::with_capacity(1 << 18);
        let begin = Instant::now();
        let (end, mut last) = (begin + Duration::from_secs_f64(seconds), begin);
        while last < end && samples.len() < samples.capacity() {
            for i in 0..BATCH {
                self.exchange(i as u8)?;
            }
            let now = Instant::now();
            samples.push((now - last).as_nanos() as f64 / f64::from(2 * BATCH));
            last = now;
        }
        let elapsed = begin.elapsed();
        self.exchange(LAST)?;
        samples.sort_by(f64::total_cmp);
        let quantile = |of: usize, all: usize| samples[samples.len() * of / all];
        println!(
            "result messages={} elapsed_ns={} p50_ns={:.1} p99_ns={:.1} p999_ns={:.1}\nend",
            samples.len() * BATCH as usize,
            elapsed.as_nanos(),
            quantile(1, 2),
            quantile(99, 100),
            quantile(999, 1000),
        );
        Ok(())
    }
}

fn run<const N: usize>(node: &Node<ipc::Service>, options: &Options) -> Done {
    let mut end = End::<N>::new(node, options)?;
    if options.server { end.serve() } else { end.ask(options.seconds) }
}

fn main() -> Done {
    let options = Options::parse()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(cpu) = options.cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
    }
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    config.global.prefix = FileName::new(format!("{}_", options.name).as_bytes())?;
    config.global.set_root_path(&Path::new(format!("/tmp/{}", options.name).as_bytes())?);
    let node = NodeBuilder::new().config(&config).create::<ipc::Service>()?;
    match options.size {
        64 => run::<64>(&node, &options),
        4096 => run::<4096>(&node, &options),
        size => Err(format!("messages of 64 or 4096 bytes, not of {size}").into()),
    }
}
