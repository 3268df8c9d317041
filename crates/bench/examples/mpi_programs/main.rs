//! Whole MPI programs, and the patterns of OSU's benchmarks, by every way that two ranks can take.
//!
//! ```text
//! mpi_programs measure [ROUNDS [OUT [PROGRAM...]]]   3 rounds into target/bench-mpi-programs
//! mpi_programs netpipe SAMPLES OUT                   draws what scripts/bench-mpi.sh measured
//! ```
//!
//! Two ranks of Open MPI are in two network namespaces; its own shared memory, the mark, is taken
//! by two ranks on one system. All ways are taken in turn within each round. It needs root,
//! `make deps-mpi` and the release build. OUT gets run.json with every sample, tables.md and
//! charts.
//!
//! | module | part |
//! |---|---|
//! | [`ways`] | the ways, and how a job is started by each |
//! | [`programs`] | what is run, with its input, and which figures it prints |
//! | [`record`] | run.json, tables and charts |

#![forbid(unsafe_code)]

mod programs;
mod record;
mod ways;

use anyhow::{Context, Result, bail, ensure};
use ginnel_bench::cleanup;
use ginnel_bench::machine::Machine;
use programs::Program;
use record::{Sample, Share};
use std::path::Path;
use ways::{Stand, WAYS};

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["netpipe", samples, out] => netpipe(Path::new(samples), Path::new(out)),
        ["measure", ..] => {
            let out = words.get(2).map_or("target/bench-mpi-programs", |out| *out);
            let rounds = words.get(1).map_or(Ok(3), |text| text.parse());
            let only = words.get(3..).unwrap_or_default();
            rounds.context("ROUNDS").and_then(|rounds| measure(rounds, Path::new(out), only))
        }
        _ => Err(anyhow::anyhow!(
            "mpi_programs measure [ROUNDS [OUT [PROGRAM...]]] | netpipe SAMPLES OUT"
        )),
    };
    cleanup::all();
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mpi_programs: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Takes every sample of all programs, or of `only` these.
fn measure(rounds: u32, out: &Path, only: &[&str]) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    cleanup::install(cleanup::leave)?;
    let folder = tempfile::tempdir()?;
    cleanup::remove_later(folder.path());
    let stand = Stand::build(folder.path())?;
    let machine = Machine::describe(Path::new("."));
    let mut programs = Program::all(folder.path())?;
    programs.retain(|program| only.is_empty() || only.contains(&program.name));
    ensure!(!programs.is_empty(), "no program of that name");
    let (mut samples, mut failed) = (Vec::new(), 0);
    for round in 1..=rounds {
        for program in &programs {
            for way in WAYS {
                let figures = match stand.run(way, program, false) {
                    Ok(figures) if figures.is_empty() => bail!("{} has no figure", program.name),
                    Ok(figures) => figures,
                    // The others' figures are figures, still.
                    Err(error) => {
                        eprintln!("{error:#}");
                        failed += 1;
                        continue;
                    }
                };
                let way = way.name;
                let sample = |figure| Sample { round, way: way.into(), figure };
                samples.extend(figures.into_iter().map(sample));
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    let shares = shares(&stand, &programs)?;
    record::write(&machine, &samples, &shares, out)?;
    ensure!(failed == 0, "{failed} runs failed");
    Ok(())
}

/// Which share of its time each whole program spends in MPI, over TCP: one more run, in which
/// calls are timed.
fn shares(stand: &Stand, programs: &[Program]) -> Result<Vec<Share>> {
    let tcp = WAYS.iter().find(|way| way.name == record::TCP).context("plain TCP is a way")?;
    let of = |program: &Program| -> Result<Share> {
        let said = stand.run(*tcp, program, true)?;
        let figure = said.iter().find(|figure| figure.name == programs::IN_MPI);
        let share = figure.with_context(|| format!("{} timed no calls", program.name))?.value;
        Ok(Share { program: program.name.into(), share })
    };
    programs.iter().filter(|program| program.is_whole).map(of).collect()
}

/// What NetPIPE measured, as `round, way, bytes, microseconds` between tabs.
fn netpipe(samples: &Path, out: &Path) -> Result<()> {
    let text = std::fs::read_to_string(samples)
        .with_context(|| format!("reading {}", samples.display()))?;
    let sample = |line: &str| -> Option<Sample> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [round, way, bytes, value] = fields[..] else { return None };
        let figure = programs::Figure {
            name: programs::NETPIPE.into(),
            bytes: bytes.parse().ok()?,
            value: value.parse().ok()?,
        };
        Some(Sample { round: round.parse().ok()?, way: way.into(), figure })
    };
    let samples: Vec<Sample> = text
        .lines()
        .map(|line| sample(line).with_context(|| format!("no sample: {line}")))
        .collect::<Result<_>>()?;
    record::write(&Machine::describe(Path::new(".")), &samples, &[], out)
}
