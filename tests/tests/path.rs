//! The network path of a connection in a ring is cut: the ring stops as TCP would have, and both go
//! on once the path is mended. Where it is not, the connection ends as on TCP.

use ginnel_tests::{Crowd, Running, Stand, build, netns, port};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: &str = "4711";
/// Nothing that is to happen takes as long, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A stream that stands so long has stopped: its writer writes every few milliseconds.
const STANDSTILL: Duration = Duration::from_secs(3);
/// So long after the cut it stands at the latest, the standstill included: five seconds are
/// promised on an idle machine.
const SOON: Duration = Duration::from_secs(20);
/// A connection whose path stays cut ends so much later in a ring than on TCP at the latest: the
/// cut has to be noticed before TCP's own time begins to count.
const LATER: Duration = Duration::from_secs(10);
/// The kernel's keepalive is in its steady state after this.
const STEADY: Duration = Duration::from_secs(6);

fn ip(args: &[&str]) {
    let done = Command::new("ip").args(args).output().expect("ip runs");
    assert!(
        done.status.success(),
        "ip {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// How far a program has come.
fn at(program: &Running) -> u64 {
    program.output().lines().rev().find_map(|line| line.parse().ok()).unwrap_or(0)
}

fn moves_on(program: &Running, stand: &Stand) {
    let before = at(program);
    stand.wait_until(PATIENCE, "the stream moves on", || at(program) > before + 100_000);
}

/// Returns how long it went on.
fn stands_still(program: &Running, stand: &Stand) -> Duration {
    let since = Instant::now();
    let mut last = (at(program), Instant::now());
    while last.1.elapsed() < STANDSTILL {
        std::thread::sleep(Duration::from_millis(50));
        let now = at(program);
        if now != last.0 {
            last = (now, Instant::now());
        }
        assert!(
            since.elapsed() < SOON,
            "the stream goes on over a path that is cut: {}",
            stand.status()
        );
    }
    last.1.duration_since(since)
}

/// A stream between two namespaces whose path `cut` cuts and `mend` mends, twice.
fn cut(
    name: &str,
    settings: &[(&str, &str)],
    cut: impl Fn(&netns::Pair),
    mend: impl Fn(&netns::Pair),
) {
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
            let reads =
                |end: &&str| end.contains(&format!("\"local\": \"{}:", netns::ADDRESSES[1]));
            let carried = status
                .split("\"cookie\"")
                .find(reads)
                .is_some_and(|end| end.contains("\"in_carrier\": \"ring\""));
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
        let noticed = stands_still(&client, &stand);
        println!("{name}: noticed {:.1} s after the cut", noticed.as_secs_f64());
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
        assert!(
            server.stdout.contains("lent"),
            "the kernel never had other settings than the program's: {server}"
        );
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
#[ignore = "test-all: as others here, in one more way"]
fn the_link_is_down_and_tokens_wake() {
    let set = |pair: &netns::Pair, to| ip(&["-n", pair.name(0), "link", "set", "eth0", to]);
    let tokens = [("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")];
    cut("link-down-tokens", &tokens, |pair| set(pair, "down"), |pair| set(pair, "up"));
}

/// A rule that forbids one way only, on the side that receives.
#[test]
fn one_way_is_forbidden() {
    let rule = |pair: &netns::Pair, what| {
        ip(&["-n", pair.name(1), "rule", what, "to", netns::ADDRESSES[0], "blackhole"])
    };
    cut("forbidden", &[], |pair| rule(pair, "add"), |pair| rule(pair, "del"));
}

/// Has the packet filter of one of the two do something.
fn nft(pair: &netns::Pair, side: usize, command: &str) {
    let enter = pair.enter(side);
    let (first, rest) = enter.split_first().expect("a wrapper has a name");
    let done = Command::new(first).args(rest).arg("nft").arg(command).output().expect("nft runs");
    assert!(done.status.success(), "nft {command}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Says so where it is missing.
fn has_nft(test: &str) -> bool {
    let there = Command::new("nft").arg("--version").output().is_ok();
    if !there {
        ginnel_tests::skip(test, "nft is not installed");
    }
    there
}

/// A packet filter that begins to drop what it let pass before.
#[test]
fn a_packet_filter_drops() {
    if !has_nft("a_packet_filter_drops") {
        return;
    }
    let rules = "table inet cut { chain arriving { type filter hook input priority 0; tcp sport 4711 drop; }; }";
    cut("filter", &[], |pair| nft(pair, 1, rules), |pair| nft(pair, 1, "delete table inet cut"));
}

/// A connection of `gives_up`, plain or in a ring, in the same two namespaces as the other.
struct Doomed {
    stand: Stand,
    ends: [Running; 2],
}

impl Doomed {
    fn start(stand: Stand, pair: &netns::Pair, port: &str, way: &str) -> Self {
        let program = build::program("gives_up");
        let start = |side: usize, role| {
            stand.start(stand.command_behind(&pair.enter(side), &program).args([
                role,
                netns::ADDRESSES[0],
                port,
                way,
            ]))
        };
        let mut server = start(0, "server");
        server.wait_for("listening");
        let ends = [server, start(1, "client")];
        Self { stand, ends }
    }

    /// Whether rings carry all that is written: one direction where one end only reads.
    fn is_carried(&self, way: &str) -> bool {
        let status = self.stand.status();
        let directions = if way == "reader" { 1 } else { 2 };
        status.matches("\"in_carrier\": \"ring\"").count() >= directions
            && !status.contains("path_cut")
    }

    fn lies_idle(&mut self) {
        for end in &self.ends {
            end.signal(libc::SIGUSR1);
        }
        for end in &mut self.ends {
            end.wait_for("idle");
        }
    }

    /// What the server and the client said of the end, if they did.
    fn said(&self) -> [Option<String>; 2] {
        self.ends
            .each_ref()
            .map(|end| Some(end.output().split_once("ended: ")?.1.trim().to_owned()))
    }
}

/// The path of two connections of the same program, one on plain TCP and one in a ring, is cut for
/// good: both ends of the second hear the same as those of the first, hardly later.
fn stays_cut(way: &str) {
    let name = format!("stays-cut-{way}");
    if !has_nft(&name) {
        return;
    }
    let Some(pair) = netns::Pair::new(&name) else { return };
    let stands = [Stand::plain(&name), Stand::shimmed(&name, &[])]
        .map(|stand| stand.limit(Duration::from_secs(200)));
    let [plain, ring] = stands;
    let mut plain = Doomed::start(plain, &pair, "4711", way);
    let mut ring = Doomed::start(ring, &pair, "4712", way);
    let carried = || ring.is_carried(way);
    ring.stand.wait_until(PATIENCE, "rings carry what is written", carried);
    std::thread::sleep(STEADY);
    ring.stand.wait_until(PATIENCE, "rings still carry what is written", carried);
    if way == "idle" {
        plain.lies_idle();
        ring.lies_idle();
    }
    // What arrives at either side: nobody is told anything by his own kernel.
    for (side, port) in [(0, "dport"), (1, "sport")] {
        let chain = format!(
            "chain arriving {{ type filter hook input priority 0; tcp {port} {{ 4711, 4712 }} drop; }}"
        );
        nft(&pair, side, &format!("table inet cut {{ {chain}; }}"));
    }
    let cut = Instant::now();
    let mut heard: [[Option<(String, Duration)>; 2]; 2] = Default::default();
    while heard.iter().flatten().any(Option::is_none) {
        assert!(
            cut.elapsed() < PATIENCE,
            "an end has not heard of the cut; so far {heard:?}: {}",
            ring.stand.status()
        );
        std::thread::sleep(Duration::from_millis(50));
        for (heard, said) in
            heard.iter_mut().flatten().zip([plain.said(), ring.said()].into_iter().flatten())
        {
            if heard.is_none() {
                *heard = said.map(|said| (said, cut.elapsed()));
            }
        }
    }
    let [on_tcp, in_ring] = heard.map(|ends| ends.map(Option::unwrap_or_default));
    for (end, ((word, when), (ring_word, ring_when))) in
        ["server", "client"].iter().zip(on_tcp.iter().zip(&in_ring))
    {
        println!(
            "{way}, {end}: on TCP {word} after {:.1} s; in a ring {ring_word} after {:.1} s",
            when.as_secs_f64(),
            ring_when.as_secs_f64()
        );
    }
    for (tcp, ring) in on_tcp.iter().zip(&in_ring) {
        assert_eq!(ring.0, tcp.0, "{way}: not what it is told on TCP");
        assert!(ring.1 < tcp.1 + LATER, "{way}: told after {:?}, on TCP after {:?}", ring.1, tcp.1);
    }
    for done in [plain.ends, ring.ends].into_iter().flatten().map(Running::finish) {
        assert!(done.success(), "{done}");
    }
    assert!(ring.stand.report().ring_bytes() > 0);
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn who_writes_gives_up_after_its_user_timeout() {
    stays_cut("writers");
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn who_only_reads_gives_up_by_its_own_probes() {
    stays_cut("reader");
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn who_lies_idle_gives_up_by_its_own_probes() {
    stays_cut("idle");
}

#[test]
fn who_has_both_gives_up_by_either() {
    stays_cut("either");
}

/// The probes of thousands of connections at one moment are more than the kernel's queue takes:
/// those that it drops are not a cut.
#[test]
#[ignore = "test-all: five thousand connections"]
fn a_crowd_on_loopback_is_not_cut() {
    const CROWD: u64 = 5000;
    if !ginnel_tests::is_root() {
        ginnel_tests::skip("a_crowd_on_loopback_is_not_cut", "so many descriptors need root");
        return;
    }
    let stand = Stand::shimmed("crowd", &[]).limit(Duration::from_secs(300));
    let crowd = Crowd::start(
        &stand,
        |_, program| stand.command(program),
        ("127.0.0.1", &port::free()),
        CROWD,
        1000,
    );
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
    stand.wait_until(PATIENCE, "the path is found mended", || {
        !stand.status().contains("\"path_cut\"")
    });
    crowd.end();
}
