//! Samples made into figures: the median of the rounds with its spread, ratios within a round,
//! differences that are larger than the noise.

use crate::args::{Pattern, Transport};
use crate::plan::Cell;
use crate::record::{Recorded, Sample};
use ginnel_bench::stats::Spread;
use std::collections::BTreeMap;

/// The samples of a run by what they measured.
pub struct Cells<'a>(BTreeMap<Cell, Vec<&'a Sample>>);

impl<'a> Cells<'a> {
    /// Sorts a run's samples.
    pub fn of(run: &'a Recorded) -> Self {
        let mut cells: BTreeMap<Cell, Vec<&Sample>> = BTreeMap::new();
        for sample in &run.samples {
            if let Some(cell) = sample.cell() {
                cells.entry(cell).or_default().push(sample);
            }
        }
        Self(cells)
    }

    /// What was measured of a pattern, and over what.
    pub fn transports(&self, pattern: Pattern) -> Vec<Transport> {
        let mut found: Vec<Transport> = self
            .0
            .keys()
            .filter(|cell| cell.pattern == pattern)
            .map(|cell| cell.transport)
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// The values of what varies in a pattern.
    pub fn xs(&self, pattern: Pattern) -> Vec<usize> {
        let mut found: Vec<usize> =
            self.0.keys().filter(|cell| cell.pattern == pattern).map(|cell| cell.x).collect();
        found.dedup();
        found
    }

    /// All cells.
    pub fn all(&self) -> impl Iterator<Item = Cell> {
        self.0.keys().copied()
    }

    /// The samples of a cell, failed ones too.
    pub fn samples(&self, cell: Cell) -> &[&'a Sample] {
        self.0.get(&cell).map_or(&[], Vec::as_slice)
    }

    /// Median and spread over the rounds of something that a sample has. None where no sample has
    /// it.
    pub fn spread(&self, cell: Cell, what: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.samples(cell).iter().filter_map(|sample| what(sample)))
    }

    /// The same of the figure itself.
    pub fn value(&self, cell: Cell) -> Option<Spread> {
        self.spread(cell, |sample| sample.value)
    }

    /// How many times better than `base` a cell is in the same round, median and spread over the
    /// rounds: more bytes, or less time.
    pub fn times_better(&self, cell: Cell, base: Cell) -> Option<Spread> {
        let ratios = self.samples(cell).iter().filter_map(|sample| {
            let other = self.samples(base).iter().find(|other| other.round == sample.round)?;
            // CPU time, or latency, for less than was asked for is no comparison.
            let (value, other) = (
                sample.value.filter(|_| !sample.is_behind())?,
                other.value.filter(|_| !other.is_behind())?,
            );
            Some(if is_cost(cell.pattern) { other / value } else { value / other })
        });
        Spread::of(ratios.filter(|ratio| ratio.is_finite()))
    }

    /// Why a cell has no figure, or what is to be said of it.
    pub fn remark(&self, cell: Cell) -> Option<&str> {
        let samples = self.samples(cell);
        let of = |what: fn(&Sample) -> Option<&String>| {
            samples.iter().find_map(|sample| what(sample)).map(String::as_str)
        };
        of(|sample| sample.error.as_ref()).or_else(|| of(|sample| sample.note.as_ref()))
    }

    /// The mean of the rounds' means and three standard deviations of these means, in ns: jitter
    /// from one repeat to the next.
    pub fn mean_and_jitter(&self, cell: Cell) -> Option<(f64, f64)> {
        let means: Vec<f64> =
            self.samples(cell).iter().filter_map(|sample| sample.mean_ns).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let square = means.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        // The sample's standard deviation: one repeat has none.
        (means.len() > 1).then(|| (mean, 3.0 * (square / (means.len() - 1) as f64).sqrt()))
    }
}

/// Whether the figure of a pattern is a time.
pub fn is_time(pattern: Pattern) -> bool {
    matches!(
        pattern,
        Pattern::Latency
            | Pattern::Paused
            | Pattern::Netpipe
            | Pattern::Sockperf
            | Pattern::Memcached
    )
}

/// Whether less of it is better.
pub fn is_cost(pattern: Pattern) -> bool {
    is_time(pattern) || pattern == Pattern::Rate
}

/// What became of a figure from one run to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Better, by more than the spreads of both.
    Better,
    /// Worse, by more than the spreads of both.
    Worse,
    /// The spreads overlap, or there are fewer than three rounds of one.
    Noise,
}

/// Compares two figures whose spreads are of so many rounds.
pub fn change(pattern: Pattern, before: (Spread, usize), after: (Spread, usize)) -> Change {
    let ((before, n), (after, m)) = (before, after);
    if n.min(m) < 3 || (before.min <= after.max && after.min <= before.max) {
        return Change::Noise;
    }
    if (after.median < before.median) == is_cost(pattern) { Change::Better } else { Change::Worse }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(min: f64, median: f64, max: f64) -> Spread {
        Spread { median, min, max }
    }

    #[test]
    fn only_what_is_outside_both_spreads_has_changed() {
        let before = (spread(9.0, 10.0, 11.0), 3);
        let judge = |pattern, after| change(pattern, before, (after, 3));
        assert_eq!(judge(Pattern::Latency, spread(7.0, 8.0, 8.9)), Change::Better);
        assert_eq!(judge(Pattern::Stream, spread(7.0, 8.0, 8.9)), Change::Worse);
        assert_eq!(judge(Pattern::Stream, spread(11.1, 12.0, 13.0)), Change::Better);
        assert_eq!(judge(Pattern::Stream, spread(10.9, 12.0, 13.0)), Change::Noise);
        assert_eq!(change(Pattern::Stream, before, (spread(20.0, 20.0, 20.0), 2)), Change::Noise);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let cell = |transport| Cell { pattern: Pattern::Latency, x: 64, transport };
        let sample = |round, transport, value| Sample {
            value: Some(value),
            mean_ns: Some(value),
            ..Sample::of(round, cell(transport))
        };
        let run = Recorded {
            run: crate::record::tests::run("a"),
            samples: vec![
                sample(1, Transport::Ginnel, 1.0),
                sample(1, Transport::Tcp, 10.0),
                sample(2, Transport::Ginnel, 2.0),
                sample(2, Transport::Tcp, 40.0),
                sample(3, Transport::Tcp, 1000.0),
            ],
        };
        let cells = Cells::of(&run);
        assert_eq!(
            cells.times_better(cell(Transport::Ginnel), cell(Transport::Tcp)),
            Some(spread(10.0, 15.0, 20.0))
        );
        let rate = |transport, count| Sample {
            value: Some(1.0),
            count: Some(count),
            seconds: Some(1.0),
            ..Sample::of(1, Cell { pattern: Pattern::Rate, x: 1000, transport })
        };
        let better = |count| {
            let samples = vec![rate(Transport::Ginnel, 1000.0), rate(Transport::Tcp, count)];
            let run = Recorded { run: crate::record::tests::run("a"), samples };
            let cell = |transport| Cell { pattern: Pattern::Rate, x: 1000, transport };
            Cells::of(&run).times_better(cell(Transport::Ginnel), cell(Transport::Tcp))
        };
        assert_eq!(
            [better(990.0), better(500.0)],
            [Some(spread(1.0, 1.0, 1.0)), None],
            "one that falls behind is not compared"
        );
        let (mean, jitter) = cells.mean_and_jitter(cell(Transport::Ginnel)).unwrap();
        assert!((mean - 1.5).abs() < 1e-9 && (jitter - 3.0 * 0.5f64.sqrt()).abs() < 1e-9);
    }
}
