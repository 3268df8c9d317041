//! One row: its value of each round, and what it comes to.

use super::target_text;
use crate::plan::{Against, Figure, MEASURES, Measure, Work};
use crate::rounds::{Series, TOLERANCE, Taken};
use ginnel_bench::stats::{Spread, moved};
use serde::Serialize;

/// Share of the bytes that must have gone through rings for a sample to count as Ginnel's.
const SHARE: f64 = 0.9;

/// One row.
#[derive(Serialize)]
pub struct Row {
    /// Part of the table.
    pub group: &'static str,
    /// Name of the figure.
    pub id: String,
    #[serde(skip)]
    pub(super) work: Option<Work>,
    /// Target, in words.
    pub target: String,
    /// Ratio (or difference, or count) over the rounds.
    pub value: Option<Spread>,
    /// The measure itself.
    pub measure: Option<Spread>,
    /// What it was compared with.
    pub base: Option<Spread>,
    /// Rounds that count.
    pub rounds: usize,
    /// Smallest share of bytes through rings; for Ginnel's rows, and past TCP for the sockmap's,
    /// where reported.
    pub share: Option<f64>,
    /// CPU of both processes, in percent of a core.
    pub cpu_percent: Option<Spread>,
    /// Verdict.
    pub verdict: Verdict,
}

/// What a row comes to.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The target was reached.
    Pass,
    /// It was not.
    Miss,
    /// There is no target.
    Reference,
    /// Too few bytes went through rings, or past TCP by the sockmap: whatever was measured, it was
    /// not what it is called.
    NotAccelerated,
    /// Nothing reported what was carried how.
    Unverified,
    /// There is no sample, and why.
    Failed(String),
}

impl Row {
    /// Makes a row of the samples.
    pub fn of(figure: &Figure, all: &[Series]) -> Self {
        let series = |id| all.iter().find(|series| series.id == id);
        let (own, base) = (series(figure.measure), figure.base().map(series));
        let taken = own.map_or(&[][..], |series| &series.taken);
        // (value, own, base) of every round that has all of them.
        let values: Vec<(f64, f64, Option<f64>)> = taken
            .iter()
            .filter_map(|taken| {
                let other = match base {
                    Some(base) => {
                        Some(base?.taken.iter().find(|other| other.round == taken.round)?)
                    }
                    None => None,
                };
                // Beside a peer that was measured on processors nearer each other, or farther
                // apart, nothing can be said.
                if figure.needs_peer()
                    && other
                        .is_some_and(|other| moved(taken.limit_ns(), other.limit_ns(), TOLERANCE))
                {
                    return None;
                }
                combine(figure.against, taken, other)
            })
            .collect();
        let value = Spread::of(values.iter().map(|v| v.0));
        Self {
            group: figure.group,
            id: figure.id(),
            // Times, whatever the work is measured in.
            work: measure_of(figure)
                .filter(|_| figure.against.said().is_none())
                .map(|measure| measure.work),
            target: target_text(figure),
            value,
            measure: Spread::of(values.iter().map(|v| v.1)),
            base: Spread::of(values.iter().filter_map(|v| v.2)),
            rounds: values.len(),
            share: measure_of(figure)
                .filter(|measure| measure.carrier.is_counted())
                .and_then(|measure| share(measure, taken)),
            cpu_percent: Spread::of(taken.iter().filter_map(|taken| taken.sample.cpu_percent)),
            verdict: verdict(figure, value, &[own, base.flatten()]),
        }
    }
}

