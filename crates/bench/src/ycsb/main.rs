//! `ginnel-bench-ycsb`: caches under YCSB's load, in two network namespaces.
//!
//! Servers run in one namespace, clients in the other, with a bridge between them. Clients are
//! JVMs, each with one thread, its own connection, and the same library and codec whatever the
//! server is (`benchmarks/ycsb`). All ways are taken in turn within each round, so that noise falls
//! on all alike. It needs root, memcached, what `benchmarks/ycsb/build.sh` builds, and the release
//! build.
//!
//! | module | part |
//! |---|---|
//! | [`ways`] | the servers, and by which way clients reach them |
//! | [`clients`] | loading records, and one sample of a load |
//! | [`guests`] | the same between two virtual machines, by a client that needs no JVM |
//! | [`record`] | run.json, tables and charts |

#![forbid(unsafe_code)]

mod clients;
mod guests;
mod record;
mod ways;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use clients::Sample;
use ginnel_bench::cleanup;
use ginnel_bench::ginnel::Ginnel;
use ginnel_bench::machine::Machine;
use ginnel_bench::network::Network;
use serde::Serialize;
use std::path::{Path, PathBuf};
use ways::Way;

/// Caches under YCSB's load: memcached and ginnel-cache between two network namespaces
#[derive(Debug, Parser, Serialize)]
#[command(name = "ginnel-bench-ycsb", version)]
pub struct Options {
    /// What benchmarks/ycsb/build.sh built
    #[arg(long, default_value = "target/ycsb")]
    #[serde(skip)]
    ycsb: PathBuf,
    /// Folder of the release build
    #[arg(long, default_value = "target/release")]
    #[serde(skip)]
    product: PathBuf,
    /// Where run.json, tables.md and charts go
    #[arg(long, default_value = "target/bench-ycsb")]
    #[serde(skip)]
    out: PathBuf,
    /// Rounds; each takes every sample once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds that a sample counts
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds before that: each sample's JVMs compile meanwhile
    #[arg(long, default_value_t = 5.0)]
    warmup: f64,
    /// Operations a second of each client where the rate is fixed
    #[arg(long, default_value_t = 1000, default_value_if("guests", "true", "50"))]
    rate: u32,
    /// Clients
    #[arg(long, default_value_t = 3)]
    clients: u32,
    /// Records of 1 KiB
    #[arg(long, default_value_t = 100_000, default_value_if("guests", "true", "5000"))]
    records: u32,
    /// From one virtual machine to another, rather than between namespaces; without YCSB's JVM
    #[arg(long)]
    guests: bool,
    /// Workloads: b (95 % reads), c (reads), w (b's updates alone, at the rate that they have
    /// there)
    #[arg(long, value_delimiter = ',', default_value = "b,c,w")]
    workloads: Vec<clients::Workload>,
}

/// Where samples are taken.
pub struct Bench<'a> {
    options: &'a Options,
    network: Network,
    ginnel: Ginnel,
    scratch: &'a Path,
}

fn main() -> std::process::ExitCode {
    let options = Options::parse();
    let done = cleanup::install(cleanup::leave).and_then(|()| measure(&options));
    cleanup::all();
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ginnel-bench-ycsb: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    let folder = tempfile::tempdir()?;
    cleanup::remove_later(folder.path());
    let machine = Machine::describe(Path::new("."));
    if options.guests {
        let guests = guests::Guests::boot(options, folder.path())?;
        let samples =
            rounds(options, |way, workload, rate| guests.sample(options, way, workload, rate))?;
        return record::write(&machine, &guests.describe(), options, &samples);
    }
    let (network, ginnel) = (Network::build()?, Ginnel::apart(&options.product, "ycsb")?);
    let bench = Bench { options, network, ginnel, scratch: folder.path() };
    let servers = ways::start(&bench)?;
    for server in &servers {
        clients::load(&bench, server)
            .with_context(|| format!("loading records: {}", server.way.words()))?;
    }
    let of =
        |way: Way| servers.iter().find(|server| server.way == way).context("a server of each way");
    let samples =
        rounds(options, |way, workload, rate| clients::sample(&bench, of(way)?, workload, rate))?;
    servers.into_iter().for_each(|server| server.process.stop());
    record::write(&machine, "between two network namespaces", options, &samples)
}

/// Takes each sample once in each round, all ways in turn.
fn rounds(
    options: &Options,
    sample: impl Fn(Way, clients::Workload, Option<u32>) -> Result<Sample>,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for &workload in &options.workloads {
            let rates = match workload {
                clients::Workload::W => vec![Some((options.rate / 20).max(1))],
                _ => vec![Some(options.rate), None],
            };
            for rate in rates {
                for way in Way::ALL {
                    let mut one = sample(way, workload, rate)
                        .with_context(|| format!("{}, workload {workload:?}", way.words()))?;
                    one.round = round;
                    check(&one)?;
                    samples.push(one);
                }
            }
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    Ok(samples)
}

/// A figure of something else than what it says is worse than none.
fn check(sample: &Sample) -> Result<()> {
    let (way, reads) = (sample.way.words(), sample.reads.count);
    ensure!(sample.failed == 0, "{way}: {} calls failed", sample.failed);
    ensure!(reads > 0 || sample.workload == clients::Workload::W, "{way}: nothing was read");
    match sample.way {
        Way::Direct if reads == 0 => {}
        Way::Direct => ensure!(
            sample.direct * 10 > reads * 9,
            "{way}: only {} of {reads} were direct",
            sample.direct
        ),
        _ => ensure!(sample.direct == 0, "{way}: {} reads were direct", sample.direct),
    }
    let ring = sample.ring_share;
    ensure!(
        sample.way != Way::CarriedMemcached || ring > 0.9,
        "{way}: only {ring} of the bytes went through rings"
    );
    Ok(())
}
