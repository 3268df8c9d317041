//! The semaphore: so many at a time, whoever is killed whenever, and no permit lost or made.

use crate::stage::{Guarded, Part, play, role, segment, until};
use ginnel::{Error, Kind, Memory, Permit, Segment, Semaphore};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);

const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

#[test]
fn so_many_at_a_time() {
    play("semaphore::so_many_at_a_time", |part| {
        let segment = segment();
        let semaphore = Semaphore::open_or_create(&segment, "two", 2, 3).expect("free");
        if let Part::Role(..) = part {
            assert_eq!(semaphore.try_acquire().err(), Some(Error::WouldBlock));
            assert_eq!(semaphore.acquire_timeout(SHORT).err(), Some(Error::TimedOut));
            return;
        }
        assert_eq!((semaphore.name(), semaphore.most(), semaphore.available()), ("two", 3, 2));
        let one = semaphore.acquire().expect("free");
        let two = semaphore.acquire_timeout(SHORT).expect("free");
        role("other", "").ends();
        assert_eq!(semaphore.try_acquire().err(), Some(Error::WouldBlock));
        drop(one);
        let one = semaphore.try_acquire().expect("given back");
        // A third one, which was not there before; then one of the three goes for good.
        assert_eq!(semaphore.add(2), Err(Error::TooManyPermits { most: 3 }));
        assert_eq!(semaphore.available(), 0, "all, or none");
        semaphore.add(1).expect("room");
        let three = semaphore.acquire().expect("added");
        three.use_up();
        drop((one, two));
        assert_eq!(semaphore.available(), 2);
        let listed = segment.objects().expect("listed");
        assert_eq!((listed[0].kind, listed[0].kind.name()), (Kind::Semaphore, "semaphore"));
        for (permits, most) in [(0, 0), (2, 1), (0, 40_000)] {
            let refused = Semaphore::create(&segment, "bad", permits, most).err();
            assert!(matches!(refused, Some(Error::Invalid { .. })), "{permits} {most}");
        }
        let other = Semaphore::open_or_create(&segment, "two", 2, 4).expect_err("another");
        assert!(other.to_string().contains("most permits 3, not 4"), "{other}");
        let large = Semaphore::create(&segment, "large", 0, 32_767).expect("room");
        large.add(32_767).expect("room");
        assert_eq!(large.available(), 32_767);
        drop(large.acquire().expect("free"));
    });
}

/// Permits of the dead come back, to who asks and to who sleeps.
#[test]
fn permits_of_the_dead_come_back() {
    play("semaphore::permits_of_the_dead_come_back", |part| {
        let segment = segment();
        let semaphore = Semaphore::open_or_create(&segment, "two", 2, 2).expect("free");
        let noted = Memory::open_or_create(&segment, "noted", 8).expect("free");
        let begun = noted.word(0).expect("inside");
        if let Part::Role(what, _) = part {
            let held = [semaphore.acquire().expect("free"), semaphore.acquire().expect("free")];
            begun.store(1, Release);
            if what == "dies" {
                std::process::abort();
            }
            until("the end", || begun.load(Acquire) == 2);
            drop(held);
            return;
        }
        let mut dies = role("dies", "");
        dies.0.wait().expect("a child");
        let both =
            [semaphore.try_acquire().expect("the dead one's"), semaphore.acquire().expect("")];
        drop(both);
        begun.store(0, Release);
        let sleeps = role("sleeps", "");
        until("it has both", || begun.load(Acquire) == 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let permit = semaphore.acquire_timeout(Duration::from_secs(100));
                drop((permit.expect("the dead one's"), semaphore.acquire().expect("the other")));
            });
            std::thread::sleep(Duration::from_millis(50));
            sleeps.kill();
            waits.join().expect("told");
        });
        assert_eq!(semaphore.available(), 2);
    });
}

/// Does a process run? One that is ending may be seen for a moment longer than it has permits.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

const SEATS: usize = 2;

/// There are as many seats as permits: whoever has a permit finds one that nobody living has.
fn sit(seats: &[&AtomicU64], _permit: &Permit<'_>) -> usize {
    let me = u64::from(std::process::id());
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        for (at, seat) in seats.iter().enumerate() {
            let had = seat.load(Acquire);
            let free = had == 0 || !runs(had);
            if free && seat.compare_exchange(had, me, AcqRel, Relaxed).is_ok() {
                return at;
            }
        }
        assert!(Instant::now() < limit, "more have permits than there are");
    }
}

fn sit_for_ever(segment: &Segment) {
    let semaphore = Semaphore::open(segment, "seats").expect("there");
    let memory = Memory::open(segment, "words").expect("there");
    let seats: Vec<&AtomicU64> =
        (0..SEATS).map(|at| memory.word(8 + at * 8).expect("inside")).collect();
    let count = memory.word(0).expect("inside");
    loop {
        let permit = semaphore.acquire().expect("one, in the end");
        let seat = sit(&seats, &permit);
        let number = count.fetch_add(1, AcqRel);
        // Long enough for the others to fall asleep, now and then.
        if number.is_multiple_of(500) {
            std::thread::sleep(Duration::from_millis(1));
        }
        seats[seat].store(0, Release);
        drop(permit);
    }
}

