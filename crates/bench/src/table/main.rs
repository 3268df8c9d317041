//! `ginnel-bench-table`: measures Ginnel against its targets, with unmodified programs, and prints
//! one table.
//!
//! Everything is a ratio of medians taken in turn in one run ([`rounds`]) of what [`plan`] lists.
//! The programs are plain C ([`programs`]); references that share memory directly are among them.
//! Nothing is left behind ([`cleanup`]). `cargo run --release -p ginnel-bench -- --quick --only
//! paused` runs a part of it, briefly.

#![forbid(unsafe_code)]

mod against;
mod guests;
mod history;
mod keep;
mod measure;
mod peers;
mod plan;
mod programs;
mod results;
mod rounds;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use ginnel_bench::ginnel::Ginnel;
use ginnel_bench::network::Network;
use ginnel_bench::{cleanup, machine};
use guests::Guests;
use measure::Bench;
use plan::{Carrier, FIGURES, Figure, MEASURES, Measure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measures Ginnel against its targets and prints one table.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Rounds; each takes every sample once [default: 5, with --quick 3, with --against 7]
    #[arg(long)]
    rounds: Option<usize>,
    /// Fewer rounds and shorter samples
    #[arg(long)]
    quick: bool,
    /// Only figures whose name or group contains this; may be given several times
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// List the figures and leave
    #[arg(long)]
    list: bool,
    /// Draw docs/history.md from the results that were kept, and leave
    #[arg(long, exclusive = true)]
    history: bool,
    /// Keep the results in benchmarks/<date>-<commit>.json
    #[arg(long)]
    record: bool,
    /// Measure only the references; Ginnel's rows are shown as failed
    #[arg(long)]
    no_ginnel: bool,
    /// The ginnel command [default: the one built beside this program]
    #[arg(long, value_name = "PATH")]
    ginnel: Option<PathBuf>,
    /// Do not build ginnel first
    #[arg(long)]
    no_build: bool,
    /// Do without network namespaces; their rows are shown as failed (with --against left out)
    #[arg(long)]
    no_veth: bool,
    /// Measure from guest to guest, in two virtual machines, instead of the rest
    #[arg(long)]
    guests: bool,
    /// Measure others' transports beside it: the kernel's sockmap, UCX, boost.interprocess and
    /// iceoryx2
    #[arg(long, conflicts_with = "guests")]
    peers: bool,
    /// Another build's folder, with its ginnel and libginnel_shim.so: take Ginnel's measures with
    /// both builds in turn, and end with status 1 where this one is worse by more than the noise
    #[arg(long, value_name = "DIR", conflicts_with_all = ["guests", "peers", "record", "no_ginnel"])]
    against: Option<PathBuf>,
    /// The two processors to pin to
    #[arg(long, value_delimiter = ',', num_args = 2, default_values_t = [0, 1])]
    cpus: Vec<usize>,
    /// Seconds after which a program is taken to hang
    #[arg(long, default_value_t = 30)]
    patience: u64,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if options.list {
        results::list();
        return Ok(ExitCode::SUCCESS);
    }
    if options.history {
        history::draw(&repository())?;
        return Ok(ExitCode::SUCCESS);
    }
    cleanup::install(cleanup::leave)?;
    let done = measure(&options);
    cleanup::all();
    Ok(if done? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// False where this build is worse than the one that it is to be compared with.
fn measure(options: &Options) -> Result<bool> {
    let figures = chosen(options);
    ensure!(!figures.is_empty(), "no figure matches: see --list");
    let measures = match options.against {
        Some(_) => against::measures(&figures, options.no_veth),
        None => needed(&figures),
    };
    let cores = std::thread::available_parallelism()?.get();
    ensure!(cores >= 2 && options.cpus.iter().all(|&cpu| cpu < cores), "two processors are needed");
    let target = target_folder()?;
    let scratch = target.join("bench");
    std::fs::create_dir_all(&scratch)?;
    let repository = repository();
    let machine = machine::Machine::describe(&repository);
    let mut bench = prepare(options, &measures, &target, &repository, scratch.clone())?;
    if let Some(other) = &options.against {
        return compare(options, &mut bench, other, machine, &measures);
    }
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 5 });
    let results = results::Results::new(machine, &figures, rounds::run(&bench, &measures, rounds)?);
    results.print();
    if let Ok(guests) = &bench.guests {
        println!("{}.", guests.describe());
    }
    let path = if options.record {
        let (date, commit) =
            (&results.machine.date[..10], results.machine.commit.trim_end_matches('+'));
        let kind = match options {
            Options { guests: true, .. } => "-guests",
            Options { peers: true, .. } => "-peers",
            _ => "",
        };
        repository.join(format!("benchmarks/{date}-{commit}{kind}.json"))
    } else {
        scratch.join("results.json")
    };
    let samples = keep::write(&results, &path)?;
    println!("Kept: {}, with its samples in {}", path.display(), samples.display());
    Ok(true)
}

