//! A process of the segment that writes whatever it likes: honest ones get errors and their bytes,
//! as garbage perhaps, and go on. Nobody crashes, hangs or reads outside the segment.
//!
//! `GINNEL_SEED` repeats a run, as far as processes that race can be repeated.

use crate::stage::{Part, play, role, segment, until};
use ginnel::{
    Barrier, Error, Event, Listener, LockError, Memory, Mutex, Options, Permit, Queue, Receiver,
    Reset, RwLock, Segment, Semaphore, Sender, Stream, WhenFull,
};
use ginnel_region::sys;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub const PAGE: u64 = 4096;
const SIZE: u64 = 64 << 20;
/// Header page, rendezvous and members, behind which the owner words lie, and then the names.
pub const OWNERS: u64 = PAGE + (2 << 20) + (64 << 10);
pub const NAMES: u64 = OWNERS + SIZE / PAGE * 8;
const FIRST: u64 = (NAMES + 2048 * (8 + 128)) / PAGE;

/// Writes into the segment as any process of it can.
pub struct Stranger {
    file: File,
    dice: u64,
}

impl Stranger {
    pub fn new(segment: &Segment) -> Self {
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.subsec_nanos().into());
        let seed = std::env::var("GINNEL_SEED").ok().and_then(|text| text.parse().ok());
        let dice = seed.unwrap_or_else(clock) | 1;
        eprintln!("seed {dice}");
        let file = File::options().read(true).write(true).open(segment.path()).expect("there");
        Self { file, dice }
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 11) % below
    }

    pub fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).expect("inside");
        u64::from_le_bytes(bytes)
    }

    pub fn put(&self, at: u64, value: u64) {
        self.file.write_all_at(&value.to_le_bytes(), at).expect("inside");
    }

    /// Pages in use, each with what it is for.
    pub fn pages(&self) -> Vec<(u64, u64)> {
        let mut words = vec![0; (SIZE / PAGE * 8) as usize];
        self.file.read_exact_at(&mut words, OWNERS).expect("inside");
        let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let used = words.enumerate().skip(FIRST as usize).filter(|(_, word)| word >> 62 & 1 == 1);
        used.map(|(page, word)| (page as u64, word >> 57 & 15)).collect()
    }

    /// Something wrong, near to what stands there or not.
    fn spoil(&mut self, at: u64) {
        let is = self.word(at);
        let value = match self.roll(8) {
            0 => 0,
            1 => u64::MAX,
            2 => is.wrapping_add(1),
            3 => is ^ 1 << self.roll(64),
            4 => is.wrapping_sub(self.roll(5000)),
            5 => self.roll(5000) << 32 | self.roll(5000),
            6 => 1 << 44 | self.roll(64) << 32 | self.roll(1 << 32),
            _ => self.dice,
        };
        self.put(at, value);
    }

    /// One bad deed. `kinds`: of which pages; the tables are spoilt where it is empty.
    pub fn harm(&mut self, kinds: &[u64]) {
        if kinds.is_empty() {
            let entry = self.roll(6);
            let at = match self.roll(4) {
                0 => OWNERS + (FIRST + self.roll(40)) * 8,
                1 => NAMES + 2048 * 8 + entry * 128 + self.roll(16) * 8,
                _ => NAMES + entry * 8,
            };
            return self.spoil(at);
        }
        let mut pages = self.pages();
        pages.retain(|(_, kind)| kinds.contains(kind));
        if pages.is_empty() {
            return;
        }
        let (page, kind) = pages[self.roll(pages.len() as u64) as usize];
        // Most words of an object are in the first lines, and where its lanes are.
        let word = match (kind, self.roll(3)) {
            (5, 0) => self.roll(32),
            (5, 1) => 128 + self.roll(16),
            (6, _) => self.roll(64),
            _ => self.roll(512),
        };
        self.spoil(page * PAGE + word * 8);
    }
}

