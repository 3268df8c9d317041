//! Unmodified programs in two guests, `ginnel run` in each: correct, and carried by the segment.

use crate::common::{Lab, PATIENCE, busy, interrupts, reported, status, wait};
use ginnel_guest::machine::{self, Guest};
use serde_json::Value;
use std::time::{Duration, Instant};

/// 15 MB through netcat each way, one after the other (both at once are more than netcat bears,
/// with or without Ginnel: it ends when one way does): the same bytes, by the ring, and nothing of
/// the segment is lost afterwards.
fn netcat(lab: &Lab) {
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let free = |guest: &Guest| status(guest)["segments"][0]["free_pages"].as_u64().expect("pages");
    for (server, client, from, to) in [
        ("-N -l 5000 <out", "-d 10.77.0.1 5000 >in", one, two),
        ("-d -l 5000 >in", "-N 10.77.0.1 5000 <out", two, one),
    ] {
        // A stream without pauses begins on TCP, and is moved when the reader has caught up: on a
        // busy machine not every time.
        let carried = (0..4).any(|_| {
            from.sh("head -c 15000000 /dev/urandom >out; rm -f report");
            to.sh("rm -f report");
            let nc = "GINNEL_REPORT=/root/report ginnel run -- nc";
            let server = one.start(&format!("{nc} {server}"), PATIENCE).expect("started");
            two.sh(&format!(
                "for i in $(seq 60); do {nc} {client} && exit 0; sleep 0.2; done; exit 1"
            ));
            server.finish().expect("ended").good().expect("well");
            assert_eq!(to.sh("md5sum <in"), from.sh("md5sum <out"));
            let (tcp, ring) = (reported(to, "tcp_in"), reported(to, "ring_in"));
            assert_eq!(tcp + ring, 15_000_000, "{}", to.sh("cat report"));
            ring > 1_000_000
        });
        assert!(carried, "the ring carried next to nothing: {}", to.sh("cat report"));
    }
    let all = status(one)["segments"][0]["pages"].as_u64().expect("pages");
    let until = Instant::now() + PATIENCE;
    // Each finds what its own dead held: both are asked each time.
    while [free(one), free(two)] != [all, all] {
        assert!(
            Instant::now() < until,
            "memory is lost: {}\n{}",
            one.sh("ginnel status --json; ps"),
            two.sh("ginnel status --json; ps")
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The first machine sleeps by doorbells, which the second, that has lost its driver, cannot ring:
/// small messages with both asleep, and a stream each way.
fn with_one_driver_alone(lab: &Lab) {
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    two.sh("cd /sys/class/ginnel/ginnel0/device && basename $(pwd -P) >/sys/bus/pci/drivers/ginnel/unbind");
    let no_spin = "rm -f report; GINNEL_SPIN=0 GINNEL_REPORT=/root/report ginnel run --";
    for (server, client, address, port) in
        [(one, two, "10.77.0.1", 6000), (two, one, "10.77.0.2", 6001)]
    {
        let serving =
            server.start(&format!("{no_spin} ./pingpong serve {port}"), PATIENCE).expect("started");
        client.sh(&format!("{no_spin} ./pingpong ask {address} {port} 100 5"));
        serving.finish().expect("ended").good().expect("well");
        for guest in [one, two] {
            assert!(reported(guest, "ring_in") >= 64 * 50, "{}", guest.sh("cat report"));
        }
    }
    netcat(lab);
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn netcat_between_two_guests_without_the_driver() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, false, &["nc"]);
    netcat(&lab);
    lab.assert_healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn netcat_between_two_guests() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &["nc"]);
    netcat(&lab);
    with_one_driver_alone(&lab);
    lab.assert_healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn iperf3_and_netpipe_between_two_guests() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &["iperf3", "NPtcp"]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let iperf3 = "rm -f report; GINNEL_REPORT=/root/report ginnel run -- iperf3";
    let server = one.start(&format!("{iperf3} -s -1"), PATIENCE).expect("started");
    // Asked for JSON it succeeds even where nobody listens yet.
    let client = format!("{iperf3} -c 10.77.0.1 -t 10 -J >result; grep -q sum_received result");
    let said =
        two.sh(&format!("for i in $(seq 20); do {client} && break; sleep 0.2; done; cat result"));
    let result: Value = serde_json::from_str(&said).expect("JSON");
    let (sent, got) =
        (&result["end"]["sum_sent"]["bytes"], &result["end"]["sum_received"]["bytes"]);
    assert!(got.as_u64() > Some(10_000_000), "{sent} sent, {got} received");
    server.finish().expect("ended").good().expect("well");
    // It has no pause by itself: it is held back until it can move, and that is soon.
    let (tcp, ring) = (reported(one, "tcp_in"), reported(one, "ring_in"));
    assert!(
        ring > tcp && reported(two, "ring_out") >= ring,
        "{}{}",
        one.sh("cat report"),
        two.sh("cat report")
    );

    // NetPIPE: messages of every size there and back, first compared, then timed.
    for options in ["-i -u 100000 -n 5", "-u 20000 -n 20"] {
        let netpipe =
            format!("rm -f report; GINNEL_REPORT=/root/report ginnel run -- NPtcp {options}");
        let server = one.start(&netpipe, PATIENCE).expect("started");
        let said = two.sh(&format!(
            "for i in $(seq 50); do {netpipe} -h 10.77.0.1 2>&1 && exit 0; sleep 0.1; done; exit 1"
        ));
        server.finish().expect("ended").good().expect("well");
        let (last, checked) = (said.lines().last().unwrap_or_default(), options.starts_with("-i"));
        assert!(
            last.contains(if checked { "Integrity check passed" } else { "Mbps" })
                && !said.contains("ailed"),
            "{said}"
        );
        for guest in [one, two] {
            let (tcp, ring) = (reported(guest, "tcp_in"), reported(guest, "ring_in"));
            assert!(ring > 9 * tcp, "{options}: {}", guest.sh("cat report"));
        }
    }
    lab.assert_healthy();
}

/// One who sleeps in poll and one who sleeps in epoll are woken by interrupts, and use no time
/// while nothing comes.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn doorbells_wake_sleepers_and_idle_ones_cost_nothing() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &["redis-server", "redis-cli"]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let no_spin = "GINNEL_SPIN=0 GINNEL_REPORT=/root/report ginnel run --";

    // In poll at both ends: round trips wake both by interrupts, and few if any by a token.
    let server = one.start(&format!("{no_spin} ./pingpong serve 6000"), PATIENCE).expect("started");
    let asked = two.sh(&format!("{no_spin} ./pingpong ask 10.77.0.1 6000 100 5"));
    server.finish().expect("ended").good().expect("well");
    for guest in [one, two] {
        let (rung, tokens) = (interrupts(guest), reported(guest, "tokens_sent"));
        assert!(
            rung > 0 && tokens <= 20,
            "{rung} interrupts, {tokens} tokens sent: {}",
            guest.sh("cat report")
        );
        assert!(reported(guest, "ring_in") >= 64 * 50, "{}", guest.sh("cat report"));
    }
    println!("a round trip of 64 bytes, both sleeping: {} µs by doorbell", asked.trim());

    // redis sleeps in epoll.
    let before = interrupts(one);
    one.sh(&format!("{no_spin} redis-server --bind 0.0.0.0 --protected-mode no --save '' --port 7000 >log 2>&1 &"));
    two.sh("for i in $(seq 100); do redis-cli -h 10.77.0.1 -p 7000 ping && exit 0; sleep 0.1; done; exit 1");
    let requests = "(for i in $(seq 30); do echo incr a; sleep 0.1; done; sleep 12; echo get a)";
    let client = format!("{requests} | {no_spin} redis-cli -h 10.77.0.1 -p 7000 >said");
    let session = two.start(&client, PATIENCE).expect("started");
    wait("both directions in a ring, woken by doorbells", || {
        let seen = status(one);
        let connections = seen["connections"].as_array().expect("a list");
        let by_bell = |one: &Value| {
            one["in_carrier"] == "ring" && one["out_carrier"] == "ring" && one["wake"] == "doorbell"
        };
        connections.iter().any(by_bell).then_some(())
    });
    two.sh("until grep -q 30 said; do sleep 0.1; done");
    let rung = interrupts(one) - before;
    assert!(rung > 0, "{rung} interrupts: {}", status(one));
    // Nothing to do for five seconds: the processors idle, as they would on TCP. (What asks takes
    // some time itself.)
    let before = [busy(one), busy(two)];
    std::thread::sleep(Duration::from_secs(5));
    let used = [busy(one) - before[0], busy(two) - before[1]];
    // Who looks again and again would use nearly all of it.
    assert!(used.iter().all(|&ticks| ticks < 250), "hundredths of a second used in 5 s: {used:?}");
    session.finish().expect("ended").good().expect("well");
    assert_eq!(two.sh("tail -1 said").trim(), "30");
    one.sh("killall redis-server");
    lab.assert_healthy();
}
