//! Figures made of samples, shown as a table and kept as JSON.

use crate::plan::{Against, Carrier, FIGURES, Figure, MEASURES, Measure, Target, Work};
use crate::rounds::{Series, TOLERANCE, Taken};
use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets::UTF8_FULL_CONDENSED};
use ginnel_bench::machine::Machine;
use ginnel_bench::stats::{Spread, moved};
use serde::Serialize;

/// Share of the bytes that must have gone through rings for a sample to count as Ginnel's.
const SHARE: f64 = 0.9;

/// Percent of a core that others may take during a sample before the table warns.
const FOREIGN: f64 = 20.0;

/// Everything a run gives.
#[derive(Serialize)]
pub struct Results {
    /// The machine.
    pub machine: Machine,
    /// The command line's arguments.
    pub arguments: Vec<String>,
    /// The rows of the table.
    pub figures: Vec<Row>,
    /// The samples behind them, which are kept apart.
    #[serde(skip)]
    pub measures: Vec<Series>,
}

/// One row.
#[derive(Serialize)]
pub struct Row {
    /// Part of the table.
    pub group: &'static str,
    /// Name of the figure.
    pub id: String,
    #[serde(skip)]
    work: Option<Work>,
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
fn share(measure: &Measure, taken: &[Taken]) -> Option<f64> {
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

fn verdict(figure: &Figure, value: Option<Spread>, needed: &[Option<&Series>]) -> Verdict {
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

fn reason(needed: &[Option<&Series>]) -> String {
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

impl Results {
    /// Rows of those figures whose measures are among the samples.
    pub fn new(machine: Machine, figures: &[&Figure], measures: Vec<Series>) -> Self {
        let rows = figures.iter().map(|figure| Row::of(figure, &measures)).collect();
        Self { machine, arguments: std::env::args().skip(1).collect(), figures: rows, measures }
    }

    /// Prints the table.
    pub fn print(&self) {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header([
            "figure",
            "target",
            "measured (min–max)",
            "this",
            "against",
            "rings",
            "rounds",
            "",
        ]);
        let mut group = "";
        for row in &self.figures {
            if row.group != group {
                group = row.group;
                table.add_row([Cell::new(group).add_attribute(Attribute::Bold)]);
            }
            table.add_row(cells(row));
        }
        for column in 2..=6 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        println!("{}\n{table}", self.machine.line());
        let mut why = None;
        for row in &self.figures {
            if let Verdict::Failed(reason) = &row.verdict {
                if why != Some(reason) {
                    println!("{}: {reason}", row.id);
                }
                why = Some(reason);
            }
        }
        let discarded: usize = self.measures.iter().map(|series| series.discarded.len()).sum();
        let taken: usize = self.measures.iter().map(|series| series.taken.len()).sum();
        println!(
            "{taken} samples, {discarded} discarded because the limit moved. \
             nginx, redis, memcached and iperf3 over two namespaces: see `make demo`."
        );
        let disturbed = self
            .measures
            .iter()
            .flat_map(|series| &series.taken)
            .filter(|taken| taken.foreign_percent > FOREIGN);
        match disturbed.count() {
            0 => {}
            n => println!(
                "NOT A QUIET MACHINE: other processes took more than {FOREIGN} % of a core during {n} of the samples. \
                 Measure again before believing any of this."
            ),
        }
    }
}

fn cells(row: &Row) -> Vec<Cell> {
    let absolute =
        |spread: Option<Spread>| spread.map_or("–".into(), |s| quantity(row.work, s.median));
    // A receiver that spins through the pause would be quick and cost a whole core.
    let spent = match (row.work, row.cpu_percent) {
        (Some(Work::Paused(_)), Some(cpu)) => format!(", cpu {} %", short(cpu.median)),
        _ => String::new(),
    };
    let (verdict, color) = match &row.verdict {
        Verdict::Pass => ("pass", Color::Green),
        Verdict::Miss => ("miss", Color::Red),
        Verdict::Reference => ("", Color::Reset),
        Verdict::NotAccelerated => ("not accelerated", Color::Red),
        Verdict::Unverified => ("no report", Color::Red),
        Verdict::Failed(_) => ("failed", Color::Red),
    };
    vec![
        Cell::new(format!("  {}", row.id)),
        Cell::new(&row.target),
        Cell::new(row.value.map_or("–".into(), |s| {
            format!("{} ({}–{})", short(s.median), short(s.min), short(s.max))
        })),
        Cell::new(absolute(row.measure) + &spent),
        Cell::new(absolute(row.base)),
        Cell::new(
            row.share.map_or(String::new(), |share| format!("{:.0} %", (share * 100.0).floor())),
        ),
        Cell::new(row.rounds),
        Cell::new(verdict).fg(color),
    ]
}

fn target_text(figure: &Figure) -> String {
    let unit =
        if matches!(figure.against, Against::Above(_) | Against::Messages) { "" } else { "×" };
    match figure.target {
        Target::None => String::new(),
        Target::AtMost(most) => format!("≤ {most}{unit}"),
        Target::AtLeast(least) => format!("≥ {least}{unit}"),
    }
}

/// Three significant digits.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 || v == 0.0 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// An absolute value with its unit.
pub fn quantity(work: Option<Work>, value: f64) -> String {
    match work {
        Some(Work::Stream(64) | Work::GoStream(64)) => format!("{} M/s", short(value / 64e6)),
        Some(Work::Stream(_) | Work::GoStream(_) | Work::Both | Work::Memcpy) => {
            format!("{} GB/s", short(value / 1e9))
        }
        Some(work) if work.is_rate() => format!("{} k/s", short(value / 1000.0)),
        Some(Work::Idle) => format!("{} %", short(value)),
        _ if value >= 1000.0 => format!("{} µs", short(value / 1000.0)),
        _ => format!("{} ns", short(value)),
    }
}

/// The figures and measures by name, for `--list`.
pub fn list() {
    for figure in FIGURES {
        let only = if figure.belongs(true, true) {
            " (--guests)"
        } else if !figure.belongs(false, false) {
            " (--peers)"
        } else {
            ""
        };
        println!("{:42} {:9} {}{only}", figure.id(), target_text(figure), figure.group);
    }
}

/// Whether any of the measures needs this kind of carrier.
pub fn needs(measures: &[&Measure], kind: impl Fn(Carrier) -> bool) -> bool {
    measures.iter().any(|measure| kind(measure.carrier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use ginnel_bench::ginnel::Report;

    fn series(id: &'static str, values: &[f64], report: Option<Report>) -> Series {
        let taken = |(i, &value)| Taken {
            round: i + 1,
            limit_before_ns: 90.0,
            limit_after_ns: 110.0,
            foreign_percent: 0.0,
            sample: Sample { value, cpu_percent: None, report, raw: vec![] },
        };
        Series {
            id,
            taken: values.iter().enumerate().map(taken).collect(),
            discarded: vec![],
            failures: vec!["why".into()],
        }
    }

    fn figure(id: &str) -> &'static Figure {
        FIGURES.iter().find(|figure| figure.id() == id).unwrap()
    }

    fn carried(tcp: u64, ring: u64) -> Option<Report> {
        Some(Report { tcp_in: tcp, ring_in: ring, processes: 2, ..Report::default() })
    }

    #[test]
    fn ratios_are_made_within_rounds() {
        let all = [
            series("tcp/one-core", &[10.0, 100.0], None),
            series("ginnel/one-core", &[3.0, 30.0, 1.0], carried(0, 9)),
        ];
        let row = Row::of(figure("ginnel/one-core : tcp/one-core"), &all);
        assert_eq!(row.value, Spread::of([0.3, 0.3]));
        assert_eq!((row.rounds, row.verdict), (2, Verdict::Pass));
    }

    #[test]
    fn a_fast_sample_that_stayed_on_tcp_does_not_pass() {
        let row = |report| {
            Row::of(
                figure("ginnel/blocking : limit"),
                &[series("ginnel/blocking", &[150.0], report)],
            )
        };
        assert_eq!(row(carried(1, 9)).verdict, Verdict::Pass);
        assert_eq!(row(carried(2, 8)).verdict, Verdict::NotAccelerated);
        assert_eq!(row(None).verdict, Verdict::Unverified);
    }

    #[test]
    fn a_peer_that_stayed_on_tcp_is_no_peer() {
        let row = |report| {
            let all = [
                series("sockmap/one-core", &[10.0], report),
                series("ginnel/one-core", &[5.0], carried(0, 9)),
            ];
            Row::of(figure("ginnel/one-core : sockmap/one-core"), &all).verdict
        };
        assert_eq!(row(carried(0, 9)), Verdict::Reference);
        assert_eq!(row(carried(9, 9)), Verdict::NotAccelerated);
        assert_eq!(row(None), Verdict::Unverified);
    }

    #[test]
    fn a_peer_is_not_compared_across_a_move_of_the_processors() {
        let mut all = [
            series("ucx/tag", &[200.0, 200.0], None),
            series("ginnel/blocking", &[150.0, 450.0], carried(0, 9)),
        ];
        let far = &mut all[1].taken[1];
        (far.limit_before_ns, far.limit_after_ns) = (290.0, 310.0);
        let row = Row::of(figure("ginnel/blocking : ucx/tag"), &all);
        assert_eq!(row.value, Spread::of([0.75]));
    }

    #[test]
    fn missing_samples_are_failures_with_their_reason() {
        let row =
            Row::of(figure("ginnel/blocking : limit"), &[series("ginnel/blocking", &[], None)]);
        assert_eq!(row.verdict, Verdict::Failed("why".into()));
    }
}
