//! One chosen deed after the other against each kind of object, by a process of the segment that
//! knows where everything stands. What an honest process sees of it is an error in words, within
//! the time that it gave; what it is not to see is another's bytes, a crash or a hang.
//!
//! Random deeds against all of them: `hostile.rs`.

use crate::hostile::{PAGE, Stranger};
use crate::stage::{Guarded, Part, play, role, segment, until};
use ginnel::{
    Barrier, Error, Event, Kind, Listener, LockError, LockResult, Memory, Mutex, Queue, Receiver,
    Reset, RwLock, Segment, Semaphore, Sender, Stream,
};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(50);
/// After which a wait of [`SHORT`] counts as a hang.
const HANG: Duration = Duration::from_secs(30);

/// Words of an object's first page.
const SIZE: u64 = 0x18;
const PAGES: u64 = 0x20;
const NUMBER: u64 = 0x28;
const FIRST_WORD: u64 = 0x40;

/// How many permits there can be in the neighbour's semaphore, by which it is told from others.
const NEIGHBOURS: u32 = 7;

/// Where the first page of a test's one object of this kind begins.
fn head(stranger: &Stranger, kind: Kind) -> u64 {
    find(stranger, |at| {
        let number = stranger.word(at + NUMBER);
        stranger.word(at + 8) & 0xffff == kind as u64 && number != u64::from(NEIGHBOURS)
    })
}

fn find(stranger: &Stranger, is_it: impl Fn(u64) -> bool) -> u64 {
    let is_it = |&(page, _): &(u64, u64)| is_it(page * PAGE);
    let mut pages = stranger.pages();
    pages.retain(|(_, of)| *of == ginnel_region::Use::Object as u64);
    pages.into_iter().find(is_it).expect("such an object").0 * PAGE
}

/// A process that lives until it is killed: what stands where it stands for itself.
fn neighbour(segment: &Segment, stranger: &Stranger) -> (Guarded, u64) {
    let neighbour = role("lives", "");
    until("the neighbour's semaphore", || Semaphore::open(segment, "neighbour").is_ok());
    let at = find(stranger, |at| stranger.word(at + NUMBER) == u64::from(NEIGHBOURS)) + PAGE;
    until("its permit", || stranger.word(at) != 1 << 62);
    (neighbour, stranger.word(at))
}

fn lives() -> ! {
    let segment = segment();
    let semaphore = Semaphore::create(&segment, "neighbour", 1, NEIGHBOURS).expect("free");
    let _permit = semaphore.acquire().expect("one");
    loop {
        std::thread::sleep(HANG);
    }
}

/// Plays a test that has a neighbour, and is given its word.
fn beside(name: &str, test: impl FnOnce(&Segment, &Stranger, (Guarded, u64))) {
    play(name, |part| {
        if let Part::Role(..) = part {
            lives();
        }
        let segment = segment();
        let stranger = Stranger::new(&segment);
        let neighbour = neighbour(&segment, &stranger);
        test(&segment, &stranger, neighbour);
    });
}

/// Returns what a call does that waits for [`SHORT`] at most.
fn soon<T>(call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let came = call();
    assert!(began.elapsed() < HANG, "it hung for {:?}", began.elapsed());
    came
}

fn failed<G>(result: LockResult<G>) -> Error {
    match result {
        Err(LockError::Failed(error)) => error,
        Err(LockError::HolderDied(_)) => panic!("it is held, after a death"),
        Ok(_) => panic!("it is held"),
    }
}

