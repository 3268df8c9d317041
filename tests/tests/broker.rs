//! Programs of different users, in network namespaces of their own, whose connections are carried
//! in the memory of pairs that `ginnel-broker` makes: also through translated addresses, and
//! whatever becomes of the broker meanwhile.

mod asked;
mod attacks;
mod lines;
mod namespaces;
mod neighbours;
mod programs;
mod two;

use ginnel_tests::netns::ADDRESSES;
use ginnel_tests::{Report, Stand, build, skip};
use programs::{BRIEF, CHANGES, NONSENSE, ONE, SILENT};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use two::{LIMIT, PYTHON, Two};

fn assert_carried(reports: &[Report; 2]) {
    for (report, who) in reports.iter().zip(["the server", "the client"]) {
        assert!(report.sum("ring_out") > 1_000_000, "{who}: {report:?}");
    }
}

#[test]
fn two_users_are_carried_in_memory_of_their_own() {
    let Some(two) = Two::new("two users, one broker", "") else { return };
    let reports = two.exchange("\"segment\": \"(pair)\"");
    assert_carried(&reports);
    assert_eq!(
        two.broker.log().matches("event=paired").count(),
        1,
        "one memory for the pair: {}",
        two.broker.log()
    );
}

/// The ends see different addresses and ports: they meet by what was not translated.
#[test]
fn translated_addresses_hinder_nobody() {
    let Some(two) = Two::new("two users and NAT", "") else { return };
    if !Path::new("/usr/sbin/nft").exists() {
        return skip("two users and NAT", "needs nft");
    }
    two.in_client(
        "ip addr add 10.77.0.5/24 dev eth0; ip addr add 10.99.0.1/24 dev eth0
         nft add table ip t
         nft 'add chain ip t out { type nat hook output priority -100; }'
         nft 'add chain ip t post { type nat hook postrouting priority 100; }'
         nft add rule ip t post ip daddr 10.77.0.2 snat to 10.77.0.5",
    );
    let (server, port) = two.serve();
    two.in_client(&format!(
        "nft add rule ip t out ip daddr 10.99.0.9 tcp dport 7000 dnat to 10.77.0.2:{port}"
    ));
    let (mut client, [stays, second]) = two.ask("10.99.0.9", "7000", 2, 60);
    client.wait_for("first");
    two.wait_for_pairs(2);
    two.end_both(server, client, &[stays, second]);
    assert_carried(&[two.server.report(), two.client.report()]);
}

/// Without a broker nothing changes: the connection stays on TCP, and is told so.
#[test]
fn without_a_broker_they_stay_on_tcp() {
    let Some(mut two) = Two::new("two users, no broker", "") else { return };
    two.broker.kill();
    let reports = two.exchange("\"no_peer\"");
    for report in &reports {
        assert_eq!(report.sum("ring_out"), 0, "{report:?}");
    }
}

/// One that stands still, with sockets that it was handed: programs end as they would without it,
/// and what begins after it has gone on is carried.
#[test]
fn a_broker_that_stands_still_keeps_nobody_waiting() {
    let Some(two) = Two::new("a broker that stands still", "") else { return };
    let signal = |signal: &str| {
        let done = Command::new("kill").args([signal, &two.broker.pid().to_string()]).status();
        assert!(done.is_ok_and(|done| done.success()));
    };
    signal("-STOP");
    let (server, port) = two.serve();
    let (mut client, [stays, second]) = two.ask(ADDRESSES[1], &port, 2, 60);
    client.wait_for("first");
    assert!(!two.client.status().contains("(pair)"), "{}", two.client.status());
    signal("-CONT");
    two.wait_for_pairs(2);
    two.end_both(server, client, &[stays, second]);
    assert_carried(&[two.server.report(), two.client.report()]);
}

/// What is carried goes on, and what begins behind the restart is carried too.
#[test]
fn a_broker_may_die_and_come_back() {
    let Some(mut two) = Two::new("a broker that dies", "") else { return };
    let (server, port) = two.serve();
    let (mut client, [stays, second]) = two.ask(ADDRESSES[1], &port, 4, 60);
    client.wait_for("first");
    two.wait_for_pairs(4);
    two.broker.kill();
    // Under load: messages go to and fro meanwhile.
    std::thread::sleep(Duration::from_millis(500));
    two.broker.start_again();
    fs::remove_file(stays).expect("there");
    client.wait_for("second");
    two.wait_for_pairs(5);
    two.end_both(server, client, &[second]);
    assert_carried(&[two.server.report(), two.client.report()]);
    assert_eq!(two.broker.log().matches("event=paired").count(), 2, "{}", two.broker.log());
}

