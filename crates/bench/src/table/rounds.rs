//! Interleaving: in every round each measure is taken once, with the limit before and after it.
//!
//! A sample during which the limit moved is discarded and taken again, a few times at most: the
//! distance of the cores changes under a virtual machine, and other work comes and goes.

use crate::measure::{Bench, Sample};
use crate::plan::Measure;
use ginnel_bench::machine::Load;
use ginnel_bench::stats::moved;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// How far the limit may move during a sample (0.25: 25 %).
pub const TOLERANCE: f64 = 0.25;
const ATTEMPTS: usize = 4;
/// Failures after which a measure is given up: a hang costs its whole time limit.
const FAILURES: usize = 2;

/// A sample that counts, with the limit around it.
#[derive(Serialize)]
pub struct Taken {
    /// Number of the round, from 1.
    pub round: usize,
    /// The limit just before, in ns.
    pub limit_before_ns: f64,
    /// The limit just after, in ns.
    pub limit_after_ns: f64,
    /// CPU time that other processes took meanwhile, in percent of a core.
    pub foreign_percent: f64,
    /// The sample.
    #[serde(flatten)]
    pub sample: Sample,
}

impl Taken {
    /// The limit around the sample, in ns.
    pub fn limit_ns(&self) -> f64 {
        (self.limit_before_ns + self.limit_after_ns) / 2.0
    }
}

/// Rounds of the measures that are taken more often, for one of the others'.
const OFTEN: usize = 3;

/// All samples of one measure.
#[derive(Serialize)]
pub struct Series {
    /// The measure.
    pub id: &'static str,
    /// Those that count, at most one a round.
    pub taken: Vec<Taken>,
    /// Those during which the limit moved.
    pub discarded: Vec<Taken>,
    /// Why samples failed.
    pub failures: Vec<String>,
}

impl Series {
    /// Without samples yet.
    pub fn new(measure: &Measure) -> Self {
        Self { id: measure.id, taken: vec![], discarded: vec![], failures: vec![] }
    }
}

/// Takes one sample of a measure, unless it has failed too often; again while the limit moves, a
/// few times at most. `limit` is the one just before, and then that just after.
pub fn take(
    bench: &Bench,
    measure: &Measure,
    round: usize,
    limit: &mut f64,
    series: &mut Series,
) -> anyhow::Result<()> {
    for _ in 0..ATTEMPTS {
        if series.failures.len() >= FAILURES {
            break;
        }
        let load = Load::now(bench.guest_ticks());
        match bench.sample(measure) {
            Ok(sample) => {
                let foreign_percent = load.foreign_percent(bench.guest_ticks());
                let after = bench.limit()?;
                let taken = Taken {
                    round,
                    limit_before_ns: *limit,
                    limit_after_ns: after,
                    foreign_percent,
                    sample,
                };
                let unsteady = moved(*limit, after, TOLERANCE);
                *limit = after;
                if !unsteady {
                    series.taken.push(taken);
                    break;
                }
                series.discarded.push(taken);
            }
            Err(error) => {
                series.failures.push(format!("{error:#}"));
                *limit = bench.limit()?;
                break;
            }
        }
    }
    Ok(())
}

/// Runs all rounds; what [`Measure::more_often`] says is taken in [`OFTEN`] rounds for each of the
/// others'.
pub fn run(
    bench: &Bench,
    measures: &[&'static Measure],
    rounds: usize,
) -> anyhow::Result<Vec<Series>> {
    let mut all: Vec<Series> = measures.iter().map(|measure| Series::new(measure)).collect();
    let mut limit = bench.limit()?;
    let often = if measures.iter().any(|measure| measure.more_often()) { OFTEN } else { 1 };
    let rounds = rounds * often;
    for round in 1..=rounds {
        let of_all = (round - 1) % often == 0;
        for (measure, series) in
            measures.iter().zip(&mut all).filter(|(measure, _)| of_all || measure.more_often())
        {
            progress(&format!("round {round} of {rounds}: {}", measure.id));
            take(bench, measure, round, &mut limit, series)?;
        }
    }
    progress("");
    Ok(all)
}

/// One line that replaces itself, where someone is looking.
pub fn progress(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[K{text}");
        let _ = out.flush();
    }
}
