//! `ginnel detach` and `ginnel attach` under programs at work: no connection breaks, no byte is
//! lost or repeated, and rings are taken up again.

use ginnel_tests::{Done, Running, Stand, build, permit, port};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nothing that is to happen takes as long, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn ginnel(stand: &Stand, arguments: &[&str]) -> Output {
    let settings = stand.environment().into_iter().filter(|(key, _)| key != "LD_PRELOAD");
    Command::new(build::ginnel()).args(arguments).envs(settings).output().expect("ginnel runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A checked stream from one process to another.
struct Stream {
    stand: Stand,
    server: Running,
    client: Running,
}

impl Stream {
    fn start(name: &str) -> Self {
        let port = port::free();
        let stand = Stand::shimmed(name, &[]).limit(Duration::from_secs(300));
        let start = |role| {
            stand.start(stand.command(build::program("path")).args([role, "127.0.0.1", &port]))
        };
        let mut server = start("server");
        server.wait_for("listening");
        let client = start("client");
        let stream = Self { stand, server, client };
        stream.is_carried();
        stream
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        self.stand.wait_until(PATIENCE, what, || condition(&self.stand.status()));
    }

    fn is_carried(&self) {
        self.wait_until("a ring carries the stream", |status| {
            status.contains("\"in_carrier\": \"ring\"")
        });
    }

    fn moves_on(&self) {
        let at = || {
            self.client.output().lines().rev().find_map(|line| line.parse().ok()).unwrap_or(0u64)
        };
        let before = at();
        self.wait_until("the stream moves on", |_| at() > before + 100_000);
    }

    fn detach(&self) {
        let detached = ginnel(&self.stand, &["detach"]);
        assert!(detached.status.success(), "{}", said(&detached));
    }

    /// Nothing of the segment is used any more, nor mapped.
    fn is_detached(&self) {
        let status = self.stand.status();
        assert!(
            status.contains("\"detached\": true") && !status.contains("\": \"ring\""),
            "{status}"
        );
        assert!(status.contains("\"reason\": \"detached\""), "{status}");
        for process in [&self.server, &self.client] {
            let maps =
                std::fs::read_to_string(format!("/proc/{}/maps", process.id())).expect("it lives");
            assert!(!maps.contains("/default"), "{maps}");
            // A thread that was woken for this closes its FIFO when a processor comes to it.
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let open = std::fs::read_dir(format!("/proc/{}/fd", process.id()))
                    .expect("it lives")
                    .flatten();
                let open: Vec<_> =
                    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
                if !open.iter().any(|file| file.to_string_lossy().contains("default")) {
                    break;
                }
                assert!(Instant::now() < end, "{open:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn attach(&self) {
        let attached = ginnel(&self.stand, &["attach"]);
        assert!(attached.status.success(), "{}", said(&attached));
        self.is_carried();
    }

    fn end(self) {
        self.server.signal(libc::SIGUSR1);
        for done in [self.server.finish(), self.client.finish()] {
            assert!(done.success() && done.stdout.contains("all of"), "{done}");
        }
    }
}

#[test]
fn a_stream_goes_on_and_the_segment_is_let_go() {
    let _permit = permit::cpu(2);
    let stream = Stream::start("detach-stream");
    let free = stream.stand.free_extents();
    for _ in 0..5 {
        stream.moves_on();
        stream.detach();
        stream.is_detached();
        stream.moves_on();
        stream.is_detached();
        stream.attach();
    }
    stream.moves_on();
    // What was left was given back: a channel with its rings is some fifty pages.
    stream.stand.assert_nothing_lost(free - 10);
    stream.end();
}

#[test]
fn another_segment_is_joined_under_the_same_name() {
    let _permit = permit::cpu(2);
    let stream = Stream::start("detach-another");
    stream.detach();
    let removed = ginnel(&stream.stand, &["segment", "remove", "default"]);
    assert!(removed.status.success(), "{}", said(&removed));
    let attached = ginnel(&stream.stand, &["attach", "--timeout", "0.5"]);
    assert!(
        !attached.status.success() && said(&attached).contains("(path)"),
        "{}",
        said(&attached)
    );
    stream.moves_on();
    assert!(
        ginnel(&stream.stand, &["segment", "create", "default", "--size", "64M"]).status.success()
    );
    stream.is_carried();
    stream.moves_on();
    stream.end();
}

#[test]
fn who_does_not_answer_is_named_and_loses_nothing() {
    let _permit = permit::cpu(2);
    let stream = Stream::start("detach-stopped");
    stream.client.signal(libc::SIGSTOP);
    let detached = ginnel(&stream.stand, &["detach", "--timeout", "2"]);
    let client = stream.client.id().to_string();
    assert!(!detached.status.success() && said(&detached).contains(&client), "{}", said(&detached));
    stream.client.signal(libc::SIGCONT);
    stream.detach();
    stream.is_detached();
    stream.attach();
    stream.moves_on();
    stream.end();
}

/// A new channel's positions begin anew: that as many bytes were told of in the old one says
/// nothing.
#[test]
fn what_was_told_in_one_channel_is_news_in_the_next() {
    let _permit = permit::cpu(1);
    let stand = Stand::shimmed("detach-edges", &[]);
    let mut program = stand.start(&mut stand.command(build::program("edges_in_a_new_channel")));
    program.wait_for("connected");
    for round in 1..=3 {
        let both = |status: &str| status.matches("\"stage\": \"active\"").count() == 2;
        stand.wait_until(PATIENCE, "both ends have a channel", || both(&stand.status()));
        program.signal(libc::SIGUSR1);
        program.wait_for(&format!("told {round}"));
        let status = stand.status();
        assert!(status.contains(&format!("\"in_ring\": {}", 100 * round)), "{status}");
        for request in ["detach", "attach"] {
            let done = ginnel(&stand, &[request]);
            assert!(done.status.success(), "{}", said(&done));
        }
    }
    program.signal(libc::SIGUSR1);
    let done = program.finish();
    assert!(done.success() && done.stdout.contains("each was told"), "{done}");
}

/// The random switching test, with its two ends detached and attached again and again.
fn under_detaches(name: &str, role: &str, settings: &[(&str, &str)]) {
    let _permit = permit::cpu(2);
    let stand = Stand::shimmed(name, settings).limit(Duration::from_secs(120));
    let seed = ginnel_tests::seed();
    let mut command = stand.command(build::program("switching"));
    command.args([
        "--role",
        role,
        "--address",
        "127.0.0.1",
        "--seconds",
        "6",
        "--workers",
        "2",
        "--seed",
        &seed.to_string(),
    ]);
    command.arg("--side").arg(stand.dir().join("side"));
    let (ended, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let done: Done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(150));
                let detached = ginnel(&stand, &["detach", "--timeout", "20"]);
                if !ended.load(Ordering::Relaxed) && stand.dir().join("sockets-9").exists() {
                    assert!(
                        detached.status.success(),
                        "seed {seed}: {}{}",
                        said(&detached),
                        stand.status()
                    );
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                ginnel(&stand, &["attach"]);
            }
        });
        let done = stand.run(&mut command);
        ended.store(true, Ordering::Relaxed);
        done
    });
    assert!(done.success(), "{name}: seed {seed}: {done}");
    let report = stand.report();
    let (rounds, rings, upgrades) =
        (rounds.into_inner(), report.ring_bytes(), report.sum("upgrades"));
    eprintln!("{name}: {rounds} detaches, {rings} bytes in rings, {upgrades} upgrades");
    assert!(
        rounds > 3 && rings > 0 && upgrades > 0,
        "{rounds} detaches, {rings} bytes in rings, {upgrades} upgrades"
    );
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn processes_switching_at_random() {
    under_detaches("detach-fifo", "both", &[]);
}

#[test]
fn threads_switching_at_random() {
    under_detaches("detach-threads", "threads", &[]);
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn by_tokens_switching_at_random() {
    under_detaches("detach-tokens", "both", &[("GINNEL_TOKENS", "1")]);
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn tiny_rings_switching_at_random() {
    under_detaches("detach-tiny", "both", &[("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096")]);
}
