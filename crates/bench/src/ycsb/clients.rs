//! YCSB's clients: loading records, and one sample.

use crate::Bench;
use crate::ways::{Server, Way};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use ginnel_bench::child::Process;
use ginnel_bench::ginnel::Report;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A workload of YCSB's core, with records of 1 KiB that are read and written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
}

/// The shares of calls that the distributions are told at.
pub const QUANTILES: [f64; 6] = [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999];

/// How long calls of one kind took.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// ns.
    pub mean_ns: f64,
    /// At each of [`QUANTILES`], ns. The rarest is told only where ten calls took longer.
    pub quantiles_ns: Vec<u64>,
}

/// What the clients of one sample counted together.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// From 1.
    pub round: u32,
    /// By which way.
    pub way: Way,
    /// What load.
    pub workload: Workload,
    /// Operations a second that all clients together were to make; none: as many as they can.
    pub wanted: Option<u32>,
    /// Operations a second that they made.
    pub rate: f64,
    /// Reads, codec included.
    pub reads: Times,
    /// Updates, likewise.
    pub updates: Times,
    /// Reads that found nothing.
    pub misses: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Reads out of the server's memory.
    pub direct: u64,
    /// Reads that the server answered.
    pub asked: u64,
    /// Share of the clients' bytes that went through rings.
    pub ring_share: f64,
}

/// What one client wrote.
#[derive(Default)]
struct Counted {
    seconds: f64,
    misses: u64,
    failed: u64,
    direct: u64,
    asked: u64,
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new(3)?)
}

/// Returns the command line of YCSB, by the way of a server.
fn ycsb(bench: &Bench<'_>, server: &Server, more: &[&str]) -> Result<std::process::Command> {
    let folder = bench.options.ycsb.canonicalize().context("benchmarks/ycsb/build.sh comes first")?;
    let folder = folder.to_str().context("a path that is not UTF-8")?;
    let classes = format!("{folder}/classes:{folder}/jars/*");
    let library = format!("-Djava.library.path={folder}/lib");
    let settings = [
        format!("recordcount={}", bench.options.records),
        format!("ginnel.address={}", server.address),
        "workload=site.ycsb.workloads.CoreWorkload".into(),
        "fieldcount=10".into(),
        "fieldlength=100".into(),
        "requestdistribution=zipfian".into(),
        "writeallfields=true".into(),
        "insertproportion=0".into(),
    ];
    let mut line = vec!["java", "-Xms128m", "-Xmx128m", "-XX:+UseSerialGC", &library, "-cp", &classes];
    line.extend(["site.ycsb.Client", "-db", "ginnel.GinnelDB", "-threads", "1"]);
    settings.iter().for_each(|setting| line.extend(["-p", setting]));
    line.extend(more);
    bench.command(false, server.way, &line)
}

/// Stores all records.
pub fn load(bench: &Bench<'_>, server: &Server) -> Result<()> {
    let errors = bench.scratch.join("load.errors");
    let command = ycsb(bench, server, &["-load", "-p", "operationcount=0"])?;
    let client = Process::start("YCSB", command, &errors, Instant::now() + Duration::from_secs(600))?;
    let printed = client.output()?;
    let stored = format!("[INSERT], Return=OK, {}", bench.options.records);
    ensure!(printed.contains(&stored), "not all records were stored:\n{printed}");
    Ok(())
}