/// Processes that are killed at any moment acquire permits and give them back: never do more have
/// one than there are, and in the end all of them are there.
fn holders(rounds: u64) {
    let segment = segment();
    let memory = Memory::create(&segment, "words", 64).expect("free");
    let semaphore = Semaphore::create(&segment, "seats", SEATS as u32, 4).expect("free");
    let mut holders: Vec<Guarded> = (0..4).map(|_| role("holder", "")).collect();
    let count = memory.word(0).expect("inside");
    for round in 0..rounds {
        let micros = (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 9_000;
        std::thread::sleep(Duration::from_micros(1_000 + micros));
        holders.remove(0).kill();
        holders.push(role("holder", ""));
        let before = count.load(Acquire);
        until("somebody goes on", || count.load(Acquire) != before);
    }
    holders.into_iter().for_each(Guarded::kill);
    let all: Vec<_> = (0..SEATS).map(|_| semaphore.try_acquire().expect("the dead's")).collect();
    assert_eq!(semaphore.try_acquire().err(), Some(Error::WouldBlock), "no more than there were");
    drop(all);
}

#[test]
fn holders_killed_at_any_moment() {
    play("semaphore::holders_killed_at_any_moment", |part| match part {
        Part::Test => holders(60),
        Part::Role(..) => sit_for_ever(&segment()),
    });
}

#[test]
#[ignore = "test-all: as above, thousands of times"]
fn holders_killed_thousands_of_times() {
    play("semaphore::holders_killed_thousands_of_times", |part| match part {
        Part::Test => holders(3000),
        Part::Role(..) => sit_for_ever(&segment()),
    });
}

/// One permit for each thing to be done: whoever is killed in between leaves it to another.
#[test]
fn what_the_dead_had_not_used_up_is_done_by_others() {
    play("semaphore::what_the_dead_had_not_used_up_is_done_by_others", |part| {
        const THINGS: u64 = 3000;
        let segment = segment();
        let things = Semaphore::open_or_create(&segment, "things", 0, 64).expect("free");
        let memory = Memory::open_or_create(&segment, "words", 8).expect("free");
        let done = memory.word(0).expect("inside");
        if let Part::Role(..) = part {
            loop {
                let permit = things.acquire().expect("more to do");
                done.fetch_add(1, AcqRel);
                permit.use_up();
            }
        }
        let mut workers: Vec<Guarded> = (0..2).map(|_| role("worker", "")).collect();
        for thing in 0..THINGS {
            until("room", || match things.add(1) {
                Ok(()) => true,
                Err(Error::TooManyPermits { .. }) => false,
                Err(error) => panic!("{error}"),
            });
            if thing % 200 == 199 {
                workers.remove(0).kill();
                workers.push(role("worker", ""));
            }
        }
        until("all are done", || done.load(Acquire) >= THINGS && things.available() == 0);
        workers.into_iter().for_each(Guarded::kill);
        // One for each that died between the two steps.
        let twice = done.load(Acquire) - THINGS;
        assert!(twice <= 17, "{twice} were done twice");
    });
}

/// Threads that sleep are woken one after the other, and none is forgotten.
#[test]
fn no_sleeper_is_forgotten() {
    play("semaphore::no_sleeper_is_forgotten", |_| {
        let semaphore = Semaphore::create(&segment(), "two", 0, 2).expect("free");
        std::thread::scope(|scope| {
            // More than there are places to sleep in.
            let thread = || {
                for _ in 0..20 {
                    drop(semaphore.acquire().expect("whole"));
                    std::thread::yield_now();
                }
            };
            let threads: Vec<_> = (0..80).map(|_| scope.spawn(thread)).collect();
            std::thread::sleep(Duration::from_millis(50));
            semaphore.add(2).expect("room");
            threads.into_iter().for_each(|thread| thread.join().expect("done"));
        });
        assert_eq!(semaphore.available(), 2);
    });
}

/// Who waits in its own poll is told, by another process, also where the descriptor was made late.
#[test]
fn a_descriptor_tells() {
    play("semaphore::a_descriptor_tells", |part| {
        let segment = segment();
        let semaphore = Semaphore::open_or_create(&segment, "s", 0, 30).expect("free");
        let memory = Memory::open_or_create(&segment, "words", 8).expect("free");
        let turn = memory.word(0).expect("inside");
        if let Part::Role(..) = part {
            for round in 1..=20 {
                until("its turn", || turn.load(Acquire) == round);
                semaphore.add(1).expect("whole");
            }
            return;
        }
        let other = role("other", "");
        for round in 1..=20 {
            assert_eq!(semaphore.try_acquire().err(), Some(Error::WouldBlock));
            let mut fds = [PollFd::new(&semaphore, PollFlags::IN)];
            turn.store(round, Release);
            until("it is told", || {
                assert_eq!(poll(&mut fds, Some(&LIMIT)), Ok(1));
                semaphore.try_acquire().map(Permit::use_up).is_ok()
            });
        }
        other.ends();
    });
}
