//! What memory `ginnel-broker` takes, and that it stays below its cgroup's limit, whoever asks.

use crate::askers::{Asker, PATIENCE, become_user, pair, possible, raise_limit};
use ginnel_tcp::broker::{Answer, Heard, Question, Verdict, ask, connect, hear, part};
use ginnel_tests::daemon::Broker;
use ginnel_tests::limit::MemoryLimit;
use ginnel_tests::permit;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// A broker is one of many on a node: what it read at its start, it gives back.
#[test]
fn a_broker_takes_little_memory() {
    if !possible("a_broker_takes_little_memory") {
        return;
    }
    let broker = Broker::start("");
    let asker = Asker::new(&broker);
    let (client, _server) = pair();
    asker.hand_in(&client, true, 1);
    asker.waits();
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).expect("status");
    let of = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("there");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    assert!(of("RssAnon:") < 8 << 10 && of("VmHWM:") < 32 << 10, "{status}");
}

/// The first page of each pair counts as the broker's, also of pairs whose processes have left it
/// and keep the memory. At its cgroup's limit it makes no more, rather than be killed.
#[test]
fn at_its_memory_limit_a_broker_makes_no_pairs() {
    let name = "at_its_memory_limit_a_broker_makes_no_pairs";
    let Some(limit) = possible(name).then(|| MemoryLimit::new(name, 64 << 20)).flatten() else {
        return;
    };
    let broker = Broker::start_within(&limit.enter(), "");
    let (first, second) = (Asker::new(&broker), Asker::new(&broker));
    let (client, server) = pair();
    // What is kept of earlier pairs, at once.
    let kept = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    let [program, rest @ ..] = limit.enter();
    let mut fill = std::process::Command::new(program);
    fill.args(rest)
        .args(["dd", "if=/dev/zero", "bs=1M", "count=20"])
        .arg(format!("of={}", kept.path().display()));
    assert!(fill.stderr(std::process::Stdio::null()).status().expect("dd").success());
    first.hand_in(&server, false, 1);
    first.waits();
    second.hand_in(&client, true, 1);
    assert_eq!((second.verdict(), first.verdict()), (Verdict::NoMemory, Verdict::NoMemory));
    drop(kept);
    first.hand_in(&server, false, 2);
    first.waits();
    second.hand_in(&client, true, 2);
    assert_eq!((second.verdict(), first.verdict()), (Verdict::Meet, Verdict::Meet));
}

/// Two processes that make one pair after the other, and keep the memory of each: their limit does
/// not count it any more, and it counts as the broker's. It makes no more pairs, for anybody, until
/// they let go of it, and is not killed.
#[test]
fn who_hoards_memory_of_pairs_has_none_made() {
    let name = "who_hoards_memory_of_pairs_has_none_made";
    let Some(limit) = possible(name).then(|| MemoryLimit::new(name, 32 << 20)).flatten() else {
        return;
    };
    let _permit = permit::cpu(1);
    raise_limit();
    let broker = Broker::start_within(&limit.enter(), "[broker]\npairs = 4\n");
    let (first, second) = (Asker::new(&broker), Asker::new(&broker));
    let (client, server) = pair();
    // What ended before is said once more where that overtook the word of the pair.
    let next = |asker: &Asker| loop {
        let (answer, memory) = asker.answer();
        if answer.verdict != Verdict::Ended {
            break (answer, memory);
        }
    };
    let hears_of_its_end = |asker: &Asker, pair: u64| {
        while !matches!(asker.answer().0, Answer { verdict: Verdict::Ended, pair: ended, .. } if ended == pair)
        {
        }
    };
    // One more pair, with its memory, or why not.
    let meet = |number: u64| {
        first.hand_in(&server, false, number);
        first.waits();
        second.hand_in(&client, true, number);
        let ((told, memory), (also, _)) = (next(&second), next(&first));
        let memory = memory.ok_or(told.verdict)?;
        assert_eq!((told.verdict, also.verdict), (Verdict::Meet, Verdict::Meet));
        // Both hear of the first farewell, and who says the second one of that.
        for (asker, hear) in [(&first, &[&first, &second][..]), (&second, &[&second])] {
            part(asker.0.0, told.pair);
            hear.iter().for_each(|other| hears_of_its_end(other, told.pair));
        }
        Ok(memory)
    };
    let (mut hoard, until) = (Vec::new(), Instant::now() + 6 * PATIENCE);
    let refused = loop {
        match meet(1 + hoard.len() as u64) {
            Ok(memory) => hoard.push(memory),
            // Something was said to them that they had not read.
            Err(Verdict::Nobody) => {}
            Err(verdict) => break verdict,
        }
        assert!(hoard.len() < 20_000, "each takes a page of 32 MiB");
        assert!(Instant::now() < until, "{} pairs, and no end", hoard.len());
    };
    println!("{} memories were kept", hoard.len());
    assert!(refused == Verdict::NoMemory && hoard.len() > 100, "{refused:?}, {}", hoard.len());
    drop(hoard);
    let until = Instant::now() + PATIENCE;
    while meet(100_000).is_err() {
        assert!(Instant::now() < until, "no room");
    }
}

/// Connections of a user, who asks something for each, until one is turned away or there are as
/// many as that; whether one was.
fn ask_as(user: u32, many: usize, broker: &Broker) -> (Vec<Asker>, bool) {
    let path = broker.socket();
    let asks = move || {
        become_user(user);
        let nothing = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut askers = Vec::new();
        while askers.len() < many {
            let asker = Asker(connect(&path).expect("it listens"));
            let _ = ask(asker.0.0, &Question { connected: false, number: 1 }, nothing.as_raw_fd());
            let until = Instant::now() + PATIENCE;
            let verdict = loop {
                match hear(asker.0.0) {
                    Heard::Answer(answer, _) => break answer.verdict,
                    Heard::Nothing => assert!(Instant::now() < until, "no answer"),
                    Heard::Gone => panic!("it has gone"),
                }
                std::thread::yield_now();
            };
            match verdict {
                Verdict::Unreadable => askers.push(asker),
                Verdict::NoMemory => return (askers, true),
                other => panic!("{other:?}"),
            }
        }
        (askers, false)
    };
    std::thread::spawn(asks).join().expect("it asked")
}

/// A process that asks takes a thread. A container may have processes of any number of users, and
/// brokers of several groups have one limit together: none of them is killed, and who has most is
/// turned away before who has few.
#[test]
fn at_its_memory_limit_a_broker_takes_no_more_processes() {
    let name = "at_its_memory_limit_a_broker_takes_no_more_processes";
    let Some(limit) = possible(name).then(|| MemoryLimit::new(name, 48 << 20)).flatten() else {
        return;
    };
    raise_limit();
    let (greedy, other) =
        (Broker::start_within(&limit.enter(), ""), Broker::start_within(&limit.enter(), ""));
    let (mut askers, mut turned_away) = (Vec::new(), false);
    for user in 1..20 {
        let (more, full) = ask_as(100_000 + user, 120, &greedy);
        askers.extend(more);
        turned_away = full;
        if full {
            break;
        }
    }
    assert!(turned_away, "{} processes, and there is still room in 48 MiB", askers.len());
    assert!(greedy.log().contains("event=process_turned_away"), "{}", greedy.log());
    let (few, full) = ask_as(0, 20, &other);
    assert!(!full && few.len() == 20, "one group takes the room of others: {}", few.len());
    // There is room again once they have gone: when their threads have ended.
    drop(askers);
    let until = Instant::now() + PATIENCE;
    while ask_as(0, 20, &greedy).1 {
        assert!(Instant::now() < until, "no room");
    }
}
