//! The demo's promises that need no Ginnel: it measures, and it leaves nothing behind, however it
//! ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Everything that a run of the demo may touch: its TMPDIR, by which its processes are known as
/// well.
struct Trace {
    dir: PathBuf,
}

impl Trace {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("demo-test-{test}-{}", std::process::id()));
        fs::create_dir_all(dir.join("tmp")).unwrap();
        Self { dir }
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ginnel_guest::built("ginnel-demo").expect("built"));
        command.args(arguments).arg("--json").arg(self.json()).env("TMPDIR", self.dir.join("tmp"));
        command
    }

    fn json(&self) -> PathBuf {
        self.dir.join("results.json")
    }

    /// Processes that the demo started, and the demo itself.
    fn processes(&self) -> Vec<String> {
        let mark = format!("TMPDIR={}", self.dir.join("tmp").display());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|entry| {
                let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
                environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
            })
            .map(|entry| {
                fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_owned()
            })
            .collect()
    }

    /// Waits until so many processes of this name run, of which the kernel keeps fifteen letters.
    fn await_running(&self, program: &str, count: usize) {
        let end = Instant::now() + Duration::from_secs(180);
        while self.processes().iter().filter(|name| *name == program).count() < count {
            assert!(Instant::now() < end, "no {count} of {program} run: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn assert_nothing_left(&self, pid: u32) {
        let processes = self.processes();
        assert!(processes.is_empty(), "processes left behind: {processes:?}");
        let files: Vec<_> = fs::read_dir(self.dir.join("tmp"))
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(files.is_empty(), "files left behind: {files:?}");
        for end in ["a", "b", "sw"] {
            let space = Path::new("/run/netns").join(format!("ginnel-demo-{pid}-{end}"));
            assert!(!space.exists(), "{} left behind", space.display());
        }
        // Named for the process that made it.
        let is_stale = |name: &str| {
            let maker =
                name.strip_prefix("gnlbench-sockmap-").and_then(|pid| pid.parse::<u32>().ok());
            maker.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
        };
        let cgroups = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let stale: Vec<_> = cgroups
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_stale(name))
            .collect();
        assert!(stale.is_empty(), "cgroups left behind: {stale:?}");
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn missing(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        println!("SKIPPED: {program} is not installed");
    }
    !found
}

fn wait(mut child: Child) -> std::process::Output {
    let end = Instant::now() + Duration::from_secs(300);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the demo did not end: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn measures_and_leaves_nothing_behind() {
    if missing("iperf3") {
        return;
    }
    let trace = Trace::new("measures");
    let arguments = ["--plain-only", "--loopback", "--quick", "--no-guests", "--only", "iperf3"];
    let child =
        trace.demo(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = wait(child);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("iperf3, 8 streams"), "{text}");

    let results: serde_json::Value =
        serde_json::from_slice(&fs::read(trace.json()).unwrap()).unwrap();
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["where"], "loopback");
        assert!(row["plain"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["ginnel"].is_null(), "{row}");
    }
    trace.assert_nothing_left(pid);
}

fn rows(trace: &Trace) -> Vec<serde_json::Value> {
    let results: serde_json::Value =
        serde_json::from_slice(&fs::read(trace.json()).unwrap()).unwrap();
    results["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["where"] == "guests")
        .cloned()
        .collect()
}

#[test]
#[ignore = "test-all: boots guests"]
fn measures_between_guests_too() {
    if missing("iperf3") || missing("qemu-system-x86_64") {
        return;
    }
    let trace = Trace::new("guests");
    let arguments = ["--loopback", "--seconds", "4", "--rounds", "1", "--only", "iperf3"];
    let child =
        trace.demo(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = wait(child);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("guests: two virtual machines with kernel"), "{text}");
    let rows = rows(&trace);
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert!(
            row["plain"].as_f64().unwrap() > 0.0 && row["ginnel"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        assert!(row["share"].as_f64().unwrap() > 0.1, "{row}");
    }
    trace.assert_nothing_left(pid);
}

/// QEMU that does not run is one row and one line, and the rest is measured.
#[test]
#[ignore = "test-all: boots guests"]
fn guests_that_do_not_boot_are_left_out() {
    if missing("iperf3") || missing("qemu-system-x86_64") {
        return;
    }
    let trace = Trace::new("no-guests");
    let bin = trace.dir.join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/false", bin.join("qemu-system-x86_64")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let arguments = ["--plain-only", "--loopback", "--quick", "--only", "iperf3"];
    let child = trace
        .demo(&arguments)
        .env("PATH", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = wait(child);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("guests: left out") && text.contains("QEMU has ended"), "{text}");
    let rows = rows(&trace);
    assert!(matches!(rows.as_slice(), [row] if row["plain"].is_null()), "{rows:?}");
    trace.assert_nothing_left(pid);
}

/// Machines too are gone at once, whether they boot or run.
#[test]
#[ignore = "test-all: boots guests"]
fn a_signal_takes_guests_back() {
    if missing("iperf3") || missing("qemu-system-x86_64") {
        return;
    }
    for pause in [0, 6] {
        let trace = Trace::new(&format!("guests-{pause}"));
        let arguments =
            ["--plain-only", "--loopback", "--rounds", "1", "--seconds", "3", "--only", "iperf3"];
        let child =
            trace.demo(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        trace.await_running("qemu-system-x86", 2);
        std::thread::sleep(Duration::from_secs(pause));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(wait(child).status.code(), Some(130));
        trace.assert_nothing_left(pid);
    }
}

/// With root this passes through namespaces, without through loopback; either way nothing may stay.
#[test]
fn a_signal_takes_everything_back() {
    if missing("iperf3") {
        return;
    }
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let trace = Trace::new(&format!("signal-{status}"));
        let arguments = ["--plain-only", "--no-guests", "--seconds", "60", "--only", "iperf3"];
        let child =
            trace.demo(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        // Server and client: it is in the middle of a measurement.
        trace.await_running("iperf3", 2);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(wait(child).status.code(), Some(status));
        trace.assert_nothing_left(pid);
    }
}

#[test]
fn a_sockmap_that_cannot_be_had_is_an_error() {
    let trace = Trace::new("no-sockmap");
    let arguments = ["--sockmap", "/bin/false", "--loopback", "--quick", "--only", "iperf3"];
    let child =
        trace.demo(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = wait(child);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("sockmap has ended"), "{output:?}");
    trace.assert_nothing_left(pid);
}

/// The program of the sockmap, compiled, where there can be one.
fn sockmap(trace: &Trace) -> Option<String> {
    let program = trace.dir.join("sockmap");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/programs/sockmap.c");
    let works = |command: &mut Command| {
        command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let can = works(Command::new("cc").args(["-std=gnu11", "-o"]).arg(&program).arg(source))
        && works(Command::new(&program).args(["run", "true"]));
    if !can {
        println!("SKIPPED: a sockmap needs a C compiler, root, cgroup v2 and a kernel that has it");
    }
    (can && !missing("iperf3")).then(|| program.into_os_string().into_string().unwrap())
}

#[test]
#[ignore = "test-all: measures"]
fn a_sockmap_is_measured_in_the_same_rounds() {
    let trace = Trace::new("sockmap");
    let Some(program) = sockmap(&trace) else { return };
    let arguments = ["--sockmap", &program, "--quick", "--only", "iperf3"];
    let child =
        trace.demo(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = wait(child);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results: serde_json::Value =
        serde_json::from_slice(&fs::read(trace.json()).unwrap()).unwrap();
    let row = &results["rows"][0];
    let [sockmap, ginnel] =
        ["sockmap", "ginnel"].map(|carrier| row[carrier].as_f64().expect("a figure"));
    // Figures are read back to the last bit but one.
    assert!(
        row["beside_sockmap"]
            .as_f64()
            .is_some_and(|ratio| (ratio * sockmap / ginnel - 1.0).abs() < 1e-9),
        "{row}"
    );
    assert!(results["sockmap"].as_f64().is_some_and(|share| share > 0.5), "{results}");
    trace.assert_nothing_left(pid);
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn a_signal_takes_the_sockmap_back() {
    let trace = Trace::new("sockmap-signal");
    let Some(program) = sockmap(&trace) else { return };
    let arguments = ["--sockmap", &program, "--seconds", "60", "--only", "iperf3"];
    let child = trace.demo(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    // All three servers and a client.
    trace.await_running("iperf3", 4);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(wait(child).status.code(), Some(130));
    trace.assert_nothing_left(pid);
}
