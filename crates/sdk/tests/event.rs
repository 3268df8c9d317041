//! The event: it lets through whom it is to, whoever is killed beside it, and no sleeper is
//! forgotten.

use crate::stage::{Guarded, Part, play, role, segment, until};
use ginnel::{Error, Event, Kind, Memory, Reset};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(100);

const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

#[test]
fn it_stays_set_or_lets_one_through() {
    play("event::it_stays_set_or_lets_one_through", |part| {
        let segment = segment();
        let stays = Event::open_or_create(&segment, "stays", Reset::Manual).expect("free");
        let one = Event::open_or_create(&segment, "one", Reset::Auto).expect("free");
        if let Part::Role(..) = part {
            stays.wait().expect("set");
            one.set().expect("whole");
            return;
        }
        assert_eq!(
            (stays.name(), stays.resets(), one.resets()),
            ("stays", Reset::Manual, Reset::Auto)
        );
        for event in [&stays, &one] {
            assert_eq!(event.try_wait().err(), Some(Error::WouldBlock));
            assert_eq!(event.wait_timeout(SHORT).err(), Some(Error::TimedOut));
        }
        stays.set().expect("whole");
        stays.wait().expect("set");
        stays.try_wait().expect("set still");
        let other = role("other", "");
        one.wait_timeout(LONG).expect("set by the other");
        other.ends();
        assert!(stays.is_set() && !one.is_set());
        assert_eq!((stays.reset(), stays.reset()), (Ok(true), Ok(false)));
        assert_eq!(stays.try_wait().err(), Some(Error::WouldBlock));
        // Twice is once.
        one.set().expect("whole");
        one.set().expect("whole");
        one.try_wait().expect("set");
        assert_eq!(one.try_wait().err(), Some(Error::WouldBlock));
        let listed = segment.objects().expect("listed");
        assert!(
            listed.iter().all(|object| object.kind == Kind::Event && object.kind.name() == "event")
        );
        let other = Event::open_or_create(&segment, "one", Reset::Manual).expect_err("another");
        assert!(matches!(other, Error::WrongShape { is: 2, wanted: 1, .. }), "{other}");
    });
}

/// Who sleeps when it is set goes on, also where it is reset before the sleeper has looked.
#[test]
fn everybody_who_waits_goes_on() {
    play("event::everybody_who_waits_goes_on", |_| {
        let event = Event::create(&segment(), "e", Reset::Manual).expect("free");
        for _ in 0..5 {
            std::thread::scope(|scope| {
                // More than there are places to sleep in.
                let threads: Vec<_> =
                    (0..80).map(|_| scope.spawn(|| event.wait_timeout(LONG))).collect();
                std::thread::sleep(Duration::from_millis(30));
                event.set().expect("whole");
                event.reset().expect("whole");
                // One that has not begun to wait yet would miss it.
                until("all have gone on", || {
                    event.set().expect("whole");
                    event.reset().expect("whole");
                    threads.iter().all(|thread| thread.is_finished())
                });
                threads.into_iter().for_each(|thread| thread.join().expect("one").expect("set"));
            });
        }
    });
}

/// A hundred times there and back between two processes: without a wake-up each would take the
/// tenth of a second after which a sleeper looks by itself.
#[test]
fn a_sleeper_is_woken() {
    play("event::a_sleeper_is_woken", |part| {
        let segment = segment();
        let there = Event::open_or_create(&segment, "there", Reset::Auto).expect("free");
        let back = Event::open_or_create(&segment, "back", Reset::Auto).expect("free");
        if let Part::Role(..) = part {
            loop {
                there.wait().expect("set");
                // Long enough for the other to sleep.
                std::thread::sleep(Duration::from_millis(1));
                back.set().expect("whole");
            }
        }
        let other = role("other", "");
        there.set().expect("whole");
        back.wait().expect("set");
        let began = Instant::now();
        for _ in 0..100 {
            there.set().expect("whole");
            back.wait().expect("set");
        }
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        other.kill();
    });
}

/// Processes that set it, and that wait for it, are killed at any moment: whoever is left goes on.
#[test]
fn setters_and_waiters_killed_at_any_moment() {
    play("event::setters_and_waiters_killed_at_any_moment", |part| {
        let segment = segment();
        let event = Event::open_or_create(&segment, "e", Reset::Auto).expect("free");
        let memory = Memory::open_or_create(&segment, "words", 8).expect("free");
        let passed = memory.word(0).expect("inside");
        match part {
            Part::Role(what, _) if what == "sets" => loop {
                event.set().expect("whole");
                std::thread::sleep(Duration::from_micros(50));
            },
            Part::Role(..) => loop {
                event.wait().expect("set");
                passed.fetch_add(1, AcqRel);
            },
            Part::Test => {}
        }
        let start = |at: usize| role(if at.is_multiple_of(2) { "sets" } else { "waits" }, "");
        let mut roles: Vec<Guarded> = (0..4).map(start).collect();
        for round in 0..40 {
            roles.remove(0).kill();
            roles.push(start(round));
            let before = passed.load(Acquire);
            until("somebody goes on", || passed.load(Acquire) != before);
        }
        roles.into_iter().for_each(Guarded::kill);
        passed.store(0, Release);
        event.set().expect("whole");
        event.wait_timeout(LONG).expect("set");
    });
}

/// Who waits in its own poll is told, by another process, also where the descriptor was made late.
#[test]
fn a_descriptor_tells() {
    play("event::a_descriptor_tells", |part| {
        let segment = segment();
        let event = Event::open_or_create(&segment, "e", Reset::Auto).expect("free");
        let memory = Memory::open_or_create(&segment, "words", 8).expect("free");
        let turn = memory.word(0).expect("inside");
        if let Part::Role(..) = part {
            for round in 1..=20 {
                until("its turn", || turn.load(Acquire) == round);
                event.set().expect("whole");
            }
            return;
        }
        let other = role("other", "");
        for round in 1..=20 {
            assert_eq!(event.try_wait().err(), Some(Error::WouldBlock));
            let mut fds = [PollFd::new(&event, PollFlags::IN)];
            turn.store(round, Release);
            until("it is told", || {
                assert_eq!(poll(&mut fds, Some(&LIMIT)), Ok(1));
                event.try_wait().is_ok()
            });
        }
        other.ends();
    });
}
