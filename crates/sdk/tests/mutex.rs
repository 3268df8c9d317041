//! The mutex: one at a time, told of the dead, whoever is killed whenever.

use crate::stage::{Guarded, Part, play, role, segment, until};
use ginnel::{Error, Guard, LockError, Memory, Mutex, Segment};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;

fn failed(result: ginnel::LockResult<Guard<'_>>) -> Error {
    match result.err() {
        Some(LockError::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_thread_of_one_process_has_it() {
    play("mutex::one_thread_of_one_process_has_it", |part| {
        let segment = segment();
        let mutex = Mutex::open_or_create(&segment, "lock").expect("free");
        if let Part::Role(..) = part {
            assert_eq!(failed(mutex.try_lock()), Error::WouldBlock);
            assert_eq!(failed(mutex.lock_timeout(Duration::from_millis(20))), Error::TimedOut);
            return;
        }
        let guard = mutex.lock().expect("free");
        assert_eq!(failed(mutex.lock()), Error::Deadlock);
        assert_eq!(failed(mutex.try_lock()), Error::Deadlock);
        role("other", "").ends();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(failed(mutex.try_lock()), Error::WouldBlock));
        });
        drop(guard);
        drop(mutex.try_lock().expect("free again"));
        // A thread that ends with it has died with it.
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(mutex.lock().expect("free")));
        });
        let Err(LockError::HolderDied(guard)) = mutex.lock() else { panic!("nobody was told") };
        guard.mark_consistent();
        drop(guard);
        drop(mutex.lock().expect("in order again"));
    });
}

/// Where a holder died, everybody is told until somebody has put things in order.
#[test]
fn every_holder_is_told_until_all_is_well() {
    play("mutex::every_holder_is_told_until_all_is_well", |part| {
        let mutex = Mutex::open_or_create(&segment(), "lock").expect("free");
        if let Part::Role(..) = part {
            std::mem::forget(mutex.lock().expect("free"));
            std::process::abort();
        }
        let mut child = role("dies", "");
        child.0.wait().expect("a child");
        for _ in 0..3 {
            assert!(matches!(mutex.lock(), Err(LockError::HolderDied(_))));
        }
        let Err(LockError::HolderDied(guard)) = mutex.try_lock() else { panic!("nobody was told") };
        guard.mark_consistent();
        drop(guard);
        drop(mutex.lock().expect("in order"));
    });
}

/// Processes that are killed at any moment change two words under the lock, which are equal
/// whenever a holder is not told of a death. Nobody ever is inside with another.
fn counting(rounds: u64) {
    let segment = segment();
    let memory = Memory::create(&segment, "words", 64).expect("free");
    let mutex = Mutex::create(&segment, "lock").expect("free");
    let mut counters: Vec<Guarded> = (0..3).map(|_| role("counter", "")).collect();
    for round in 0..rounds {
        let micros = (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 9_000;
        std::thread::sleep(Duration::from_micros(1_000 + micros));
        counters.remove(0).kill();
        counters.push(role("counter", ""));
        // Whoever it was, somebody goes on: at the latest after a sleeper has looked.
        let word = memory.word(0).expect("inside");
        let before = word.load(Acquire);
        until("somebody counts on", || word.load(Acquire) != before);
    }
    counters.into_iter().for_each(Guarded::kill);
    let guard = mutex.lock();
    assert!(matches!(guard, Ok(_) | Err(LockError::HolderDied(_))));
    let told = memory.word(24).expect("inside").load(Acquire);
    eprintln!("{} counted, {told} were told", memory.word(0).expect("inside").load(Acquire));
    assert!(told > 0, "no holder was killed, in {rounds} rounds");
}

fn count_for_ever(segment: &Segment) {
    let memory = Memory::open(segment, "words").expect("there");
    let mutex = Mutex::open(segment, "lock").expect("there");
    let [one, other, inside, told] = [0, 8, 16, 24].map(|at| memory.word(at).expect("inside"));
    let me = u64::from(std::process::id());
    loop {
        let guard: Guard<'_> = match mutex.lock() {
            Ok(guard) => {
                assert_eq!(
                    one.load(Acquire),
                    other.load(Acquire),
                    "half done, and nobody was told"
                );
                guard
            }
            Err(LockError::HolderDied(guard)) => {
                told.fetch_add(1, AcqRel);
                inside.store(0, Release);
                one.store(other.load(Acquire), Release);
                guard.mark_consistent();
                guard
            }
            Err(LockError::Failed(error)) => panic!("{error}"),
        };
        assert_eq!(inside.swap(me, AcqRel), 0, "somebody else is inside");
        one.store(one.load(Acquire) + 1, Release);
        // Long enough for the others to fall asleep, now and then.
        if one.load(Acquire) % 1000 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        other.store(one.load(Acquire), Release);
        assert_eq!(inside.swap(0, AcqRel), me, "somebody else is inside");
        drop(guard);
    }
}

#[test]
fn holders_killed_at_any_moment() {
    play("mutex::holders_killed_at_any_moment", |part| match part {
        Part::Test => counting(100),
        Part::Role(..) => count_for_ever(&segment()),
    });
}

#[test]
#[ignore = "test-all: as above, thousands of times"]
fn holders_killed_thousands_of_times() {
    play("mutex::holders_killed_thousands_of_times", |part| match part {
        Part::Test => counting(3000),
        Part::Role(..) => count_for_ever(&segment()),
    });
}

/// Threads that sleep for the lock are woken one after the other, and none is forgotten.
#[test]
fn no_sleeper_is_forgotten() {
    play("mutex::no_sleeper_is_forgotten", |_| {
        let segment = segment();
        let mutex = Mutex::create(&segment, "lock").expect("free");
        let began = std::time::Instant::now();
        let guard = mutex.lock().expect("free");
        std::thread::scope(|scope| {
            // More than there are places to sleep in.
            let threads: Vec<_> = (0..80)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20 {
                            drop(mutex.lock().expect("whole"));
                            std::thread::yield_now();
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(50));
            drop(guard);
            threads.into_iter().for_each(|thread| thread.join().expect("done"));
        });
        eprintln!("{:?}", began.elapsed());
    });
}
