//! What the figures were measured on.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Description of the machine and the moment, kept beside every result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// Model name of the first processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Whether a hypervisor is below.
    pub virtual_machine: bool,
    /// Kernel release.
    pub kernel: String,
    /// Memory in kB.
    pub memory_kb: u64,
    /// Load average of the last minute when the bench started.
    pub load: f64,
    /// When the bench started, in UTC (RFC 3339).
    pub date: String,
    /// Commit that was checked out, with "+" where the tree differed; empty outside a repository.
    pub commit: String,
}

impl Machine {
    /// Describes this machine; `repository` names the sources.
    pub fn describe(repository: &Path) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.contains(" hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            memory_kb: memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0.0),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            commit: commit(repository),
        }
    }

    /// One line for the head of the table.
    pub fn line(&self) -> String {
        let kind = if self.virtual_machine { ", virtual machine" } else { "" };
        format!("{}, {} cores{kind}, kernel {}, {}", self.cpu, self.cores, self.kernel, self.date)
    }
}

/// How busy the machine was at a moment, to tell what others did during a sample.
pub struct Load {
    /// Time that all processors were busy or stolen, in ticks of 10 ms.
    busy: u64,
    /// Time of this process, the children it has reaped and its virtual machines, in the same
    /// ticks.
    own: u64,
    when: Instant,
}

impl Load {
    /// The load up to now (`/proc/stat` and `/proc/self/stat`, proc(5)), where the virtual machines
    /// have taken `machines` ticks.
    pub fn now(machines: u64) -> Self {
        let numbers = |text: &str, from, to| -> u64 {
            let fields =
                text.split_whitespace().enumerate().filter(|(i, _)| (from..=to).contains(i));
            fields.filter_map(|(_, field)| field.parse::<u64>().ok()).sum()
        };
        let stat = read("/proc/stat");
        let all = stat.lines().next().unwrap_or_default();
        let own = read("/proc/self/stat");
        // After the name in brackets: state is field 0, utime to cstime are 11 to 14.
        let own = own.rsplit_once(')').map_or("", |(_, rest)| rest);
        let busy = numbers(all, 1, 3) + numbers(all, 6, 8);
        Self { busy, own: numbers(own, 11, 14) + machines, when: Instant::now() }
    }

    /// CPU time that other processes took since, in percent of a core; to about 10 ms.
    pub fn foreign_percent(&self, machines: u64) -> f64 {
        let now = Self::now(machines);
        let ticks = (now.busy - self.busy).saturating_sub(now.own - self.own);
        ticks as f64 / (self.when.elapsed().as_secs_f64().max(0.01))
    }
}

/// CPU time of a process and all its threads, in ticks of 10 ms (`/proc/PID/stat`, proc(5); USER_HZ
/// is 100 on every Linux that Ginnel runs on).
///
/// # Errors
/// Where there is no such process.
pub fn ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("there is no process {pid}"))?;
    // After the name in brackets: state is field 0, utime and stime are 11 and 12.
    let (_, fields) = stat.rsplit_once(')').context("no name in brackets")?;
    Ok(fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum())
}

/// CPU time of the threads that a process has now, in nanoseconds (`/proc/PID/task/TID/schedstat`,
/// Documentation/scheduler/sched-stats.rst).
///
/// # Errors
/// Where there is no such process, or the kernel does not say.
pub fn cpu_ns(pid: u32) -> Result<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .with_context(|| format!("there is no process {pid}"))?;
    // A thread may end in between.
    let spent = |thread: std::fs::DirEntry| -> Option<u64> {
        std::fs::read_to_string(thread.path().join("schedstat"))
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    threads
        .filter_map(Result::ok)
        .filter_map(spent)
        .reduce(|sum, more| sum + more)
        .context("this kernel has no schedstat")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Of the sources, where they are; else what `GINNEL_COMMIT` says, by which scripts/record-bench.sh
/// names them to a program that runs without.
fn commit(repository: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(repository).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let dirty = git(&["status", "--porcelain", "-uno"]).is_some_and(|changes| !changes.is_empty());
    git(&["rev-parse", "--short", "HEAD"]).map_or_else(
        || std::env::var("GINNEL_COMMIT").unwrap_or_default(),
        |c| if dirty { c + "+" } else { c },
    )
}
