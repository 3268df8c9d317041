//! Whether the new build is worse in one measure.

use crate::measure::Sample;
use crate::plan::{Measure, Work};
use crate::results::{Verdict, carried};
use crate::rounds::{Series, TOLERANCE};
use ginnel_bench::stats::{Spread, moved, scatter};
use serde::Serialize;

/// A difference up to this share is never called one.
const LEAST: f64 = 0.03;

/// So many times the scatter of the old build's rounds are noise: 95 of 100 rounds lie so near
/// their median.
const SCATTERS: f64 = 2.0;

/// Rounds without which nothing is said.
const FEWEST: usize = 3;

/// One measure by both builds.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row {
    /// The measure.
    pub id: &'static str,
    /// The old build, over the rounds.
    pub old: Option<Spread>,
    /// The new build, over the rounds.
    pub new: Option<Spread>,
    /// New over old, within rounds.
    pub ratio: Option<Spread>,
    /// Up to which difference it is taken for noise, as a share.
    pub noise: f64,
    /// Rounds that have both.
    pub rounds: usize,
    /// What it comes to.
    pub outcome: Outcome,
}

/// How the new build does in one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No difference beyond the noise.
    Same,
    /// Better by more than the noise.
    Better,
    /// Worse by more than the noise.
    Worse,
    /// It seemed worse, and did not when it was measured again.
    Unconfirmed,
    /// The new build's bytes did not go through rings.
    NotAccelerated,
    /// The old build has no samples to compare with, and why: it may not have been able to do it.
    NoBase(String),
    /// The new build has none, and why.
    Failed(String),
    /// Too few rounds in which the processors were equally near each other.
    TooFew,
}

impl Outcome {
    /// Whether the new build is not to be taken as it is.
    pub fn is_bad(&self) -> bool {
        matches!(self, Self::Worse | Self::NotAccelerated | Self::Failed(_))
    }
}

/// What two builds are compared by: of the slowest exchanges their time, else the measure itself.
pub(super) fn value(work: Work, sample: &Sample) -> Option<f64> {
    match work {
        Work::Tail => sample.raw.iter().find_map(|values| values.get("p999_ns").copied()),
        _ => Some(sample.value),
    }
}

pub(super) fn more_is_better(work: Work) -> bool {
    work.is_rate()
        || matches!(work, Work::Stream(_) | Work::GoStream(_) | Work::Memcpy | Work::Both)
}

/// Up to which share a difference is noise, by the rounds of the old build.
pub(super) fn noise(old: &[f64]) -> f64 {
    LEAST.max(SCATTERS * scatter(old))
}

/// Whether the new build is worse: `pairs` are (old, new) of one round.
pub(super) fn outcome(pairs: &[(f64, f64)], more_is_better: bool) -> Outcome {
    let old: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
    let slower = pairs.iter().map(|&(old, new)| if more_is_better { old / new } else { new / old });
    match Spread::of(slower) {
        Some(slower) if pairs.len() >= FEWEST => match noise(&old) {
            noise if slower.median > 1.0 + noise => Outcome::Worse,
            noise if 1.0 / slower.median > 1.0 + noise => Outcome::Better,
            _ => Outcome::Same,
        },
        _ => Outcome::TooFew,
    }
}

pub(super) fn judge(measure: &Measure, old: &Series, new: &Series) -> Row {
    let values = |series: &Series| {
        Spread::of(series.taken.iter().filter_map(|taken| value(measure.work, &taken.sample)))
    };
    // Of rounds that have both, with the processors as near each other.
    let pairs: Vec<(f64, f64)> = old
        .taken
        .iter()
        .filter_map(|before| {
            let after = new.taken.iter().find(|taken| taken.round == before.round)?;
            let pair = (value(measure.work, &before.sample)?, value(measure.work, &after.sample)?);
            (!moved(before.limit_ns(), after.limit_ns(), TOLERANCE)).then_some(pair)
        })
        .collect();
    let failure =
        |series: &Series| series.failures.last().cloned().filter(|_| series.taken.is_empty());
    let outcome = match (failure(old), failure(new)) {
        (_, Some(why)) => Outcome::Failed(why),
        (Some(why), None) => Outcome::NoBase(why),
        _ if pairs.is_empty() => Outcome::TooFew,
        _ if carried(&[Some(new)]) != Verdict::Pass => Outcome::NotAccelerated,
        _ if carried(&[Some(old)]) != Verdict::Pass => Outcome::NoBase("not accelerated".into()),
        _ => outcome(&pairs, more_is_better(measure.work)),
    };
    Row {
        id: measure.id,
        old: values(old),
        new: values(new),
        ratio: Spread::of(pairs.iter().map(|(old, new)| new / old)),
        noise: noise(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>()),
        rounds: pairs.len(),
        outcome,
    }
}
