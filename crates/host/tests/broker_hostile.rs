//! Those who ask `ginnel-broker` and mean harm, or die over it: they keep nobody else from a pair.

use crate::askers::{Asker, NOBODY, PATIENCE, become_user, pair, possible};
use ginnel_tcp::broker::{Heard, Question, Verdict, ask, connect, hear};
use ginnel_tests::daemon::Broker;
use ginnel_tests::permit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A process that handed in its end, and died: nobody is brought together with it, and the next
/// who has that end is.
#[test]
fn an_asker_that_died_is_nobodys_other_end() {
    if !possible("an_asker_that_died_is_nobodys_other_end") {
        return;
    }
    let broker = Broker::start("");
    let (died, first, second) = (Asker::new(&broker), Asker::new(&broker), Asker::new(&broker));
    let (client, server) = pair();
    died.hand_in(&server, false, 1);
    died.waits();
    drop(died);
    first.hand_in(&client, true, 2);
    first.waits();
    second.hand_in(&server, false, 3);
    assert_eq!((first.verdict(), second.verdict()), (Verdict::Meet, Verdict::Meet));
    // One that dies with the memory of a pair: the other one hears of its end.
    drop(second);
    assert_eq!(first.verdict(), Verdict::Ended);
}

/// One user's connections, as fast as they can be made, and none is let go of before there are
/// hundreds: whoever else comes gets in between them.
#[test]
fn who_connects_without_end_keeps_nobody_out() {
    if !possible("who_connects_without_end_keeps_nobody_out") {
        return;
    }
    let _permit = permit::cpu(2);
    let broker = Broker::start("");
    let (path, enough, made) = (broker.socket(), AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                become_user(NOBODY);
                let mut kept = Vec::new();
                while !enough.load(Ordering::Relaxed) {
                    let connection = connect(&path);
                    made.fetch_add(usize::from(connection.is_some()), Ordering::Relaxed);
                    kept.extend(connection);
                    if kept.len() > 400 {
                        kept.drain(..200);
                    }
                }
            });
        }
        let until = Instant::now() + 6 * PATIENCE;
        let enters = || loop {
            if let Some(socket) = connect(&path) {
                return Asker(socket);
            }
            assert!(Instant::now() < until, "there is no way in");
            std::thread::yield_now();
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while made.load(Ordering::Relaxed) < 1000 {
                assert!(Instant::now() < until, "it lets nobody in");
                std::thread::yield_now();
            }
            for number in 1..6 {
                let (first, second, (client, server)) = (enters(), enters(), pair());
                first.hand_in(&client, true, number);
                first.waits();
                second.hand_in(&server, false, number);
                let met = (first.verdict(), second.verdict());
                assert_eq!(met, (Verdict::Meet, Verdict::Meet));
            }
        }));
        enough.store(true, Ordering::Relaxed);
        println!("{} connections meanwhile", made.load(Ordering::Relaxed));
        if let Err(why) = done {
            std::panic::resume_unwind(why);
        }
    });
}

/// The other ends of a process's connection are handed in without a pause, by those who read
/// nothing of what they are told: the process is answered, also about its other connections.
#[test]
fn who_reads_nothing_keeps_nobody_waiting() {
    if !possible("who_reads_nothing_keeps_nobody_waiting") {
        return;
    }
    let broker = Broker::start("");
    let (asker, honest) = (Asker::new(&broker), Asker::new(&broker));
    let (client, server) = pair();
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_user(NOBODY);
            let strangers: Vec<Asker> = (0..4).map(|_| Asker::new(&broker)).collect();
            while !enough.load(Ordering::Relaxed) {
                for stranger in &strangers {
                    let number = asked.fetch_add(1, Ordering::Relaxed) as u64;
                    // (It may still have to read others.)
                    let question = Question { connected: true, number };
                    let _ = ask(stranger.0.0, &question, client.as_raw_fd());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let until = Instant::now() + PATIENCE;
        let is_answered = |number| loop {
            match hear(asker.0.0) {
                Heard::Answer(answer, _) if answer.number == number => return answer.verdict,
                Heard::Answer(..) => {}
                Heard::Nothing => std::thread::sleep(Duration::from_millis(1)),
                Heard::Gone => panic!("it hangs up"),
            }
            assert!(Instant::now() < until, "no answer to {number}");
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while asked.load(Ordering::Relaxed) < 100 {
                assert!(Instant::now() < until, "nobody asks");
                std::thread::yield_now();
            }
            for number in 1..10 {
                asker.hand_in(&server, false, number);
                is_answered(number);
            }
            let (client, server) = pair();
            honest.hand_in(&client, true, 1);
            honest.waits();
            asker.hand_in(&server, false, 10);
            assert_eq!((is_answered(10), honest.verdict()), (Verdict::Meet, Verdict::Meet));
        }));
        enough.store(true, Ordering::Relaxed);
        if let Err(why) = done {
            std::panic::resume_unwind(why);
        }
    });
}
