//! Interleaving: every round takes a sample of every cell; those of one pattern and size one after
//! another, in another order each round.

use crate::plan::Cell;
use crate::record::{Log, Sample};
use crate::sample::Bench;
use anyhow::Result;
use ginnel_bench::machine::Load;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Set by Ctrl-C: no further sample is begun.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// Failures after which a cell is given up: a hang costs its whole time limit.
const FAILURES: usize = 2;

/// Runs all rounds, and gives the samples and whether all were taken.
pub fn run(
    bench: &Bench,
    cells: &[Cell],
    rounds: u32,
    log: &mut Log,
) -> Result<(Vec<Sample>, bool)> {
    let bar = ProgressBar::new(u64::from(rounds) * cells.len() as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}  {eta} left")?);
    let mut samples = Vec::new();
    let mut failures: HashMap<Cell, usize> = HashMap::new();
    for round in 1..=rounds {
        for group in cells.chunk_by(|a, b| (a.pattern, a.x) == (b.pattern, b.x)) {
            for i in 0..group.len() {
                let cell = group[(i + round as usize) % group.len()];
                if STOP.load(Relaxed) {
                    bar.abandon();
                    return Ok((samples, false));
                }
                bar.set_message(format!(
                    "{} {} {}",
                    cell.pattern.name(),
                    cell.x,
                    cell.transport.name()
                ));
                if failures.get(&cell).is_none_or(|&count| count < FAILURES) {
                    let load = Load::now(0);
                    let mut sample = bench.sample(round, cell);
                    sample.foreign_percent = Some(load.foreign_percent(0));
                    sample.round();
                    if sample.error.is_some() {
                        *failures.entry(cell).or_default() += 1;
                    }
                    log.add(&sample)?;
                    samples.push(sample);
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok((samples, true))
}
