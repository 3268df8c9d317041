//! Those who ask `ginnel-broker` and mean harm, or die over it: they keep nobody else from a pair.

use crate::askers::{Asker, NOBODY, PATIENCE, become_user, pair, possible};
use ginnel_tcp::broker::{Verdict, connect};
use ginnel_tests::daemon::Broker;
use ginnel_tests::permit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

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
