//! What is measured ([`MEASURES`]) and what is made of it ([`FIGURES`], the rows of the table).

/// One thing to measure, once in each round.
#[derive(Debug)]
pub struct Measure {
    /// Unique name, "carrier/work".
    pub id: &'static str,
    /// What carries the bytes.
    pub carrier: Carrier,
    /// What is done.
    pub work: Work,
}

impl Measure {
    /// Does it lie far apart from round to round, and take little time? On a host that others use
    /// too, waking takes 12 µs one time and 60 the next, and the processors are near each other one
    /// time and far the next.
    pub fn more_often(&self) -> bool {
        let short = matches!(
            self.work,
            Work::Paused(_) | Work::PingPong(_) | Work::Large(_) | Work::Stream(_) | Work::Memcpy
        );
        short && !self.carrier.is_guests()
    }
}

mod figures;
mod measures;
mod work;

pub use figures::FIGURES;
pub use measures::MEASURES;
pub use work::{Carrier, GO, TASKS, Work};

/// How a figure is made of measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Ratio to the limit measured around the same sample.
    Limit,
    /// Ratio to another measure of the same round.
    Measure(&'static str),
    /// Difference to another measure of the same round.
    Above(&'static str),
    /// Wake-ups per message, from the shims' reports.
    Messages,
    /// CPU time of both ends for a byte, in proportion to that of another measure of the same
    /// round.
    CostOf(&'static str),
    /// Time that it takes to make each of its connections, the first exchanges included, in
    /// proportion to that of another measure of the same round.
    SetUpOf(&'static str),
    /// Likewise, to close each.
    TeardownOf(&'static str),
    /// Its own quantiles: 99.9 % of the exchanges take no longer than so many times the median.
    Median,
}

impl Against {
    /// The time that the ends say themselves, where the figure is made of that and not of what its
    /// measures come to.
    pub fn said(self) -> Option<&'static str> {
        match self {
            Self::SetUpOf(_) => Some("made_ns"),
            Self::TeardownOf(_) => Some("closed_ns"),
            _ => None,
        }
    }
}

/// What a figure should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// No target: shown for comparison.
    None,
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Target {
    /// Whether the value reaches the target; None without one.
    pub fn reached(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
        }
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Figure {
    /// Which part of the table it belongs to.
    pub group: &'static str,
    /// The measure.
    pub measure: &'static str,
    /// What it is compared with.
    pub against: Against,
    /// What it should reach.
    pub target: Target,
}

impl Figure {
    /// Unique name.
    pub fn id(&self) -> String {
        match self.against {
            Against::Limit => format!("{} : limit", self.measure),
            Against::Measure(other) => format!("{} : {other}", self.measure),
            Against::Above(other) => format!("{} - {other}", self.measure),
            Against::Messages => format!("{} wake-ups", self.measure),
            Against::CostOf(other) => format!("{} cpu : {other}", self.measure),
            Against::SetUpOf(other) => format!("{} set-up : {other}", self.measure),
            Against::TeardownOf(other) => format!("{} teardown : {other}", self.measure),
            Against::Median => format!("{} p99.9 : median", self.measure),
        }
    }

    /// Whether it is shown by this run: of the virtual machines, or of the rest, and there with the
    /// peers or without.
    pub fn belongs(&self, guests: bool, peers: bool) -> bool {
        Self::is_carried(Some(self.measure), Carrier::is_guests) == guests
            && (peers || !self.needs_peer())
    }

    /// Whether another project's transport is part of it.
    pub fn needs_peer(&self) -> bool {
        [Some(self.measure), self.base()]
            .into_iter()
            .any(|id| Self::is_carried(id, Carrier::is_peer))
    }

    fn is_carried(id: Option<&str>, kind: fn(Carrier) -> bool) -> bool {
        MEASURES.iter().any(|measure| Some(measure.id) == id && kind(measure.carrier))
    }

    /// The other measure that it needs.
    pub fn base(&self) -> Option<&'static str> {
        match self.against {
            Against::Measure(other)
            | Against::Above(other)
            | Against::CostOf(other)
            | Against::SetUpOf(other)
            | Against::TeardownOf(other) => Some(other),
            Against::Limit | Against::Messages | Against::Median => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn figures_name_measures_and_every_measure_is_used() {
        let measures: BTreeSet<_> = MEASURES.iter().map(|m| m.id).collect();
        let used: BTreeSet<_> =
            FIGURES.iter().flat_map(|f| [Some(f.measure), f.base()]).flatten().collect();
        assert_eq!(measures, used);
        assert_eq!(measures.len(), MEASURES.len());
    }

    #[test]
    fn without_being_asked_for_no_peer_is_measured() {
        let plain = FIGURES.iter().filter(|figure| figure.belongs(false, false));
        let measured: BTreeSet<_> =
            plain.flat_map(|figure| [Some(figure.measure), figure.base()]).flatten().collect();
        assert!(
            MEASURES
                .iter()
                .filter(|m| measured.contains(m.id))
                .all(|m| !m.carrier.is_peer() && !m.carrier.is_guests())
        );
        let of =
            |guests, peers| FIGURES.iter().filter(|figure| figure.belongs(guests, peers)).count();
        assert_eq!(of(false, true) + of(true, false), FIGURES.len());
    }

    #[test]
    fn figures_have_unique_names() {
        let names: BTreeSet<_> = FIGURES.iter().map(Figure::id).collect();
        assert_eq!(names.len(), FIGURES.len());
    }
}
