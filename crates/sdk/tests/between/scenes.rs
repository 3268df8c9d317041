//! What two do with each kind of object, wherever the other is. Each scene has a part for the first
//! and one for the second; they find each other by names alone.

use ginnel::{
    Barrier, Event, Listener, Memory, Mutex, Queue, Receiver, Reset, RwLock, Segment, Semaphore,
    Sender, Stream,
};
use std::io::{Read, Write};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// Beyond this nobody comes any more.
pub const LONG: Duration = Duration::from_secs(120);
const ROUNDS: u64 = 200;

type Scene = fn(&Segment, bool, &mut Barrier);

const SCENES: [(&str, Scene); 8] = [
    ("memory", memory),
    ("queue", queue),
    ("loans", loans),
    ("stream", stream),
    ("mutex", mutex),
    ("rwlock", rwlock),
    ("semaphore", semaphore),
    ("events", events),
];

/// Plays all of them. The barrier by which both go on together is the ninth object.
pub fn play(segment: &Segment, is_first: bool) {
    let mut barrier = Barrier::open_or_create(segment, "between", 2).expect("a place");
    for (name, scene) in SCENES {
        println!("{name}");
        meet(&mut barrier);
        scene(segment, is_first, &mut barrier);
        meet(&mut barrier);
    }
    println!("{} scenes", SCENES.len());
}

fn meet(barrier: &mut Barrier) {
    barrier.wait_timeout(LONG).expect("the other comes, too");
}

/// What one writes the other reads, and the other way round.
fn memory(segment: &Segment, is_first: bool, barrier: &mut Barrier) {
    let memory = Memory::open_or_create(segment, "memory", 100_000).expect("room");
    let mine = if is_first { 1 } else { 2 };
    let at = |who: u8| usize::from(who) * 40_000;
    memory.write(at(mine), &[mine; 9999]).expect("inside");
    memory.word(8 * usize::from(mine)).expect("inside").store(mine.into(), Release);
    meet(barrier);
    let (theirs, mut bytes) = (3 - mine, [0; 9999]);
    memory.read(at(theirs), &mut bytes).expect("inside");
    assert_eq!(bytes, [theirs; 9999]);
    let word = memory.word(8 * usize::from(theirs)).expect("inside");
    assert_eq!(word.load(Acquire), u64::from(theirs));
}

/// Two queues: messages of many lengths, by a receiver that mostly sleeps.
fn queue(segment: &Segment, is_first: bool, barrier: &mut Barrier) {
    let queue = Queue::new().capacity(8).message_size(5000).senders(2).loans(2);
    for name in ["there", "back"] {
        queue.open_or_create(segment, name).expect("room");
    }
    let (out, into) = if is_first { ("there", "back") } else { ("back", "there") };
    let receiver = Receiver::open(segment, into).expect("nobody else");
    meet(barrier);
    let sender = Sender::open(segment, out).expect("a lane");
    let message = |round: u64| vec![round as u8; (round * 37 % 5001) as usize];
    for round in 0..ROUNDS {
        if is_first {
            sender.send_timeout(&message(round), LONG).expect("room");
        }
        let came = receiver.recv_timeout(LONG).expect("it comes");
        assert_eq!(came.to_vec(), message(round), "{round}");
        if !is_first {
            sender.send_timeout(&message(round), LONG).expect("room");
        }
    }
    meet(barrier);
}

/// From one to one, large, written and read in place, as many as there is room for at a time.
fn loans(segment: &Segment, is_first: bool, barrier: &mut Barrier) {
    const LARGE: usize = 300_000;
    let queue = Queue::new().capacity(4).message_size(LARGE as u64).senders(1).loans(2);
    queue.open_or_create(segment, "large").expect("room");
    if is_first {
        let receiver = Receiver::open(segment, "large").expect("nobody else");
        meet(barrier);
        for round in 0..40u8 {
            let message = receiver.recv_timeout(LONG).expect("it comes");
            let mut ends = [[0; 8]; 2];
            message.read(0, &mut ends[0]);
            message.read(LARGE - 8, &mut ends[1]);
            assert_eq!((message.len(), ends), (LARGE, [[round; 8]; 2]));
        }
    } else {
        meet(barrier);
        let sender = Sender::open(segment, "large").expect("a lane");
        for round in 0..40u8 {
            let mut loan = sender.loan_timeout(LARGE, LONG).expect("room");
            loan.write(0, &[round; 8]);
            loan.write(LARGE - 8, &[round; 8]);
            loan.send().expect("sent");
        }
    }
    meet(barrier);
}

