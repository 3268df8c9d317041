//! Eight readers of the memory and a writer at full speed: how much slower a reader is than one
//! alone, and whether every value is whole, of its key, and new enough.
//!
//! There are more readers than processors, so what is compared is reads in a second of a reader's
//! own processor time.

use crate::{Random, Server, key, spread};
use ginnel_cache::client::Client;
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const READERS: usize = 8;
const KEYS: usize = 1000;
const WORDS: usize = 128;
/// Sets that the writer sends before it waits for an answer.
const BATCH: usize = 32;

/// What both sides know.
struct Board {
    /// The number of each key's value that was acknowledged last.
    acknowledged: Vec<AtomicU64>,
    /// The number of the last value that was written.
    last: AtomicU64,
    stop: AtomicBool,
    reads: AtomicU64,
    wrong: AtomicU64,
}

/// The value of a key with that number: the key, the number, and words made of both.
fn value(key: usize, number: u64) -> Vec<u8> {
    let mix = Random(number ^ (key as u64) << 40).next();
    let words = [key as u64, number].into_iter().chain((2..WORDS as u64).map(|at| mix ^ at));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Returns the number in a value, if all of it is as it was written.
fn number_of(key: usize, value: &[u8]) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    if value.len() != WORDS * 8 || word(&value[..8]) != key as u64 {
        return None;
    }
    let number = word(&value[8..16]);
    let mix = Random(number ^ (key as u64) << 40).next();
    let rest = value[16..].chunks_exact(8).zip(2..);
    rest.into_iter().all(|(bytes, at)| word(bytes) == mix ^ at).then_some(number)
}

fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Reads until it is told to stop; returns reads in a second of its processor time.
fn read(address: &str, seed: u64, board: &Board, ready: &Barrier) -> f64 {
    let mut client = Client::connect(address).expect("it listens");
    let names: Vec<String> = (0..KEYS).map(key).collect();
    let (mut random, mut last, mut reads) = (Random(seed), vec![0; KEYS], 0_u64);
    ready.wait();
    let begun = processor_time();
    while !board.stop.load(Ordering::Relaxed) {
        for _ in 0..256 {
            let at = random.next() as usize % KEYS;
            let least = board.acknowledged[at].load(Ordering::Acquire).max(last[at]);
            let found = client.get(names[at].as_bytes()).expect("read").expect("it is there");
            match number_of(at, found.value).filter(|&number| number >= least) {
                Some(number) => last[at] = number,
                None => _ = board.wrong.fetch_add(1, Ordering::Relaxed),
            }
        }
        reads += 256;
        board.reads.fetch_add(256, Ordering::Relaxed);
    }
    assert!(client.counts().direct * 100 >= reads * 95, "{:?}", client.counts());
    reads as f64 / (processor_time() - begun)
}

/// Writes until it is told to stop, and returns how often.
fn write(address: &str, board: &Board) -> u64 {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("an option");
    let mut answers = BufReader::new(stream.try_clone().expect("a copy"));
    let first = board.last.load(Ordering::Relaxed);
    let (mut questions, mut random, mut number) = (stream, Random(first), first);
    while !board.stop.load(Ordering::Relaxed) {
        let (mut text, mut told) = (Vec::new(), Vec::new());
        for _ in 0..BATCH {
            let at = random.next() as usize % KEYS;
            number += 1;
            told.push((at, number));
            text.extend(format!("set {} 0 0 {} noreply\r\n", key(at), WORDS * 8).bytes());
            text.extend(value(at, number));
            text.extend(b"\r\n");
        }
        text.extend(b"mn\r\n");
        questions.write_all(&text).expect("taken");
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        assert_eq!(line, "MN\r\n");
        for (at, number) in told {
            board.acknowledged[at].store(number, Ordering::Release);
        }
    }
    board.last.store(number, Ordering::Relaxed);
    number - first
}

/// Returns the slowest reader's reads in a second of its time, and how many sets there were.
fn together(
    address: &str,
    readers: usize,
    writes: bool,
    board: &Board,
    time: Duration,
) -> (f64, u64) {
    board.stop.store(false, Ordering::Relaxed);
    // On a busy machine a thread may get its first turn when the time is over.
    let ready = &Barrier::new(readers + 1);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..readers as u64)
            .map(|seed| scope.spawn(move || read(address, seed, board, ready)))
            .collect();
        let writer = writes.then(|| scope.spawn(|| write(address, board)));
        ready.wait();
        std::thread::sleep(time);
        board.stop.store(true, Ordering::Relaxed);
        let rates = readers.into_iter().map(|one| one.join().expect("it ends"));
        let slowest = rates.min_by(f64::total_cmp).expect("a reader");
        (slowest, writer.map_or(0, |one| one.join().expect("it ends")))
    })
}

/// Compares, in rounds, and goes on until `checked` reads were checked.
pub fn run(ours: &str, rounds: usize, checked: u64) {
    let server = Server::start(ours, &["-t", "1"]);
    let address = &server.address;
    let mut client = Client::connect(address).expect("it listens");
    for at in 0..KEYS {
        assert!(client.set(key(at).as_bytes(), &value(at, 0), 0, 0).expect("asked"));
    }
    let board = Board {
        acknowledged: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
        last: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
    };
    let (time, mut ratios, mut rates) =
        (Duration::from_secs(2), Vec::new(), [Vec::new(), Vec::new()]);
    let mut sets = 0;
    while ratios.len() < rounds || board.reads.load(Ordering::Relaxed) < checked {
        let (alone, _) = together(address, 1, false, &board, time / 2);
        let (slowest, written) = together(address, READERS, true, &board, time);
        sets += written;
        ratios.push(slowest / alone);
        rates[0].push(alone);
        rates[1].push(slowest);
    }
    let shown = |values: Vec<f64>| {
        let (least, median, most) = spread(values);
        format!("{median:.2} ({least:.2} to {most:.2})")
    };
    let millions = |rates: &[f64]| shown(rates.iter().map(|rate| rate / 1e6).collect());
    println!("## {READERS} readers of the memory beside a writer, 1 KiB, {KEYS} keys\n");
    println!("Million reads in a second of a reader's processor time, each value checked:");
    println!("alone {}, the slowest of {READERS} {}.", millions(&rates[0]), millions(&rates[1]));
    println!("Within rounds: {}.", shown(ratios));
    let (reads, wrong) = (board.reads.into_inner(), board.wrong.into_inner());
    println!("{reads} reads beside {sets} sets: {wrong} wrong.\n");
    assert_eq!(wrong, 0, "wrong values");
}
