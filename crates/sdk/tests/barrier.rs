//! The barrier: all go on together, whoever is killed whenever, and nobody waits for the dead.

use crate::stage::{Guarded, Part, play, role, segment, until};
use ginnel::{Barrier, Error, Kind, Memory, Segment};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(100);

#[test]
fn all_go_on_when_all_have_come() {
    play("barrier::all_go_on_when_all_have_come", |part| {
        const ROUNDS: u64 = 300;
        let segment = segment();
        let memory = Memory::open_or_create(&segment, "words", 64).expect("free");
        let mut barrier = Barrier::open_or_create(&segment, "b", 3).expect("a seat");
        let number = match part {
            Part::Role(_, number) => number.parse().expect("a number"),
            Part::Test => 0,
        };
        let others = [1, 2].map(|at| (number == 0).then(|| role("other", &at.to_string())));
        let [words, last] = [[0, 1, 2], [3, 4, 5]].map(|at| at.map(|at| memory.word(at * 8)));
        let words = words.map(|word| word.expect("inside"));
        let last = last.map(|word| word.expect("inside"))[0];
        let began = Instant::now();
        for round in 1..=ROUNDS {
            words[number].store(round, Release);
            // Some sleep, and in another order each time.
            if (round + number as u64).is_multiple_of(3) {
                std::thread::sleep(Duration::from_micros(200));
            }
            let was_last = barrier.wait().expect("all come");
            last.fetch_add(was_last.into(), AcqRel);
            for word in words {
                let at = word.load(Acquire);
                assert!(at == round || at == round + 1, "{at} in round {round}");
            }
        }
        // Without wake-ups each round would take a tenth of a second.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        if number == 0 {
            others.into_iter().flatten().for_each(Guarded::ends);
            assert_eq!(last.load(Acquire), ROUNDS, "one comes last each time");
        }
    });
}

#[test]
fn who_gives_up_has_not_come() {
    play("barrier::who_gives_up_has_not_come", |_| {
        let segment = segment();
        let mut one = Barrier::create(&segment, "b", 2).expect("free");
        assert_eq!(one.wait_timeout(SHORT), Err(Error::TimedOut), "a seat is empty");
        let mut two = Barrier::open(&segment, "b").expect("a seat");
        assert_eq!((one.name(), one.parties()), ("b", 2));
        assert!(matches!(Barrier::open(&segment, "b"), Err(Error::InUse { pid: 1.., .. })));
        assert_eq!(one.wait_timeout(SHORT), Err(Error::TimedOut));
        assert_eq!(two.wait_timeout(SHORT), Err(Error::TimedOut), "the other has given up");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| one.wait());
            let last = two.wait().expect("both");
            assert_eq!(waits.join().expect("whole"), Ok(!last));
        });
        drop(two);
        assert_eq!(one.wait_timeout(SHORT), Err(Error::TimedOut), "somebody may come");
        Barrier::open(&segment, "b").expect("the seat is free");
        let listed = segment.objects().expect("listed");
        assert_eq!((listed[0].kind, listed[0].kind.name()), (Kind::Barrier, "barrier"));
        for parties in [0, 49] {
            let refused = Barrier::create(&segment, "bad", parties).err();
            assert!(matches!(refused, Some(Error::Invalid { .. })), "{parties}");
        }
        let other = Barrier::open_or_create(&segment, "b", 3).expect_err("another");
        assert!(matches!(other, Error::WrongShape { is: 2, wanted: 3, .. }), "{other}");
        let mut alone = Barrier::create(&segment, "alone", 1).expect("free");
        // Also where no seat is left: the number is what is wrong.
        let other = Barrier::open_or_create(&segment, "alone", 3).expect_err("another");
        assert!(matches!(other, Error::WrongShape { is: 1, wanted: 3, .. }), "{other}");
        assert_eq!(alone.wait(), Ok(true));
        let all: Vec<_> =
            (0..48).map(|_| Barrier::open_or_create(&segment, "all", 48).expect("free")).collect();
        std::thread::scope(|scope| {
            let wait = |mut barrier: Barrier| scope.spawn(move || barrier.wait_timeout(LONG));
            let threads: Vec<_> = all.into_iter().map(wait).collect();
            let waited = threads.into_iter().map(|thread| thread.join().expect("one"));
            assert_eq!(waited.filter(|last| last.clone().expect("all")).count(), 1);
        });
    });
}

