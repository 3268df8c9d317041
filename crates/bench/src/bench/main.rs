//! `ginnel-bench`, behind `ginnel bench`: compares transports on the user's machine and writes a
//! report.
//!
//! | module | part |
//! |---|---|
//! | [`args`], [`plan`] | the command line; what is measured: cells of patterns × transports × sizes |
//! | [`conn`], [`work`] | the workloads: ordinary programs over an ordinary connection |
//! | [`apps`] | real programs |
//! | [`sample`], [`rounds`], [`serve`] | taking samples: one, all in turn, with the other end on another machine |
//! | [`host`] | what the host spends below guests |
//! | [`record`] | samples.csv and run.json |
//! | [`cells`], [`page`] | medians and spreads; the report: tables, charts, one page |

#![deny(unsafe_code)]

mod apps;
mod args;
mod cells;
mod conn;
mod direct;
mod host;
mod page;
mod plan;
mod record;
mod rounds;
mod sample;
mod serve;
mod work;

use anyhow::{Context, Result, bail, ensure};
use args::{Cli, Command, Options};
use clap::Parser;
use ginnel_bench::cleanup;
use ginnel_bench::machine::Machine;
use plan::Cell;
use record::{Log, Recorded, Run};
use rounds::STOP;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Work { task }) => serde_json::from_str::<work::Task>(&task)
            .map_err(Into::into)
            .and_then(|task| task.run()),
        Some(Command::Report { runs, out, fill }) => report(&runs, out, &fill),
        Some(Command::Serve { listen }) => {
            with_cleanup(cleanup::leave, |scratch| serve::serve(listen, scratch))
        }
        Some(Command::Host { socket, processes }) => host::answer(&socket, &processes),
        None => with_cleanup(
            || {
                if STOP.swap(true, Relaxed) {
                    cleanup::leave();
                }
                eprintln!(
                    "\ninterrupted: the report comes after this sample; again to leave at once"
                );
            },
            |scratch| measure(&cli.options, scratch),
        ),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ginnel bench: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Gives the work a folder of its own, and leaves nothing behind.
fn with_cleanup(
    interrupted: impl FnMut() + Send + 'static,
    work: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    cleanup::install(interrupted)?;
    let scratch = std::env::temp_dir().join(format!("ginnel-bench-{}", std::process::id()));
    cleanup::remove_later(&scratch);
    std::fs::create_dir(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    let done = work(&scratch);
    cleanup::all();
    done
}

fn measure(options: &Options, scratch: &Path) -> Result<()> {
    let cells = Cell::all(options);
    ensure!(
        !cells.is_empty(),
        "nothing to measure: these patterns are not measured over these transports"
    );
    let machine = Machine::describe(&repository());
    let directory = options.out.clone().unwrap_or_else(|| {
        let when: String = machine
            .date
            .chars()
            .take(19)
            .map(|c| if c == 'T' { '-' } else { c })
            .filter(|&c| c != ':')
            .collect();
        format!("ginnel-bench-{when}").into()
    });
    ensure!(
        !directory.join("run.json").exists(),
        "{} has a run already: name another with --out",
        directory.display()
    );
    for (program, package) in apps::missing(cells.iter().map(|cell| cell.pattern)) {
        println!("{program} {} {package}", apps::NOT_INSTALLED);
    }
    let bench = sample::prepare(&cells, options, scratch)?;
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("making {}", directory.display()))?;
    let rounds = options.rounds.unwrap_or(if options.full { 7 } else { 3 });
    println!(
        "{}\n{} samples in {rounds} rounds, into {}",
        machine.line(),
        cells.len() * rounds as usize,
        directory.display()
    );
    let mut run = Run {
        name: options.name.clone().unwrap_or_else(host),
        version: env!("CARGO_PKG_VERSION").into(),
        machine,
        options: options.clone(),
        rounds,
        seconds: bench.seconds,
        clock_ns: clock_ns(),
        complete: false,
        took: 0.0,
    };
    run.write(&directory)?;
    let began = Instant::now();
    let (samples, complete) = rounds::run(&bench, &cells, rounds, &mut Log::create(&directory)?)?;
    (run.complete, run.took) = (complete, began.elapsed().as_secs_f64());
    run.write(&directory)?;
    drop(bench);
    cleanup::all();
    ensure!(!samples.is_empty(), "interrupted before the first sample");
    let recorded = [Recorded { run, samples }];
    page::print(&recorded);
    page::write(&recorded, &directory)
}

fn report(runs: &[PathBuf], out: Option<PathBuf>, fill: &[PathBuf]) -> Result<()> {
    let recorded: Vec<Recorded> =
        runs.iter().map(|run| Recorded::read(run)).collect::<Result<_>>()?;
    if !fill.is_empty() {
        let [run] = &recorded[..] else { bail!("--fill takes one run") };
        page::fill(run, fill, &runs[0])?;
    }
    let directory = out.unwrap_or_else(|| match runs {
        [one] => one.clone(),
        _ => "ginnel-bench-compared".into(),
    });
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("making {}", directory.display()))?;
    page::print(&recorded);
    page::write(&recorded, &directory)
}

/// What one reading of the clock takes, in ns.
fn clock_ns() -> f64 {
    let began = Instant::now();
    for _ in 0..10_000 {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / 10_000.0
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The sources, where cargo started this program.
fn repository() -> PathBuf {
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(bench) => {
            Path::new(&bench).ancestors().nth(2).map_or_else(|| ".".into(), Path::to_path_buf)
        }
        None => "/nonexistent".into(),
    }
}