/// Measures another build beside this one, each with segments of its own.
fn compare(
    options: &Options,
    bench: &mut Bench,
    other: &Path,
    machine: machine::Machine,
    measures: &[&'static Measure],
) -> Result<bool> {
    ensure!(!measures.is_empty(), "none of these figures is Ginnel's: see --list");
    let found = bench.ginnel.as_ref().map_err(|why| anyhow!("{why}"))?;
    let mut new = Ginnel::apart(found.folder().context("ginnel lies in no folder")?, "new")?;
    let mut old = Ginnel::apart(other, "old")?;
    if results::needs(measures, |carrier| carrier == Carrier::GinnelTokens) {
        new.make_segment(&["--tokens"])?;
        old.make_segment(&["--tokens"])?;
    }
    bench.ginnel = Ok(new);
    let path = bench.scratch.join("comparison.json");
    let comparison =
        against::run(bench, old, machine, measures, options.rounds.unwrap_or(against::ROUNDS))?;
    comparison.print();
    comparison.write(&path)?;
    println!("Raw samples: {}", path.display());
    Ok(comparison.is_good())
}

fn prepare(
    options: &Options,
    measures: &[&Measure],
    target: &Path,
    repository: &Path,
    scratch: PathBuf,
) -> Result<Bench> {
    let mut ginnel = match options.no_ginnel {
        true => Err("left out by --no-ginnel".into()),
        false if !results::needs(measures, Carrier::is_ginnel) => Err("not needed".into()),
        false => Ginnel::find(options.ginnel.clone(), !options.no_build, target)
            .map_err(|error| format!("{error:#}")),
    };
    let tokens = match &mut ginnel {
        Ok(ginnel) if results::needs(measures, |carrier| carrier == Carrier::GinnelTokens) => {
            ginnel.make_segment(&["--tokens"]).map_err(|error| format!("{error:#}"))
        }
        Ok(_) => Ok(()),
        Err(why) => Err(why.clone()),
    };
    let network = match options.no_veth {
        true => Err("left out by --no-veth".into()),
        false if !results::needs(measures, Carrier::is_veth) => Err("not needed".into()),
        false if !rustix::process::geteuid().is_root() => {
            Err("network namespaces need root".into())
        }
        false => Network::build().map_err(|error| format!("{error:#}")),
    };
    let programs = programs::Programs::compile(target)?;
    let guests = match options.guests {
        true => {
            Guests::boot(&programs, &scratch.join("guests")).map_err(|error| format!("{error:#}"))
        }
        false => Err("only with --guests".into()),
    };
    let peers = peers::Peers::find(measures, &programs, repository, target);
    Ok(Bench {
        programs,
        ginnel,
        tokens,
        network,
        guests,
        peers,
        scratch,
        cpus: [options.cpus[0], options.cpus[1]],
        quick: options.quick,
        patience: Duration::from_secs(options.patience),
    })
}

fn chosen(options: &Options) -> Vec<&'static Figure> {
    let matches = |figure: &&Figure| {
        let name = format!("{} {}", figure.id(), figure.group);
        figure.belongs(options.guests, options.peers)
            && (options.only.is_empty()
                || options.only.iter().any(|pattern| name.contains(pattern.as_str())))
    };
    FIGURES.iter().filter(matches).collect()
}

fn needed(figures: &[&Figure]) -> Vec<&'static Measure> {
    let is_needed =
        |id| figures.iter().any(|figure| figure.measure == id || figure.base() == Some(id));
    MEASURES.iter().filter(|measure| is_needed(measure.id)).collect()
}

/// Cargo's target folder, of which this program lies in `release/`.
fn target_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).context("not started from a target folder")?.into())
}

/// The folder of the workspace where cargo started this program, else the current one.
fn repository() -> PathBuf {
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(bench) => {
            Path::new(&bench).ancestors().nth(2).map_or_else(|| ".".into(), Path::to_path_buf)
        }
        None => ".".into(),
    }
}