/// Half a million bytes there and back, and an end of each way.
fn stream(segment: &Segment, is_first: bool, barrier: &mut Barrier) {
    const BYTES: usize = 500_000;
    let byte = |at: usize| (at * 7 + at / 251) as u8;
    if is_first {
        let mut listener = Listener::bind(segment, "echo").expect("free");
        meet(barrier);
        let (mut read, mut write) = listener.accept_timeout(LONG).expect("it calls").split();
        assert_eq!(std::io::copy(&mut read, &mut write).expect("whole"), BYTES as u64);
        drop(write);
        meet(barrier);
        return;
    }
    meet(barrier);
    let (mut read, mut write) =
        Stream::connect_timeout(segment, "echo", LONG).expect("it listens").split();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
            write.write_all(&bytes).expect("it reads");
        });
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).expect("whole");
        assert!(bytes.len() == BYTES && bytes.iter().enumerate().all(|(at, is)| *is == byte(at)));
    });
    meet(barrier);
}

/// Counting that takes two steps: nothing is lost.
fn mutex(segment: &Segment, _: bool, barrier: &mut Barrier) {
    let memory = Memory::open_or_create(segment, "count", 8).expect("room");
    let lock = Mutex::open_or_create(segment, "count lock").expect("room");
    let count = memory.word(0).expect("inside");
    for round in 0..ROUNDS {
        let guard = lock.lock_timeout(LONG).expect("nobody dies");
        let was = count.load(Relaxed);
        if round % 20 == 0 {
            // The other comes to sleep.
            std::thread::sleep(Duration::from_millis(1));
        }
        count.store(was + 1, Relaxed);
        drop(guard);
    }
    meet(barrier);
    assert_eq!(count.load(Relaxed), 2 * ROUNDS);
}

/// Who reads sees both words alike, however they are changed.
fn rwlock(segment: &Segment, is_first: bool, barrier: &mut Barrier) {
    let memory = Memory::open_or_create(segment, "pair", 4096).expect("room");
    let lock = RwLock::open_or_create(segment, "pair lock").expect("room");
    let words = [0, 2048].map(|at| memory.word(at).expect("inside"));
    for round in 1..=ROUNDS {
        if is_first {
            let _guard = lock.write_timeout(LONG).expect("nobody dies");
            words[0].store(round, Relaxed);
            if round % 20 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            words[1].store(round, Relaxed);
        } else {
            let _guard = lock.read_timeout(LONG).expect("nobody dies");
            assert_eq!(words[0].load(Relaxed), words[1].load(Relaxed));
        }
    }
    meet(barrier);
}

/// Things to be done are there for each other, one permit for each.
fn semaphore(segment: &Segment, is_first: bool, barrier: &mut Barrier) {
    let jobs = Semaphore::open_or_create(segment, "jobs", 0, 100).expect("room");
    let done = Semaphore::open_or_create(segment, "done", 0, 100).expect("room");
    for _ in 0..ROUNDS {
        if is_first {
            jobs.add(1).expect("room");
            done.acquire_timeout(LONG).expect("it is done").use_up();
        } else {
            jobs.acquire_timeout(LONG).expect("it comes").use_up();
            done.add(1).expect("room");
        }
    }
    meet(barrier);
    assert_eq!((jobs.available(), done.available()), (0, 0));
}

/// To and fro by events that let one through; one for all at the end.
fn events(segment: &Segment, is_first: bool, barrier: &mut Barrier) {
    let event = |name, reset| Event::open_or_create(segment, name, reset).expect("room");
    let (mine, theirs) = if is_first { ("tick", "tock") } else { ("tock", "tick") };
    let (mine, theirs) = (event(mine, Reset::Auto), event(theirs, Reset::Auto));
    let over = event("over", Reset::Manual);
    for _ in 0..ROUNDS {
        if is_first {
            mine.set().expect("set");
        }
        theirs.wait_timeout(LONG).expect("it comes");
        if !is_first {
            mine.set().expect("set");
        }
    }
    if is_first {
        over.set().expect("set");
    }
    over.wait_timeout(LONG).expect("it comes");
    assert!(over.is_set());
    meet(barrier);
}
