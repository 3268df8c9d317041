//! Queues between processes: order, loans, what is done where one is full, descriptors.

use crate::stage::{Part, play, role, segment, until};
use ginnel::{Error, Memory, Queue, Receiver, Sender, WhenFull};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

fn queue() -> Queue {
    Queue::new().capacity(4).message_size(100).senders(3).loans(2)
}

#[test]
fn messages_of_three_processes_arrive_once_each_in_order() {
    play("queue::messages_of_three_processes_arrive_once_each_in_order", |part| {
        const COUNT: u32 = 20_000;
        let segment = segment();
        if let Part::Role(_, number) = part {
            let sender = Sender::open(&segment, "q").expect("there");
            let number: u8 = number.parse().expect("a number");
            for i in 0..COUNT {
                // Lengths of all kinds; long enough a pause now and then for the receiver to sleep.
                let len = 5 + (i as usize * 7) % 96;
                let mut loan = sender.loan(len).expect("room");
                loan.write(0, &[number]);
                loan.write(1, &i.to_le_bytes());
                loan.write(5, &vec![i as u8; len - 5]);
                loan.send().expect("whole");
                if i % 5000 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            return;
        }
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let senders = ["0", "1", "2"].map(|number| role("sender", number));
        let mut next = [0u32; 3];
        while next != [COUNT; 3] {
            let message = receiver.recv().expect("more to come").to_vec();
            let i = u32::from_le_bytes(message[1..5].try_into().expect("4"));
            assert_eq!(next[usize::from(message[0])], i);
            assert_eq!(message.len(), 5 + (i as usize * 7) % 96);
            assert!(message[5..].iter().all(|&byte| byte == i as u8));
            next[usize::from(message[0])] += 1;
            if i % 3000 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        senders.into_iter().for_each(|sender| sender.ends());
        assert_eq!(receiver.recv().err(), Some(Error::Ended { died: false }));
        assert_eq!(receiver.lost(), 0);
    });
}

#[test]
fn a_full_queue_waits_refuses_or_drops_the_oldest() {
    play("queue::a_full_queue_waits_refuses_or_drops_the_oldest", |_| {
        let segment = segment();
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let sender = Sender::open(&segment, "q").expect("a lane");
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
        for i in 0..4u8 {
            sender.send(&[i]).expect("room");
        }
        let time = Duration::from_millis(30);
        assert_eq!(sender.loan_timeout(1, time).err(), Some(Error::TimedOut));
        assert_eq!(sender.try_send(b"x").err(), Some(Error::WouldBlock));
        let sender = sender.when_full(WhenFull::Refuse);
        assert_eq!(sender.send(b"x").err(), Some(Error::WouldBlock));
        let sender = sender.when_full(WhenFull::DropOldest);
        for i in 4..100u8 {
            sender.send(&[i]).expect("something goes");
        }
        for i in 96..100u8 {
            assert_eq!(receiver.try_recv().expect("the newest").to_vec(), [i]);
        }
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
        assert_eq!(receiver.lost(), 96);
        // What the receiver holds is not dropped under its hands.
        sender.send(b"held").expect("room");
        let held = receiver.recv().expect("there");
        for i in 0..50u8 {
            sender.send(&[i]).expect("something goes");
        }
        assert_eq!(held.to_vec(), b"held");
        drop(held);
        assert_eq!(receiver.recv().expect("there").to_vec(), [46]);
        assert!(matches!(sender.send(&[0; 101]), Err(Error::TooLarge { len: 101, max: 100 })));
        sender.send(&[]).expect("a message of nothing is one");
    });
}

#[test]
fn loans_are_kept_sent_in_any_order_and_given_back() {
    play("queue::loans_are_kept_sent_in_any_order_and_given_back", |_| {
        let segment = segment();
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let sender = Sender::open(&segment, "q").expect("a lane").when_full(WhenFull::Refuse);
        for _ in 0..100 {
            let mut first = sender.loan(3).expect("room");
            let mut second = sender.loan(3).expect("room");
            let third = sender.loan(3).expect("room");
            first.write(0, b"one");
            second.write(0, b"two");
            second.send().expect("whole");
            first.truncate(2);
            first.send().expect("whole");
            drop(third);
            let (two, on) = (receiver.recv().expect("there"), receiver.recv().expect("there"));
            assert_eq!((two.to_vec(), on.to_vec()), (b"two".to_vec(), b"on".to_vec()));
            sender.send(b"third").expect("room");
            assert_eq!(receiver.recv().err(), Some(Error::TooManyMessages { most: 2 }));
            drop(two);
            assert_eq!(receiver.recv().expect("there").to_vec(), b"third");
            drop(on);
        }
        let kept: Vec<_> = (0..4).map(|_| sender.loan(1).expect("room")).collect();
        // A cell for each is kept, and nobody else makes room: it would wait for itself.
        assert_eq!(sender.loan(1).err(), Some(Error::TooManyLoans { most: 4 }));
        assert_eq!(sender.try_loan(1).err(), Some(Error::TooManyLoans { most: 4 }));
        drop(kept);
        sender.loan(1).expect("room again").send().expect("whole");
    });
}

#[test]
fn roles_are_had_once() {
    play("queue::roles_are_had_once", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let error = Receiver::open(&segment, "q").expect_err("there is one");
            assert!(matches!(error, Error::InUse { role: "receiver", pid: 1.., .. }), "{error}");
            return;
        }
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        role("second", "").ends();
        let senders: Vec<_> = (0..3).map(|_| Sender::open(&segment, "q").expect("lane")).collect();
        assert!(matches!(Sender::open(&segment, "q"), Err(Error::InUse { .. })));
        drop(senders);
        Sender::open(&segment, "q").expect("a lane is free again");
        drop(receiver);
        Receiver::open(&segment, "q").expect("free again");
        let other = queue().message_size(101).open_or_create(&segment, "q").expect_err("another");
        assert!(other.to_string().contains("message size 100, not 101"));
        queue().open_or_create(&segment, "q").expect("the same");
        for bad in [queue().capacity(0), queue().message_size(0), queue().senders(65)] {
            assert!(matches!(bad.create(&segment, "bad"), Err(Error::Invalid { .. })));
        }
    });
}

