//! What others have built for the same end, measured in the same rounds: a ratio to a peer that was
//! measured elsewhere is none. Only with `--peers`.
//!
//! * The kernel's sockmap, under the same unmodified programs: `programs/sockmap.c` enters their
//!   connections in it, and counts what was carried how.
//! * UCX, by its own `ucx_perftest`: programs written for a library of messages.
//! * boost.interprocess's queue of messages, by `programs/boost.cpp`.
//! * iceoryx2, by a small program in `benchmarks/peers/iceoryx2`, which is built when it is asked
//!   for.

use crate::plan::{Carrier, Measure, Work};
use crate::programs::Programs;
use crate::results::needs;
use anyhow::{Context, Result, ensure};
use ginnel_bench::child::{Process, Values};
use ginnel_bench::cleanup;
use ginnel_bench::ginnel::Report;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The peers' programs. One that could not be had holds the reason.
pub struct Peers {
    /// `programs/sockmap.c`, compiled; it has been tried.
    pub sockmap: Result<PathBuf, String>,
    /// `ucx_perftest`.
    pub ucx: Result<(), String>,
    /// `programs/boost.cpp`, compiled.
    pub boost: Result<PathBuf, String>,
    /// The ping-pong through iceoryx2.
    pub iceoryx2: Result<PathBuf, String>,
}

impl Peers {
    /// Finds, compiles or builds what these measures need.
    pub fn find(
        measures: &[&Measure],
        programs: &Programs,
        repository: &Path,
        target: &Path,
    ) -> Self {
        let wanted = |carrier: fn(Carrier) -> bool| {
            if needs(measures, carrier) { Ok(()) } else { Err(String::from("only with --peers")) }
        };
        Self {
            sockmap: wanted(|carrier| carrier == Carrier::Sockmap).and_then(|()| {
                try_sockmap(programs).map_err(|why| {
                    format!(
                        "no sockmap: {why:#}. It needs root, cgroup v2, Debian's linux-libc-dev to compile with, and a kernel with \
                         CONFIG_CGROUP_BPF and CONFIG_BPF_STREAM_PARSER, as in Debian's linux-image-amd64"
                    )
                })
            }),
            ucx: wanted(|carrier| matches!(carrier, Carrier::Ucx(_))).and_then(|()| {
                try_ucx().map_err(|why| format!("no ucx_perftest: {why:#}. It comes with Debian's package ucx-utils"))
            }),
            boost: wanted(|carrier| carrier == Carrier::Boost).and_then(|()| {
                programs
                    .compile_boost()
                    .map_err(|why| format!("no boost: {why:#}. Its headers come with Debian's package libboost-dev"))
            }),
            iceoryx2: wanted(|carrier| carrier == Carrier::Iceoryx2).and_then(|()| {
                build_iceoryx2(repository, target).map_err(|why| {
                    format!(
                        "no iceoryx2: {why:#}. No package of Debian's brings it: cargo fetches it for benchmarks/peers/iceoryx2"
                    )
                })
            }),
        }
    }
}

fn try_sockmap(programs: &Programs) -> Result<PathBuf> {
    let program = programs.compile_sockmap()?;
    cleanup::later([program.to_str().context("the path of the programs is not UTF-8")?, "clear"]);
    let tried = Command::new(&program).args(["run", "true"]).stdin(Stdio::null()).output()?;
    ensure!(tried.status.success(), "{}", last_line(&tried.stderr));
    Ok(program)
}

fn try_ucx() -> Result<()> {
    let tried = Command::new("ucx_perftest").arg("-h").stdin(Stdio::null()).output()?;
    ensure!(!tried.stdout.is_empty() || !tried.stderr.is_empty(), "it says nothing");
    Ok(())
}

fn build_iceoryx2(repository: &Path, target: &Path) -> Result<PathBuf> {
    let target = target.join("peers");
    let manifest = repository.join("benchmarks/peers/iceoryx2/Cargo.toml");
    ensure!(manifest.exists(), "no {}", manifest.display());
    eprintln!("building benchmarks/peers/iceoryx2, a minute the first time");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .stdin(Stdio::null())
        .output()
        .context("running cargo")?;
    ensure!(built.status.success(), "{}", last_line(&built.stderr));
    cleanup::later(["sh", "-c", &format!("rm -rf /tmp/{0} /dev/shm/{0}_*", service())]);
    Ok(target.join("release/ginnel-ivshmem-iceoryx2"))
}

/// The name of the service through which the two ends of iceoryx2 find each other; files of it
/// outlive them.
pub fn service() -> String {
    format!("gnlbench-{}", std::process::id())
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it says nothing")
        .trim()
        .into()
}

/// A cgroup whose connections are in a sockmap, for one sample. It is taken back when this is
/// dropped.
pub struct Held {
    process: Process,
    /// What stands before a program that is to run in it.
    pub enter: Vec<String>,
}

impl Held {
    /// Makes it.
    pub fn new(sockmap: &Path, errors: &Path, deadline: Instant) -> Result<Self> {
        let mut command = Command::new(sockmap);
        command.arg("hold");
        let process = Process::start("sockmap", command, errors, deadline)?;
        let cgroup = process.told("cgroup")?;
        let program = sockmap.to_str().context("the path of the programs is not UTF-8")?;
        Ok(Self { process, enter: [program, "in", &cgroup].map(String::from).into() })
    }

    /// Takes it back, and tells what was carried how.
    pub fn end(self) -> Result<Report> {
        self.process.ask_to_end();
        Ok(carried(&self.process.result()?))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.process.ask_to_end();
        let _ = self.process.result();
    }
}