/// A server that lives for long has neighbours that come and go: what each had mapped is the next
/// one's, some twenty seconds later.
#[test]
#[ignore = "takes two minutes"]
fn neighbours_that_come_and_go_leave_no_addresses_behind() {
    const SIZE: u64 = 64 << 20;
    let Some(two) = Two::within(3 * LIMIT, "neighbours that come and go", "") else { return };
    let (server, port) = two.serve();
    let addresses = || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", server.id())).expect("it runs");
        let len = |range: &str| {
            let (start, end) = range.split_once('-')?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        };
        maps.lines().filter_map(|line| len(line.split_whitespace().next()?)).sum::<u64>()
    };
    let (before, until) = (addresses(), Instant::now() + Duration::from_secs(100));
    let (mut neighbours, mut sent) = (0, 0);
    while Instant::now() < until {
        let mut client = two.client.command_behind(&two.as_nobody(), PYTHON);
        let done = two.client.run(client.args(["-c", BRIEF, ADDRESSES[1], &port]));
        assert!(done.success(), "{done}");
        let now = two.client.report().sum("ring_out");
        neighbours += u64::from(now > sent);
        sent = now;
    }
    let grown = addresses() - before;
    println!("{neighbours} neighbours: {} MiB", grown >> 20);
    assert!(
        neighbours > 20 && grown < neighbours * SIZE / 2,
        "{neighbours} neighbours, {} MiB",
        grown >> 20
    );
    two.end(server);
}

/// In a pair's memory nobody wakes the thread of a process: it looks by itself, and seldom where
/// nothing moves.
#[test]
#[ignore = "takes a quarter of a minute"]
fn who_is_silent_in_a_pair_wakes_up_seldom() {
    let Some(two) = Two::new("silence in a pair", "") else { return };
    let (server, port) = two.serve();
    let mut client = two.client.command_behind(&two.as_nobody(), PYTHON);
    let client = two.client.start(client.args(["-c", SILENT, ADDRESSES[1], &port]));
    two.wait_for_pairs(1);
    let done = client.finish();
    let wakes: u32 = done
        .stdout
        .trim()
        .strip_prefix("wakes ")
        .and_then(|wakes| wakes.parse().ok())
        .unwrap_or(u32::MAX);
    assert!(done.success() && wakes < 5, "{done}");
    two.end(server);
}

fn ginnel(stand: &Stand, command: &str) {
    let settings = stand.environment().into_iter().filter(|(key, _)| key != "LD_PRELOAD");
    let done =
        Command::new(build::ginnel()).arg(command).envs(settings).output().expect("ginnel runs");
    assert!(done.status.success(), "{command}: {done:?}");
}

/// `ginnel detach` brings connections back to TCP that are in the memory of pairs, and no byte is
/// lost; after `ginnel attach` they come to be there again.
#[test]
fn who_is_detached_leaves_its_pairs_and_comes_back() {
    let Some(two) = Two::new("detach and pairs", "") else { return };
    let (server, port) = two.serve();
    let (mut client, stays) = two.ask(ADDRESSES[1], &port, 2, 60);
    client.wait_for("first");
    two.wait_for_pairs(2);
    for _ in 0..2 {
        ginnel(&two.client, "detach");
        two.client.wait_until(LIMIT, "they are on TCP", || {
            let status = two.client.status();
            status.contains("\"detached\"") && !status.contains("\"out_carrier\": \"ring\"")
        });
        ginnel(&two.client, "attach");
        two.wait_for_pairs(2);
    }
    fs::remove_file(&stays[0]).expect("there");
    client.wait_for("second");
    two.end_both(server, client, &stays[1..]);
    assert_eq!(two.broker.log().matches("event=paired").count(), 1, "{}", two.broker.log());
}

