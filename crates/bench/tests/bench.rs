//! `ginnel bench` as a user runs it: real measurements of every pattern and transport, the report
//! in a real browser, interruption, comparison, and another machine.

mod refused;
mod report;

use report::in_a_browser;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// However slow the machine: a run of these few samples that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn bench() -> Command {
    ginnel_tests::permit::of_this_test();
    // Beside what was built for release: its `ginnel` starts the programs.
    let mut command = Command::new(ginnel_tests::build::ginnel());
    command
        .arg("bench")
        .env_remove("GINNEL_SEGMENT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end, after which nothing is left of it.
fn run(command: &mut Command) -> Output {
    let child = command.spawn().expect("ginnel bench starts");
    let pid = child.id();
    let output = finish(child);
    nothing_is_left_of(pid);
    output
}

fn tell(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    let _ = kill_process(pid, signal);
}

fn finish(child: Child) -> Output {
    let pid = child.id();
    let (sender, ended) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tell(pid, Signal::TERM);
        }
    });
    let output = child.wait_with_output().expect("it ends");
    drop(sender);
    output
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A line of samples.csv by the names of the columns.
type Sample = HashMap<String, String>;

fn samples(directory: &Path) -> Vec<Sample> {
    let mut reader = csv::Reader::from_path(directory.join("samples.csv")).expect("samples.csv");
    reader.deserialize().map(|line| line.expect("a line")).collect()
}

fn is_carried(sample: &Sample) -> bool {
    // A thousand connections have some dozen exchanges each in a second, the first four of them
    // over TCP.
    let least = if sample["pattern"] == "nginx" && sample["x"] == "1024" { 0.4 } else { 0.9 };
    sample["ring_share"].parse::<f64>().is_ok_and(|share| share > least)
}

/// This pattern with Ginnel, as long as it takes: how much of a sample comes before the ends have
/// met is the machine's business, and it may have others. On a busy one a thousand connections
/// have few exchanges each even in the longest sample: that any byte of theirs is carried must do.
fn is_carried_at_length(options: &[&str]) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a directory");
    let mut said = String::new();
    for seconds in ["1", "4", "16"] {
        let out = folder.path().join(seconds);
        let ways = [
            "--transport",
            "ginnel",
            "--rounds",
            "1",
            "--pin",
            "none",
            "--seconds",
            seconds,
            "--out",
        ];
        let output = run(bench().args(options).args(ways).arg(&out));
        if !output.status.success() {
            return Err(text(&output));
        }
        let samples = samples(&out);
        let crowded = |sample: &Sample| sample["pattern"] == "nginx" && sample["x"] == "1024";
        let by_ring =
            |sample: &Sample| sample["ring_share"].parse::<f64>().is_ok_and(|share| share > 0.0);
        if !samples.is_empty()
            && samples.iter().all(|sample| is_carried(sample) || crowded(sample) && by_ring(sample))
        {
            return Ok(());
        }
        said = format!("{samples:?}");
    }
    Err(said)
}

/// No namespace, no segment, no folder.
fn nothing_is_left_of(pid: u32) {
    let namespaces = Command::new("ip").args(["netns", "list"]).output().expect("ip");
    assert!(!String::from_utf8_lossy(&namespaces.stdout).contains(&format!("gnlbench-{pid}-")));
    for folder in [&std::env::temp_dir(), Path::new("/dev/shm")] {
        assert!(!folder.join(format!("ginnel-bench-{pid}")).exists());
    }
    let segments = Command::new(ginnel_tests::build::ginnel())
        .args(["segment", "list"])
        .output()
        .expect("ginnel");
    assert!(!String::from_utf8_lossy(&segments.stdout).contains(&format!("bench-{pid}")));
}

#[test]
#[ignore = "test-all: a minute"]
fn every_pattern_is_measured_over_every_transport_and_the_report_is_drawn() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("run");
    let options = [
        "--rounds",
        "2",
        "--seconds",
        "0.05",
        "--sizes",
        "64,64K",
        "--pin",
        "none",
        "--name",
        "<b>me</b>",
        "--out",
    ];
    let output = run(bench().args(options).arg(&out));
    assert!(output.status.success(), "{}", text(&output));
    let samples = samples(&out);
    let root = rustix::process::geteuid().is_root();
    for sample in &samples {
        // vsock's loopback and namespaces are not to be had everywhere.
        let wanted =
            sample["transport"] != "vsock" && (root || !sample["transport"].ends_with("veth"));
        let measured = sample["value"].parse::<f64>().is_ok_and(|value| value > 0.0);
        assert!(measured || !wanted, "{sample:?}");
        assert!(measured == sample["error"].is_empty(), "failed or measured: {sample:?}");
    }
    let patterns = [
        ("latency", 9),
        ("paused", 8),
        ("rate", 8),
        ("stream", 9),
        ("both", 8),
        ("connect", 6),
        ("many", 6),
        ("pairs", 7),
        ("rings", 2),
    ];
    for (pattern, transports) in patterns {
        let of_it = samples.iter().filter(|sample| sample["pattern"] == pattern);
        let mut found: Vec<&str> = of_it.map(|sample| sample["transport"].as_str()).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), transports, "{pattern}: {found:?}");
    }
    let ginnel =
        |sample: &&Sample| sample["pattern"] == "latency" && sample["transport"] == "ginnel";
    assert_eq!(samples.iter().filter(ginnel).count(), 4);
    if !samples.iter().filter(ginnel).all(is_carried) {
        is_carried_at_length(&["--pattern", "latency", "--sizes", "64,64K"]).unwrap();
    }
    in_a_browser(&out);
}