fn readable(fd: impl AsFd, ms: i64) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let time = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut fds, Some(&time)).expect("poll") == 1
}

/// Who waits in its own poll is told of messages, of room and of the end of the other side.
#[test]
fn a_descriptor_tells_of_news() {
    play("queue::a_descriptor_tells_of_news", |part| {
        let segment = segment();
        if let Part::Role(what, _) = part {
            let sender = Sender::open(&segment, "q").expect("there");
            sender.send(what.as_bytes()).expect("room");
            if what == "dies" {
                std::process::abort();
            }
            return;
        }
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let _ = receiver.as_fd();
        for what in ["ends", "dies"] {
            assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
            let sender = role(what, "");
            let mut heard = None;
            until("a message", || {
                readable(&receiver, 50);
                heard = receiver.try_recv().ok().map(|message| message.to_vec());
                heard.is_some()
            });
            assert_eq!(heard.as_deref(), Some(what.as_bytes()));
            let mut end = None;
            until("the end", || {
                readable(&receiver, 50);
                end = receiver.try_recv().err().filter(|error| *error != Error::WouldBlock);
                end.is_some()
            });
            assert_eq!(end, Some(Error::Ended { died: what == "dies" }));
            drop(sender);
        }
        let sender = Sender::open(&segment, "q").expect("a lane");
        let _ = sender.as_fd();
        while sender.try_send(b"x").is_ok() {}
        receiver.recv().expect("there");
        assert!(readable(&sender, 1000));
        sender.try_send(b"x").expect("room");
    });
}