/// Who waits for one that died is told, and goes on once another has its seat. One that had come
/// before it died has come.
#[test]
fn nobody_waits_for_the_dead() {
    play("barrier::nobody_waits_for_the_dead", |part| {
        let segment = segment();
        let memory = Memory::open_or_create(&segment, "words", 8).expect("free");
        let has_it = memory.word(0).expect("inside");
        if let Part::Role(what, _) = part {
            let mut barrier = Barrier::open(&segment, "b").expect("a seat");
            has_it.store(1, Release);
            if what == "comes" {
                let _ = barrier.wait();
            }
            loop {
                std::thread::park();
            }
        }
        let mut barrier = Barrier::create(&segment, "b", 2).expect("free");
        let dies = role("sits", "");
        until("it has its seat", || has_it.load(Acquire) == 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| barrier.wait_timeout(LONG));
            std::thread::sleep(Duration::from_millis(50));
            dies.kill();
            assert_eq!(waits.join().expect("told"), Err(Error::Broken));
        });
        assert_eq!(barrier.wait_timeout(LONG), Err(Error::Broken), "as long as its seat is its");
        let other = Barrier::open_or_create(&segment, "b", 3).expect_err("another");
        assert!(matches!(other, Error::WrongShape { is: 2, wanted: 3, .. }), "{other}");
        assert_eq!(barrier.wait_timeout(LONG), Err(Error::Broken), "it has not taken the seat");
        has_it.store(0, Release);
        let comes = role("comes", "");
        until("it has its seat", || has_it.load(Acquire) == 1);
        std::thread::sleep(Duration::from_millis(100));
        comes.kill();
        barrier.wait_timeout(LONG).expect("it had come");
        assert_eq!(barrier.wait_timeout(LONG), Err(Error::Broken));
        drop(Barrier::open(&segment, "b").expect("the dead one's seat"));
        assert_eq!(barrier.wait_timeout(SHORT), Err(Error::TimedOut), "there is an empty seat");
    });
}

const PARTIES: usize = 3;

/// Goes round and round. Its word says how often it went on; those of the others are not far away.
fn go_for_ever(segment: &Segment) {
    let memory = Memory::open(segment, "words").expect("there");
    let times = memory.word(0).expect("inside");
    let mut barrier = loop {
        match Barrier::open(segment, "b") {
            Ok(barrier) => break barrier,
            // A dead one is thought to live for a moment longer.
            Err(Error::InUse { .. }) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    };
    loop {
        match barrier.wait() {
            Ok(true) => _ = times.fetch_add(1, AcqRel),
            Ok(false) => {}
            // Until another has the dead one's seat.
            Err(Error::Broken) => std::thread::sleep(Duration::from_micros(300)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Parties that are killed at any moment: the others go on with whoever takes the seat.
fn parties(rounds: u64) {
    let segment = segment();
    let memory = Memory::create(&segment, "words", 8).expect("free");
    drop(Barrier::create(&segment, "b", PARTIES as u32).expect("free"));
    let times = memory.word(0).expect("inside");
    let mut parties: Vec<Guarded> = (0..PARTIES).map(|_| role("party", "")).collect();
    for round in 0..rounds {
        let before = times.load(Acquire);
        until("they go on", || times.load(Acquire) > before + 20);
        let micros = (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 3_000;
        std::thread::sleep(Duration::from_micros(micros));
        parties.remove(0).kill();
        parties.push(role("party", ""));
    }
    parties.into_iter().for_each(Guarded::kill);
    let mut seats: Vec<_> =
        (0..PARTIES).map(|_| Barrier::open(&segment, "b").expect("the dead's")).collect();
    // Nobody has come whatever the dead had done.
    let (first, others) = seats.split_first_mut().expect("three");
    assert_eq!(first.wait_timeout(SHORT), Err(Error::TimedOut));
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            others.iter_mut().map(|seat| scope.spawn(|| seat.wait_timeout(LONG))).collect();
        first.wait_timeout(LONG).expect("all");
        threads.into_iter().for_each(|thread| _ = thread.join().expect("whole").expect("all"));
    });
}

#[test]
fn parties_killed_at_any_moment() {
    play("barrier::parties_killed_at_any_moment", |part| match part {
        Part::Test => parties(40),
        Part::Role(..) => go_for_ever(&segment()),
    });
}

#[test]
#[ignore = "test-all: as above, thousands of times"]
fn parties_killed_thousands_of_times() {
    play("barrier::parties_killed_thousands_of_times", |part| match part {
        Part::Test => parties(2000),
        Part::Role(..) => go_for_ever(&segment()),
    });
}
