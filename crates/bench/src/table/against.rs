//! Another build beside this one: each of Ginnel's measures is taken with both in turn in every
//! round, and the new build must not be slower by more than the noise.
//!
//! The judgement is of ratios within rounds, which drift and neighbours leave alone. A new build is
//! worse where the median of them is, by more than 3 % and by more than twice what the old build's
//! own rounds lie apart ([`noise`]; the new build's rounds are not asked: they could excuse
//! themselves). Of some thirty rows one may come out so by chance: what seems worse is measured a
//! second time, and only counts if it is so again.

mod judge;

use crate::measure::Bench;
use crate::plan::{Figure, MEASURES, Measure, Work};
use crate::results::{quantity, short};
use crate::rounds::{Series, progress, take};
use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Color, Table, presets::UTF8_FULL_CONDENSED};
use ginnel_bench::ginnel::Ginnel;
use ginnel_bench::machine::Machine;
use ginnel_bench::stats::Spread;
use judge::judge;
pub use judge::{Outcome, Row};
use serde::Serialize;

/// Rounds if the command line names none: the judgement is by medians.
pub const ROUNDS: usize = 7;
/// What a comparison gives.
#[derive(Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: Machine,
    /// The command line's arguments.
    pub arguments: Vec<String>,
    /// One for each measure.
    pub rows: Vec<Row>,
    /// The old build's samples.
    pub old: Vec<Series>,
    /// The new build's samples.
    pub new: Vec<Series>,
}

/// Those of Ginnel's measures that these figures need and two builds can be compared by: the cost
/// of idle connections is so near 0 that a ratio says nothing. `no_veth`: without those over veth.
pub fn measures(figures: &[&Figure], no_veth: bool) -> Vec<&'static Measure> {
    let is_needed =
        |id| figures.iter().any(|figure| figure.measure == id || figure.base() == Some(id));
    let is_ours = |measure: &&Measure| {
        measure.carrier.is_ginnel() && !measure.carrier.is_guests() && measure.work != Work::Idle
    };
    let is_asked = |measure: &&Measure| !no_veth || !measure.carrier.is_veth();
    MEASURES
        .iter()
        .filter(is_ours)
        .filter(is_asked)
        .filter(|measure| is_needed(measure.id))
        .collect()
}