/// A sender that comes while there is no receiver waits for one, whoever was there before; one
/// whose receiver goes is told once, and waits for the next.
#[test]
fn a_sender_waits_for_the_next_receiver() {
    play("queue::a_sender_waits_for_the_next_receiver", |part| {
        let (segment, soon) = (segment(), Duration::from_millis(30));
        if let Part::Role(role, _) = part {
            let receiver = Receiver::open(&segment, "q").expect("free");
            if role == "takes" {
                drop(receiver.recv_timeout(100 * soon).expect("there"));
                return;
            }
            std::mem::forget(receiver);
            std::process::abort();
        }
        queue().create(&segment, "q").expect("free");
        let comes_and_goes = || drop(Receiver::open(&segment, "q").expect("free"));
        comes_and_goes();
        let sender = Sender::open(&segment, "q").expect("a lane");
        let full = || loop {
            if let Err(why) = sender.try_send(b"x") {
                return why;
            }
        };
        assert_eq!(full(), Error::WouldBlock);
        assert_eq!(sender.loan_timeout(1, soon).err(), Some(Error::TimedOut));
        // One comes in another process, and goes: who met it is told, once.
        let takes = role("takes", "");
        sender.send(b"x").expect("one was taken");
        takes.ends();
        assert_eq!(full(), Error::Ended { died: false });
        assert_eq!(sender.loan_timeout(1, soon).err(), Some(Error::TimedOut));
        role("dies", "").0.wait().expect("a child");
        assert_eq!(sender.try_send(b"x").err(), Some(Error::Ended { died: true }));
        assert_eq!(sender.try_send(b"x").err(), Some(Error::WouldBlock));
        // And this process's own, twice: its word is the same.
        for _ in 0..2 {
            let receiver = Receiver::open(&segment, "q").expect("free");
            drop(receiver.recv().expect("there"));
            drop(receiver);
            assert_eq!(full(), Error::Ended { died: false });
            assert_eq!(full(), Error::WouldBlock);
        }
    });
}

/// A call that finds nothing, and only then the first look at the descriptor.
#[test]
fn a_descriptor_that_is_made_late_tells_too() {
    play("queue::a_descriptor_that_is_made_late_tells_too", |_| {
        let segment = segment();
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let sender = Sender::open(&segment, "q").expect("a lane");
        assert_eq!(receiver.try_recv().err(), Some(Error::WouldBlock));
        let fd = receiver.as_fd();
        sender.send(b"x").expect("room");
        assert!(readable(fd, 2000));
        receiver.try_recv().expect("there");
        while sender.try_send(b"x").is_ok() {}
        let fd = sender.as_fd();
        receiver.recv().expect("there");
        assert!(readable(fd, 2000));
    });
}

/// Who takes one message each time that the descriptor tells comes to all of them, also where one
/// arrives in the middle of a call.
#[test]
fn one_message_for_each_time_that_the_descriptor_tells() {
    play("queue::one_message_for_each_time_that_the_descriptor_tells", |part| {
        const ROUNDS: u64 = 3000;
        let segment = segment();
        let turn = Memory::open_or_create(&segment, "turn", 8).expect("there");
        let turn = turn.word(0).expect("inside");
        if let Part::Role(..) = part {
            let sender = Sender::open(&segment, "q").expect("there");
            for round in 1..=ROUNDS {
                until("its turn", || turn.load(Acquire) >= round);
                (0..3).for_each(|_| sender.send(b"x").expect("room"));
            }
            until("the last", || turn.load(Acquire) > ROUNDS);
            return;
        }
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let _ = receiver.as_fd();
        let sender = role("sender", "");
        for round in 1..=ROUNDS {
            turn.store(round, Release);
            // In the middle of one of these the first one comes.
            while receiver.try_recv().is_err() {}
            for _ in 0..2 {
                let mut taken = false;
                until("a message", || {
                    assert!(readable(&receiver, 5000), "in round {round} there is one, untold");
                    taken = receiver.try_recv().is_ok();
                    taken
                });
            }
        }
        turn.store(ROUNDS + 1, Release);
        sender.ends();
    });
}

/// A queue of large messages in place: what is read is what was written, without a copy of it.
#[test]
fn large_messages_stay_where_they_are() {
    play("queue::large_messages_stay_where_they_are", |_| {
        let segment = ginnel::Options::new().size(64 << 20).trusting(true).open("s").expect("made");
        let queue = Queue::new().capacity(2).message_size(4 << 20).senders(1).loans(1);
        queue.create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let sender = Sender::open(&segment, "q").expect("a lane");
        for round in 0..10u8 {
            let mut loan = sender.loan(4 << 20).expect("room");
            let at = loan.as_mut_ptr() as usize;
            // SAFETY: nobody else has the segment.
            unsafe { loan.in_place() }.expect("trusted").fill(round);
            loan.send().expect("whole");
            let message = receiver.recv().expect("there");
            assert_eq!((message.as_ptr() as usize, at % 4096), (at, 0));
            // SAFETY: as above.
            assert!(unsafe { message.in_place() }.expect("trusted").iter().all(|&b| b == round));
        }
    });
}
