//! `make conformance`: other people's test suites, plainly and under the shim, as a table and as
//! `docs/compatibility.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ginnel_tests::conformance::page::{self, Said};
use ginnel_tests::conformance::{ALL, Outcome, SERVERS, Suite, Way, compare};

/// Runs other people's test suites plainly and under the shim, and compares them test by test.
#[derive(Parser)]
struct Args {
    /// Only these suites, by name; the page keeps what earlier runs said of the others
    #[arg(long, value_delimiter = ',', value_name = "SUITES")]
    only: Vec<String>,
    /// Only parts whose name contains this; nothing is written down then
    #[arg(long, value_name = "TEXT")]
    part: Option<String>,
    /// With wake-ups by tokens, rings of 4 KiB and no spinning, rather than the usual settings: the
    /// page's second table
    #[arg(long)]
    hard: bool,
    /// Where suites are fetched and built: a folder that every user may enter [default:
    /// target/conformance]
    #[arg(long, value_name = "FOLDER")]
    base: Option<PathBuf>,
    /// Runs nothing, and writes the page from what earlier runs left in the folder
    #[arg(long, requires = "page")]
    no_run: bool,
    /// Writes the page here
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

fn main() -> ExitCode {
    ginnel_tests::exit_on_panic();
    ginnel_tests::exit_on_interrupt();
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all that was asked for ran, and nothing was worse.
fn run(args: &Args) -> Result<bool> {
    check_names(args)?;
    let base = args
        .base
        .clone()
        .unwrap_or_else(|| ginnel_tests::build::release_dir().with_file_name("conformance"));
    let mut good = true;
    let before =
        args.page.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let (mut rows, mut hard) = (Vec::new(), Vec::new());
    for (name, source, prepare) in ALL {
        let dir = base.join(name.to_lowercase().replace(' ', "-"));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let (usual, hardly) = (dir.join("outcome.json"), dir.join("outcome-hard.json"));
        let record = if args.hard { &hardly } else { &usual };
        if !args.no_run && (args.only.is_empty() || args.only.iter().any(|only| only == name)) {
            eprintln!("{name}: fetched and built where it is not yet there");
            if args.part.is_none() {
                let _ = fs::remove_file(record);
            }
            let outcome = prepare(&dir).and_then(|suite| compared(args, name, suite));
            match outcome {
                Ok(outcome) if args.part.is_some() => {
                    good &= is_good(name, &outcome);
                    println!("{}", page::table(&[(name, source, Some(Said::Outcome(outcome)))]));
                    continue;
                }
                Ok(outcome) => {
                    good &= is_good(name, &outcome);
                    fs::write(record, serde_json::to_string_pretty(&outcome)?)
                        .with_context(|| record.display().to_string())?;
                }
                Err(error) => {
                    good = false;
                    eprintln!("{name}: left out: {error:#}");
                }
            }
        }
        rows.push((
            name,
            source,
            read(&usual).map(Said::Outcome).or_else(|| Said::before(&before, name)),
        ));
        hard.push((
            name,
            source,
            read(&hardly).map(Said::Outcome).or_else(|| Said::before_hard(&before, name)),
        ));
    }
    if args.part.is_none() {
        println!("{}", page::table(if args.hard { &hard } else { &rows }));
        if let Some(path) = &args.page {
            fs::write(path, page::page(&rows, &hard))
                .with_context(|| path.display().to_string())?;
            println!("written: {}", path.display());
        }
    }
    Ok(good)
}

/// Only suites that there are may be asked for.
fn check_names(args: &Args) -> Result<()> {
    let names = ALL.map(|(name, ..)| name);
    for name in &args.only {
        ensure!(
            names.contains(&name.as_str()),
            "no suite {name:?}; there are: {}",
            names.join(", ")
        );
    }
    Ok(())
}

/// Runs the parts of a suite that were asked for.
fn compared(args: &Args, name: &str, mut suite: Suite) -> Result<Outcome> {
    let way = if args.hard { Way::Hard } else { Way::Usual };
    suite.parts.retain(|part| args.part.as_ref().is_none_or(|text| part.name.contains(text)));
    ensure!(!suite.parts.is_empty(), "it has no such part");
    compare(&suite, way, &|line| eprintln!("{name}: {line}"))
}

/// All of it was compared, and nothing is worse; and of our own scripts everything works, where
/// their programs are.
fn is_good(name: &str, outcome: &Outcome) -> bool {
    outcome.missing.is_empty() && outcome.worse == 0 && (name != SERVERS || outcome.failed == 0)
}

/// What the last run of a suite brought.
fn read(record: &Path) -> Option<Outcome> {
    serde_json::from_str(&fs::read_to_string(record).ok()?).ok()
}
