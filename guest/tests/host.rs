//! A process of the host and programs in a guest: plain TCP over the guest's network, carried by
//! the segment that `ginneld` serves to both.

use crate::common::{Lab, PATIENCE, interrupts, reported, status, wait, wait_for_ring};
use ginnel_guest::host::Host;
use ginnel_guest::machine::{self, Guest};
use serde_json::Value;
use std::time::Duration;

/// How programs of the host are started.
fn run(lab: &Lab) -> String {
    format!("exec ginnel run --segment {} --", lab.daemon.host_socket("t").display())
}

fn host_status(host: &Host) -> Value {
    serde_json::from_str(&host.sh("ginnel status --json")).expect("JSON")
}

fn host_reported(host: &Host, counter: &str) -> u64 {
    let text = host.sh("cat report 2>/dev/null || true");
    text.lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")[counter].as_u64().unwrap_or(0)
        })
        .sum()
}

fn carried(seen: &Value) -> bool {
    let all = seen["connections"].as_array().expect("a list");
    all.iter().any(|one| {
        one["in_carrier"] == "ring" && one["out_carrier"] == "ring" && one["wake"] == "doorbell"
    })
}

/// Waits until somebody listens at a port of the guest.
fn listening(guest: &Guest, port: u16) {
    guest.sh(&format!(
        "until grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp; do sleep 0.1; done"
    ));
}

/// Asks both sides, so that each finds what its own dead held, until nothing of the segment is
/// taken.
fn assert_all_free(guest: &Guest, host: &Host) {
    wait("all pages free", || {
        let _ = host_status(host);
        let seen = status(guest);
        (seen["segments"][0]["free_pages"] == seen["segments"][0]["pages"]).then_some(())
    });
}

