//! Askers that die at any step, leave their connection to another process, or say nothing more, at
//! random and many at once, while the broker is killed and comes back. Whoever is honest meets its
//! other end; no third one gets a pair's memory; and of the dead nothing is left.

use crate::askers::{NOBODY, PATIENCE, become_user, pair, possible};
use ginnel_region::Segment;
use ginnel_region::sys::Fd;
use ginnel_tcp::broker::{Beside, Heard, Question, Verdict, ask, connect, hear, part};
use ginnel_tests::daemon::Broker;
use ginnel_tests::differential::random::Random;
use ginnel_tests::{permit, seed};
use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pairs that two users may have together: few, so that one that is not given back is missed.
const PAIRS: usize = 8;
/// How long all of it goes on, and how long each broker lives.
const LASTS: Duration = Duration::from_secs(6);
const LIVES: Duration = Duration::from_millis(700);
/// How long an end waits for the one that it was told of.
const MEETS: Duration = Duration::from_millis(500);
/// Connections to the broker that outlive who made them, at once.
const LEFT: usize = 40;

/// What all have in common.
struct Scene {
    path: PathBuf,
    enough: AtomicBool,
    /// How many got the memory with this number.
    had: Mutex<HashMap<u64, usize>>,
    /// Connections, with the sockets that were handed in by them, that another process has.
    left: Mutex<Vec<(Fd, TcpStream)>>,
    met: AtomicU64,
    died: AtomicU64,
}