/// Every measure that another process can write is refused where it leads out of the object.
#[test]
fn measures_that_lead_elsewhere() {
    play("attacks::measures_that_lead_elsewhere", |_| {
        let segment = segment();
        let stranger = Stranger::new(&segment);
        let memory = Memory::create(&segment, "m", 5000).expect("free");
        memory.write(0, b"mine").expect("inside");
        Memory::create(&segment, "behind", 4096)
            .expect("free")
            .write(0, b"theirs")
            .expect("inside");
        let at = head(&stranger, Kind::Memory);
        for (word, values) in [
            (SIZE, [0, 8193, 1 << 40, u64::MAX]),
            (PAGES, [0, 1, 1 << 31, u64::MAX]),
            (0, [0, 1, 1 << 40, u64::MAX]),
        ] {
            let was = stranger.word(at + word);
            for value in values {
                stranger.put(at + word, value);
                let opened = Memory::open(&segment, "m");
                let corrupt = Error::Corrupt { name: "m".into() };
                assert_eq!(opened.err(), Some(corrupt), "{word:#x}: {value:#x}");
                // Who has it open looked when it opened it.
                assert_eq!(memory.len(), 5000);
                let mut bytes = [0; 4];
                memory.read(4990, &mut bytes).expect("inside");
                assert!(memory.read(4999, &mut bytes).is_err());
            }
            stranger.put(at + word, was);
        }
        Memory::open(&segment, "m").expect("as it was");
        Queue::new().create(&segment, "q").expect("free");
        Semaphore::create(&segment, "s", 1, 1).expect("free");
        Event::create(&segment, "e", Reset::Auto).expect("free");
        Barrier::create(&segment, "b", 2).expect("free");
        type Open = fn(&Segment) -> Option<Error>;
        let opens: [(Kind, &str, Open); 5] = [
            (Kind::Queue, "q", |segment| Receiver::open(segment, "q").err()),
            (Kind::Queue, "q", |segment| Sender::open(segment, "q").err()),
            (Kind::Semaphore, "s", |segment| Semaphore::open(segment, "s").err()),
            (Kind::Event, "e", |segment| Event::open(segment, "e").err()),
            (Kind::Barrier, "b", |segment| Barrier::open(segment, "b").err()),
        ];
        for (kind, name, open) in opens {
            let at = head(&stranger, kind) + NUMBER;
            let was = stranger.word(at);
            for value in [0, u64::MAX, 1 << 33, 40_000] {
                stranger.put(at, value);
                let corrupt = Error::Corrupt { name: name.into() };
                assert_eq!(open(&segment), Some(corrupt), "{name}: {value:#x}");
            }
            stranger.put(at, was);
        }
    });
}

/// A mutex: taken in another's name, in nobody's, taken away, said to be half done.
#[test]
fn a_mutex() {
    beside("attacks::a_mutex", |segment, stranger, (neighbour, theirs)| {
        let mutex = Mutex::create(segment, "lock").expect("free");
        let at = head(stranger, Kind::Mutex) + FIRST_WORD;
        stranger.put(at, theirs);
        assert_eq!(failed(mutex.try_lock()), Error::WouldBlock);
        assert_eq!(soon(|| failed(mutex.lock_timeout(SHORT))), Error::TimedOut);
        // In whose name it was taken dies: all goes on, and is told.
        neighbour.kill();
        let Err(LockError::HolderDied(guard)) = soon(|| mutex.lock()) else { panic!("told") };
        guard.mark_consistent();
        // Taken away: what another has by now is left alone when this one gives back.
        stranger.put(at, 0x0123_4567_89ab);
        drop(guard);
        assert_eq!(stranger.word(at), 0x0123_4567_89ab);
        for nonsense in [1 << 61, u64::MAX, 0x0123_4567_89ab, 1 << 63] {
            stranger.put(at, nonsense);
            match soon(|| mutex.lock_timeout(SHORT)) {
                Ok(guard) => drop(guard),
                Err(LockError::HolderDied(guard)) => guard.mark_consistent(),
                Err(LockError::Failed(error)) => assert_eq!(error, Error::TimedOut),
            }
        }
    });
}

/// A reader–writer lock: every place to read is taken by one that lives; a writer that is none.
#[test]
fn a_reader_writer_lock() {
    beside("attacks::a_reader_writer_lock", |segment, stranger, (neighbour, theirs)| {
        let lock = RwLock::create(segment, "lock").expect("free");
        let at = head(stranger, Kind::RwLock);
        let places = (0..512).map(|place| at + PAGE + place * 8);
        places.clone().for_each(|place| stranger.put(place, theirs));
        assert_eq!(soon(|| failed(lock.write_timeout(SHORT))), Error::TimedOut);
        assert_eq!(soon(|| failed(lock.read_timeout(SHORT))), Error::TimedOut);
        assert_eq!(failed(lock.try_read()), Error::WouldBlock);
        stranger.put(at + FIRST_WORD, theirs | 1 << 60);
        neighbour.kill();
        let Err(LockError::HolderDied(guard)) = soon(|| lock.write()) else { panic!("told") };
        guard.mark_consistent();
        drop(guard);
        assert!(places.clone().all(|place| stranger.word(place) == 0), "the dead read no more");
        // In the midst of it somebody else is put in.
        let guard = soon(|| lock.read()).expect("in order");
        places.clone().for_each(|place| stranger.put(place, u64::MAX));
        drop(guard);
        let guard = soon(|| lock.write_timeout(SHORT));
        assert!(guard.is_ok() || matches!(guard, Err(LockError::Failed(Error::TimedOut))));
    });
}

