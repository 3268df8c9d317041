//! The network path of a connection in a ring is cut: the ring stops as TCP would have, and both go on once the path is mended.

use ginnel_tests::{Crowd, Running, Stand, build, netns};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: &str = "4711";
/// Nothing that is to happen takes as long, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A stream that stands so long has stopped: its writer writes every few milliseconds.
const STANDSTILL: Duration = Duration::from_secs(3);
/// So long after the cut it stands at the latest, the standstill included: five seconds are promised on an idle machine.
const SOON: Duration = Duration::from_secs(20);
/// The kernel's keepalive is in its steady state after this.
const STEADY: Duration = Duration::from_secs(6);

fn ip(args: &[&str]) {
    let done = Command::new("ip").args(args).output().expect("ip runs");
    assert!(done.status.success(), "ip {}: {}", args.join(" "), String::from_utf8_lossy(&done.stderr));
}

/// How far a program has come.
fn at(program: &Running) -> u64 {
    program.output().lines().rev().find_map(|line| line.parse().ok()).unwrap_or(0)
}

fn moves_on(program: &Running, stand: &Stand) {
    let before = at(program);
    stand.wait_until(PATIENCE, "the stream moves on", || at(program) > before + 100_000);
}

fn stands_still(program: &Running, stand: &Stand) {
    let since = Instant::now();
    let mut last = (at(program), Instant::now());
    while last.1.elapsed() < STANDSTILL {
        std::thread::sleep(Duration::from_millis(50));
        let now = at(program);
        if now != last.0 {
            last = (now, Instant::now());
        }
        assert!(since.elapsed() < SOON, "the stream goes on over a path that is cut: {}", stand.status());
    }
}

/// A stream between two namespaces whose path `cut` cuts and `mend` mends, twice.
fn cut(name: &str, settings: &[(&str, &str)], cut: impl Fn(&netns::Pair), mend: impl Fn(&netns::Pair)) {
    let Some(pair) = netns::Pair::new(name) else { return };
    let stand = Stand::shimmed(name, settings).limit(Duration::from_secs(300));
    let program = build::program("path");
    let start = |side: usize, role| {
        let mut command = stand.command_behind(&pair.enter(side), &program);
        stand.start(command.args([role, netns::ADDRESSES[0], PORT]))
    };
    let mut server = start(0, "server");
    server.wait_for("listening");
    let client = start(1, "client");
    for round in 0..2 {
        let in_a_ring = || {
            let status = stand.status();
            let reads = |end: &&str| end.contains(&format!("\"local\": \"{}:", netns::ADDRESSES[1]));
            let carried = status.split("\"cookie\"").find(reads).is_some_and(|end| end.contains("\"in_carrier\": \"ring\""));
            carried && !status.contains("path_cut")
        };
        stand.wait_until(PATIENCE, "a ring carries the stream", in_a_ring);
        moves_on(&client, &stand);
        if round == 0 {
            std::thread::sleep(STEADY);
            // A machine that starved the reader for long may have brought it back to TCP.
            stand.wait_until(PATIENCE, "a ring still carries the stream", in_a_ring);
        }
        cut(&pair);
        stands_still(&client, &stand);
        assert!(stand.status().contains("\"reason\": \"path_cut\""), "{}", stand.status());
        mend(&pair);
        moves_on(&client, &stand);
    }
    stand.wait_until(PATIENCE, "the path is good again", || !stand.status().contains("path_cut"));
    // `ip netns exec` has become the program itself.
    server.signal(libc::SIGUSR1);
    let (server, client) = (server.finish(), client.finish());
    for done in [&server, &client] {
        assert!(done.success() && done.stdout.contains("all of"), "{done}");
    }
    if settings.is_empty() {
        // Where tokens pass, TCP is heard of without being asked.
        assert!(server.stdout.contains("lent"), "the kernel never had other settings than the program's: {server}");
    }
    let report = stand.report();
    // Once at first, and after each time that the path was mended.
    assert!(report.sum("upgrades") >= 3 && report.ring_bytes() > 0, "{report:?}");
}