impl Scene {
    fn is_over(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// Counts who gets which memory.
    fn keep(&self, beside: &Beside) {
        let Some(memory) = &beside.memory else { return };
        let segment = Segment::of_pair(memory.0).expect("a segment").id();
        let mut had = self.had.lock().unwrap_or_else(PoisonError::into_inner);
        let count = had.entry(segment).or_default();
        *count += 1;
        assert!(*count <= 2, "a third one has a pair's memory");
    }

    /// One asker's life, which ends at a random step in a random way.
    fn lives(&self, stream: TcpStream, connected: bool, random: &mut Random) {
        let Some(socket) = connect(&self.path) else {
            return std::thread::sleep(Duration::from_millis(5));
        };
        let steps = random.below(6);
        if steps > 0 {
            let question = Question { connected, number: 1 };
            let _ = ask(socket.0, &question, stream.as_raw_fd());
        }
        let patience = Duration::from_millis(random.below(30));
        let until = Instant::now() + patience;
        let mut heard = 1;
        while heard < steps && Instant::now() < until {
            match hear(socket.0) {
                Heard::Answer(answer, beside) => {
                    self.keep(&beside);
                    heard += 1;
                    if answer.verdict == Verdict::Meet && random.chance(50) {
                        part(socket.0, answer.pair);
                    }
                }
                Heard::Nothing => std::thread::sleep(Duration::from_micros(200)),
                Heard::Gone => break,
            }
        }
        self.died.fetch_add(1, Ordering::Relaxed);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if random.chance(20) {
            left.push((socket, stream));
            if left.len() > LEFT {
                left.drain(..LEFT / 2);
            }
        }
    }

    /// Pairs of whom each dies over it.
    fn die(&self, seed: u64) {
        become_user(NOBODY);
        let mut random = Random::new(seed);
        while !self.is_over() {
            let (client, server) = pair();
            let mut other = Random::new(random.below(u64::MAX));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    become_user(NOBODY);
                    self.lives(server, false, &mut other);
                });
                self.lives(client, true, &mut random);
            });
        }
    }

    /// Two that meet, where others have the second one's socket, too, and die over it. `None`: the
    /// broker went.
    fn met_once(&self, random: &mut Random) -> Option<[Fd; 2]> {
        let (client, server) = pair();
        let mut ends = [End::new(&self.path, client, true)?, End::new(&self.path, server, false)?];
        ends[0].ask()?;
        for _ in 0..if self.is_over() { 0 } else { random.below(3) } {
            self.lives(ends[1].stream.try_clone().expect("one more"), false, random);
        }
        ends[1].ask()?;
        let until = Instant::now() + PATIENCE;
        while ends[0].meeting != ends[1].meeting || ends[0].meeting == 0 {
            for end in &mut ends {
                end.hears(self)?;
            }
            assert!(Instant::now() < until, "they do not meet: {ends:?}");
            std::thread::sleep(Duration::from_micros(500));
        }
        Some(ends.map(|end| end.socket))
    }

    /// Two that meet before patience ends.
    fn met(&self, random: &mut Random) -> [Fd; 2] {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(both) = self.met_once(random) {
                self.met.fetch_add(1, Ordering::Relaxed);
                return both;
            }
            assert!(Instant::now() < until, "no broker");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// An end whose process lives. It asks again where it hears that nobody came, or that who came has
/// gone; and, as the library does, where it was told of one that then does not meet it: a process
/// that lives, and has the connection to the broker from one that died.
#[derive(Debug)]
struct End {
    socket: Fd,
    stream: TcpStream,
    connected: bool,
    number: u64,
    pair: u64,
    /// Where it is to meet the other end; 0: it is not known.
    meeting: u64,
    told: Instant,
}

impl End {
    fn new(path: &Path, stream: TcpStream, connected: bool) -> Option<Self> {
        let (socket, told) = (connect(path)?, Instant::now());
        Some(Self { socket, stream, connected, number: 0, pair: 0, meeting: 0, told })
    }

    fn ask(&mut self) -> Option<()> {
        (self.number, self.pair, self.meeting) = (self.number + 1, 0, 0);
        let question = Question { connected: self.connected, number: self.number };
        ask(self.socket.0, &question, self.stream.as_raw_fd()).ok()
    }

    fn hears(&mut self, scene: &Scene) -> Option<()> {
        let (answer, beside) = match hear(self.socket.0) {
            Heard::Answer(answer, beside) => (answer, beside),
            Heard::Nothing if self.meeting != 0 && self.told.elapsed() > MEETS => {
                return self.ask();
            }
            Heard::Nothing => return Some(()),
            Heard::Gone => return None,
        };
        scene.keep(&beside);
        match answer.verdict {
            Verdict::Meet if answer.number == self.number => {
                (self.pair, self.meeting) = (answer.pair, answer.meeting);
                self.told = Instant::now();
            }
            Verdict::Ended if answer.pair == self.pair && self.pair != 0 => self.ask()?,
            Verdict::Nobody if answer.number == self.number => self.ask()?,
            // By those who live on with what the dead had.
            Verdict::TooManyPairs if !scene.is_over() => self.ask()?,
            Verdict::Meet | Verdict::Ended | Verdict::Nobody | Verdict::Waits => {}
            other => panic!("{other:?}"),
        }
        Some(())
    }
}

/// Threads and descriptors of a process.
fn takes(pid: u32) -> [usize; 2] {
    ["task", "fd"].map(|folder| {
        let folder = Path::new("/proc").join(pid.to_string()).join(folder);
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    })
}

#[test]
fn who_dies_over_it_at_any_step_takes_nothing_from_anybody() {
    let name = "who_dies_over_it_at_any_step_takes_nothing_from_anybody";
    if !possible(name) {
        return;
    }
    let _permit = permit::cpu(2);
    let seed = seed();
    println!("GINNEL_SEED={seed}");
    let mut broker = Broker::start(&format!("[broker]\npairs = {PAIRS}\nmemory = \"16M\"\n"));
    let scene = Scene {
        path: broker.socket(),
        enough: AtomicBool::new(false),
        had: Mutex::default(),
        left: Mutex::default(),
        met: AtomicU64::new(0),
        died: AtomicU64::new(0),
    };
    std::thread::sleep(LIVES);
    let idle = takes(broker.pid());
    std::thread::scope(|scope| {
        for number in 0..4 {
            let scene = &scene;
            scope.spawn(move || scene.die(seed + number));
        }
        for number in 4..6 {
            let scene = &scene;
            scope.spawn(move || {
                let mut random = Random::new(seed + number);
                while !scene.is_over() {
                    scene.met(&mut random);
                }
            });
        }
        let until = Instant::now() + LASTS;
        while Instant::now() < until {
            std::thread::sleep(LIVES);
            broker.kill();
            broker.start_again();
        }
        // The last one lives longest.
        std::thread::sleep(LASTS / 2);
        scene.enough.store(true, Ordering::Relaxed);
    });
    println!("{:?} met, {:?} died", scene.met, scene.died);
    assert!(scene.met.load(Ordering::Relaxed) > 10 && scene.died.load(Ordering::Relaxed) > 100);
    scene.left.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let until = Instant::now() + PATIENCE;
    while takes(broker.pid()).iter().zip(&idle).any(|(now, idle)| now > idle) {
        assert!(Instant::now() < until, "left: {:?}, not {idle:?}", takes(broker.pid()));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Each user has all its pairs, with itself and with the other.
    for user in [0, NOBODY] {
        let all = || {
            become_user(user);
            let mut random = Random::new(seed);
            (0..PAIRS).map(|_| scene.met(&mut random)).collect::<Vec<_>>()
        };
        let met = std::thread::scope(|scope| scope.spawn(all).join().expect("they met"));
        assert_eq!(met.len(), PAIRS);
    }
}
