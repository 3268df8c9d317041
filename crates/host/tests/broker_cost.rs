//! What `ginnel-broker` costs: a pair, a further connection of one, a thousand pairs, and all of
//! them while nothing happens. Prints figures, which mean something on a quiet machine alone
//! (docs/ginneld.md has some).

use crate::askers::{Asker, pair, possible};
use ginnel_region::sys::Fd;
use ginnel_tcp::broker::{Beside, Verdict};
use ginnel_tests::daemon::Broker;
use std::time::{Duration, Instant};

/// So many processes ask, each of which is a pair with every other one: 1035 pairs.
const ASKERS: usize = 46;

/// Has the two of each pair meet once more, on a connection of its own. How long that took for each
/// in the mean, µs; what they were given is kept.
fn meet_each(askers: &[Asker], kept: &mut Vec<Fd>) -> f64 {
    let mut took = Duration::ZERO;
    let mut pairs = 0u32;
    for (number, first) in askers.iter().enumerate() {
        for second in &askers[number + 1..] {
            let (client, server) = pair();
            pairs += 1;
            let begun = Instant::now();
            first.hand_in(&server, false, pairs.into());
            first.waits();
            second.hand_in(&client, true, pairs.into());
            for asker in [second, first] {
                let (answer, Beside { memory, lines }) = asker.whole_answer();
                assert_eq!(answer.verdict, Verdict::Meet);
                kept.extend(memory);
                kept.extend(lines.into_iter().flatten());
            }
            took += begun.elapsed();
        }
    }
    took.as_secs_f64() * 1e6 / f64::from(pairs)
}

/// Of the broker: the line of its status, KiB, and the processor time it has had, hundredths of a
/// second.
fn taken(broker: &Broker) -> (u64, u64) {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/{}/{file}", broker.pid())).expect("it runs")
    };
    let status = read("status");
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("there");
    let stat = read("stat");
    let after = stat.rsplit_once(") ").expect("a name").1;
    let ticks = after.split(' ').skip(11).take(2).map(|one| one.parse::<u64>().expect("a number"));
    (memory.trim().trim_end_matches(" kB").parse().expect("a number"), ticks.sum())
}

#[test]
#[ignore = "by hand, on a quiet machine: it prints what the broker costs"]
fn by_hand_what_a_thousand_pairs_cost() {
    if !possible("by_hand_what_a_thousand_pairs_cost") {
        return;
    }
    crate::askers::raise_limit();
    let broker = Broker::start("[broker]\npairs = 2000\n");
    let askers: Vec<Asker> = (0..ASKERS).map(|_| Asker::new(&broker)).collect();
    let (before, mut kept) = (taken(&broker), Vec::new());
    let new = meet_each(&askers, &mut kept);
    let made = taken(&broker);
    let further = meet_each(&askers, &mut kept);
    let idle = taken(&broker);
    std::thread::sleep(Duration::from_secs(20));
    let after = taken(&broker);
    let pairs = ASKERS * (ASKERS - 1) / 2;
    assert!(kept.len() >= 2 * pairs, "each has its memory");
    println!(
        "a pair, with its memory and lines: {new:.0} µs; a further connection: {further:.0} µs"
    );
    println!(
        "{pairs} pairs: {} KiB more in the broker, {} ms of a processor to make them, {} ms in 20 s without anything",
        made.0.saturating_sub(before.0),
        (made.1 - before.1) * 10,
        (after.1 - idle.1) * 10
    );
}