/// 64 bytes there and back, so often, both ends asleep in between: `true` if the host asks.
fn ping(lab: &Lab, host: &Host, host_asks: bool, count: u32, pause: u32) {
    let guest = &lab.guests[0];
    guest.sh("rm -f report");
    let run = run(lab).replacen("exec", "rm -f report; GINNEL_SPIN=0 GINNEL_REPORT=report exec", 1);
    let in_guest = "GINNEL_SPIN=0 GINNEL_REPORT=/root/report ginnel run -- ./pingpong";
    let before = interrupts(guest);
    let (here, there) = if host_asks {
        let there = guest.start(&format!("{in_guest} serve 6000"), PATIENCE).expect("started");
        (
            host.start(&format!("{run} ./pingpong ask 10.77.0.1 6000 {count} {pause}"))
                .expect("started"),
            there,
        )
    } else {
        let here = host.start(&format!("{run} ./pingpong serve 6000")).expect("started");
        (
            here,
            guest
                .start(&format!("{in_guest} ask 10.77.0.100 6000 {count} {pause}"), PATIENCE)
                .expect("started"),
        )
    };
    if pause > 0 {
        wait("rings, and doorbells, as the host sees it", || {
            carried(&host_status(host)).then_some(())
        });
        wait("the same as the guest sees it", || carried(&status(guest)).then_some(()));
    }
    here.finish(PATIENCE).expect("well");
    there.finish().expect("ended").good().expect("well");
    let all = u64::from(count);
    let reports = [host.sh("cat report"), guest.sh("cat report")];
    let (here, there) =
        (|counter| host_reported(host, counter), |counter| reported(guest, counter));
    for (ring, tokens, wakes) in [
        (here("ring_in"), here("tokens_sent"), here("wakes_sent")),
        (there("ring_in"), there("tokens_sent"), there("wakes_sent")),
    ] {
        assert!(ring >= 64 * all / 2 && tokens <= 20 && wakes > 0, "{reports:?}");
    }
    // Both slept and were woken, however often: a guest without a processor of its own takes its
    // time until it sleeps, and finds what came meanwhile without a doorbell.
    let rung = interrupts(guest) - before;
    assert!(rung > 0, "no interrupt for {count} round trips: {reports:?}");
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn host_and_guest_talk_through_the_segment() {
    let _alone = machine::alone();
    let lab = Lab::boot(1, true, &["nc", "redis-server", "redis-cli"]);
    let Some(host) = lab.host() else { return };
    let guest = &lab.guests[0];
    let run = run(&lab);
    ping(&lab, &host, true, 300, 10);
    ping(&lab, &host, false, 300, 10);

    // A checked stream each way. One without pauses begins on TCP and moves when its reader has
    // caught up: not every time.
    let _ = host.sh("head -c 20000000 /dev/urandom >out");
    let sum = host.sh("md5sum <out");
    let carried = (0..4).any(|_| {
        guest.sh("rm -f report");
        let sink = guest
            .start("GINNEL_REPORT=/root/report ginnel run -- nc -d -l 5000 >in", PATIENCE)
            .expect("started");
        listening(guest, 5000);
        let source = host.start(&format!("{run} nc -N 10.77.0.1 5000 <out")).expect("started");
        source.finish(PATIENCE).expect("well");
        sink.finish().expect("ended").good().expect("well");
        assert_eq!(guest.sh("md5sum <in"), sum);
        reported(guest, "ring_in") > 1_000_000
    });
    assert!(carried, "the ring carried next to nothing: {}", guest.sh("cat report"));
    let source = guest.start("ginnel run -- nc -N -l 5001 <in", PATIENCE).expect("started");
    listening(guest, 5001);
    let sink = host.start(&format!("{run} nc -d 10.77.0.1 5001 >back")).expect("started");
    sink.finish(PATIENCE).expect("well");
    source.finish().expect("ended").good().expect("well");
    assert_eq!(host.sh("md5sum <back"), sum);

    // redis sleeps in epoll, on the host, and its client's connections are short but for the last.
    let redis = "redis-server --bind 0.0.0.0 --protected-mode no --save '' --port 7000";
    let _server = host.start(&format!("{run} {redis}")).expect("started");
    guest.sh("for i in $(seq 100); do redis-cli -h 10.77.0.100 -p 7000 ping && exit 0; sleep 0.1; done; exit 1");
    let requests = "(for i in $(seq 40); do echo incr a; sleep 0.05; done; echo get a)";
    let session = guest.start(
        &format!("{requests} | GINNEL_SPIN=0 ginnel run -- redis-cli -h 10.77.0.100 -p 7000"),
        PATIENCE,
    );
    wait("a ring to redis on the host", || self::carried(&host_status(&host)).then_some(()));
    let said = session.expect("started").finish().expect("ended").good().expect("well");
    assert_eq!(said.lines().last(), Some("40"));
    drop(_server);
    assert_all_free(guest, &host);
    lab.assert_healthy();
}

/// Who has no driver cannot ring: each is woken by tokens, the host too, which asked for a
/// doorbell.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_machine_without_the_driver_and_the_host() {
    let _alone = machine::alone();
    let lab = Lab::boot(1, false, &[]);
    let Some(host) = lab.host() else { return };
    let guest = &lab.guests[0];
    let there = guest
        .start("GINNEL_REPORT=/root/report ginnel run -- ./pingpong serve 6000", PATIENCE)
        .expect("started");
    let asking = run(&lab).replacen("exec", "GINNEL_SPIN=0 GINNEL_REPORT=report exec", 1);
    let here =
        host.start(&format!("{asking} ./pingpong ask 10.77.0.1 6000 100 10")).expect("started");
    here.finish(PATIENCE).expect("well");
    there.finish().expect("ended").good().expect("well");
    let (ring, tokens) = (
        reported(guest, "ring_in").min(host_reported(&host, "ring_in")),
        reported(guest, "tokens_sent"),
    );
    assert!(
        ring >= 64 * 50 && tokens > 0,
        "{ring} bytes by ring, {tokens} tokens: {}",
        guest.sh("cat report")
    );
    assert_all_free(guest, &host);
    lab.assert_healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn the_daemon_is_killed_under_host_and_guest() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(1, true, &["nc"]);
    let Some(host) = lab.host() else { return };
    let run = run(&lab).replacen("exec", "GINNEL_SPIN=0 exec", 1);
    let start = |port: u16, lab: &Lab| {
        let there = lab.guests[0]
            .start(&format!("GINNEL_SPIN=0 ginnel run -- ./pingpong serve {port}"), PATIENCE)
            .expect("started");
        let here =
            host.start(&format!("{run} ./pingpong ask 10.77.0.1 {port} 400 10")).expect("started");
        wait("a ring", || carried(&host_status(&host)).then_some(()));
        (here, there)
    };
    // It comes back, each time with everything that it had.
    let (here, there) = start(6000, &lab);
    for round in 2..=4 {
        lab.daemon.kill_instance().expect("killed, and started again");
        wait("the process joins again", || {
            (lab.daemon.log().matches("event=process_joined").count() >= round).then_some(())
        });
    }
    here.finish(PATIENCE).expect("well");
    there.finish().expect("ended").good().expect("well");
    ping(&lab, &host, true, 300, 10);

    // It never comes back: what was carried still is.
    let (here, there) = start(6001, &lab);
    lab.daemon.kill().expect("killed");
    here.finish(PATIENCE).expect("well");
    there.finish().expect("ended").good().expect("well");

    // Who comes now is served over TCP, and told why.
    let said = host
        .start(&format!(
            "{} sh -c 'ginnel status; sleep 1'",
            run.replacen("--segment", "--verbose --segment", 1)
        ))
        .expect("started");
    let said = said.finish(PATIENCE).expect("well");
    assert!(
        said.contains("join ginneld: Connection refused") && said.contains("stay on TCP"),
        "{said}"
    );
    lab.guests.iter().for_each(Guest::assert_healthy);
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_process_of_the_host_is_killed_in_the_middle_of_traffic() {
    let _alone = machine::alone();
    let lab = Lab::boot(1, true, &["nc"]);
    let Some(host) = lab.host() else { return };
    let guest = &lab.guests[0];
    // Nobody but these is attached on the host: when they are gone the guest gives back what they
    // held.
    guest.sh("(ginnel run -- nc -d -l 5000 >/dev/null; echo $? >ended) >/dev/null 2>&1 &");
    listening(guest, 5000);
    let mut source =
        host.start(&format!("{} nc 10.77.0.1 5000 </dev/zero", run(&lab))).expect("started");
    wait_for_ring(guest, "in_ring");
    source.kill();
    wait("the end of nc", || {
        guest.run("test -e ended", Duration::from_secs(10)).ok().filter(|said| said.status == 0)
    });
    wait("all pages free", || {
        let seen = status(guest);
        (seen["segments"][0]["free_pages"] == seen["segments"][0]["pages"]).then_some(())
    });
    // The next one works.
    ping(&lab, &host, false, 300, 10);
    assert_all_free(guest, &host);
    lab.assert_healthy();
}
