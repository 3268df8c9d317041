//! A process that was taken for dead, as one of a machine that stood still: it does nothing to what
//! was given to others meanwhile.

use crate::stage::{Part, play, role, segment, until};
use ginnel::{
    Barrier, Error, LockError, Mutex, Queue, Receiver, RwLock, Segment, Semaphore, Sender,
};
use ginnel_region::Use;

/// Frees the pages of every party, as one does who has found that they are dead.
fn take_for_dead(segment: &Segment) {
    let looker = ginnel_region::Segment::open(segment.path()).expect("there");
    let is_party = |head: &ginnel_region::Head| head.owner().kind == Use::Party;
    let parties: Vec<_> = looker.heads_within_reach().filter(is_party).collect();
    assert!(looker.release_groups(&parties) > 0);
    looker.close();
}

#[test]
fn a_lock_is_not_had_beside_another() {
    play("lost::a_lock_is_not_had_beside_another", |_| {
        let old = segment();
        let mutex = Mutex::create(&old, "lock").expect("free");
        take_for_dead(&old);
        for result in [mutex.try_lock(), mutex.lock()] {
            assert!(matches!(result.err(), Some(LockError::Failed(Error::Lost))));
        }
        let new = segment();
        drop(Mutex::open(&new, "lock").expect("there").try_lock().expect("nobody has it"));
    });
}

#[test]
fn a_place_to_read_or_write_is_not_had_beside_another() {
    play("lost::a_place_to_read_or_write_is_not_had_beside_another", |_| {
        let old = segment();
        let lost = RwLock::create(&old, "lock").expect("free");
        let guard = lost.write().expect("free");
        take_for_dead(&old);
        let new = segment();
        let lock = RwLock::open(&new, "lock").expect("there");
        let Err(LockError::HolderDied(writes)) = lock.try_write() else {
            panic!("nobody was told")
        };
        writes.mark_consistent();
        drop(guard);
        for result in [lost.try_read().err(), lost.read().err()] {
            assert!(matches!(result, Some(LockError::Failed(Error::Lost))));
        }
        assert!(matches!(lost.try_write().err(), Some(LockError::Failed(Error::Lost))));
        drop(writes);
        drop(lock.try_read().expect("nobody writes"));
        drop(lock.try_write().expect("nobody reads"));
    });
}

#[test]
fn a_seat_that_is_anothers_is_left_alone() {
    play("lost::a_seat_that_is_anothers_is_left_alone", |_| {
        let old = segment();
        let mut lost = Barrier::create(&old, "b", 1).expect("free");
        take_for_dead(&old);
        let new = segment();
        let mut barrier = Barrier::open(&new, "b").expect("the lost one's seat");
        assert_eq!(lost.wait(), Err(Error::Lost));
        drop(lost);
        assert!(matches!(Barrier::open(&new, "b"), Err(Error::InUse { .. })));
        assert_eq!(barrier.wait(), Ok(true));
    });
}

#[test]
fn a_permit_is_not_had_beside_another() {
    play("lost::a_permit_is_not_had_beside_another", |_| {
        let old = segment();
        let lost = Semaphore::create(&old, "two", 2, 2).expect("free");
        let permit = lost.acquire().expect("free");
        take_for_dead(&old);
        for result in [lost.try_acquire(), lost.acquire()] {
            assert_eq!(result.err(), Some(Error::Lost));
        }
        assert_eq!(lost.add(1), Err(Error::Lost));
        let new = segment();
        let semaphore = Semaphore::open(&new, "two").expect("there");
        let _both =
            [semaphore.acquire().expect("free"), semaphore.acquire().expect("the lost one's")];
        drop(permit);
        assert_eq!(semaphore.try_acquire().err(), Some(Error::WouldBlock), "there are two");
    });
}

#[test]
fn a_lane_that_is_anothers_is_left_alone() {
    play("lost::a_lane_that_is_anothers_is_left_alone", |_| {
        let old = segment();
        Queue::new().capacity(4).message_size(100).senders(1).create(&old, "q").expect("free");
        let lost = Sender::open(&old, "q").expect("a lane");
        let loan = lost.loan(3).expect("room");
        let given_up = lost.loan(3).expect("room");
        take_for_dead(&old);
        let new = segment();
        let sender = Sender::open(&new, "q").expect("the lost one's lane");
        let mut writing = sender.loan(7).expect("room");
        writing.write(0, b"its own");
        assert_eq!(loan.send(), Err(Error::Lost));
        drop(given_up);
        assert_eq!(lost.try_loan(1).err(), Some(Error::Lost));
        let _second = sender.loan(1).expect("room");
        writing.send().expect("whole");
        let receiver = Receiver::open(&new, "q").expect("there");
        assert_eq!(receiver.recv().expect("there").to_vec(), b"its own");
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
    });
}

#[test]
fn messages_that_are_anothers_are_left_alone() {
    play("lost::messages_that_are_anothers_are_left_alone", |_| {
        let old = segment();
        Queue::new().capacity(4).message_size(100).senders(1).create(&old, "q").expect("free");
        let lost = Receiver::open(&old, "q").expect("there");
        take_for_dead(&old);
        let new = segment();
        let sender = Sender::open(&new, "q").expect("a lane");
        let receiver = Receiver::open(&new, "q").expect("the lost one's place");
        sender.send(b"for the living").expect("room");
        assert_eq!(lost.try_recv().err(), Some(Error::Lost));
        assert_eq!(lost.recv().err(), Some(Error::Lost));
        assert_eq!(receiver.recv().expect("there").to_vec(), b"for the living");
    });
}

/// Who comes after it is known to be dead when it is, though the lost one lives on, and has not
/// noticed anything.
#[test]
fn its_successor_dies_for_itself() {
    play("lost::its_successor_dies_for_itself", |part| {
        let segment = segment();
        let said = segment.path().with_extension("said");
        let lock = Mutex::open_or_create(&segment, "lock").expect("a lock");
        match part {
            Part::Role(role, _) if role == "succeeds" => {
                let _held = lock.lock().expect("free");
                std::fs::write(said, "held").expect("told");
                std::thread::sleep(std::time::Duration::MAX);
            }
            Part::Role(..) => {
                assert!(matches!(lock.try_lock(), Err(LockError::HolderDied(_))), "nobody is told");
            }
            Part::Test => {
                take_for_dead(&segment);
                let successor = role("succeeds", "");
                until("it has the lock", || said.exists());
                successor.kill();
                role("looks", "").ends();
                assert!(matches!(lock.try_lock().err(), Some(LockError::Failed(Error::Lost))));
            }
        }
    });
}
