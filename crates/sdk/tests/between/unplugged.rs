//! One that loses its device in the middle, as a machine does from which it is taken out, and one
//! of another machine that talks with it before and afterwards.

use crate::scenes::LONG;
use ginnel::{Error, LockError, Memory, Mutex, Queue, Receiver, Segment, Sender};
use std::time::{Duration, Instant};

const KEPT: usize = 100_000;

/// Sends back so many messages as they come.
pub fn answers(segment: &Segment, count: u32) {
    let queue = Queue::new().capacity(4).message_size(100);
    queue.open_or_create(segment, "questions").expect("room");
    queue.open_or_create(segment, "answers").expect("room");
    let questions = Receiver::open(segment, "questions").expect("nobody else");
    let answers = Sender::open(segment, "answers").expect("a lane");
    for _ in 0..count {
        let question = loop {
            match questions.recv_timeout(LONG) {
                // Who asked lost its device, and comes again.
                Err(Error::Ended { .. }) => std::thread::sleep(Duration::from_millis(5)),
                other => break other.expect("it comes").to_vec(),
            }
        };
        answers.send_timeout(&question, LONG).expect("room");
    }
}

/// Asks, and waits for what comes back.
fn ask(segment: &Segment, what: &[u8]) -> Receiver {
    let questions = Sender::open(segment, "questions").expect("a lane");
    let answers = Receiver::open(segment, "answers").expect("nobody else");
    questions.send_timeout(what, LONG).expect("room");
    assert_eq!(answers.recv_timeout(LONG).expect("it comes").to_vec(), what);
    answers
}

/// Loses its device while it holds a lock and waits for a message: every call says so. Has the
/// device again, and finds in it what it had put there.
pub fn loses_its_device(segment: Segment, tell: impl Fn(&str)) {
    let answers = ask(&segment, b"before");
    let memory = Memory::create(&segment, "kept", KEPT as u64).expect("room");
    memory.write(0, &[7; KEPT]).expect("inside");
    let [held, free] = ["held", "free"].map(|name| Mutex::create(&segment, name).expect("room"));
    let guard = held.lock().expect("nobody else");
    tell("waits");
    assert_eq!(answers.recv_timeout(LONG).err(), Some(Error::Gone));
    assert!(matches!(free.try_lock(), Err(LockError::Failed(Error::Gone))));
    assert_eq!(Memory::open(&segment, "kept").err(), Some(Error::Gone));
    // Nobody crashes over it, and nothing of it comes to anybody.
    memory.write(5000, b"nowhere").expect("inside");
    drop((guard, free, answers, memory));
    drop((held, segment));
    tell("gone");
    let (segment, memory) = again();
    let mut kept = [0; KEPT];
    memory.read(0, &mut kept).expect("inside");
    assert_eq!(kept, [7; KEPT]);
    let lock = Mutex::open(&segment, "held").expect("it stays");
    assert!(matches!(lock.lock_timeout(LONG), Err(LockError::HolderDied(_))));
    ask(&segment, b"after");
    tell("back");
}

/// Opens the segment until the device is there.
fn again() -> (Segment, Memory) {
    let limit = Instant::now() + LONG;
    loop {
        // Without a device, the user's own segment is another.
        let own = Segment::own().ok();
        let kept = own.and_then(|own| Memory::open(&own, "kept").ok().map(|kept| (own, kept)));
        if let Some(kept) = kept {
            return kept;
        }
        assert!(Instant::now() < limit, "the device never comes back");
        std::thread::sleep(Duration::from_millis(50));
    }
}
