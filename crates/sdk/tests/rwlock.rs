//! The reader–writer lock: many read or one writes, told of dead writers, whoever is killed
//! whenever.

use crate::stage::{Guarded, Part, play, role, segment, until};
use ginnel::{Error, Kind, LockError, LockResult, Memory, RwLock, Segment};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(100);

fn failed<G>(result: LockResult<G>) -> Error {
    match result.err() {
        Some(LockError::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn many_read_or_one_writes() {
    play("rwlock::many_read_or_one_writes", |part| {
        let segment = segment();
        let lock = RwLock::open_or_create(&segment, "lock").expect("free");
        if let Part::Role(what, _) = part {
            if what == "beside a reader" {
                drop(lock.read().expect("beside another"));
            } else {
                assert_eq!(failed(lock.try_read()), Error::WouldBlock);
                assert_eq!(failed(lock.read_timeout(SHORT)), Error::TimedOut);
            }
            assert_eq!(failed(lock.try_write()), Error::WouldBlock);
            assert_eq!(failed(lock.write_timeout(SHORT)), Error::TimedOut);
            return;
        }
        let guard = lock.read().expect("free");
        assert_eq!(failed(lock.read()), Error::Deadlock);
        assert_eq!(failed(lock.write()), Error::Deadlock);
        role("beside a reader", "").ends();
        drop(guard);
        let guard = lock.write().expect("free");
        assert_eq!(failed(lock.try_read()), Error::Deadlock);
        role("beside a writer", "").ends();
        drop(guard);
        drop(lock.try_read().expect("free again"));
        drop(lock.try_write().expect("free again"));
        let listed = segment.objects().expect("listed");
        assert_eq!((listed[0].kind, listed[0].kind.name()), (Kind::RwLock, "rwlock"));
        // A thread that ends with it has died with it, which is told where it wrote.
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(lock.read().expect("free")));
        });
        drop(lock.write().expect("a reader leaves nothing"));
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(lock.write().expect("free")));
        });
        assert!(matches!(lock.read(), Err(LockError::HolderDied(_))));
        assert!(matches!(lock.try_read(), Err(LockError::HolderDied(_))));
        let Err(LockError::HolderDied(guard)) = lock.write() else { panic!("nobody was told") };
        guard.mark_consistent();
        drop(guard);
        drop(lock.read().expect("in order again"));
    });
}

/// A writer that waits goes before readers that come later, and so comes to write.
#[test]
fn a_writer_is_not_starved() {
    play("rwlock::a_writer_is_not_starved", |_| {
        let lock = RwLock::create(&segment(), "lock").expect("free");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Acquire) {
                        let guard = lock.read().expect("whole");
                        std::thread::sleep(Duration::from_millis(3));
                        drop(guard);
                    }
                });
            }
            let began = Instant::now();
            for _ in 0..20 {
                drop(lock.write_timeout(LONG).expect("its turn"));
            }
            stop.store(true, Release);
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        });
    });
}

/// A dead reader is in nobody's way; a dead writer's lock goes to the next, who is told, and so is
/// who sleeps.
#[test]
fn nobody_waits_for_the_dead() {
    play("rwlock::nobody_waits_for_the_dead", |part| {
        let segment = segment();
        let lock = RwLock::open_or_create(&segment, "lock").expect("free");
        let memory = Memory::open_or_create(&segment, "words", 8).expect("free");
        let has_it = memory.word(0).expect("inside");
        if let Part::Role(what, _) = part {
            if what == "reads" {
                std::mem::forget(lock.read().expect("free"));
            } else if what == "writes" {
                std::mem::forget(lock.write().expect("free"));
            } else {
                has_it.store(1, Release);
                std::mem::forget(lock.write());
            }
            has_it.store(1, Release);
            loop {
                std::thread::park();
            }
        }
        for what in ["reads", "writes"] {
            has_it.store(0, Release);
            let dies = role(what, "");
            until("it has it", || has_it.load(Acquire) == 1);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let told = lock.write_timeout(LONG);
                    if let Err(LockError::HolderDied(guard)) = &told {
                        guard.mark_consistent();
                    }
                    matches!(told, Err(LockError::HolderDied(_)))
                });
                std::thread::sleep(Duration::from_millis(50));
                dies.kill();
                assert_eq!(waits.join().expect("it has it"), what == "writes");
            });
        }
        // One that dies while it waits to write keeps nobody out, and nothing is half done.
        let guard = lock.read().expect("free");
        has_it.store(0, Release);
        let dies = role("waits", "");
        until("it begins", || has_it.load(Acquire) == 1);
        std::thread::scope(|scope| {
            let is_kept_out =
                || scope.spawn(|| matches!(lock.try_read(), Err(LockError::Failed(_)))).join();
            until("it waits", || is_kept_out().expect("whole"));
            dies.kill();
            scope.spawn(|| drop(lock.read_timeout(LONG).expect("nobody writes"))).join().expect("");
        });
        drop(guard);
        drop(lock.write().expect("nothing is half done"));
    });
}

