//! Random calls of three processes, over iceoryx2's own memory (`ipc`) and over a segment: every
//! answer is the same. The calls come one after the other; now and then a process is killed between
//! two of them, or leaves, and another takes its place.
//!
//! A seed whose answers differ between two runs over iceoryx2's own memory says nothing and is
//! passed over.

use crate::stage::{self, Guarded, Part};
use iceoryx2::config::Config;
use iceoryx2::prelude::*;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

mod worker;

const WORKERS: usize = 3;

/// Which memory.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Over {
    Own,
    Segment,
}

struct Random(u64);

impl Random {
    /// Below a limit (SplitMix64).
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as usize % limit
    }
}

fn file_name(text: &str) -> FileName {
    FileName::new(text.as_bytes()).expect("a name")
}

/// With every other seed nobody clears up after the dead who is not asked to.
fn config(prefix: &str, place: &str) -> Config {
    let mut config = Config::default();
    config.global.prefix = file_name(prefix);
    let clears = prefix.ends_with("0_");
    config.global.service.cleanup_dead_nodes_on_open = clears;
    config.global.node.cleanup_dead_nodes_on_creation = clears;
    config.global.node.cleanup_dead_nodes_on_destruction = clears;
    config.global.set_root_path(&Path::new(place.as_bytes()).expect("a path"));
    config
}

struct Process {
    child: Guarded,
    stream: BufReader<UnixStream>,
}

impl Process {
    fn does(&mut self, command: [usize; 5]) -> String {
        let text = command.map(|number| number.to_string()).join(" ");
        self.stream.get_mut().write_all(format!("{text}\n").as_bytes()).expect("told");
        let mut answer = String::new();
        self.stream.read_line(&mut answer).expect("an answer");
        assert!(answer.ends_with('\n'), "a process ended at {command:?}");
        answer.trim_end().to_owned()
    }

    fn leaves(self) {
        drop(self.stream);
        self.child.ends();
    }
}

struct Run<'a> {
    listener: UnixListener,
    /// What a process is told when it starts.
    argument: &'a str,
}

impl Run<'_> {
    fn process(&self) -> Process {
        let child = stage::role("worker", self.argument);
        let (stream, _) = self.listener.accept().expect("a process that connects");
        Process { child, stream: BufReader::new(stream) }
    }
}

/// Four of five seeds are about one pattern most of the time.
fn command(seed: u64, random: &mut Random) -> [usize; 5] {
    let part = if random.below(8) == 0 { 5 } else { (seed % 5) as usize };
    let calls = worker::PARTS.get(part).cloned().unwrap_or(0..worker::CALLS);
    let calls = if random.below(8) == 0 { 0..8 } else { calls };
    let call = calls.start + random.below(calls.len());
    [call, random.below(3), random.below(3), random.below(4), random.below(1 << 20)]
}

/// What all calls of a seed answered.
fn says(over: Over, seed: u64, steps: u32, fault: &str) -> Vec<String> {
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let prefix = format!("random{}_{seed}_{}_", std::process::id(), seed % 2);
    let place = place.path().to_str().expect("a path");
    let argument = format!("{over:?},{prefix},{place},{fault}");
    let run = Run { listener, argument: &argument };
    let mut processes: Vec<_> = (0..WORKERS).map(|_| run.process()).collect();
    let mut random = Random(seed);
    let mut told = Vec::new();
    // A call on what is not there is no step.
    for _ in 0..steps * 30 {
        if told.len() >= steps as usize {
            break;
        }
        let which = random.below(WORKERS);
        if random.below(400) == 0 {
            let killed = random.below(2) == 0;
            let old = std::mem::replace(&mut processes[which], run.process());
            if killed {
                old.child.kill()
            } else {
                old.leaves()
            }
            told.push(format!("{which} {}", if killed { "is killed" } else { "leaves" }));
            continue;
        }
        let command = command(seed, &mut random);
        let answer = processes[which].does(command);
        if !answer.starts_with("none") {
            told.push(format!("{which} {command:?}: {answer}"));
        }
    }
    processes.into_iter().for_each(Process::leaves);
    clear(over, &prefix, place);
    told
}

/// What the killed left goes.
fn clear(over: Over, prefix: &str, place: &str) {
    let config = config(prefix, place);
    if over == Over::Own {
        let node = NodeBuilder::new().config(&config).create::<ipc::Service>();
        let _ = node.map(|node| node.try_cleanup_dead_nodes());
        for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if file.file_name().to_string_lossy().starts_with(prefix) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    } else {
        let node = NodeBuilder::new().config(&config).create::<ginnel_iceoryx2::Service>();
        let _ = node.map(|node| node.try_cleanup_dead_nodes());
    }
}

fn works(argument: &str) {
    let parts: Vec<&str> = argument.split(',').collect();
    let (config, socket) = (config(parts[1], parts[2]), format!("{}/socket", parts[2]));
    if parts[0] == "Own" {
        worker::work::<ipc::Service>(config, parts[3], &socket);
    } else {
        worker::work::<ginnel_iceoryx2::Service>(config, parts[3], &socket);
    }
}

/// The first line in which they differ, with what comes before.
fn difference(one: &[String], other: &[String]) -> Option<String> {
    let at = one.iter().zip(other).position(|(one, other)| one != other)?;
    Some(format!("{}\n-{}\n+{}\n", one[..at].join("\n"), one[at], other[at]))
}

/// True where the seed says something.
fn same(seed: u64, steps: u32) -> bool {
    let own = says(Over::Own, seed, steps, "");
    if std::env::var_os("GINNEL_PRINT").is_some() {
        println!("{}", own.join("\n"));
    }
    let found = difference(&own, &says(Over::Segment, seed, steps, ""));
    let Some(found) = found else { return true };
    if difference(&own, &says(Over::Own, seed, steps, "")).is_some() {
        println!("seed {seed}: open");
        return false;
    }
    panic!("seed {seed}, {steps} steps (GINNEL_SEED={seed}):\n{found}");
}

fn first_seed() -> u64 {
    let own = std::env::var("GINNEL_SEED").ok().and_then(|text| text.parse().ok());
    own.unwrap_or_else(|| u64::from(std::process::id()) << 20)
}

fn plays(name: &str, test: impl FnOnce()) {
    stage::play(name, |part| {
        set_log_level(LogLevel::Fatal);
        match part {
            Part::Role(_, argument) => works(&argument),
            Part::Test => test(),
        }
    });
}

#[test]
fn every_answer_is_that_of_ipc() {
    plays("random::every_answer_is_that_of_ipc", || {
        let first = first_seed();
        let count = std::env::var("GINNEL_SEEDS").ok().and_then(|text| text.parse().ok());
        for seed in [1, 2].into_iter().chain(first..first + count.unwrap_or(2)) {
            same(seed, 300);
        }
    });
}

/// The comparison is worth something: what goes wrong now and then is found.
#[test]
fn a_planted_fault_is_found() {
    plays("random::a_planted_fault_is_found", || {
        for fault in ["sample", "event", "name", "dead"] {
            let finds = |seed| {
                let own = says(Over::Own, seed, 300, "");
                difference(&own, &says(Over::Own, seed, 300, fault)).is_some()
                    && difference(&own, &says(Over::Own, seed, 300, "")).is_none()
            };
            assert!((1..9).any(finds), "{fault} is not found");
        }
    });
}