#[test]
fn the_link_is_down() {
    let set = |pair: &netns::Pair, to| ip(&["-n", pair.name(1), "link", "set", "eth0", to]);
    cut("link-down", &[], |pair| set(pair, "down"), |pair| set(pair, "up"));
}

#[test]
fn the_link_is_down_and_tokens_wake() {
    let set = |pair: &netns::Pair, to| ip(&["-n", pair.name(0), "link", "set", "eth0", to]);
    let tokens = [("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")];
    cut("link-down-tokens", &tokens, |pair| set(pair, "down"), |pair| set(pair, "up"));
}

/// A rule that forbids one way only, on the side that receives.
#[test]
fn one_way_is_forbidden() {
    let rule = |pair: &netns::Pair, what| ip(&["-n", pair.name(1), "rule", what, "to", netns::ADDRESSES[0], "blackhole"]);
    cut("forbidden", &[], |pair| rule(pair, "add"), |pair| rule(pair, "del"));
}

/// A packet filter that begins to drop what it let pass before.
#[test]
fn a_packet_filter_drops() {
    if Command::new("nft").arg("--version").output().is_err() {
        ginnel_tests::skip("a_packet_filter_drops", "nft is not installed");
        return;
    }
    let nft = |pair: &netns::Pair, command: &str| {
        let enter = pair.enter(1);
        let (first, rest) = enter.split_first().expect("a wrapper has a name");
        let done = Command::new(first).args(rest).arg("nft").arg(command).output().expect("nft runs");
        assert!(done.status.success(), "nft {command}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let rules = "table inet cut { chain arriving { type filter hook input priority 0; tcp sport 4711 drop; }; }";
    cut("filter", &[], |pair| nft(pair, rules), |pair| nft(pair, "delete table inet cut"));
}

/// The probes of thousands of connections at one moment are more than the kernel's queue takes: those that it drops are not a cut.
#[test]
fn a_crowd_on_loopback_is_not_cut() {
    const CROWD: u64 = 5000;
    if !ginnel_tests::is_root() {
        ginnel_tests::skip("a_crowd_on_loopback_is_not_cut", "so many descriptors need root");
        return;
    }
    let stand = Stand::shimmed("crowd", &[]).limit(Duration::from_secs(300));
    let crowd = Crowd::start(&stand, |_, program| stand.command(program), ("127.0.0.1", PORT), CROWD, 1000);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        let cut = stand.status().matches("\"path_cut\"").count();
        assert_eq!(cut, 0, "ends of {CROWD} connections on loopback are called cut");
        std::thread::sleep(Duration::from_millis(500));
    }
    crowd.end();
    assert!(stand.report().ring_bytes() > 0);
}

/// Nobody writes while the path is cut, nor after: that it is mended is found all the same.
#[test]
fn an_idle_connection_finds_its_path_mended() {
    let Some(pair) = netns::Pair::new("an_idle_connection_finds_its_path_mended") else { return };
    let stand = Stand::shimmed("idle-cut", &[]).limit(Duration::from_secs(300));
    let enter = |side: usize, program: &Path| stand.command_behind(&pair.enter(side), program);
    let crowd = Crowd::start(&stand, enter, (netns::ADDRESSES[0], PORT), 3, 5000);
    ip(&["-n", pair.name(1), "link", "set", "eth0", "down"]);
    stand.wait_until(PATIENCE, "the path is found cut", || stand.status().contains("\"path_cut\""));
    // Longer than the first question after that.
    std::thread::sleep(Duration::from_secs(8));
    assert!(stand.status().contains("\"path_cut\""), "{}", stand.status());
    ip(&["-n", pair.name(1), "link", "set", "eth0", "up"]);
    stand.wait_until(PATIENCE, "the path is found mended", || !stand.status().contains("\"path_cut\""));
    crowd.end();
}
