//! Processes killed at any moment, by kill -9: what they held comes back, and nobody waits for
//! them.

use crate::stage::{Guarded, Part, play, role, segment, until};
use ginnel::{Error, Memory, Queue, Receiver, Segment, Sender, WhenFull};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 40;
const MANY: u64 = 3000;
/// How long [`MANY`] go on at most. Where a machine starts processes slowly, each that is killed
/// before it was a sender costs a wait in vain.
const LONG: Duration = Duration::from_secs(90);

fn queue() -> Queue {
    Queue::new().capacity(8).message_size(300).senders(2).loans(3)
}

/// Some moment, another one in each round: from the first instructions to a while of traffic.
fn some_moment(round: u64) {
    let micros = (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 12_000;
    std::thread::sleep(Duration::from_micros(2_000 + micros));
}

/// Kills a role at some moment: in every other round after it `has_begun`, which it may never have
/// in the others, where it is killed while it starts.
fn kill_at_some_moment(
    round: u64,
    role: Guarded,
    has_begun: impl Fn() -> bool + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        if round % 2 == 1 {
            until("the role begins", has_begun);
        }
        some_moment(round);
        role.kill();
    })
}

/// Pages that are free, by a look at the segment's own words.
fn free_pages(segment: &Segment) -> u32 {
    let looker = ginnel_region::Segment::open(segment.path()).expect("there");
    let free = looker.page_counts().0;
    looker.close();
    free
}

fn bytes(i: u64) -> Vec<u8> {
    let len = 16 + (i % 280) as usize;
    let mut bytes = vec![i as u8; len];
    bytes[..8].copy_from_slice(&i.to_le_bytes());
    bytes
}

fn number(message: &[u8]) -> u64 {
    let i = u64::from_le_bytes(message[..8].try_into().expect("8"));
    assert_eq!(message, bytes(i), "a message is there as a whole or not at all");
    i
}

/// A sender sends 0, 1, 2 … until it is killed: what arrives is 0, 1, 2 … without a gap, and then
/// the receiver is told of the death. The next sender takes the lane, with every buffer free.
/// What all of them held is free at the end.
fn senders(rounds: u64) {
    let segment = segment();
    queue().create(&segment, "q").expect("free");
    let receiver = Receiver::open(&segment, "q").expect("there");
    let (mut delivered, mut free) = (0, 0);
    let begin = Instant::now();
    let in_time = |round: &u64| *round < ROUNDS || begin.elapsed() < LONG;
    let mut played = 0;
    for round in (0..rounds).take_while(in_time) {
        played += 1;
        let begun = Arc::new(AtomicBool::new(false));
        let has_begun = begun.clone();
        let killer =
            kill_at_some_moment(round, role("sender", ""), move || has_begun.load(Acquire));
        let (mut next, mut in_vain) = (0, 0);
        loop {
            match receiver.recv_timeout(Duration::from_millis(300)) {
                Ok(message) => {
                    assert_eq!(number(&message.to_vec()), next);
                    next += 1;
                    begun.store(true, Release);
                }
                Err(Error::Ended { died: true }) => break,
                // It was killed before it was a sender.
                Err(Error::TimedOut) if next == 0 && killer.is_finished() => break,
                // Nobody says how soon a death is known, nor when a busy machine runs a sender.
                Err(Error::TimedOut) if in_vain < 100 => in_vain += 1,
                Err(error) => panic!("{error}"),
            }
        }
        killer.join().expect("killed");
        delivered += next;
        let sender = Sender::open(&segment, "q").expect("the dead one's lane");
        let sender = sender.when_full(WhenFull::Refuse);
        let loans: Vec<_> =
            (0..8).map(|_| sender.loan(300).expect("every buffer is free")).collect();
        drop(loans);
        drop(sender);
        let _ = receiver.try_recv();
        segment.objects().expect("swept");
        if round == 2 {
            free = free_pages(&segment);
        }
    }
    assert!(delivered >= played / 2, "they were killed too soon to prove anything: {delivered}");
    until("pages of the dead are free", || {
        segment.objects().expect("swept");
        free_pages(&segment) >= free
    });
}

fn send_for_ever(segment: &Segment) {
    let sender = Sender::open(segment, "q").expect("a lane");
    for i in 0.. {
        let message = bytes(i);
        // One in three by way of another loan that is given up: see what was lent at the death.
        let given_up = (i % 3 == 0).then(|| sender.try_loan(1));
        let mut loan = sender.loan(message.len()).expect("room");
        loan.write(0, &message);
        loan.send().expect("whole");
        drop(given_up);
    }
}

fn part_of_sender(part: Part, rounds: u64) {
    match part {
        Part::Test => senders(rounds),
        Part::Role(..) => send_for_ever(&segment()),
    }
}

#[test]
fn senders_killed_at_any_moment() {
    play("deaths::senders_killed_at_any_moment", |part| part_of_sender(part, ROUNDS));
}

#[test]
#[ignore = "test-all: as above, thousands of times"]
fn senders_killed_thousands_of_times() {
    play("deaths::senders_killed_thousands_of_times", |part| part_of_sender(part, MANY));
}

