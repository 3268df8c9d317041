//! A child of fork with its parent's handles: it is refused, it may drop them, and its parent
//! notices nothing.

use crate::stage::{play, segment};
use ginnel::{Barrier, Error, LockError, Queue, Receiver, RwLock, Semaphore, Sender};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;

/// Runs `body` in a child of fork, which says whether all is well.
fn in_a_child(body: impl FnOnce() -> bool) {
    // SAFETY: this process has one thread beside the test harness's, which waits; the child looks
    // at handles and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let well = body();
        // SAFETY: ends the child at once, without what belongs to the harness.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_childs_loan_is_not_sent() {
    play("forks::a_childs_loan_is_not_sent", |_| {
        let segment = segment();
        Queue::new().capacity(4).message_size(100).create(&segment, "q").expect("free");
        let sender = Sender::open(&segment, "q").expect("a lane");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let mut loan = Some(sender.loan(3).expect("room"));
        sender.send(b"held").expect("room");
        let held = receiver.recv().expect("there");
        in_a_child(|| {
            let refused = loan.take().is_some_and(|loan| loan.send() == Err(Error::Forked));
            refused && sender.lent() == 0 && receiver.held() == 0
        });
        assert_eq!((sender.lent(), receiver.held()), (1, 1), "the parent's are out still");
        drop(held);
        loan.take().expect("the parent's").send().expect("whole");
        assert_eq!(receiver.recv().expect("there").len(), 3);
    });
}

#[test]
fn a_childs_permit_is_its_parents() {
    play("forks::a_childs_permit_is_its_parents", |_| {
        let semaphore = Semaphore::create(&segment(), "one", 1, 1).expect("free");
        let mut permit = Some(semaphore.acquire().expect("free"));
        in_a_child(|| {
            drop(permit.take());
            semaphore.try_acquire().err() == Some(Error::Forked)
        });
        assert_eq!(semaphore.try_acquire().err(), Some(Error::WouldBlock));
        drop(permit);
        assert_eq!(semaphore.available(), 1);
    });
}

#[test]
fn a_childs_locks_are_its_parents() {
    play("forks::a_childs_locks_are_its_parents", |_| {
        let lock = RwLock::create(&segment(), "lock").expect("free");
        let mut guard = Some(lock.write().expect("free"));
        in_a_child(|| {
            drop(guard.take());
            matches!(lock.try_read().err(), Some(LockError::Failed(Error::Forked)))
        });
        std::thread::scope(|scope| {
            let kept_out = || matches!(lock.try_read(), Err(LockError::Failed(Error::WouldBlock)));
            assert!(scope.spawn(kept_out).join().expect("whole"));
        });
        drop(guard);
        drop(lock.try_read().expect("free"));
    });
}

#[test]
fn a_childs_seat_is_its_parents() {
    play("forks::a_childs_seat_is_its_parents", |_| {
        let segment = segment();
        let mut barrier = Some(Barrier::create(&segment, "b", 1).expect("free"));
        in_a_child(|| {
            let waited = barrier.as_mut().map(Barrier::wait);
            drop(barrier.take());
            waited == Some(Err(Error::Forked))
        });
        assert!(matches!(Barrier::open(&segment, "b"), Err(Error::InUse { .. })));
        assert_eq!(barrier.as_mut().map(Barrier::wait), Some(Ok(true)));
    });
}

#[test]
fn a_child_that_drops_an_end_leaves_its_parents_wish() {
    play("forks::a_child_that_drops_an_end_leaves_its_parents_wish", |_| {
        let segment = segment();
        Queue::new().capacity(4).message_size(100).create(&segment, "q").expect("free");
        let sender = Sender::open(&segment, "q").expect("a lane");
        let mut receiver = Some(Receiver::open(&segment, "q").expect("there"));
        let receives = receiver.as_ref().expect("there");
        let _ = receives.as_fd();
        // The wish is in the queue's first page: it is there before, and after.
        let stranger = crate::hostile::Stranger::new(&segment);
        let is_object = |&(_, kind): &(u64, u64)| kind == 5;
        let page = stranger.pages().into_iter().find(is_object).expect("a queue").0;
        let wish = || stranger.word(page * 4096 + 0x80);
        assert_eq!(receives.try_recv().err(), Some(Error::WouldBlock));
        let armed = wish();
        assert_ne!(armed, 0);
        in_a_child(|| {
            drop(receiver.take());
            true
        });
        assert_eq!(wish(), armed, "the child took its parent's wish back");
        sender.send(b"x").expect("room");
        let receives = receiver.as_ref().expect("the parent's");
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        let told = poll(&mut [PollFd::new(receives, PollFlags::IN)], Some(&time));
        assert_eq!(told, Ok(1));
    });
}
