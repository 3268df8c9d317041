//! `ginnel-demo`: what Ginnel does for programs that know nothing of it, on the machine at hand.
//!
//! Debian's own servers (nginx, redis, memcached, iperf3, Caddy, Prometheus) run in one network
//! namespace and their own clients in another, with a bridge between them in a third: the shape of
//! two machines on a software bridge. Each pair runs plainly and under `ginnel run`, in turn, and one table at
//! the end compares the medians; where that is asked for also through the kernel's sockmap
//! ([`sockmap`]). Then the same between two virtual machines.
//!
//! ```text
//! make demo                          # installs what is missing, builds, runs everything
//! target/release/ginnel-demo --quick --only nginx,redis
//! ```
//!
//! The way through the files: [`args`] → [`place`] (where things run) → [`programs`] (what runs) →
//! [`pair`] (the rounds, in [`local`] over [`child`], or in [`guests`]; [`turns`] where only
//! servers run under Ginnel) → [`report`]. Whatever is made on the way is entered in [`undo`],
//! which takes it back at the end, at Ctrl-C, at SIGTERM and in a panic.
#![forbid(unsafe_code)]

mod args;
mod child;
mod cpus;
mod diagnose;
mod guests;
mod interrupt;
mod local;
mod pair;
mod place;
mod progress;
mod report;
mod share;
mod sockmap;
mod turns;
mod undo;
mod workdir;

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use ginnel_demo::{ports, programs, stats, tools};

use crate::args::Args;
use crate::guests::Guests;
use crate::local::Local;
use crate::pair::{Bench, Carrier};
use crate::place::Place;
use crate::progress::Progress;
use crate::report::{Results, Row};
use crate::sockmap::Held;
use crate::tools::Ginnel;
use crate::workdir::WorkDir;

fn main() -> ExitCode {
    undo::at_panic();
    let args = Args::parse();
    let outcome = interrupt::watch().and_then(|()| demo(&args));
    undo::everything();
    if let Some(code) = interrupt::exit_code() {
        eprintln!("interrupted; everything that was started has been taken back");
        return ExitCode::from(code);
    }
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ginnel-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `println!`, but a reader that has gone (`| head`) is an error to return and no panic.
macro_rules! say {
    ($($text:tt)*) => { writeln!(stdout(), $($text)*).context("cannot write to standard output")? };
}

/// Runs everything that was asked for; says whether all of it worked.
fn demo(args: &Args) -> Result<bool> {
    report::check_writable(&args.json)?;
    place::sweep();
    workdir::sweep();
    let ginnel = if args.plain_only { None } else { Some(Ginnel::find()?) };
    let carriers = Carrier::all(ginnel.is_some(), args.sockmap.is_some());
    let workdir = WorkDir::create()?;
    let sockmap = args.sockmap.as_ref().map(|program| Held::new(program, &workdir)).transpose()?;
    let (place, note) = Place::choose(args.loopback)?;
    if let Some(note) = note {
        say!("{note}");
    }
    let cpus = cpus::pick();
    say!("{}; {}", place.describe(), cpus.describe());

    let programs = programs::selected(&args.only);
    let settings: usize = programs
        .iter()
        .map(|program| program.settings_of(args.further, args.server_only).count())
        .sum();
    let steps = settings * args.rounds() * carriers.len();
    let progress = Progress::new(if args.guests() { 2 * steps } else { steps });
    let local = Local { place: &place, cpus: &cpus };
    let bench = Bench {
        args,
        ginnel: ginnel.as_ref(),
        sockmap: sockmap.as_ref(),
        carriers,
        ground: &local,
        workdir: &workdir,
        progress: &progress,
    };

    let mut rows: Vec<Row> = Vec::new();
    for program in &programs {
        let measured = if args.server_only {
            turns::run(&bench, &local, program.as_ref())
        } else {
            pair::run(&bench, program.as_ref())
        };
        rows.extend(measured?);
    }
    let about_guests =
        args.guests().then(|| in_guests(&bench, &programs, &mut rows, steps)).transpose()?;
    progress.finish();

    let carried = sockmap.map(Held::end);
    let sockmap = carried.as_ref().and_then(|share| share.as_ref().ok()).copied();
    let results = Results { rows, sockmap };
    say!("{}", report::table(&results, args.sockmap.is_some()));
    if let Some(about) = about_guests {
        say!("{about}");
    }
    for line in report::remarks(&results, ginnel.is_some() && !args.server_only) {
        say!("{line}");
    }
    if let Some(share) = sockmap {
        say!("{:.1} % of the bytes of the sockmap's connections went past TCP", share * 100.0);
    }
    report::write_json(&results, &args.json)?;
    say!("the same as JSON: {}", args.json.display());
    carried.transpose()?;
    Ok(results.rows.iter().all(|row| row.failure.is_none()))
}

/// The same between two virtual machines. Returns what is to be said of them.
fn in_guests(
    bench: &Bench<'_>,
    programs: &[Box<dyn programs::Program>],
    rows: &mut Vec<Row>,
    steps: usize,
) -> Result<String> {
    bench.progress.now("two virtual machines: booting");
    match Guests::boot(programs, bench.workdir) {
        Ok(guests) => {
            for program in programs {
                rows.extend(pair::run(&Bench { ground: &guests, ..*bench }, program.as_ref())?);
            }
            Ok(guests.describe())
        }
        Err(error) => {
            interrupt::check()?;
            bench.progress.skip(steps);
            rows.push(Row::left_out("two virtual machines", guests::WORD));
            Ok(format!("guests: left out, as two virtual machines do not run here: {error:#}"))
        }
    }
}
