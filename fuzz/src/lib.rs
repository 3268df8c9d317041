//! Garbage for everything in Ginnel that reads what another party wrote.
//!
//! A target takes bytes and does with them what its reader does; whatever they are, it must come
//! back, and nothing may crash. `tests/bounded.rs` runs each target for a few seconds with bytes
//! from a seed that it prints; the program `ginnel-fuzz` does so for as long as is wanted.
//! `tests/planted.rs` plants faults in a copy of the sources, each of which its target must find.
//! CONTRIBUTING.md has how the same runs with the code's own assertions, and under an address
//! sanitizer.
//!
//! | target | reads |
//! |---|---|
//! | [`segment`] | a segment's header and tables |
//! | [`channel`] | a channel, with an honest end at either side and a third party that writes into it |
//! | [`fabric`] | a segment of endpoints, with two honest ones and a third party that writes into it |
//! | [`protocol`] | the ivshmem protocol, as a client hears it |
//! | [`config`] | ginneld's configuration |
//! | [`cache`] | commands to ginnel-cache; its memory, as a neighbour reads it |
//! | [`ring`] | `ginnel-switch`: virtqueues, compared with `virtqueue` in the memory of `ram` |
//! | [`race`] | the same while the guest goes on writing into them |
//! | [`switch`] | vhost-user, what is to be cut |
//! | [`fdb`] | its forwarding table, compared with a list |
//! | [`opened`] | messages of other hosts, compared with what they say |
//! | [`hosts`] | what other hosts send to it, how they call and answer |
//! | [`lent`] | frames that hosts are sent from where they lie, whatever guest and host do meanwhile |
//! | [`vsock`] | its sockets between machines: packets, and what programs of the host say |

pub mod cache;
pub mod channel;
pub mod config;
pub mod fabric;
pub mod fdb;
mod fence;
pub mod hosts;
pub mod lent;
pub mod opened;
pub mod protocol;
pub mod race;
mod ram;
pub mod ring;
pub mod segment;
pub mod switch;
mod virtqueue;
pub mod vsock;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A target takes bytes.
pub type Target = fn(&[u8]);

/// Every target, by name.
pub const TARGETS: [(&str, Target); 17] = [
    ("segment", segment::target),
    ("channel", channel::target),
    ("fabric", fabric::target),
    ("protocol", protocol::target),
    ("config", config::target),
    ("cache-session", cache::session),
    ("cache-reader", cache::reader),
    ("switch-ring", ring::ring),
    ("switch-race", race::race),
    ("switch-messages", switch::messages),
    ("switch-offload", switch::offload),
    ("switch-table", fdb::table),
    ("switch-vsock", vsock::packets),
    ("switch-opened", opened::opened),
    ("switch-hosts", hosts::messages),
    ("switch-handshakes", hosts::handshakes),
    ("switch-lent", lent::lent),
];

/// How long one run of a target may take. Those that wait for a peer do so for half a second, some
/// dozen times.
const STUCK: Duration = Duration::from_secs(60);

/// Bytes, taken from the front; zeroes behind the end.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// From the first on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Is nothing left?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `n`, or as many as there are.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// True for one in `n` bytes.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.byte().is_multiple_of(n)
    }

    /// The next eight bytes as a number.
    pub fn word(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let got = self.take(8);
        bytes[..got.len()].copy_from_slice(got);
        u64::from_le_bytes(bytes)
    }

    /// A number below `n`, which is at most 65536.
    pub fn below(&mut self, n: u64) -> u64 {
        (u64::from(self.byte()) | u64::from(self.byte()) << 8) % n.max(1)
    }

    /// A value to put where `is` stands now: near it, at an edge, or anything.
    pub fn value(&mut self, is: u64) -> u64 {
        const EDGES: [u64; 12] =
            [0, 1, 2, 3, 4095, 4096, 1 << 20, 1 << 32, 1 << 40, 1 << 63, u64::MAX, u64::MAX - 4096];
        match self.byte() % 8 {
            0 => EDGES[self.below(12) as usize],
            1 => is.wrapping_add(1),
            2 => is.wrapping_sub(1),
            3 => is.wrapping_add(self.below(65536)),
            4 => is ^ 1 << self.below(64),
            5 => is.wrapping_add(EDGES[self.below(12) as usize]),
            6 => u64::from(self.byte()),
            _ => self.word(),
        }
    }
}

/// A sequence of numbers from a seed (xorshift64*).
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Up to `most` bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let n = self.roll() as usize % (most + 1);
        (0..n).map(|_| (self.roll() >> 32) as u8).collect()
    }
}

/// Runs a target for `time`, with bytes from `seed`. Returns how often. A run that does not come
/// back ends the process.
///
/// # Panics
/// When the target does.
#[must_use]
pub fn run(name: &str, target: Target, time: Duration, seed: u64) -> u64 {
    let began = Instant::now();
    // Milliseconds from `began` to the start of the present run.
    static SINCE: AtomicU64 = AtomicU64::new(0);
    let now = move || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (done, over) = std::sync::mpsc::channel::<()>();
    let text = format!("{name}: seed {seed}: a run does not come back");
    let watch = std::thread::spawn(move || {
        while over.recv_timeout(Duration::from_secs(1))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            if now().saturating_sub(SINCE.load(Ordering::Relaxed)) > STUCK.as_millis() as u64 {
                eprintln!("{text}");
                std::process::abort();
            }
        }
    });
    let (mut dice, mut runs) = (Dice::new(seed), 0);
    while began.elapsed() < time {
        SINCE.store(now(), Ordering::Relaxed);
        target(&dice.bytes(600));
        runs += 1;
    }
    drop(done);
    let _ = watch.join();
    runs
}

/// A directory of this process, in memory where that can be had. Removed by whoever asks.
#[must_use]
pub fn place(name: &str) -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    let base = if shm.is_dir() { shm } else { std::env::temp_dir() };
    base.join(format!("ginnel-fuzz-{}-{name}", std::process::id()))
}
