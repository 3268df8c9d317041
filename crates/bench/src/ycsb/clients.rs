//! YCSB's clients: loading records, and one sample.

use crate::Bench;
use crate::ways::{Server, Way};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use ginnel_bench::child::Process;
use ginnel_bench::ginnel::Report;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A workload of YCSB's core, with records of 1 KiB that are read and written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// B's updates without its reads, at the rate that they have there: what a write takes where
    /// nothing else keeps either end awake.
    W,
}

impl Workload {
    /// The share of reads.
    pub fn reads(self) -> f64 {
        match self {
            Self::B => 0.95,
            Self::C => 1.0,
            Self::W => 0.0,
        }
    }
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

/// Returns the command line of YCSB, by the way of a server.
fn ycsb(bench: &Bench<'_>, server: &Server, more: &[&str]) -> Result<std::process::Command> {
    let folder =
        bench.options.ycsb.canonicalize().context("benchmarks/ycsb/build.sh comes first")?;
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
    let mut line =
        vec!["java", "-Xms128m", "-Xmx128m", "-XX:+UseSerialGC", &library, "-cp", &classes];
    line.extend(["site.ycsb.Client", "-db", "ginnel.GinnelDB", "-threads", "1"]);
    settings.iter().for_each(|setting| line.extend(["-p", setting]));
    line.extend(more);
    bench.command(false, server.way, &line)
}

/// Stores all records.
pub fn load(bench: &Bench<'_>, server: &Server) -> Result<()> {
    let errors = bench.scratch.join("load.errors");
    let command = ycsb(bench, server, &["-load", "-p", "operationcount=0"])?;
    let client =
        Process::start("YCSB", command, &errors, Instant::now() + Duration::from_secs(600))?;
    let printed = client.output()?;
    let stored = format!("[INSERT], Return=OK, {}", bench.options.records);
    ensure!(printed.contains(&stored), "not all records were stored:\n{printed}");
    Ok(())
}

/// Has all clients put a load on a server, and adds up what they saw.
pub fn sample(
    bench: &Bench<'_>,
    server: &Server,
    workload: Workload,
    rate: Option<u32>,
) -> Result<Sample> {
    let options = bench.options;
    let folder = bench.scratch.join("sample");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder)?;
    // A JVM starts within a second or so; the warm-up begins after that.
    let runs = options.warmup + options.seconds;
    let deadline = Instant::now() + Duration::from_secs_f64(runs + 120.0);
    let start = |number: u32| -> Result<(Process, PathBuf)> {
        let report = folder.join(format!("client{number}"));
        let (reads, updates) = (workload.reads(), 1.0 - workload.reads());
        let settings = [
            "operationcount=2000000000".to_owned(),
            format!("maxexecutiontime={}", runs.ceil()),
            format!("readproportion={reads}"),
            format!("updateproportion={updates:.2}"),
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
    let mut sum = Sum::new()?;
    for (process, report) in &clients {
        process.output()?;
        let text = std::fs::read_to_string(report);
        sum.add(&text.with_context(|| format!("no report of a client: {}", report.display()))?)?;
    }
    let carried = Report::read(&folder.join("carried"));
    Ok(sum.sample(server.way, workload, rate.map(|rate| rate * options.clients), carried))
}

/// What all clients of a sample counted.
pub struct Sum {
    reads: Histogram<u64>,
    updates: Histogram<u64>,
    rate: f64,
    misses: u64,
    failed: u64,
    direct: u64,
    asked: u64,
}

impl Sum {
    /// Nothing yet.
    pub fn new() -> Result<Self> {
        let (reads, updates) = (Histogram::new(3)?, Histogram::new(3)?);
        Ok(Self { reads, updates, rate: 0.0, misses: 0, failed: 0, direct: 0, asked: 0 })
    }

    /// Adds what one client reported: lines of a name and numbers.
    pub fn add(&mut self, report: &str) -> Result<()> {
        let (mut seconds, before) = (0.0_f64, self.reads.len() + self.updates.len());
        for line in report.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["read", ns, count] => self.reads.record_n(ns.parse()?, count.parse()?)?,
                ["update", ns, count] => self.updates.record_n(ns.parse()?, count.parse()?)?,
                ["seconds", count] => seconds = count.parse()?,
                ["misses", count] => self.misses += count.parse::<u64>()?,
                ["failed", count] => self.failed += count.parse::<u64>()?,
                ["direct", count] => self.direct += count.parse::<u64>()?,
                ["asked", count] => self.asked += count.parse::<u64>()?,
                _ => bail!("{line:?} is no line of a client's report"),
            }
        }
        self.rate += (self.reads.len() + self.updates.len() - before) as f64 / seconds.max(1e-3);
        Ok(())
    }

    /// All of it as a sample.
    pub fn sample(
        &self,
        way: Way,
        workload: Workload,
        wanted: Option<u32>,
        carried: Option<Report>,
    ) -> Sample {
        Sample {
            round: 0,
            way,
            workload,
            wanted,
            rate: self.rate,
            reads: Times::of(&self.reads),
            updates: Times::of(&self.updates),
            misses: self.misses,
            failed: self.failed,
            direct: self.direct,
            asked: self.asked,
            ring_share: carried.map_or(0.0, |report| report.share()),
        }
    }
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Self {
        let count = histogram.len();
        let seen = |share: &&f64| (1.0 - **share) * count as f64 >= 10.0;
        let quantiles_ns = QUANTILES
            .iter()
            .take_while(seen)
            .map(|&share| histogram.value_at_quantile(share))
            .collect();
        Self { count, mean_ns: histogram.mean().round(), quantiles_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_whole_or_not_at_all() {
        let mut sum = Sum::new().unwrap();
        let report = "seconds 2.5\nmisses 1\nfailed 0\ndirect 3\nasked 4\nread 800 40\nread 1600 20\nupdate 9000 2\n";
        sum.add(report).unwrap();
        sum.add(report).unwrap();
        let sample = sum.sample(Way::Direct, Workload::B, None, None);
        assert_eq!((sample.misses, sample.direct, sample.asked), (2, 6, 8));
        assert!((sample.rate - 2.0 * 62.0 / 2.5).abs() < 1e-9);
        let times = sample.reads;
        assert_eq!(
            (times.count, times.quantiles_ns.len()),
            (120, 3),
            "no quantile that fewer than ten calls passed"
        );
        assert_eq!((sample.updates.count, times.quantiles_ns[0]), (4, 800));
        assert!(sum.add("read 800\n").is_err());
    }
}
