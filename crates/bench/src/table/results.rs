//! Figures made of samples, shown as a table and kept as JSON.

mod row;

use crate::plan::{Against, Carrier, FIGURES, Figure, Measure, Target, Work};
use crate::rounds::Series;
use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets::UTF8_FULL_CONDENSED};
use ginnel_bench::machine::Machine;
use ginnel_bench::stats::Spread;
pub use row::{Row, Verdict, carried};
use serde::Serialize;

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
    use crate::rounds::Taken;
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
