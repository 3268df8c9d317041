//! What `ginnel bench` says of TCP and of Unix sockets is what others' programs say, NetPIPE,
//! sockperf, iperf3 and Python, in turn on the same machine. Not how fast anything is: that a
//! figure is half a round trip and not a whole one, and counts bytes where they arrive. A factor of
//! two would be such a mistake; the bounds lie below it.
//!
//! Two measurements can be compared where the machine does nothing else. Rounds in which others
//! took the processors count for nothing, and without any other the comparison is left out. That a
//! sample's own figures fit together is always so.

use ginnel_bench::stats::Spread;
use ginnel_tests::permit;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// As many rounds make a comparison.
const ROUNDS: usize = 5;
/// So often is a round tried.
const TRIES: usize = 10;
/// What others may take meanwhile, in percent of a processor: the report marks a sample above it.
const FOREIGN: f64 = 20.0;
/// Noise of medians of so few rounds.
const NEAR: std::ops::Range<f64> = 0.6..1.67;

/// Ended with its test, however that ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // `timeout` hands SIGTERM on to what it runs; SIGKILL would end it alone.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

fn pinned(cpu: &str, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["60", "taskset", "-c", cpu, program])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a client until its server, which has just been started, takes its connection.
fn client(mut command: Command) -> Output {
    for _ in 0..50 {
        let output = command.output().expect("the client starts");
        let text = String::from_utf8_lossy(&output.stdout);
        // Without a server iperf3 ends well, if its result is to be JSON, and sockperf does.
        if output.status.success() && !text.contains("\"error\"") && !text.contains("ERROR") {
            return output;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{command:?} reaches no server");
}

/// A port that nobody has at the moment.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port().to_string()
}

/// One sample of ours.
struct Ours {
    /// What it says in the column of samples.csv that is compared.
    value: f64,
    /// CPU time that others took meanwhile, in percent of a processor.
    foreign: f64,
}

/// One sample of ours, whose figures fit together.
fn ours(transport: &str, pattern: &str, size: &str, column: &str) -> Ours {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("run");
    let mut command = Command::new(ginnel_tests::build::release_dir().join("ginnel-bench"));
    command
        .args([
            "--transport",
            transport,
            "--pattern",
            pattern,
            "--sizes",
            size,
            "--rounds",
            "1",
            "--seconds",
            "0.2",
            "--out",
        ])
        .arg(&out);
    let output = command.stdin(Stdio::null()).output().expect("ginnel-bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut reader = csv::Reader::from_path(out.join("samples.csv")).expect("samples");
    let head = reader.headers().expect("a head").clone();
    let line = reader.records().next().expect("a sample").expect("a line");
    let field = |name: &str| {
        let place = head.iter().position(|column| column == name).expect("the column");
        line[place].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {line:?}"))
    };
    // What all of it took is what each took, so often.
    let each = match pattern {
        "latency" => 2e-9 * field("mean_ns"),
        _ => field("bytes") / field("count") / field("value"),
    };
    let share = each * field("count") / field("seconds");
    assert!((0.75..1.1).contains(&share), "its parts are {share:.2} of the whole: {line:?}");
    Ours { value: field(column), foreign: field("foreign_percent") }
}

fn agree(what: &str, theirs: impl Fn() -> f64, ours: impl Fn() -> Ours) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let (their, our) = (theirs(), ours());
        if our.foreign <= FOREIGN {
            a.push(their);
            b.push(our.value);
        }
        if a.len() == ROUNDS {
            break;
        }
    }
    if a.len() < ROUNDS {
        return ginnel_tests::skip(what, "others use the processors");
    }
    let text = format!("{what}: theirs {a:?}, ours {b:?}");
    let ratio = Spread::of(b).expect("samples").median / Spread::of(a).expect("samples").median;
    assert!(NEAR.contains(&ratio), "{ratio:.2}: {text}");
}

fn is_there(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|output| output.status.success());
    let two = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    if !found || !two {
        ginnel_tests::skip(
            "agreement of ginnel bench with others",
            &format!("{program} and two processors are needed"),
        );
    }
    found && two
}