/// What an honest program does, for as long as it is let: whatever comes of it is an error in
/// words.
fn honest(segment: &Segment) {
    let until = Instant::now() + Duration::from_secs(3);
    let time = Duration::from_millis(20);
    let queue = Queue::new().capacity(8).message_size(5000).senders(4).loans(2);
    let errors = std::cell::Cell::new(0);
    let mut messages = 0;
    let check = |error: Error| {
        errors.set(errors.get() + 1);
        assert!(!error.to_string().is_empty());
        assert!(!matches!(error, Error::Forked | Error::NotTrusting), "{error}");
    };
    while Instant::now() < until {
        let _ = queue.open_or_create(segment, "q").map_err(check);
        let _ = Memory::open_or_create(segment, "m", 9000).map_err(check).map(|memory| {
            let mut bytes = vec![0; memory.len()];
            memory.read(0, &mut bytes).expect("inside");
        });
        let receiver = Receiver::open(segment, "q").map_err(check).ok();
        let sender = Sender::open(segment, "q").map_err(check).ok();
        let sender = sender.map(|sender| sender.when_full(WhenFull::DropOldest));
        for i in 0..50usize {
            if let Some(sender) = &sender {
                let _ = sender.loan_timeout(i * 97 % 5001, time).map_err(check).map(|mut loan| {
                    let len = loan.len();
                    loan.write(0, &vec![1; len]);
                    let _ = loan.send().map_err(check);
                });
            }
            let received = receiver.as_ref().map(|receiver| receiver.recv_timeout(time));
            if let Some(Ok(message)) = received.map(|received| received.map_err(check)) {
                assert!(message.to_vec().len() <= 5000);
                messages += 1;
            }
        }
        synchronise(segment, &check);
        talk(segment, &check);
        let _ = segment.objects().map_err(check);
        let _ = segment.remove("m").map_err(check);
        if messages % 2 == 0 {
            let _ = segment.remove("q").map_err(check);
        }
    }
    eprintln!("{messages} messages, {} errors", errors.get());
    assert!(errors.get() > 0, "the stranger did no harm");
}

/// The segment, for a process that starts while the stranger is at work already: its entering, too,
/// may end with an error, and is tried again.
fn entered() -> Segment {
    let mut segment = None;
    until("a way into the segment", || {
        segment = Options::new().size(SIZE).open("stage").ok();
        segment.is_some()
    });
    segment.expect("it is there")
}

/// A while with each of the objects by which processes wait for each other.
fn synchronise(segment: &Segment, check: &impl Fn(Error)) {
    let time = Duration::from_millis(5);
    let semaphore = Semaphore::open_or_create(segment, "s", 2, 600).map_err(check);
    for _ in 0..10 {
        let _ = semaphore.as_ref().map(|semaphore| {
            let _ = semaphore.add(1).map_err(check);
            let first = semaphore.acquire_timeout(time).map_err(check);
            let _ = semaphore.acquire_timeout(time).map_err(check).map(Permit::use_up);
            drop(first);
            assert!(semaphore.available() <= 600);
        });
    }
    for reset in [Reset::Manual, Reset::Auto] {
        let event = Event::open_or_create(segment, "e", reset).map_err(check);
        let _ = event.map(|event| {
            let _ = event.set().map_err(check);
            let _ = event.wait_timeout(time).map_err(check);
            let _ = event.reset().map_err(check);
            let _ = event.wait_timeout(time).map_err(check);
        });
    }
    let mutex = Mutex::open_or_create(segment, "x").map_err(check);
    for _ in 0..5 {
        let _ = mutex.as_ref().map(|mutex| match mutex.lock_timeout(time) {
            Ok(guard) => drop(guard),
            Err(LockError::HolderDied(guard)) => guard.mark_consistent(),
            Err(LockError::Failed(error)) => check(error),
        });
    }
    let lock = RwLock::open_or_create(segment, "r").map_err(check);
    for _ in 0..5 {
        let _ = lock.as_ref().map(|lock| {
            if let Err(LockError::Failed(error)) = lock.read_timeout(time) {
                check(error);
            }
            match lock.write_timeout(time) {
                Ok(_) => {}
                Err(LockError::HolderDied(guard)) => guard.mark_consistent(),
                Err(LockError::Failed(error)) => check(error),
            }
        });
    }
    let barriers = [0, 1].map(|_| Barrier::open_or_create(segment, "b", 2).map_err(check).ok());
    for mut barrier in barriers.into_iter().flatten() {
        for _ in 0..3 {
            let _ = barrier.wait_timeout(time).map_err(check);
        }
    }
    for name in ["s", "e", "x", "r", "b"] {
        if of_no_account(3) == 0 {
            let _ = segment.remove(name).map_err(check);
        }
    }
}

/// A stream between two threads of this process, or of each of the two honest ones.
fn talk(segment: &Segment, check: &impl Fn(Error)) {
    let time = Duration::from_millis(20);
    let called = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut stream = Stream::connect_timeout(segment, "t", time)?;
            stream.set_nonblocking(true);
            let (mut bytes, until) = ([0; 9000], Instant::now() + time);
            while Instant::now() < until {
                let _ = stream.write(&bytes);
                let _ = stream.read(&mut bytes);
            }
            Ok(())
        });
        let accepted = Listener::bind(segment, "t")
            .and_then(|mut listener| listener.accept_timeout(time))
            .map_err(check);
        let _ = accepted.map(|mut stream| {
            stream.set_nonblocking(true);
            let (mut bytes, until) = ([0; 500], Instant::now() + time);
            while Instant::now() < until {
                let _ = stream.read(&mut bytes);
                let _ = stream.write(&bytes);
            }
        });
        client.join().expect("no panic")
    });
    let _ = called.map_err(check);
}