/// A semaphore: every permit is had by one that lives; words that stand for nothing.
#[test]
fn a_semaphore() {
    beside("attacks::a_semaphore", |segment, stranger, (neighbour, theirs)| {
        let semaphore = Semaphore::create(segment, "s", 3, 4).expect("free");
        let at = head(stranger, Kind::Semaphore) + PAGE;
        let words = (0..4).map(|place| at + place * 8);
        words.clone().for_each(|word| stranger.put(word, theirs));
        assert_eq!(soon(|| semaphore.acquire_timeout(SHORT)).err(), Some(Error::TimedOut));
        assert_eq!(semaphore.add(1).err(), Some(Error::TooManyPermits { most: 4 }));
        neighbour.kill();
        let permit = soon(|| semaphore.acquire()).expect("of the dead");
        // Made anybody's while it is had.
        words.clone().for_each(|word| stranger.put(word, 3 << 62));
        drop(permit);
        assert_eq!(semaphore.available(), 0);
        let came = soon(|| semaphore.acquire_timeout(SHORT)).map(drop);
        assert!(came.is_ok() || came == Err(Error::TimedOut), "{came:?}");
    });
}

/// An event whose count is at its end, and one that somebody else sets and resets without a pause.
#[test]
fn an_event() {
    play("attacks::an_event", |_| {
        let segment = segment();
        let stranger = Stranger::new(&segment);
        let event = Event::create(&segment, "e", Reset::Manual).expect("free");
        let at = head(&stranger, Kind::Event) + FIRST_WORD;
        for state in [u64::MAX, u64::MAX - 1, 1 << 63, 0] {
            stranger.put(at, state);
            event.set().expect("it counts on");
            soon(|| event.wait()).expect("set");
            event.reset().expect("there");
            assert_eq!(soon(|| event.wait_timeout(SHORT)).err(), Some(Error::TimedOut));
        }
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for state in (0..u64::MAX).map(|round| round.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                    stranger.put(at, state);
                    if ends.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..50 {
                for done in [soon(|| event.set()), soon(|| event.reset().map(drop))] {
                    assert!(matches!(done, Ok(()) | Err(Error::Corrupt { .. })), "{done:?}");
                }
                let came = soon(|| event.wait_timeout(Duration::from_millis(2)));
                assert!(matches!(came, Ok(()) | Err(Error::TimedOut)), "{came:?}");
            }
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

/// A barrier: all seats are taken by one that lives; all are said to have come, and to be dead.
#[test]
fn a_barrier() {
    beside("attacks::a_barrier", |segment, stranger, (neighbour, theirs)| {
        let mut mine = Barrier::create(segment, "b", 2).expect("free");
        let at = head(stranger, Kind::Barrier);
        let seats = [0x600, 0x608].map(|seat| at + seat);
        let other = seats.into_iter().find(|&seat| stranger.word(seat) == 0).expect("one is free");
        stranger.put(other, theirs);
        assert!(matches!(Barrier::open(segment, "b").err(), Some(Error::InUse { .. })));
        assert_eq!(soon(|| mine.wait_timeout(SHORT)).err(), Some(Error::TimedOut));
        for state in [u64::MAX, (1 << 48) - 1, 1 << 47, u64::MAX << 48] {
            stranger.put(at + FIRST_WORD, state);
            let came = soon(|| mine.wait_timeout(SHORT));
            let told = matches!(came, Ok(_) | Err(Error::TimedOut | Error::Corrupt { .. }));
            assert!(told, "{state:#x}: {came:?}");
        }
        stranger.put(at + FIRST_WORD, 0);
        neighbour.kill();
        assert_eq!(soon(|| mine.wait()).err(), Some(Error::Broken));
        seats.into_iter().for_each(|seat| stranger.put(seat, u64::MAX));
        let came = soon(|| mine.wait_timeout(SHORT)).map(drop);
        assert!(came.is_err(), "its seat is another's");
    });
}

/// A queue: a message longer than a buffer, in a buffer that is none; lanes beyond the segment;
/// both roles taken by one that lives.
#[test]
fn a_queue() {
    beside("attacks::a_queue", |segment, stranger, (neighbour, theirs)| {
        let queue = Queue::new().capacity(2).message_size(100).senders(2).loans(1);
        queue.create(segment, "q").expect("free");
        let at = head(stranger, Kind::Queue);
        // The role of who receives, and then of both that send.
        stranger.put(at + FIRST_WORD, theirs);
        assert!(matches!(Receiver::open(segment, "q").err(), Some(Error::InUse { .. })));
        let lanes = [0x400, 0x420].map(|lane| at + lane);
        lanes.into_iter().for_each(|lane| stranger.put(lane, theirs));
        assert!(matches!(Sender::open(segment, "q").err(), Some(Error::InUse { .. })));
        neighbour.kill();
        let receiver = soon(|| Receiver::open(segment, "q")).expect("of the dead");
        let sender = soon(|| Sender::open(segment, "q")).expect("of the dead");
        sender.send(b"before").expect("room");
        assert_eq!(receiver.recv().expect("sent").to_vec(), b"before");
        // Each bit of the cell of the next message, and all of them, by and by.
        let lane = lanes.into_iter().find(|lane| stranger.word(lane + 8) != 0).expect("in use");
        let cells = (stranger.word(lane + 8) & 0xffff_ffff) * PAGE;
        for bit in 0..64 {
            let sender = Sender::open(segment, "q").expect("the other lane, or this one");
            let sent = soon(|| sender.send_timeout(&[bit], SHORT));
            let cell = cells + u64::from(bit % 2) * 64;
            stranger.put(cell, stranger.word(cell) ^ 1 << bit);
            while let Ok(message) = soon(|| receiver.recv_timeout(Duration::from_millis(2))) {
                assert!(message.len() <= 100 && message.to_vec().len() == message.len());
            }
            drop((sent, sender));
        }
        for pages in [0, 1, u64::MAX, 1 << 31 | 1 << 63, u64::MAX << 32 | 5] {
            lanes.into_iter().for_each(|lane| stranger.put(lane + 8, pages));
            let sent =
                Sender::open(segment, "q").map(|sender| soon(|| sender.send_timeout(b"1", SHORT)));
            drop(sent);
            let came = soon(|| receiver.recv_timeout(SHORT)).map(drop);
            assert!(came.is_err(), "{pages:#x}: there is none");
        }
    });
}

/// A stream whose other end writes what no stream writes, in the middle of a conversation.
#[test]
fn a_stream() {
    play("attacks::a_stream", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let mut stream = Stream::connect_timeout(&segment, "s", HANG).expect("it listens");
            let mut bytes = [0; 4];
            // Ends with whatever comes: by an end, an error or nonsense.
            while matches!(stream.read(&mut bytes), Ok(1..)) {
                if stream.write_all(&bytes).is_err() {
                    break;
                }
            }
            return;
        }
        let mut listener = Listener::bind(&segment, "s").expect("free");
        let mut stranger = Stranger::new(&segment);
        for round in 0..20u32 {
            let other = role("echoes", "");
            let mut stream = listener.accept_timeout(HANG).expect("it comes");
            stream.set_nonblocking(true);
            let until = Instant::now() + Duration::from_millis(20);
            let mut bytes = [0; 4];
            while Instant::now() < until {
                let _ = stream.write(&round.to_le_bytes());
                let _ = stream.read(&mut bytes);
            }
            (0..40).for_each(|_| stranger.harm(&[6]));
            for _ in 0..10 {
                let _ = soon(|| stream.write(&bytes));
                let _ = soon(|| stream.read(&mut bytes));
            }
            drop(stream);
            other.ends();
        }
        // Who listens goes on as if nothing had been.
        let other = role("echoes", "");
        let mut stream = listener.accept_timeout(HANG).expect("it comes");
        stream.write_all(b"well").expect("it reads");
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).expect("it answers");
        assert_eq!(&bytes, b"well");
        drop(stream);
        other.ends();
    });
}