#[test]
#[ignore = "test-all: measures others' programs, and wants a quiet machine"]
fn latency_is_netpipes() {
    let _permit = permit::machine();
    if !is_there("NPtcp") {
        return;
    }
    let theirs = || {
        let folder = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let options = ["-P", &port, "-l", "64", "-u", "64", "-p", "0"];
        let _server = Server(
            pinned("0", "NPtcp")
                .args(options)
                .current_dir(folder.path())
                .spawn()
                .expect("NPtcp starts"),
        );
        let mut command = pinned("1", "NPtcp");
        command
            .args(["-h", "127.0.0.1"])
            .args(options)
            .args(["-o", "result"])
            .current_dir(folder.path());
        client(command);
        let text = std::fs::read_to_string(folder.path().join("result")).expect("NetPIPE's result");
        // Bytes, Mbit/s, and seconds one way.
        let seconds: f64 =
            text.split_whitespace().nth(2).expect("three columns").parse().expect("a number");
        1e9 * seconds
    };
    agree("half a round trip of 64 B, ns", theirs, || ours("tcp", "latency", "64", "mean_ns"));
}

#[test]
#[ignore = "test-all: measures others' programs, and wants a quiet machine"]
fn latency_is_sockperfs() {
    let _permit = permit::machine();
    if !is_there("sockperf") {
        return;
    }
    let theirs = || {
        let port = free_port();
        let to = ["--tcp", "-i", "127.0.0.1", "-p", &port];
        let _server = Server(
            pinned("0", "sockperf").arg("server").args(to).spawn().expect("sockperf starts"),
        );
        let mut command = pinned("1", "sockperf");
        command.arg("ping-pong").args(to).args(["-m", "64", "-t", "1"]);
        let text = String::from_utf8(client(command).stdout).expect("text");
        let (_, rest) = text.split_once("Summary: Latency is ").unwrap_or_else(|| panic!("{text}"));
        1000.0 * rest.split(' ').next().expect("a word").parse::<f64>().expect("microseconds")
    };
    agree("half a round trip of 64 B, ns", theirs, || ours("tcp", "latency", "64", "mean_ns"));
}

/// One end each of a ping-pong over a Unix socket; the client tells the mean of half a round trip,
/// in ns.
const PYTHON: &str = "
import socket, sys, time
end = socket.socket(socket.AF_UNIX)
if sys.argv[1] == 'server':
    end.bind(sys.argv[2])
    end.listen()
    end = end.accept()[0]
    while message := end.recv(64): end.sendall(message)
    sys.exit()
end.connect(sys.argv[2])
message = b'x' * 64
for count in (1000, 10000):
    began = time.perf_counter_ns()
    for _ in range(count):
        end.sendall(message)
        end.recv(64, socket.MSG_WAITALL)
print((time.perf_counter_ns() - began) / count / 2)
";

/// sockperf has Unix sockets from version 3.8 on, which Debian 12 does not have.
#[test]
#[ignore = "test-all: measures others' programs, and wants a quiet machine"]
fn latency_of_unix_sockets_is_pythons() {
    let _permit = permit::machine();
    if !is_there("python3") {
        return;
    }
    let theirs = || {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("socket");
        let end = |cpu, role| {
            let mut command = pinned(cpu, "python3");
            command.args(["-c", PYTHON, role]).arg(&path);
            command
        };
        let _server = Server(end("0", "server").spawn().expect("Python starts"));
        String::from_utf8(client(end("1", "client")).stdout)
            .expect("text")
            .trim()
            .parse()
            .expect("a number")
    };
    agree("half a round trip of 64 B over a Unix socket, ns", theirs, || {
        ours("unix", "latency", "64", "mean_ns")
    });
}

#[test]
#[ignore = "test-all: measures others' programs, and wants a quiet machine"]
fn bandwidth_is_iperf3s() {
    let _permit = permit::machine();
    if !is_there("iperf3") {
        return;
    }
    let theirs = || {
        let port = free_port();
        let _server = Server(
            pinned("0", "iperf3").args(["-s", "-1", "-p", &port]).spawn().expect("iperf3 starts"),
        );
        let mut command = pinned("1", "iperf3");
        // Without the first second: until the receiver's buffer has grown beyond the caches, a
        // stream is up to five times as fast.
        command.args([
            "-c",
            "127.0.0.1",
            "-p",
            &port,
            "-t",
            "1",
            "-O",
            "1",
            "-l",
            "64K",
            "-N",
            "--json",
        ]);
        let output = client(command);
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        result["end"]["sum_received"]["bits_per_second"].as_f64().expect("a number") / 8.0
    };
    agree("a stream of 64 KiB writes, B/s", theirs, || ours("tcp", "stream", "64K", "value"));
}