/// Measures both builds, of which `bench` holds the new one; what seems worse a second time.
pub fn run(
    bench: &mut Bench,
    old: Ginnel,
    machine: Machine,
    measures: &[&'static Measure],
    rounds: usize,
) -> Result<Comparison> {
    let mut other = Ok(old);
    let (old, new) = both(bench, &mut other, measures, rounds, "")?;
    let mut rows: Vec<Row> = measures
        .iter()
        .zip(old.iter().zip(&new))
        .map(|(measure, (old, new))| judge(measure, old, new))
        .collect();
    let seems_worse = |measure: &&&Measure| {
        rows.iter().any(|row| row.id == measure.id && row.outcome == Outcome::Worse)
    };
    let doubtful: Vec<&Measure> = measures.iter().filter(seems_worse).copied().collect();
    if !doubtful.is_empty() {
        let (old, new) = both(bench, &mut other, &doubtful, rounds, ", again")?;
        for (measure, (old, new)) in doubtful.iter().zip(old.iter().zip(&new)) {
            if let Some(row) = rows.iter_mut().find(|row| row.id == measure.id) {
                *row = confirmed(judge(measure, old, new));
            }
        }
    }
    Ok(Comparison { machine, arguments: std::env::args().skip(1).collect(), rows, old, new })
}

fn both(
    bench: &mut Bench,
    other: &mut Result<Ginnel, String>,
    measures: &[&'static Measure],
    rounds: usize,
    again: &str,
) -> Result<(Vec<Series>, Vec<Series>)> {
    let none = || measures.iter().map(|measure| Series::new(measure)).collect::<Vec<_>>();
    let (mut old, mut new) = (none(), none());
    let mut limit = bench.limit()?;
    for round in 1..=rounds {
        for (measure, (old, new)) in measures.iter().zip(old.iter_mut().zip(&mut new)) {
            progress(&format!("round {round} of {rounds}{again}: {}", measure.id));
            // The one that comes first is the other the next time: it finds another machine than
            // the second.
            for is_old in [round % 2 == 1, round % 2 == 0] {
                if is_old {
                    std::mem::swap(&mut bench.ginnel, other);
                }
                let taken = take(
                    bench,
                    measure,
                    round,
                    &mut limit,
                    if is_old { &mut *old } else { &mut *new },
                );
                if is_old {
                    std::mem::swap(&mut bench.ginnel, other);
                }
                taken?;
            }
        }
    }
    progress("");
    Ok((old, new))
}

/// What was measured again because it seemed worse.
fn confirmed(again: Row) -> Row {
    let outcome = match again.outcome {
        Outcome::Same | Outcome::Better => Outcome::Unconfirmed,
        outcome => outcome,
    };
    Row { outcome, ..again }
}

impl Comparison {
    /// Whether the new build does as well as the old one.
    pub fn is_good(&self) -> bool {
        !self.rows.iter().any(|row| row.outcome.is_bad())
    }

    /// Prints the table.
    pub fn print(&self) {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header(["measure", "old", "new", "new : old (min–max)", "noise", "rounds", ""]);
        for row in &self.rows {
            table.add_row(cells(row));
        }
        for column in 1..=5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        println!("{}\n{table}", self.machine.line());
        for row in &self.rows {
            if let Outcome::Failed(why) | Outcome::NoBase(why) = &row.outcome {
                println!("{}: {why}", row.id);
            }
        }
        match self.rows.iter().filter(|row| row.outcome.is_bad()).count() {
            0 => println!("The new build is nowhere worse by more than the noise."),
            n => println!("The new build is worse in {n} of {} measures.", self.rows.len()),
        }
    }

    /// Keeps it as JSON.
    pub fn write(&self, path: &std::path::Path) -> Result<()> {
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("writing {}", path.display()))
    }
}

fn cells(row: &Row) -> Vec<Cell> {
    let work = MEASURES.iter().find(|measure| measure.id == row.id).map(|measure| measure.work);
    let absolute =
        |spread: Option<Spread>| spread.map_or("–".into(), |s| quantity(work, s.median));
    let (outcome, color) = match &row.outcome {
        Outcome::Same => ("", Color::Reset),
        Outcome::Better => ("better", Color::Green),
        Outcome::Worse => ("worse", Color::Red),
        Outcome::Unconfirmed => ("worse once, not again", Color::Yellow),
        Outcome::NotAccelerated => ("not accelerated", Color::Red),
        Outcome::NoBase(_) => ("no old figure", Color::Yellow),
        Outcome::Failed(_) => ("failed", Color::Red),
        Outcome::TooFew => ("too few rounds", Color::Yellow),
    };
    vec![
        Cell::new(row.id),
        Cell::new(absolute(row.old)),
        Cell::new(absolute(row.new)),
        Cell::new(row.ratio.map_or("–".into(), |s| {
            format!("{} ({}–{})", short(s.median), short(s.min), short(s.max))
        })),
        Cell::new(format!("{:.0} %", row.noise * 100.0)),
        Cell::new(row.rounds),
        Cell::new(outcome).fg(color),
    ]
}

#[cfg(test)]
mod tests {
    use super::judge::{more_is_better, outcome};
    use super::*;
    use crate::measure::Sample;
    use crate::plan::Carrier;
    use crate::rounds::Taken;
    use ginnel_bench::ginnel::Report;

    /// Both builds' rounds of a time.
    fn times(old: &[f64], new: &[f64]) -> Outcome {
        outcome(&old.iter().copied().zip(new.iter().copied()).collect::<Vec<_>>(), false)
    }

    const QUIET: [f64; 5] = [100.0, 101.0, 99.0, 100.0, 100.5];

    #[test]
    fn a_build_is_as_good_as_itself() {
        assert_eq!(times(&QUIET, &QUIET), Outcome::Same);
        assert_eq!(times(&QUIET, &QUIET.map(|v| v * 1.025)), Outcome::Same);
    }

    #[test]
    fn five_percent_are_worse_on_a_quiet_machine_and_noise_on_another() {
        assert_eq!(times(&QUIET, &QUIET.map(|v| v * 1.05)), Outcome::Worse);
        assert_eq!(times(&QUIET, &QUIET.map(|v| v / 1.05)), Outcome::Better);
        let noisy = [100.0, 110.0, 90.0, 105.0, 94.0];
        assert_eq!(times(&noisy, &noisy.map(|v| v * 1.05)), Outcome::Same);
        assert_eq!(times(&noisy, &noisy.map(|v| v * 1.5)), Outcome::Worse);
    }

    #[test]
    fn of_rates_less_is_worse() {
        let pairs = QUIET.map(|rate| (rate, rate * 0.9));
        assert_eq!(outcome(&pairs, true), Outcome::Worse);
        assert_eq!(outcome(&pairs.map(|(old, new)| (new, old)), true), Outcome::Better);
        assert!(more_is_better(Work::Stream(64)) && !more_is_better(Work::Tail));
    }

    #[test]
    fn one_wild_round_neither_condemns_nor_excuses() {
        let with = |first: f64, factor: f64| {
            let mut all = QUIET.map(|v| v * factor);
            all[0] = first;
            all
        };
        assert_eq!(times(&QUIET, &with(900.0, 1.0)), Outcome::Same);
        assert_eq!(times(&with(900.0, 1.0), &QUIET.map(|v| v * 1.1)), Outcome::Worse);
        // Nor does it excuse the new build that its own rounds lie far apart.
        assert_eq!(times(&QUIET, &[100.0, 150.0, 160.0, 101.0, 140.0]), Outcome::Worse);
    }

    #[test]
    fn few_rounds_say_nothing() {
        assert_eq!(times(&QUIET[..2], &[200.0, 200.0]), Outcome::TooFew);
        assert!(!Outcome::TooFew.is_bad());
    }

    fn series(values: &[f64], limit: f64, ring: u64) -> Series {
        let report =
            Some(Report { ring_in: ring, tcp_in: 100 - ring, processes: 2, ..Report::default() });
        let sample = |value| Sample { value, cpu_percent: None, report, raw: vec![] };
        let taken = values.iter().enumerate().map(|(i, &value)| Taken {
            round: i + 1,
            limit_before_ns: limit,
            limit_after_ns: limit,
            foreign_percent: 0.0,
            sample: sample(value),
        });
        Series {
            id: "ginnel/blocking",
            taken: taken.collect(),
            discarded: vec![],
            failures: vec![],
        }
    }

    const MEASURE: Measure = Measure {
        id: "ginnel/blocking",
        carrier: Carrier::Ginnel,
        work: Work::PingPong("blocking"),
    };

    #[test]
    fn builds_are_compared_where_the_processors_lie_as_near() {
        let row = judge(
            &MEASURE,
            &series(&QUIET, 60.0, 100),
            &series(&QUIET.map(|v| v * 2.0), 61.0, 100),
        );
        assert_eq!((row.outcome, row.rounds), (Outcome::Worse, 5));
        let row = judge(
            &MEASURE,
            &series(&QUIET, 60.0, 100),
            &series(&QUIET.map(|v| v * 2.0), 180.0, 100),
        );
        assert_eq!((row.outcome, row.rounds), (Outcome::TooFew, 0));
    }

    #[test]
    fn a_build_that_stays_on_tcp_or_fails_is_worse_and_an_old_one_is_no_base() {
        let (good, on_tcp) = (series(&QUIET, 60.0, 100), series(&QUIET, 60.0, 10));
        let mut failed = series(&[], 60.0, 100);
        failed.failures.push("why".into());
        assert_eq!(judge(&MEASURE, &good, &on_tcp).outcome, Outcome::NotAccelerated);
        assert_eq!(
            judge(&MEASURE, &on_tcp, &good).outcome,
            Outcome::NoBase("not accelerated".into())
        );
        assert_eq!(judge(&MEASURE, &good, &failed).outcome, Outcome::Failed("why".into()));
        assert_eq!(judge(&MEASURE, &failed, &good).outcome, Outcome::NoBase("why".into()));
    }

    #[test]
    fn what_is_worse_only_once_is_not_held_against_it() {
        let row = |factor: f64| {
            judge(
                &MEASURE,
                &series(&QUIET, 60.0, 100),
                &series(&QUIET.map(|v| v * factor), 60.0, 100),
            )
        };
        assert_eq!(confirmed(row(1.0)).outcome, Outcome::Unconfirmed);
        assert_eq!(confirmed(row(1.2)).outcome, Outcome::Worse);
        assert!(!Outcome::Unconfirmed.is_bad());
    }
}