/// A figure's value in one round, what was measured and what it is compared with; None where a part
/// of it was not reported.
fn combine(
    against: Against,
    taken: &Taken,
    other: Option<&Taken>,
) -> Option<(f64, f64, Option<f64>)> {
    let (own, raw) = (taken.sample.value, &taken.sample.raw);
    let theirs = other.map(|other| other.sample.value);
    Some(match against {
        Against::Limit => (own / taken.limit_ns(), own, Some(taken.limit_ns())),
        Against::Measure(_) => (own / theirs?, own, theirs),
        Against::Above(_) => (own - theirs?, own, theirs),
        Against::Messages => {
            let messages: f64 = raw.iter().filter_map(|values| values.get("messages")).sum();
            (taken.sample.report?.wakes() as f64 / messages, own, None)
        }
        Against::CostOf(_) => (cpu_of_a_byte(taken)? / cpu_of_a_byte(other?)?, own, theirs),
        Against::SetUpOf(_) | Against::TeardownOf(_) => {
            let key = against.said()?;
            let (own, theirs) = (said(taken, key)?, said(other?, key)?);
            (own / theirs, own, Some(theirs))
        }
        Against::Median => (said(taken, "p999_ns")? / own, own, None),
    })
}

/// What one of the ends said of itself.
fn said(taken: &Taken, key: &str) -> Option<f64> {
    taken.sample.raw.iter().find_map(|values| values.get(key)).copied()
}

/// CPU time of both ends, in ns.
fn cpu_of_a_byte(taken: &Taken) -> Option<f64> {
    let all = |key| taken.sample.raw.iter().filter_map(move |values| values.get(key));
    let bytes = all("bytes").next().filter(|&&bytes| bytes > 0.0)?;
    Some(all("cpu_ns").sum::<f64>() / bytes)
}

fn measure_of(figure: &Figure) -> Option<&'static Measure> {
    measure_named(figure.measure)
}

fn measure_named(id: &str) -> Option<&'static Measure> {
    MEASURES.iter().find(|measure| measure.id == id)
}

/// The smallest share of any sample; None where a report is missing. Idle connections carry too few
/// bytes for their share to say anything: there it is the share of connections that were upgraded,
/// at both ends. Connections that end after one exchange are not to move: they are Ginnel's as they
/// are.
pub(super) fn share(measure: &Measure, taken: &[Taken]) -> Option<f64> {
    let idle = match measure.work {
        Work::Idle => Some(measure.carrier.idle_connections()),
        Work::Crowd(connections) => Some(connections as u64),
        _ => None,
    };
    let shares = taken.iter().map(|taken| {
        let report = taken.sample.report.filter(|report| report.processes >= 2)?;
        if measure.work == Work::Connect {
            return Some(1.0);
        }
        Some(idle.map_or_else(
            || report.share(),
            |connections| (report.upgrades as f64 / (2 * connections) as f64).min(1.0),
        ))
    });
    shares.collect::<Option<Vec<f64>>>()?.into_iter().min_by(f64::total_cmp)
}

/// Whether the samples of all these measures went the way that they are to measure: `Pass`, or what
/// they are instead.
pub fn carried(all: &[Option<&Series>]) -> Verdict {
    for series in all.iter().flatten() {
        let Some(measure) = measure_named(series.id).filter(|measure| measure.carrier.is_counted())
        else {
            continue;
        };
        match share(measure, &series.taken) {
            None => return Verdict::Unverified,
            Some(share) if share < SHARE => return Verdict::NotAccelerated,
            Some(_) => {}
        }
    }
    Verdict::Pass
}

pub(super) fn verdict(
    figure: &Figure,
    value: Option<Spread>,
    needed: &[Option<&Series>],
) -> Verdict {
    let way = carried(needed);
    match value {
        // What was taken cannot be made a figure of without its report.
        None if needed.iter().flatten().all(|series| !series.taken.is_empty())
            && way == Verdict::Unverified =>
        {
            way
        }
        None => Verdict::Failed(reason(needed)),
        Some(_) if way != Verdict::Pass => way,
        Some(value) => match figure.target.reached(value.median) {
            None => Verdict::Reference,
            Some(true) => Verdict::Pass,
            Some(false) => Verdict::Miss,
        },
    }
}

pub(super) fn reason(needed: &[Option<&Series>]) -> String {
    let failures = needed
        .iter()
        .flatten()
        .filter(|series| series.taken.is_empty())
        .flat_map(|series| &series.failures);
    failures
        .last()
        .cloned()
        .unwrap_or_else(|| "the limit moved in every sample, or between the two".into())
}
