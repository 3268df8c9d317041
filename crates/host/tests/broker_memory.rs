//! What memory `ginnel-broker` takes, and that it stays below its cgroup's limit, whoever asks.

use crate::broker::{Asker, PATIENCE, pair, possible};
use ginnel_tcp::broker::{Heard, Question, Verdict, ask, connect, hear};
use ginnel_tests::daemon::Broker;
use ginnel_tests::limit::MemoryLimit;
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::set_thread_res_uid;
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

/// Connections of a user, who asks something for each, until one is turned away or there are as
/// many as that; whether one was.
fn ask_as(user: u32, many: usize, broker: &Broker) -> (Vec<Asker>, bool) {
    let path = broker.socket();
    let asks = move || {
        set_thread_res_uid(Uid::ROOT, Uid::from_raw(user), Uid::ROOT).expect("this thread's");
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
    let most = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: most.maximum, maximum: most.maximum })
        .expect("may be raised");
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