fn use_for_ever(segment: &Segment, number: u64) {
    let lock = RwLock::open(segment, "lock").expect("there");
    let memory = Memory::open(segment, "words").expect("there");
    let [one, other, told, reads, writes] =
        [0, 8, 16, 24, 32].map(|at| memory.word(at).expect("inside"));
    for round in number.. {
        if round % 4 != 0 {
            match lock.read() {
                Ok(_guard) => {
                    assert_eq!(one.load(Acquire), other.load(Acquire), "half done, untold");
                    reads.fetch_add(1, AcqRel);
                    assert_eq!(one.load(Acquire), other.load(Acquire), "somebody writes");
                }
                Err(LockError::HolderDied(_)) => _ = told.fetch_add(1, AcqRel),
                Err(LockError::Failed(error)) => panic!("{error}"),
            }
            continue;
        }
        let guard = match lock.write() {
            Ok(guard) => guard,
            Err(LockError::HolderDied(guard)) => {
                told.fetch_add(1, AcqRel);
                one.store(other.load(Acquire), Release);
                guard.mark_consistent();
                guard
            }
            Err(LockError::Failed(error)) => panic!("{error}"),
        };
        let before = one.fetch_add(1, AcqRel);
        assert_eq!(before, other.load(Acquire), "half done, untold");
        // Long enough for the others to fall asleep, now and then.
        if before % 300 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(other.swap(before + 1, AcqRel), before, "somebody else writes");
        writes.fetch_add(1, AcqRel);
        drop(guard);
    }
}

/// Processes that are killed at any moment change two words under the lock, which are equal
/// whenever a reader or a writer is not told of a death.
fn holders(rounds: u64) {
    let segment = segment();
    let memory = Memory::create(&segment, "words", 64).expect("free");
    let lock = RwLock::create(&segment, "lock").expect("free");
    let start = |number: u64| role("user", &number.to_string());
    let mut users: Vec<Guarded> = (0..4).map(start).collect();
    let [told, reads, writes] = [16, 24, 32].map(|at| memory.word(at).expect("inside"));
    for round in 0..rounds {
        let micros = (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 9_000;
        std::thread::sleep(Duration::from_micros(1_000 + micros));
        users.remove(0).kill();
        users.push(start(round));
        for count in [reads, writes] {
            let before = count.load(Acquire);
            until("somebody goes on", || count.load(Acquire) != before);
        }
    }
    users.into_iter().for_each(Guarded::kill);
    let guard = lock.write();
    assert!(matches!(guard, Ok(_) | Err(LockError::HolderDied(_))));
    let [told, reads, writes] = [told, reads, writes].map(|count| count.load(Acquire));
    eprintln!("{reads} read, {writes} written, {told} were told");
    assert!(told > 0, "no writer was killed, in {rounds} rounds");
}

fn part_of_holder(part: Part, rounds: u64) {
    match part {
        Part::Test => holders(rounds),
        Part::Role(_, number) => use_for_ever(&segment(), number.parse().expect("a number")),
    }
}

#[test]
fn holders_killed_at_any_moment() {
    play("rwlock::holders_killed_at_any_moment", |part| part_of_holder(part, 80));
}

#[test]
#[ignore = "test-all: as above, thousands of times"]
fn holders_killed_thousands_of_times() {
    play("rwlock::holders_killed_thousands_of_times", |part| part_of_holder(part, 3000));
}

/// Threads that sleep are woken, readers and writers, and none is forgotten.
#[test]
fn no_sleeper_is_forgotten() {
    play("rwlock::no_sleeper_is_forgotten", |_| {
        let lock = RwLock::create(&segment(), "lock").expect("free");
        let guard = lock.write().expect("free");
        std::thread::scope(|scope| {
            let lock = &lock;
            let thread = |number: u32| {
                for round in 0..20 {
                    if (number + round).is_multiple_of(3) {
                        drop(lock.write().expect("whole"));
                    } else {
                        drop(lock.read().expect("whole"));
                    }
                    std::thread::yield_now();
                }
            };
            let threads: Vec<_> = (0..80).map(|at| scope.spawn(move || thread(at))).collect();
            std::thread::sleep(Duration::from_millis(50));
            drop(guard);
            threads.into_iter().for_each(|thread| thread.join().expect("done"));
        });
    });
}

/// A process that takes a writer out of the lock's word does not make it wait for ever.
#[test]
fn a_writer_that_was_taken_out_comes_in_again() {
    play("rwlock::a_writer_that_was_taken_out_comes_in_again", |_| {
        let segment = segment();
        let lock = RwLock::create(&segment, "lock").expect("free");
        let stranger = crate::hostile::Stranger::new(&segment);
        let is_object = |&(_, kind): &(u64, u64)| kind == 5;
        let page = stranger.pages().into_iter().find(is_object).expect("the lock").0;
        let guard = lock.read().expect("free");
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| drop(lock.write_timeout(LONG).expect("in the end")));
            until("it waits", || stranger.word(page * 4096 + 0x40) != 0);
            stranger.put(page * 4096 + 0x40, 0);
            drop(guard);
            writes.join().expect("whole");
        });
    });
}
