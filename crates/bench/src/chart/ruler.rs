//! Values of an axis, and their places on it.

use super::Scale;

/// Maps values of an axis to places.
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Ruler {
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = values
            .filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0))
            .fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        match scale {
            Scale::Linear => (low, high) = (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Log if low == high => (low, high) = (low / 2.0, high * 2.0),
            Scale::Log => {}
        }
        Self { scale, low, high, from, to }
    }

    /// Widens a logarithmic axis to whole decades, or to thirds of one where that leaves less
    /// empty.
    pub(super) fn round(mut self) -> Self {
        if self.scale == Scale::Log {
            let steps = |v: f64, up: bool| {
                let decade = 10f64.powf(v.log10().floor());
                let near = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
                let chosen = if up {
                    near.iter().find(|n| **n >= v * 0.999)
                } else {
                    near.iter().rev().find(|n| **n <= v * 1.001)
                };
                chosen.copied().unwrap_or(v)
            };
            (self.low, self.high) = (steps(self.low, false), steps(self.high, true));
        }
        self
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => {
                (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
            }
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(super) fn marks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let mut marks = Vec::new();
                let mut decade = 10f64.powf(self.low.log10().floor());
                let few = (self.high / self.low).log10() < 2.5;
                while decade <= self.high {
                    let steps: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
                    marks.extend(
                        steps
                            .iter()
                            .map(|step| step * decade)
                            .filter(|m| *m >= self.low * 0.999 && *m <= self.high * 1.001),
                    );
                    decade *= 10.0;
                }
                marks
            }
            Scale::Linear => {
                let rough = self.high / 5.0;
                let decade = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .iter()
                    .map(|s| s * decade)
                    .find(|s| *s >= rough)
                    .unwrap_or(rough);
                (0..).map(|i| f64::from(i) * step).take_while(|mark| *mark <= self.high).collect()
            }
        }
    }
}
