//! One that outlives others which hold everything when they die.

use crate::scenes::LONG;
use ginnel::{
    Barrier, Error, Keep, Listener, LockError, Memory, Mutex, Queue, Receiver, RwLock, Segment,
    Semaphore, Sender, Stream,
};
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

/// What both open. Who comes second finds it.
struct Stand {
    mutex: Mutex,
    lock: RwLock,
    permits: Semaphore,
}

impl Stand {
    fn take(segment: &Segment) -> Self {
        let queue = Queue::new().capacity(4).message_size(1000).senders(2).loans(2);
        for name in ["to the dead", "of the dead"] {
            queue.open_or_create(segment, name).expect("room");
        }
        let mutex = Mutex::open_or_create(segment, "mutex").expect("room");
        let lock = RwLock::open_or_create(segment, "lock").expect("room");
        let permits = Semaphore::open_or_create(segment, "permits", 1, 1).expect("room");
        Self { mutex, lock, permits }
    }
}

/// Takes hold of everything, says so, and waits for its death.
pub fn dies(segment: &Segment) {
    let stand = Stand::take(segment);
    let _guard = stand.mutex.lock_timeout(LONG).expect("the one before has died, and all is well");
    let _writes = stand.lock.write_timeout(LONG).expect("likewise");
    let _permit = stand.permits.acquire_timeout(LONG).expect("likewise");
    let receiver = Receiver::open(segment, "to the dead").expect("likewise");
    let _in_hand = receiver.recv_timeout(LONG).expect("it comes");
    let sender = Sender::open(segment, "of the dead").expect("a lane");
    sender.send(b"whole").expect("room");
    let _lent = sender.loan(1000).expect("room");
    let _gone = Memory::create_keeping(segment, "gone", 4096, Keep::WithCreator).expect("free");
    // Before it calls: who waits with a dead one's seat beside is told of that.
    let mut seat = Barrier::open(segment, "all").expect("a seat");
    let _stream = Stream::connect_timeout(segment, "calls", LONG).expect("it listens");
    // Whoever waits there with it has come, too: then it comes no more.
    seat.wait_timeout(LONG).expect("the other comes");
    std::thread::sleep(LONG);
}

/// Waits until something is so, with a limit that only a hang meets.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: never");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sees so many come and die: tells `met N` when one has everything, `gone N` when all of it was
/// told, and is to be had again.
pub fn outlives(segment: &Segment, rounds: u32, tell: impl Fn(&str)) {
    let stand = Stand::take(segment);
    let mut listener = Listener::bind(segment, "calls").expect("free");
    let to_them = Sender::open(segment, "to the dead").expect("a lane");
    let of_them = Receiver::open(segment, "of the dead").expect("nobody else");
    let mut seat = Barrier::create(segment, "all", 2).expect("free");
    for round in 1..=rounds {
        to_them.send(b"first").expect("room");
        to_them.send(b"second").expect("room");
        let mut stream = listener.accept_timeout(LONG).expect("it calls");
        seat.wait_timeout(LONG).expect("it comes");
        tell(&format!("met {round}"));
        // All waits begin before it dies.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let Err(LockError::HolderDied(guard)) = stand.mutex.lock_timeout(LONG) else {
                    panic!("the mutex: nobody was told")
                };
                guard.mark_consistent();
            });
            scope.spawn(|| {
                let Err(LockError::HolderDied(guard)) = stand.lock.write_timeout(LONG) else {
                    panic!("the lock: nobody was told")
                };
                guard.mark_consistent();
            });
            scope.spawn(|| drop(stand.permits.acquire_timeout(LONG).expect("of the dead")));
            scope.spawn(|| {
                let said = stream.read(&mut [0]).err().map(|error| error.kind());
                assert_eq!(said, Some(ErrorKind::ConnectionReset));
            });
            let said = seat.wait_timeout(LONG).err();
            assert_eq!(said, Some(Error::Broken));
        });
        assert_eq!(of_them.recv_timeout(LONG).expect("it was sent").to_vec(), b"whole");
        assert_eq!(of_them.recv_timeout(LONG).err(), Some(Error::Ended { died: true }));
        until("an end of its name", || Memory::open(segment, "gone").is_err());
        // What it had in hand comes to nobody twice; what it had not taken waits.
        let next = Receiver::open(segment, "to the dead").expect("of the dead");
        assert_eq!(next.recv_timeout(LONG).expect("it waits").to_vec(), b"second");
        assert_eq!(next.try_recv().err(), Some(Error::WouldBlock));
        drop(next);
        tell(&format!("gone {round}"));
    }
}