/// Has all clients put a load on a server, and adds up what they saw.
pub fn sample(bench: &Bench<'_>, server: &Server, workload: Workload, rate: Option<u32>) -> Result<Sample> {
    let options = bench.options;
    let folder = bench.scratch.join("sample");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder)?;
    // A JVM starts within a second or so; the warm-up begins after that.
    let runs = options.warmup + options.seconds;
    let deadline = Instant::now() + Duration::from_secs_f64(runs + 120.0);
    let start = |number: u32| -> Result<(Process, PathBuf)> {
        let report = folder.join(format!("client{number}"));
        let (reads, updates) = if workload == Workload::B { ("0.95", "0.05") } else { ("1", "0") };
        let settings = [
            "operationcount=2000000000".to_owned(),
            format!("maxexecutiontime={}", runs.ceil()),
            format!("readproportion={reads}"),
            format!("updateproportion={updates}"),
            format!("ginnel.warmup={}", options.warmup),
            format!("ginnel.report={}", report.display()),
        ];
        let mut more = vec!["-t"];
        settings.iter().for_each(|setting| more.extend(["-p", setting]));
        let target = rate.map(|rate| rate.to_string());
        target.iter().for_each(|target| more.extend(["-target", target]));
        let mut command = ycsb(bench, server, &more)?;
        command.env("GINNEL_REPORT", folder.join("carried"));
        let errors = folder.join(format!("errors{number}"));
        Ok((Process::start("YCSB", command, &errors, deadline)?, report.with_extension("0")))
    };
    let clients = (0..options.clients).map(start).collect::<Result<Vec<_>>>()?;
    let (mut reads, mut updates, mut rate_seen, mut all) = (histogram()?, histogram()?, 0.0, Counted::default());
    for (process, report) in &clients {
        process.output()?;
        let before = reads.len() + updates.len();
        let counted = read_report(report, &mut reads, &mut updates)?;
        rate_seen += (reads.len() + updates.len() - before) as f64 / counted.seconds.max(1e-3);
        all.misses += counted.misses;
        all.failed += counted.failed;
        all.direct += counted.direct;
        all.asked += counted.asked;
    }
    Ok(Sample {
        round: 0,
        way: server.way,
        workload,
        wanted: rate.map(|rate| rate * options.clients),
        rate: rate_seen,
        reads: Times::of(&reads),
        updates: Times::of(&updates),
        misses: all.misses,
        failed: all.failed,
        direct: all.direct,
        asked: all.asked,
        ring_share: Report::read(&folder.join("carried")).map_or(0.0, |report| report.share()),
    })
}

/// Reads the lines that a client's `GinnelDB` wrote: a name and numbers.
fn read_report(path: &Path, reads: &mut Histogram<u64>, updates: &mut Histogram<u64>) -> Result<Counted> {
    let text = std::fs::read_to_string(path).with_context(|| format!("no report of a client: {}", path.display()))?;
    let mut counted = Counted::default();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["read", ns, count] => reads.record_n(ns.parse()?, count.parse()?)?,
            ["update", ns, count] => updates.record_n(ns.parse()?, count.parse()?)?,
            ["seconds", seconds] => counted.seconds = seconds.parse()?,
            ["misses", count] => counted.misses = count.parse()?,
            ["failed", count] => counted.failed = count.parse()?,
            ["direct", count] => counted.direct = count.parse()?,
            ["asked", count] => counted.asked = count.parse()?,
            _ => bail!("{}: {line:?} is no line of a report", path.display()),
        }
    }
    Ok(counted)
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Self {
        let count = histogram.len();
        let seen = |share: &&f64| (1.0 - **share) * count as f64 >= 10.0;
        let quantiles_ns = QUANTILES.iter().take_while(seen).map(|&share| histogram.value_at_quantile(share)).collect();
        Self { count, mean_ns: histogram.mean().round(), quantiles_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client");
        let (mut reads, mut updates) = (histogram().unwrap(), histogram().unwrap());
        std::fs::write(&path, "seconds 2.5\nmisses 1\nfailed 0\ndirect 3\nasked 4\nread 800 40\nread 1600 20\nupdate 9000 2\n")
            .unwrap();
        let counted = read_report(&path, &mut reads, &mut updates).unwrap();
        assert_eq!((counted.misses, counted.direct, counted.asked), (1, 3, 4));
        assert!((counted.seconds - 2.5).abs() < 1e-9);
        let times = Times::of(&reads);
        assert_eq!((times.count, times.quantiles_ns.len()), (60, 2), "no quantile that fewer than ten calls passed");
        assert_eq!((Times::of(&updates).count, times.quantiles_ns[0]), (2, 800));
        std::fs::write(&path, "read 800\n").unwrap();
        assert!(read_report(&path, &mut reads, &mut updates).is_err());
    }
}