/// A receiver notes each number that it took, holding some messages, until it is killed. The next
/// one goes on behind what was noted: only what the dead one had in hand is gone, and never comes
/// twice.
fn receivers(rounds: u64, full: WhenFull) {
    let segment = segment();
    queue().create(&segment, "q").expect("free");
    let noted = Memory::create(&segment, "noted", 64).expect("free");
    let sender = Sender::open(&segment, "q").expect("a lane").when_full(full);
    let (mut next, mut ended) = (0u64, 0);
    let word = noted.word(0).expect("inside");
    for round in 0..rounds {
        let before = word.load(Acquire);
        let again = Memory::open(&segment, "noted").expect("there");
        let has_begun = move || again.word(0).is_ok_and(|word| word.load(Acquire) != before);
        let killer = kill_at_some_moment(round, role("receiver", ""), has_begun);
        while !killer.is_finished() {
            match sender.loan_timeout(300, Duration::from_millis(200)) {
                Ok(mut loan) => {
                    let message = bytes(next);
                    loan.write(0, &message);
                    loan.truncate(message.len());
                    loan.send().expect("whole");
                    next += 1;
                }
                Err(Error::Ended { died: true }) => ended += 1,
                Err(Error::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
        }
        killer.join().expect("killed");
        assert!(word.load(Acquire) >= before);
    }
    let receiver = Receiver::open(&segment, "q").expect("the dead one's place");
    let mut last = word.load(Acquire);
    let mut count = 0;
    while let Ok(message) = receiver.try_recv() {
        let i = number(&message.to_vec());
        assert!(i + 1 > last, "{i} came twice: {last} were taken");
        // Of those that the dead one had taken, it had not noted one at most.
        assert!(full == WhenFull::DropOldest || i <= last + 1, "{i} after {last}: one is lost");
        (last, count) = (i + 1, count + 1);
    }
    assert!(count <= 8, "{count} in a queue of 8");
    // The one that the dead one had not noted may have been the newest: then nothing is left.
    let noted_all = last == next || count == 0 && last + 1 == next;
    assert!(noted_all, "the newest is there: {last} of {next}, {count} since the death");
    assert!(word.load(Acquire) >= rounds / 2, "they were killed too soon to prove anything");
    assert!(full == WhenFull::DropOldest || ended > 0, "nobody waited for the dead");
    let held: Vec<_> = (0..3)
        .map(|_| {
            sender.send(b"every buffer is free: a message").expect("room");
            receiver.recv().expect("there")
        })
        .collect();
    let sender = sender.when_full(WhenFull::Refuse);
    let loans: Vec<_> = (0..8).map(|_| sender.loan(1).expect("every buffer is free")).collect();
    drop((held, loans));
}

fn take_for_ever(segment: &Segment) {
    let noted = Memory::open(segment, "noted").expect("there");
    let receiver = Receiver::open(segment, "q").expect("nobody living is there");
    let word = noted.word(0).expect("inside");
    let mut held = std::collections::VecDeque::new();
    loop {
        if held.len() == 3 {
            held.pop_front();
        }
        let message = receiver.recv().expect("more to come");
        let i = number(&message.to_vec());
        let last = word.load(Acquire);
        assert!(i >= last, "{i} came twice: {last} were taken");
        word.store(i + 1, Release);
        held.push_back(message);
    }
}

#[test]
fn receivers_killed_at_any_moment() {
    play("deaths::receivers_killed_at_any_moment", |part| match part {
        Part::Test => receivers(ROUNDS, WhenFull::Wait),
        Part::Role(..) => take_for_ever(&segment()),
    });
}

#[test]
fn receivers_killed_while_the_oldest_is_dropped() {
    play("deaths::receivers_killed_while_the_oldest_is_dropped", |part| match part {
        Part::Test => receivers(ROUNDS, WhenFull::DropOldest),
        Part::Role(..) => take_for_ever(&segment()),
    });
}

/// Processes make, open and remove objects of the same few names until they are killed. Afterwards
/// every page and every name is free.
fn makers(rounds: u64) {
    let segment = segment();
    let free = free_pages(&segment);
    for round in 0..rounds {
        let makers = [role("maker", ""), role("maker", "")];
        some_moment(round);
        makers.into_iter().for_each(Guarded::kill);
    }
    for name in ["a", "b", "c"] {
        let _ = segment.remove(name);
        let memory = Memory::create(&segment, name, 5000).expect("nobody has it");
        assert!(memory.remove());
    }
    until("pages of the dead are free", || {
        segment.objects().expect("swept");
        free_pages(&segment) == free
    });
    assert_eq!(segment.objects().expect("listed"), []);
}

fn make_for_ever(segment: &Segment) {
    for round in 0usize.. {
        let name = ["a", "b", "c"][round % 3];
        let memory = Memory::create(segment, name, 5000 * (round % 5 + 1) as u64);
        let memory = memory.or_else(|_| Memory::open(segment, name));
        if round % 2 == 0 {
            let _ = segment.remove(name);
        }
        drop(memory);
    }
}

#[test]
fn makers_killed_at_any_moment() {
    play("deaths::makers_killed_at_any_moment", |part| match part {
        Part::Test => makers(ROUNDS),
        Part::Role(..) => make_for_ever(&segment()),
    });
}

/// Somebody sleeps for a message when its only sender is killed: it is told within the time that a
/// sleeper looks again, not when its own time is over.
#[test]
fn nobody_waits_for_the_dead() {
    play("deaths::nobody_waits_for_the_dead", |part| {
        let segment = segment();
        if let Part::Role(..) = part {
            let sender = Sender::open(&segment, "q").expect("a lane");
            sender.send(&bytes(0)).expect("room");
            loop {
                std::thread::park();
            }
        }
        queue().create(&segment, "q").expect("free");
        let receiver = Receiver::open(&segment, "q").expect("there");
        let sender = role("sender", "");
        receiver.recv().expect("it has come");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            sender.kill();
        });
        let told = receiver.recv_timeout(Duration::from_secs(100)).err();
        assert_eq!(told, Some(Error::Ended { died: true }));
        killer.join().expect("killed");
    });
}
