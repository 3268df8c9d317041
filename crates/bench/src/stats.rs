//! Medians and spreads.

use ginnel_demo::stats::median;
use serde::{Deserialize, Serialize};

/// The middle and the extremes of some values.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// None where there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let (min, max) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
                (value.min(min), value.max(max))
            });
        Some(Self { median: median(&values)?, min, max })
    }
}

/// What samples have of something, in the order in which it came first.
pub fn different<S, T: PartialEq>(samples: &[S], of: impl Fn(&S) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in samples.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// How far values lie about their median, in proportion to it: what would be a standard deviation
/// if they were normally distributed, by the median of the distances, so that a few far ones count
/// for no more than others. 0 where there are no values.
pub fn scatter(values: &[f64]) -> f64 {
    let Some(middle) = Spread::of(values.iter().copied()) else { return 0.0 };
    let distances = values.iter().map(|value| (value - middle.median).abs());
    // 1.4826: a normal distribution's standard deviation over its median distance.
    Spread::of(distances).map_or(0.0, |distance| 1.4826 * distance.median / middle.median.abs())
}

/// Whether two values lie further apart than `tolerance` (0.25: 25 % of the smaller).
pub fn moved(a: f64, b: f64, tolerance: f64) -> bool {
    a.max(b) > a.min(b) * (1.0 + tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn one_far_value_scatters_nothing() {
        assert!((scatter(&[9.0, 10.0, 11.0, 9.0, 11.0]) - 0.14826).abs() < 1e-9);
        assert!(scatter(&[10.0, 10.0, 10.0, 10.0, 500.0]) < 1e-9);
        assert!(scatter(&[]) < 1e-9);
    }

    #[test]
    fn a_limit_moves_in_either_direction() {
        assert!(moved(100.0, 126.0, 0.25) && moved(126.0, 100.0, 0.25));
        assert!(!moved(100.0, 124.0, 0.25));
    }
}