/// What `sockmap` counted, as if a shim had: what was handed to the other end's queue counts as
/// through rings.
fn carried(counts: &Values) -> Report {
    let count = |key| counts.get(key).copied().unwrap_or(0.0) as u64;
    let redirected = count("redirected");
    // Its message program may believe it handed something on while TCP carried it: TCP's own counts
    // decide.
    let tcp = count("passed").max(count("tcp_acked")).max(count("tcp_received"));
    Report {
        ring_in: redirected,
        ring_out: redirected,
        tcp_in: tcp,
        tcp_out: tcp,
        processes: 2,
        ..Report::default()
    }
}

/// Messages of one sample: `ucx_perftest` knows no time limit. About 0.3 s on processors that are
/// near each other.
fn ucx_messages(work: Work, quick: bool) -> usize {
    let all = match work {
        Work::PingPong(_) => 800_000,
        Work::Large(size) if size >= 65536 => 25_000,
        Work::Large(_) => 300_000,
        Work::Stream(size) if size >= 65536 => 60_000,
        _ => 4_000_000,
    };
    if quick { all / 3 } else { all }
}

fn ucx_size(work: Work) -> usize {
    if let Work::Large(size) | Work::Stream(size) = work { size } else { 64 }
}

/// Takes one sample of UCX over shared memory, by this test of `ucx_perftest`.
pub fn ucx(
    test: &str,
    work: Work,
    quick: bool,
    cpus: [usize; 2],
    scratch: &Path,
    deadline: Instant,
) -> Result<Values> {
    // Large pieces may be copied from process to process by the kernel, where UCX finds that
    // better; small ones it would only slow down.
    let transports =
        if matches!(work, Work::Stream(size) if size >= 65536) { "shm,self" } else { "posix,self" };
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let start = |server: bool| {
        let mut command = Command::new("ucx_perftest");
        command
            .env("UCX_TLS", transports)
            .env("UCX_WARN_UNUSED_ENV_VARS", "n")
            .env_remove("LD_PRELOAD");
        if !server {
            command.arg("127.0.0.1").args([
                "-f",
                "-v",
                "-s",
                &ucx_size(work).to_string(),
                "-n",
                &ucx_messages(work, quick).to_string(),
            ]);
        }
        command.args([
            "-t",
            test,
            "-p",
            &port.to_string(),
            "-c",
            &cpus[usize::from(!server)].to_string(),
        ]);
        let name = if server { "ucx-server" } else { "ucx-client" };
        Process::start(name, command, &scratch.join(format!("{name}.err")), deadline)
    };
    let server = start(true)?;
    while !listens(port)? {
        ensure!(Instant::now() < deadline, "ucx_perftest does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = start(false)?.lines()?;
    server.lines()?;
    ucx_values(&said, work).with_context(|| format!("ucx_perftest said {said:?}"))
}

/// Whether a server waits on this port: `ucx_perftest` says so only to a terminal.
fn listens(port: u16) -> Result<bool> {
    let place = format!(":{port:04X} 00000000:0000 0A");
    Ok(std::fs::read_to_string("/proc/net/tcp")?.contains(&place))
}

/// The values of its last line of CSV: messages, then µs for one (median, mean, overall), MiB/s
/// (mean, overall), messages/s (mean, overall).
fn ucx_values(lines: &[String], work: Work) -> Option<Values> {
    let numbers = |line: &String| {
        line.split(',').map(|field| field.trim().parse().ok()).collect::<Option<Vec<f64>>>()
    };
    let fields = lines.iter().rev().find_map(numbers).filter(|fields| fields.len() == 8)?;
    let (count, median, each, rate) = (fields[0], fields[1], fields[3], fields[7]);
    Some(match work {
        Work::Stream(size) => Values::from([
            ("bytes_per_s".into(), rate * size as f64),
            ("messages".into(), count),
            ("bytes".into(), count * size as f64),
        ]),
        // Half round trips.
        _ => Values::from([
            ("p50_ns".into(), median * 1000.0),
            ("mean_ns".into(), each * 1000.0),
            ("messages".into(), count),
        ]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, f64)]) -> Values {
        pairs.iter().map(|&(key, value)| (key.into(), value)).collect()
    }

    #[test]
    fn ucx_perftest_is_understood() {
        let said = |line: &str| {
            vec!["iterations,50.0_percentile_lat,avg_lat,overall_lat".into(), line.into()]
        };
        let ping = said("500000,0.230,0.250,0.251,243.89,243.89,3995938,3995938");
        let values = ucx_values(&ping, Work::PingPong("")).unwrap();
        assert_eq!((values["p50_ns"], values["mean_ns"]), (230.0, 251.0));
        let stream = said("100000,3.943,5.393,5.393,11588.80,11588.80,185421,185421");
        let rate = ucx_values(&stream, Work::Stream(65536)).unwrap()["bytes_per_s"];
        // What it says itself, in MiB/s.
        assert!((rate / (11588.80 * 1024.0 * 1024.0) - 1.0).abs() < 1e-4);
        assert_eq!(ucx_values(&said("no such test"), Work::PingPong("")), None);
        assert_eq!(ucx_values(&[], Work::PingPong("")), None);
    }

    #[test]
    fn a_sockmap_accelerates_what_tcp_has_not_carried() {
        let share = |redirected, passed, tcp| {
            let counts = [
                ("redirected", redirected),
                ("passed", passed),
                ("tcp_received", tcp),
                ("tcp_acked", tcp),
            ];
            carried(&values(&counts)).share()
        };
        assert!(share(1e6, 0.0, 3.0) > 0.99);
        assert!(share(0.0, 1e6, 1e6) < 0.01);
        // It was handed on, and went over TCP all the same.
        assert!(share(1e6, 0.0, 1e6) < 0.9);
        assert!(carried(&Values::new()).share() < 0.9);
    }
}
