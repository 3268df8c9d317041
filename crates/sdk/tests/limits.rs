//! Every number that the documentation gives as the most there can be: so many there are, who asks
//! for one more is told in words, and once there is room again it is to be had. Pages: `full.rs`.

use crate::stage::{play, segment};
use ginnel::{
    Barrier, Error, Event, Listener, LockError, LockResult, Memory, Mutex, Queue, Receiver, Reset,
    RwLock, Segment, Semaphore, Sender, Stream,
};
use std::io::{ErrorKind, Read, Write};
use std::sync::Barrier as Meeting;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn failed<G>(result: LockResult<G>) -> Option<Error> {
    match result {
        Err(LockError::Failed(error)) => Some(error),
        _ => None,
    }
}

/// Measures that nothing can have are refused in words, and leave nothing behind.
#[test]
fn measures_beyond_all_limits() {
    play("limits::measures_beyond_all_limits", |_| {
        type Make = fn(&Segment) -> Option<Error>;
        let tries: [(&str, Make); 14] = [
            ("1 byte", |on| Memory::create(on, "n", 0).err()),
            ("1 to 48", |on| Barrier::create(on, "n", 0).err()),
            ("1 to 48", |on| Barrier::create(on, "n", 49).err()),
            ("1 to 32767", |on| Semaphore::create(on, "n", 0, 0).err()),
            ("1 to 32767", |on| Semaphore::create(on, "n", 2, 1).err()),
            ("1 to 32767", |on| Semaphore::create(on, "n", 0, 32_768).err()),
            ("1 to 1024", |on| Queue::new().capacity(0).create(on, "n").err()),
            ("1 to 1024", |on| Queue::new().capacity(1025).create(on, "n").err()),
            ("1 to 1024", |on| Queue::new().capacity(u32::MAX).create(on, "n").err()),
            ("1 to 1073741824", |on| Queue::new().message_size(0).create(on, "n").err()),
            ("1 to 1073741824", |on| Queue::new().message_size(1 << 30 | 1).create(on, "n").err()),
            ("1 to 64", |on| Queue::new().senders(0).create(on, "n").err()),
            ("1 to 64", |on| Queue::new().senders(65).create(on, "n").err()),
            ("1 to 1024", |on| Queue::new().loans(1025).create(on, "n").err()),
        ];
        let segment = segment();
        for (words, make) in tries {
            let said = make(&segment);
            let text = said.as_ref().map(Error::to_string).unwrap_or_default();
            assert!(matches!(said, Some(Error::Invalid { .. })), "{words}: {said:?}");
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(segment.objects().expect("a list").is_empty());
    });
}

/// All 2048 names: of every kind one more is refused, what is there goes on, one that goes makes
/// room for one.
#[test]
fn every_name_is_taken() {
    play("limits::every_name_is_taken", |_| {
        let segment = segment();
        let lock = Mutex::create(&segment, "lock").expect("free");
        let mut taken = 1;
        let full = loop {
            match Memory::create(&segment, &format!("{taken}"), 1) {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((taken, &full), (2048, &Error::NamesFull));
        assert!(full.to_string().contains("ginnel rm"), "{full}");
        let full = Some(Error::NamesFull);
        assert_eq!(Queue::new().create(&segment, "n").err(), full);
        assert_eq!(Mutex::create(&segment, "n").err(), full);
        assert_eq!(RwLock::create(&segment, "n").err(), full);
        assert_eq!(Semaphore::open_or_create(&segment, "n", 1, 1).err(), full);
        assert_eq!(Event::create(&segment, "n", Reset::Auto).err(), full);
        assert_eq!(Barrier::create(&segment, "n", 1).err(), full);
        assert_eq!(Listener::bind(&segment, "n").err(), full);
        drop(lock.lock().expect("free"));
        assert_eq!(Memory::open(&segment, "7").expect("there").len(), 1);
        assert_eq!(segment.objects().expect("a list").len(), taken);
        segment.remove("7").expect("there");
        Event::create(&segment, "n", Reset::Auto).expect("room for one");
        assert_eq!(Mutex::create(&segment, "one more").err(), Some(Error::NamesFull));
    });
}

/// 64 senders, and each is heard; 48 parties, and all go on.
#[test]
fn every_lane_and_every_seat_is_taken() {
    play("limits::every_lane_and_every_seat_is_taken", |_| {
        let segment = segment();
        Queue::new().capacity(1).message_size(8).senders(64).create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("nobody else");
        let open = || Sender::open(&segment, "q");
        let mut senders: Vec<_> = (0..64).map(|_| open().expect("a lane")).collect();
        assert!(matches!(open().err(), Some(Error::InUse { .. })));
        for (number, sender) in (0..64u8).zip(&senders) {
            sender.try_send(&[number]).expect("room");
        }
        let mut heard: Vec<_> = (0..64).map(|_| receiver.recv().expect("sent").to_vec()).collect();
        heard.sort_unstable();
        assert!(heard.iter().zip(0..64u8).all(|(is, number)| *is == [number]), "{heard:?}");
        senders.pop();
        open().expect("the lane of one that has left");

        let first = Barrier::create(&segment, "b", 48).expect("free");
        let open = || Barrier::open(&segment, "b");
        let mut seats: Vec<_> = (1..48).map(|_| open().expect("a seat")).collect();
        seats.push(first);
        assert!(matches!(open().err(), Some(Error::InUse { .. })));
        let lasts: usize = std::thread::scope(|scope| {
            let waits =
                |seat: &mut Barrier| usize::from(seat.wait_timeout(LONG).expect("all come"));
            let waits: Vec<_> =
                seats.iter_mut().map(|seat| scope.spawn(move || waits(seat))).collect();
            waits.into_iter().map(|wait| wait.join().expect("no panic")).sum()
        });
        assert_eq!(lasts, 1, "one of them was the last");
    });
}

/// 512 readers at a time; the next finds no place until one leaves.
#[test]
fn every_place_to_read_is_taken() {
    const PLACES: usize = 512;
    play("limits::every_place_to_read_is_taken", |_| {
        let segment = segment();
        let lock = RwLock::create(&segment, "lock").expect("free");
        let (all_read, looked) = (Meeting::new(PLACES + 1), Meeting::new(PLACES + 1));
        std::thread::scope(|scope| {
            for _ in 0..PLACES {
                scope.spawn(|| {
                    let guard = lock.read_timeout(LONG);
                    all_read.wait();
                    looked.wait();
                    drop(guard.expect("a place"));
                });
            }
            all_read.wait();
            let refused = [failed(lock.try_read()), failed(lock.try_write())];
            let waited = failed(lock.read_timeout(Duration::from_millis(20)));
            looked.wait();
            assert_eq!(refused, [const { Some(Error::WouldBlock) }; 2]);
            assert_eq!(waited, Some(Error::TimedOut));
        });
        drop(lock.read().expect("a place"));
        drop(lock.write().expect("nobody reads"));
    });
}

/// 32767 permits: all are to be had, and there is never one more.
#[test]
fn every_permit_is_there() {
    const MOST: u32 = 32_767;
    play("limits::every_permit_is_there", |_| {
        let segment = segment();
        let semaphore = Semaphore::create(&segment, "s", MOST - 1, MOST).expect("free");
        semaphore.add(1).expect("room for one");
        assert_eq!(semaphore.available(), MOST);
        assert_eq!(semaphore.add(1).err(), Some(Error::TooManyPermits { most: MOST }));
        let permit = semaphore.try_acquire().expect("free");
        assert_eq!(semaphore.add(1).err(), Some(Error::TooManyPermits { most: MOST }), "it is had");
        permit.use_up();
        semaphore.add(1).expect("room for one");
        assert_eq!(semaphore.available(), MOST);
    });
}

/// What waits in a stream, 256 KiB of each way; who wrote it goes on when some of it is read.
#[test]
fn a_stream_is_full() {
    play("limits::a_stream_is_full", |_| {
        let segment = segment();
        let mut listener = Listener::bind(&segment, "s").expect("free");
        let (mut writes, mut reads) = std::thread::scope(|scope| {
            let calls = scope.spawn(|| Stream::connect_timeout(&segment, "s", LONG));
            let accepted = listener.accept_timeout(LONG).expect("it calls");
            (calls.join().expect("no panic").expect("heard"), accepted)
        });
        writes.set_nonblocking(true);
        let bytes: Vec<u8> = (0..=250).cycle().take(5000).collect();
        let mut written = Vec::new();
        let refused = loop {
            match writes.write(&bytes) {
                Ok(more) => written.extend_from_slice(&bytes[..more]),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(refused, ErrorKind::WouldBlock);
        assert!((1..=256 << 10).contains(&written.len()), "{}", written.len());
        let mut read = vec![0; written.len()];
        reads.read_exact(&mut read).expect("it is there");
        assert!(read == written, "something else arrived");
        writes.write_all(&bytes).expect("there is room");
    });
}
