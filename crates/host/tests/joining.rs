//! Joining, being refused, and misbehaving, over real sockets.

mod doorbells;

use crate::common;
use crate::common::channels::open;
use crate::common::daemon::{Daemon, SMALL};
use crate::common::wait;
use ginnel_ivshmem::client::Client;
use ginnel_ivshmem::{Error, doorbell};
use ginnel_region::Geometry;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn rung(client: &Client, peer: u16, vector: usize) -> bool {
    doorbell::drain(&client.doorbells(peer)[vector]).expect("an eventfd")
}

fn wait_rung(client: &Client, peer: u16, vector: usize) {
    wait(&format!("doorbell {vector}"), || rung(client, peer, vector).then_some(()));
}

#[test]
fn a_machine_gets_the_segment_and_everybodys_doorbells() {
    let daemon = Daemon::alone(SMALL);
    let (one, two) = (daemon.join(1), daemon.join(2));
    assert_eq!((one.id(), two.id()), (Some(1), Some(2)), "ids are slots");
    assert_eq!(one.peers().collect::<Vec<_>>(), [0, 1, 2, 3], "also of slots in which nobody is");
    let (ours, theirs) = (open(&one), open(&two));
    assert_eq!(ours.id(), theirs.id(), "the same memory");
    assert_eq!(ours.geometry(), Some(Geometry { machines: 3, vectors: 2 }));
    one.ring(2, 1).expect("rung");
    assert!(rung(&two, 2, 1));
    assert_eq!(daemon.slots(), [1, 2]);
}

#[test]
fn who_came_and_left_is_said_in_the_segment_and_by_vector_0_and_by_no_message() {
    let daemon = Daemon::alone(SMALL);
    let mut one = daemon.join(1);
    let segment = open(&one);
    assert!(segment.presence(1).attached && !segment.presence(2).attached);
    let two = daemon.join(2);
    wait_rung(&one, 1, 0);
    wait("its presence", || segment.presence(2).attached.then_some(()));
    assert_eq!(segment.presence(2).generation, 1);
    drop(two);
    wait_rung(&one, 1, 0);
    assert!(!segment.presence(2).attached);
    let two = daemon.join(2);
    wait("its second life", || (segment.presence(2).generation == 2).then_some(()));
    drop(two);
    wait("its end", || (!segment.presence(2).attached).then_some(()));
    assert_eq!(one.receive(), Ok(None), "the protocol's own notices are never sent");
}

#[test]
fn two_segments_have_nothing_in_common() {
    let daemon =
        Daemon::alone(&format!("{SMALL}[segment.u]\nsize = \"16M\"\nslots = 3\nvectors = 2\n"));
    let mut other = Client::connect(&daemon.path("run/u/1.sock")).expect("connected");
    other.settle(2, Instant::now() + common::PATIENCE).expect("a setup");
    let one = daemon.join(1);
    assert_ne!(open(&one).id(), open(&other).id());
    for vector in 0..2 {
        for peer in 0..4 {
            let _ = (rung(&one, peer, vector.into()), one.ring(peer, vector));
            assert!(!rung(&other, peer, vector.into()));
        }
    }
}

/// What a refused joiner gets: a whole setup, and a memory that is no segment.
fn assert_refused(client: &mut Client) {
    client.settle(0, Instant::now() + common::PATIENCE).expect("a setup");
    let memory = client.memory().expect("memory");
    assert_eq!(rustix::fs::fstat(memory).expect("stat").st_size, 4096);
    let mut text = [0; 8];
    rustix::io::pread(memory, &mut text, 0).expect("read");
    assert_eq!(&text, b"GINNELNO");
    assert_eq!(
        (client.peers().count(), client.receive()),
        (0, Ok(None)),
        "and the connection stays open"
    );
}

#[test]
fn who_is_not_in_the_configuration_is_refused_with_a_reason() {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let daemon = Daemon::alone(&format!(
        "{SMALL}users = [{}]\n[segment.t.slot.2]\ngroups = [{gid}]\n",
        uid + 1
    ));
    assert_refused(&mut Client::connect(&daemon.socket(1)).expect("connected"));
    let line = daemon.wait_log("event=refused", 1);
    assert!(
        line.contains(&format!("slot=1 pid={} uid={uid} reason=not_allowed", std::process::id())),
        "{line}"
    );
    daemon.join(2);
    assert_eq!(
        daemon
            .get("/metrics")
            .1
            .matches("ginneld_refused_joins_total{segment=\"t\",kind=\"not_allowed\"} 1")
            .count(),
        1
    );
}

