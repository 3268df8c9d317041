//! Random programs, plainly and under the shim, every answer compared. See
//! `ginnel_tests::differential`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ginnel_tests::differential::{Mode, Script, Search, Verdict, judge_file, search};
use ginnel_tests::{exit_on_interrupt, exit_on_panic, fresh_seed};

/// Runs random programs plainly and under the shim, and compares every answer.
#[derive(Parser)]
struct Args {
    /// For how long to begin new seeds [default: without --seeds and --seed, 60]
    #[arg(long)]
    seconds: Option<u64>,
    /// These seeds: FIRST..END, without END
    #[arg(long, value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// This seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// In this mode alone: fifo, no-spin, tokens, tiny, deaf, chaos, idle or plain [default: fifo
    /// and one of those up to chaos, in turn]
    #[arg(long, value_parser = |name: &str| Mode::named(name).ok_or("no such mode"))]
    mode: Option<Mode>,
    /// Runs the script in FILE, in every mode or in --mode
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Prints the script of --seed, and runs nothing
    #[arg(long)]
    print: bool,
    /// Scripts for two processes, of which none forked the other
    #[arg(long)]
    between: bool,
    /// How many at once
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// How many seeds of each kind of difference to make small
    #[arg(long, default_value_t = 1)]
    minimise: usize,
    /// Kinds of difference to pass over: how their names in the summary begin; may be given again
    #[arg(long)]
    ignore: Vec<String>,
    /// Where small scripts are written
    #[arg(long, default_value = "target/differential")]
    to: PathBuf,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parts.ok_or_else(|| "FIRST..END, two numbers".to_owned())
}

fn replay(args: &Args, file: &std::path::Path) -> ExitCode {
    let mut worst = ExitCode::SUCCESS;
    for (script, mode, verdict) in judge_file(file, args.mode) {
        let (word, found) = match verdict {
            Verdict::Same => ("same", None),
            Verdict::Limits(_) => ("differs by a known limit", None),
            Verdict::Open(found) => ("open", Some(found)),
            Verdict::Seldom(found) => ("seldom", Some(found)),
            Verdict::Differs(found) => {
                worst = ExitCode::FAILURE;
                ("differs", Some(found))
            }
        };
        println!("{}: {word}", mode.name);
        if let Some(found) = found {
            let step = script.steps.get(found.at).map_or("the end", String::as_str);
            println!("  {step}\n    plain   {}\n    carried {}", found.plain, found.carried);
        }
    }
    worst
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_on_panic();
    exit_on_interrupt();
    if let Some(file) = &args.replay {
        return replay(&args, file);
    }
    let given = args.seed.map(|seed| (seed, seed + 1)).or(args.seeds);
    let seeds = given.unwrap_or_else(|| {
        let first = fresh_seed();
        (first, first + (1 << 40))
    });
    if args.print {
        let script = if args.between { Script::between } else { Script::of_seed };
        (seeds.0..seeds.1).for_each(|seed| print!("{}", script(seed).text()));
        return ExitCode::SUCCESS;
    }
    let seconds = args.seconds.or(given.is_none().then_some(60));
    eprintln!("seeds from {}", seeds.0);
    let summary = search(&Search {
        seeds,
        limit: seconds.map(Duration::from_secs),
        mode: args.mode,
        between: args.between,
        jobs: args.jobs,
        minimised: args.minimise,
        to: args.to,
        ignored: args.ignore,
        says: true,
    });
    println!("{summary}");
    if summary.differing() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