/// A number below `below`, of no account.
fn of_no_account(below: u32) -> u32 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_micros() % below)
}

fn attack(part: Part, kinds: &[u64]) {
    if let Part::Role(..) = part {
        return honest(&entered());
    }
    let segment = segment();
    let mut stranger = Stranger::new(&segment);
    let honest = [role("honest", ""), role("honest", "")];
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        for _ in 0..20 {
            stranger.harm(kinds);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    honest.into_iter().for_each(|honest| honest.ends());
}

/// Cells, states of buffers and messages.
#[test]
fn lanes() {
    play("hostile::lanes", |part| attack(part, &[6]));
}

/// First pages: measures, roles, wishes, where lanes lie.
#[test]
fn objects() {
    play("hostile::objects", |part| attack(part, &[5]));
}

/// Everything that is shared, parties and waiters too.
#[test]
fn all_pages() {
    play("hostile::all_pages", |part| attack(part, &[3, 4, 5, 6]));
}

/// A permit for each of as many parties as there can be, none of which is there: each is asked for
/// once, not beside each other.
#[test]
fn a_look_at_many_strangers_is_short() {
    play("hostile::a_look_at_many_strangers_is_short", |_| {
        const FREE: u64 = 1 << 62;
        let segment = segment();
        let most = 32_767;
        let semaphore = Semaphore::create(&segment, "large", 1, most).expect("room");
        let stranger = Stranger::new(&segment);
        let is_it = |page: &u64| stranger.word(page * PAGE) == FREE;
        let body = (FIRST..SIZE / PAGE).find(is_it).expect("the permits") * PAGE;
        let until = Instant::now() + Duration::from_secs(60);
        for round in 1..=300u64 {
            let parties: Vec<u8> = (0..u64::from(most))
                .flat_map(|at| (round << 28 | (at + 1)).to_le_bytes())
                .collect();
            stranger.file.write_all_at(&parties, body).expect("inside");
            let permit = semaphore.try_acquire().expect("they are all dead");
            // One of them may be this party itself.
            assert!(semaphore.available() >= most - 2);
            drop(permit);
            assert!(Instant::now() < until, "{round} looks in a minute");
        }
    });
}

/// Whose locks say that they live, in every file of this name below a directory.
fn lock_all(directory: &Path, pages: &std::ops::Range<u64>) {
    for entry in std::fs::read_dir(directory).expect("there").flatten() {
        if entry.path().is_dir() {
            lock_all(&entry.path(), pages);
        } else if entry.file_name() == "parties" {
            let fd = File::open(entry.path()).expect("there").into_raw_fd();
            pages.clone().for_each(|page| sys::share_byte(fd, page).expect("locked"));
        }
    }
}

/// Many objects, and as many parties that seem to live: a list of the objects looks at each party
/// once, not once for each object.
#[test]
fn a_list_of_many_objects_and_parties_is_short() {
    play("hostile::a_list_of_many_objects_and_parties_is_short", |_| {
        const OBJECTS: usize = 1500;
        const PARTIES: std::ops::Range<u64> = 8000..12_000;
        let segment = segment();
        for number in 0..OBJECTS {
            Memory::create(&segment, &format!("m{number}"), 1).expect("room");
        }
        // Pages are looked at up to the highest that was ever claimed.
        drop(Memory::create(&segment, "large", 40 << 20).expect("room"));
        segment.remove("large").expect("there");
        let stranger = Stranger::new(&segment);
        let (own, _) = stranger.pages().into_iter().find(|(_, kind)| *kind == 4).expect("a party");
        let word = stranger.word(OWNERS + own * 8);
        PARTIES.for_each(|page| stranger.put(OWNERS + page * 8, word));
        lock_all(Path::new(&std::env::var_os("GINNEL_DIR").expect("set")), &PARTIES);
        let until = Instant::now() + Duration::from_secs(60);
        for look in 1..=100 {
            assert_eq!(segment.objects().expect("a list").len(), OBJECTS);
            assert!(Instant::now() < until, "{look} looks in a minute");
        }
        let owner = stranger.word(OWNERS + PARTIES.start * 8);
        assert_eq!(owner, word, "they live, as far as anybody can tell");
    });
}

/// Owner words and names.
#[test]
fn tables() {
    play("hostile::tables", |part| attack(part, &[]));
}