/// A limit is a reason that `ginnel status` tells.
#[test]
fn a_limit_is_told() {
    let Some(two) = Two::new("a limit of the broker", "[broker]\npairs = 0\n") else { return };
    let reports = two.exchange("\"broker_limit\"");
    for report in &reports {
        assert_eq!(report.sum("ring_out"), 0, "{report:?}");
    }
}

/// The other process of a pair can spoil that pair, and nothing else: the server lives, and what it
/// has with others arrives.
#[test]
fn who_writes_nonsense_into_a_pair_disturbs_no_other() {
    let Some(two) = Two::new("nonsense in a pair", "") else { return };
    let (server, port) = two.serve();
    let mut hostile = Command::new("ip");
    hostile.args([
        "netns",
        "exec",
        two.namespaces.name(0),
        "setpriv",
        "--reuid=65533",
        "--regid=65533",
        "--clear-groups",
    ]);
    hostile.args([PYTHON, "-c", NONSENSE, ADDRESSES[1], &port]).arg(two.broker.socket());
    let place = Stand::plain("hostile").limit(LIMIT);
    let hostile = place.start(&mut hostile);
    let (mut client, [stays, second]) = two.ask(ADDRESSES[1], &port, 2, 60);
    client.wait_for("first");
    two.wait_for_pairs(2);
    let said = hostile.finish();
    assert!(said.stdout.starts_with("memory"), "it had some to write into: {said}");
    two.end_both(server, client, &[stays, second]);
    let report = two.client.report();
    assert!(report.sum("ring_out") > 1_000_000, "{report:?}");
}

/// One connection is carried, then its server changes, and every byte arrives. What both reported.
fn through_a_change(way: &str) -> Option<[Report; 2]> {
    let two = Two::new(way, "")?;
    let (server, port) = two.serve_with(CHANGES, way);
    let mut client = two.client.command_behind(&two.as_nobody(), PYTHON);
    let stays = two.client.dir().join("stays");
    fs::write(&stays, "").expect("written");
    client.args(["-c", ONE, ADDRESSES[1], &port]).arg(&stays);
    let client = two.client.start(&mut client);
    two.wait_for_pairs(1);
    fs::write(two.server.dir().join("port.change"), "").expect("written");
    fs::remove_file(stays).expect("there");
    let done = client.finish();
    assert!(done.success(), "{way}: {done}");
    let served = server.finish();
    assert!(served.success(), "{way}: {served}");
    let reports = [two.server.report(), two.client.report()];
    // It was in the ring before.
    assert!(reports[1].sum("ring_out") > 0, "{way}: {:?}", reports[1]);
    Some(reports)
}

/// A child has its parent's maps: it goes on in the ring.
#[test]
fn a_child_goes_on_where_its_parent_was() {
    if let Some(reports) = through_a_change("fork") {
        // Eighty messages of each size came after the fork.
        assert!(reports[1].sum("ring_out") > 4_000_000, "{:?}", reports[1]);
    }
}

/// What wakes it is not the program's to close.
#[test]
fn who_closes_all_numbers_goes_on_in_the_ring() {
    if let Some(reports) = through_a_change("closes") {
        assert!(reports[1].sum("ring_out") > 4_000_000, "{:?}", reports[1]);
    }
}

#[test]
fn a_child_that_does_nothing_hinders_nobody() {
    let _ = through_a_change("leaves");
}

/// What comes by exec has none of the pair's memory: the connection goes back to TCP before.
#[test]
fn what_comes_by_exec_goes_on_over_tcp() {
    let _ = through_a_change("execute");
}

#[test]
fn a_program_that_is_started_beside_hinders_nobody() {
    let _ = through_a_change("spawn");
}

#[test]
fn a_socket_that_is_passed_on_goes_on_over_tcp() {
    let _ = through_a_change("send");
}

/// A process that becomes another user keeps nothing of the pair's memory.
#[test]
fn who_becomes_another_user_goes_on_over_tcp() {
    let _ = through_a_change("become");
}

/// Nor does a child, which has its parent's maps.
#[test]
#[ignore = "takes some seconds"]
fn whose_parent_was_another_user_goes_on_over_tcp() {
    let _ = through_a_change("heir");
}

/// What it gave up is not the program's to lock.
#[test]
#[ignore = "takes some seconds"]
fn who_locks_its_memory_locks_none_of_a_pair() {
    let _ = through_a_change("lock");
}