#[test]
fn a_slot_has_one_machine_and_is_free_when_it_leaves() {
    let daemon = Daemon::alone(SMALL);
    let one = daemon.join(1);
    let mut second = Client::connect(&daemon.socket(1)).expect("connected");
    assert_refused(&mut second);
    assert!(
        daemon
            .wait_log("event=refused", 1)
            .contains(&format!("reason=slot_taken why=\"process {}", std::process::id()))
    );
    one.ring(1, 1).expect("the first one is not disturbed");
    drop(one);
    daemon.wait_log("event=left", 1);
    assert!(open(&daemon.join(1)).geometry().is_some());
    assert_eq!(second.receive(), Ok(None), "the refused one stays where it is");
}

#[test]
fn joiners_that_do_not_read_hold_nobody_up() {
    let daemon = Daemon::alone("[segment.t]\nsize = \"16M\"\nslots = 40\nvectors = 16\n");
    // 656 doorbells each: more than a socket takes. Their setup is never read.
    let silent: Vec<UnixStream> =
        (2..12).map(|slot| UnixStream::connect(daemon.socket(slot)).expect("connected")).collect();
    daemon.wait_log("event=joined", 10);
    let mut one = Client::connect(&daemon.socket(1)).expect("connected");
    one.settle(16, Instant::now() + common::PATIENCE).expect("a setup");
    assert_eq!(one.peers().count(), 41);
    // One of them wakes up after all, and gets everything in order.
    let mut late = Client::over(silent.into_iter().next().expect("ten"));
    late.settle(16, Instant::now() + common::PATIENCE).expect("a setup");
    assert_eq!((late.id(), late.peers().count()), (Some(2), 41));
    assert!(late.peers().all(|peer| late.doorbells(peer).len() == 16));
}

/// With joiners that read nothing, refused ones, a rung doorbell that nobody takes and a process of
/// the host: no wake-up without a cause.
#[test]
fn an_idle_daemon_sleeps() {
    let daemon = Daemon::alone("[segment.t]\nsize = \"16M\"\nslots = 40\nvectors = 16\n");
    let _silent: Vec<UnixStream> = [1, 2, 3, 1, 0]
        .iter()
        .map(|slot| UnixStream::connect(daemon.socket(*slot)).expect("connected"))
        .collect();
    let mut machine = Client::connect(&daemon.socket(4)).expect("connected");
    machine.settle(16, Instant::now() + common::PATIENCE).expect("a setup");
    machine.ring(0, 3).expect("rung");
    machine.ring(2, 3).expect("rung");
    assert_eq!(daemon.slots(), [1, 2, 3, 4]);
    let switches = || {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("proc");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .expect("a count");
        line.trim().parse::<u64>().expect("a number")
    };
    std::thread::sleep(Duration::from_millis(200));
    let before = switches();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(switches(), before);
}

#[test]
fn one_that_speaks_is_let_go() {
    let daemon = Daemon::alone(SMALL);
    let mut talker = UnixStream::connect(daemon.socket(3)).expect("connected");
    talker.write_all(&[7; 100]).expect("written");
    assert!(daemon.wait_log("event=let_go", 1).contains("slot=3"));
    assert_eq!(
        daemon.slots(),
        [3],
        "what it has not read keeps its place, so that it cannot come again for more"
    );
    let mut late = Client::over(talker);
    late.settle(2, Instant::now() + common::PATIENCE).expect("a setup");
    assert_eq!(late.receive(), Err(Error::Closed));
    assert!(daemon.wait_log("event=left", 1).contains("it spoke, which only the server does"));
    assert_eq!(daemon.slots(), [0u64; 0]);
}

#[test]
fn a_thousand_joins_and_refusals_leave_nothing_open() {
    let daemon = Daemon::alone(SMALL);
    let _one = daemon.join(1);
    let count = || (daemon.descriptors(), daemon.slots().len());
    let before = count();
    for _ in 0..250 {
        drop(daemon.join(2));
        drop(UnixStream::connect(daemon.socket(3)).expect("connected"));
        drop(daemon.join(0));
        drop(UnixStream::connect(daemon.socket(1)).expect("refused, and gone before it is seen"));
        wait("slots 2 and 3", || (daemon.slots() == [1]).then_some(()));
    }
    wait("all descriptors closed", || (count() == before).then_some(()));
    assert!(daemon.log().lines().count() < 3000, "refusals are logged within limits");
}