#[test]
#[ignore = "test-all: two minutes"]
fn real_programs_are_measured_plainly_and_with_ginnel() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("run");
    let output = run(bench()
        .args([
            "--apps",
            "--pattern",
            "paused",
            "--rounds",
            "1",
            "--transport",
            "ginnel,tcp",
            "--out",
        ])
        .arg(&out));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let samples = samples(&out);
    for program in ["netpipe", "sockperf", "iperf3", "nginx", "redis", "memcached", "copy"] {
        let of_it: Vec<&Sample> =
            samples.iter().filter(|sample| sample["pattern"] == program).collect();
        assert!(of_it.len() >= 2 && of_it.len().is_multiple_of(2), "{program}: {said}");
        let mut all_carried = true;
        for sample in of_it {
            if sample["error"].contains("is not installed: it comes with the Debian package ") {
                ginnel_tests::skip(&format!("{program} under ginnel bench"), &sample["error"]);
                continue;
            }
            // Where others take the processors, sockperf may find too little to sum up.
            let disturbed =
                sample["foreign_percent"].parse::<f64>().is_ok_and(|percent| percent > 20.0);
            if disturbed && sample["error"].contains("no summary") {
                ginnel_tests::skip(&format!("{program} under ginnel bench"), &sample["error"]);
                continue;
            }
            assert!(sample["value"].parse::<f64>().is_ok_and(|value| value > 0.0), "{sample:?}");
            let by_ginnel = sample["transport"] == "ginnel";
            assert!(by_ginnel || !is_carried(sample), "{sample:?}");
            all_carried &= !by_ginnel || is_carried(sample);
        }
        // What curl copies may be there before the ends have met.
        if !all_carried && program != "copy" {
            is_carried_at_length(&["--pattern", program]).unwrap();
        }
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(
        page.contains("Real programs")
            && page.contains("redis-benchmark, SET and GET, 16 in flight")
    );
}

#[test]
fn an_interrupted_run_keeps_what_it_has() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("run");
    let options = [
        "--pattern",
        "latency,stream",
        "--transport",
        "tcp,ginnel,unix",
        "--pin",
        "none",
        "--rounds",
        "1000",
        "--out",
    ];
    let child = bench().args(options).arg(&out).spawn().expect("ginnel bench starts");
    let pid = child.id();
    let until = Instant::now() + PATIENCE;
    while !out.join("samples.csv").exists() || samples(&out).len() < 4 {
        assert!(Instant::now() < until, "no samples");
        std::thread::sleep(Duration::from_millis(50));
    }
    tell(pid, Signal::INT);
    let output = finish(child);
    assert!(output.status.success() && text(&output).contains("interrupted"), "{}", text(&output));
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("It was interrupted") && samples(&out).len() >= 4);
    nothing_is_left_of(pid);
}

#[test]
fn another_machine_serves_and_both_ends_meet() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut server = bench().args(["serve", "--listen", "127.0.0.1:0"]).spawn().expect("it serves");
    let mut said = String::new();
    BufReader::new(server.stdout.take().expect("its output")).read_line(&mut said).expect("a line");
    let address = said.split([' ', ';']).nth(2).unwrap_or_else(|| panic!("{said}")).to_owned();
    let out = folder.path().join("run");
    let options = [
        "--pattern",
        "latency,stream,many,connect",
        "--sizes",
        "64",
        "--seconds",
        "0.05",
        "--rounds",
        "1",
        "--pin",
        "none",
    ];
    let output = run(bench().args(options).args(["--connect", &address, "--out"]).arg(&out));
    assert!(output.status.success(), "{}", text(&output));
    let samples = samples(&out);
    if !samples.iter().any(|sample| sample["transport"] == "ginnel" && is_carried(sample)) {
        is_carried_at_length(&["--connect", &address, "--pattern", "latency", "--sizes", "64"])
            .unwrap();
    }
    tell(server.id(), Signal::TERM);
    server.wait().expect("it ends");
    assert!(
        samples.len() >= 12 && samples.iter().all(|sample| sample["error"].is_empty()),
        "{samples:?}"
    );
    nothing_is_left_of(server.id());
}
