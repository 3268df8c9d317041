//! What `ginnel bench` says of TCP is what others' programs say of it, NetPIPE and iperf3, in turn on the same machine. Not how fast anything is: that a figure is
//! half a round trip and not a whole one, and counts bytes where they arrive. A factor of two would be such a mistake; the bounds lie below it.

use ginnel_bench::stats::Spread;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

const ROUNDS: usize = 7;
/// Noise of medians of so few rounds on a busy machine.
const NEAR: std::ops::Range<f64> = 0.6..1.67;

/// One comparison at a time: they use the same two processors.
static ALONE: Mutex<()> = Mutex::new(());

/// Killed when a test ends early.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pinned(cpu: &str, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", "taskset", "-c", cpu, program]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a client until its server, which has just been started, takes its connection.
fn client(mut command: Command) -> Output {
    for _ in 0..50 {
        let output = command.output().expect("the client starts");
        // iperf3 ends well without a server, if its result is to be JSON.
        if output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("\"error\"") {
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

/// What one sample of ours says in a column of samples.csv.
fn ours(pattern: &str, size: &str, column: &str) -> f64 {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("run");
    let mut command = Command::new(ginnel_tests::build::release_dir().join("ginnel-bench"));
    command
        .args(["--transport", "tcp", "--pattern", pattern, "--sizes", size, "--rounds", "1", "--seconds", "0.2", "--out"])
        .arg(&out);
    let output = command.stdin(Stdio::null()).output().expect("ginnel-bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut reader = csv::Reader::from_path(out.join("samples.csv")).expect("samples");
    let place = reader.headers().expect("a head").iter().position(|name| name == column).expect("the column");
    let line = reader.records().next().expect("a sample").expect("a line");
    line[place].parse().unwrap_or_else(|_| panic!("{line:?}"))
}

fn agree(what: &str, theirs: impl Fn() -> f64, ours: impl Fn() -> f64) {
    let _alone = ALONE.lock();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(theirs());
        b.push(ours());
    }
    let text = format!("{what}: theirs {a:?}, ours {b:?}");
    let ratio = Spread::of(b).expect("samples").median / Spread::of(a).expect("samples").median;
    assert!(NEAR.contains(&ratio), "{ratio:.2}: {text}");
}

fn is_there(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|output| output.status.success());
    let two = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    if !found || !two {
        ginnel_tests::skip("agreement of ginnel bench with others", &format!("{program} and two processors are needed"));
    }
    found && two
}

#[test]
fn latency_is_netpipes() {
    if !is_there("NPtcp") {
        return;
    }
    let theirs = || {
        let folder = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let options = ["-P", &port, "-l", "64", "-u", "64", "-p", "0"];
        let _server = Server(pinned("0", "NPtcp").args(options).current_dir(folder.path()).spawn().expect("NPtcp starts"));
        let mut command = pinned("1", "NPtcp");
        command.args(["-h", "127.0.0.1"]).args(options).args(["-o", "result"]).current_dir(folder.path());
        client(command);
        let text = std::fs::read_to_string(folder.path().join("result")).expect("NetPIPE's result");
        // Bytes, Mbit/s, and seconds one way.
        let seconds: f64 = text.split_whitespace().nth(2).expect("three columns").parse().expect("a number");
        1e9 * seconds
    };
    agree("half a round trip of 64 B, ns", theirs, || ours("latency", "64", "mean_ns"));
}

#[test]
fn bandwidth_is_iperf3s() {
    if !is_there("iperf3") {
        return;
    }
    let theirs = || {
        let port = free_port();
        let _server = Server(pinned("0", "iperf3").args(["-s", "-1", "-p", &port]).spawn().expect("iperf3 starts"));
        let mut command = pinned("1", "iperf3");
        command.args(["-c", "127.0.0.1", "-p", &port, "-n", "300M", "-l", "64K", "-N", "--json"]);
        let output = client(command);
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        result["end"]["sum_received"]["bits_per_second"].as_f64().expect("a number") / 8.0
    };
    agree("a stream of 64 KiB writes, B/s", theirs, || ours("stream", "64K", "value"));
}