#[test]
fn the_refused_are_kept_within_limits() {
    let daemon = Daemon::alone(SMALL);
    let _one = daemon.join(1);
    let before = daemon.descriptors();
    let refused: Vec<UnixStream> =
        (0..300).map(|_| UnixStream::connect(daemon.socket(1)).expect("connected")).collect();
    wait("all of them refused", || {
        daemon.get("/metrics").1.contains("kind=\"slot_taken\"} 300").then_some(())
    });
    assert!(
        daemon.descriptors() <= before + 64 + 2,
        "{} were open, now {}",
        before,
        daemon.descriptors()
    );
    drop(refused);
    daemon.join(2);
}

#[test]
fn host_processes_have_a_limit_and_can_be_forbidden() {
    let daemon = Daemon::alone(&format!("{SMALL}[segment.t.host]\nprocesses = 1\n"));
    let _first = daemon.join(0);
    assert_refused(&mut Client::connect(&daemon.socket(0)).expect("connected"));
    assert!(daemon.wait_log("event=refused", 1).contains("reason=no_slot"));
}

/// facts.md: "peers may resize the file: SIGBUS".
#[test]
fn a_joiner_cannot_resize_the_memory() {
    let daemon = Daemon::alone(SMALL);
    let machine = daemon.join(1);
    let memory = machine.memory().expect("memory");
    for size in [0, 4096, 1 << 30] {
        assert_eq!(rustix::fs::ftruncate(memory.as_fd(), size), Err(rustix::io::Errno::PERM));
    }
    // Holes it can punch; the others then read zeroes, and the daemon goes on.
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(memory, hole, 0, 16 << 20).expect("a hole");
    let second = daemon.join(2);
    assert_eq!(
        rustix::fs::fstat(second.memory().expect("memory")).expect("stat").st_size,
        16 << 20
    );
}

#[test]
fn out_of_descriptors_nobody_is_closed_and_joiners_wait() {
    let daemon = Daemon::alone(SMALL);
    let one = daemon.join(1);
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon.pid()).expect("a pid"));
    let limit = |most: u64| {
        let limit = rustix::process::Rlimit { current: Some(most), maximum: Some(4096) };
        rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).expect("limited");
    };
    let lowest_free =
        (0..).find(|fd| !std::path::Path::new(&format!("/proc/{}/fd/{fd}", daemon.pid())).exists());
    limit(lowest_free.expect("a limit"));
    let mut two = Client::connect(&daemon.socket(2)).expect("connected");
    daemon.wait_log("event=cannot_accept", 1);
    assert_eq!(
        two.settle(2, Instant::now() + Duration::from_millis(100)),
        Err(Error::Timeout),
        "neither served nor closed"
    );
    limit(4096);
    two.settle(2, Instant::now() + common::PATIENCE).expect("a setup");
    one.ring(2, 1).expect("rung");
    assert!(rung(&two, 2, 1));
}

#[test]
fn the_pages_and_slow_visitors() {
    let daemon = Daemon::alone(SMALL);
    let _one = daemon.join(1);
    let slow: Vec<_> = (0..10).map(|_| daemon.visit()).collect();
    let (head, page) = daemon.get("/");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/html"), "{head}");
    assert!(
        head.contains("default-src 'none'")
            && page.contains("Segment</span> t</h2>")
            && page.contains("of 3 slots"),
        "{page}"
    );
    let (head, metrics) = daemon.get("/metrics");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(
        metrics.contains("ginneld_machines{segment=\"t\"} 1\n") && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    assert!(daemon.get("/other").0.starts_with("HTTP/1.1 404"));
    assert!(
        daemon
            .ask(b"GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n")
            .0
            .starts_with("HTTP/1.1 421")
    );
    assert!(daemon.ask(b"POST / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405"));
    let mut endless = daemon.visit();
    while endless.write_all(&[b'x'; 4096]).is_ok() {}
    drop(slow);
    assert_eq!(daemon.slots(), [1]);
}

#[test]
fn a_bad_configuration_and_a_taken_directory_are_said_plainly() {
    let daemon = Daemon::alone(SMALL);
    let start = || {
        let mut command = std::process::Command::new(crate::ginneld());
        let output = command
            .arg("--config")
            .arg(daemon.path("ginneld.toml"))
            .output()
            .expect("ginneld starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = start();
    assert!(
        code == Some(1) && said.contains(&format!("another ginneld (process {})", daemon.pid())),
        "{said}"
    );
    daemon.configure("[segment.t]\nslots = 0");
    let (code, said) = start();
    assert!(
        code == Some(2) && said.contains("ginneld.toml:4: segment.t.slots: must be 1 to 254"),
        "{said}"
    );
    assert_eq!(daemon.stop(), Some(0));
}
