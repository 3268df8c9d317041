//! The figures as tables: for the terminal and for the page.

mod ratios;
mod summary;

use super::pictures::words;
use super::{bytes, percent, si, time};
use crate::apps::NOT_INSTALLED;
use crate::args::{Pattern, Transport};
use crate::cells::{Cells, Change, change, is_time};
use crate::plan::Cell;
use crate::record::{Recorded, Sample};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use ginnel_bench::stats::Spread;
use ratios::{ratios, with_ratios};
use summary::{GAINS, SUMMARY, summary};

/// A table as text.
pub struct Grid {
    /// What it shows.
    pub title: String,
    /// Its first line.
    pub head: Vec<String>,
    /// Its other lines; the first column names what the others show.
    pub rows: Vec<Vec<String>>,
}

/// Prints the tables of a run, or of what changed between several.
pub fn print(runs: &[Recorded]) {
    for grid in of(runs) {
        let mut table = Table::new();
        table
            .load_preset(UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(&grid.head);
        for row in &grid.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{}\n{table}", grid.title);
    }
    for run in runs {
        for (cell, why) in remarks(run) {
            println!(
                "{}{cell}: {why}",
                if runs.len() > 1 { format!("{}: ", run.run.name) } else { String::new() }
            );
        }
    }
}

/// The tables of a report.
pub fn of(runs: &[Recorded]) -> Vec<Grid> {
    let cells: Vec<Cells> = runs.iter().map(Cells::of).collect();
    let mut grids = Vec::new();
    match &cells[..] {
        [one] => {
            grids.extend(figures("Medians", one, false));
            grids.extend(ratios(one));
            grids.extend(
                figures("Real programs: medians", one, true).map(|grid| with_ratios(grid, one)),
            );
            grids.extend(jitter(one));
            grids.extend(costs(one));
        }
        [first, others @ ..] => {
            for (run, cells) in runs[1..].iter().zip(others) {
                grids.push(changes(&runs[0].run.name, first, &run.run.name, cells));
            }
        }
        [] => {}
    }
    grids
}

/// Names of the tables of one run, for [`named`].
pub const NAMES: [&str; 7] =
    ["gains", "summary", "medians", "ratios", "programs", "latency", "cpu"];

/// One table of a run; without rows where it has none of it. None: there is no such table.
pub fn named(name: &str, runs: &[Recorded]) -> Option<Grid> {
    let cells = Cells::of(runs.first()?);
    let none =
        || Grid { title: String::new(), head: vec!["not measured".into()], rows: Vec::new() };
    let grid = match name {
        "gains" => summary(&cells, &runs.first()?.run, &GAINS),
        "summary" => summary(&cells, &runs.first()?.run, &SUMMARY),
        "medians" => figures("Medians", &cells, false),
        "ratios" => ratios(&cells),
        "programs" => {
            figures("Real programs: medians", &cells, true).map(|grid| with_ratios(grid, &cells))
        }
        "latency" => jitter(&cells),
        "cpu" => costs(&cells),
        _ => return None,
    };
    Some(grid.unwrap_or_else(none))
}

/// What failed, or is to be taken with care: of what, and why. Cells with the same reason stand
/// together.
pub fn remarks(run: &Recorded) -> Vec<(String, String)> {
    let cells = Cells::of(run);
    let mut found: Vec<(Transport, &str, Vec<String>)> = Vec::new();
    for cell in cells.all() {
        let Some(why) = cells.remark(cell) else {
            continue;
        };
        let place = row_name(cell.pattern, cell.x);
        match found
            .iter_mut()
            .find(|(transport, reason, _)| (*transport, *reason) == (cell.transport, why))
        {
            Some((_, _, places)) => places.push(place),
            None => found.push((cell.transport, why, vec![place])),
        }
    }
    let whole = |transport| cells.all().filter(|cell| cell.transport == transport).count();
    let named = found.into_iter().map(|(transport, why, places)| {
        let of =
            if places.len() == whole(transport) { "everything".into() } else { places.join("; ") };
        (format!("{}: {of}", words(transport)), why.to_owned())
    });
    named.collect()
}

fn name(cell: Cell) -> String {
    format!("{}, {}", row_name(cell.pattern, cell.x), words(cell.transport))
}

/// A pattern, and what varies in it.
fn row_name(pattern: Pattern, x: usize) -> String {
    let what = match pattern {
        Pattern::Netpipe => "NetPIPE".into(),
        Pattern::Nginx => "nginx and wrk".into(),
        Pattern::Redis => "redis-benchmark".into(),
        Pattern::Copy => "file from nginx to curl".into(),
        other => other.name(),
    };
    format!("{what}, {}", axis(pattern, x))
}

fn axis(pattern: Pattern, x: usize) -> String {
    match pattern {
        Pattern::Many | Pattern::Nginx => {
            format!("{x} connection{}", if x == 1 { "" } else { "s" })
        }
        Pattern::Iperf3 => format!("{x} stream{}", if x == 1 { "" } else { "s" }),
        Pattern::Redis => format!("SET and GET, {x} in flight"),
        Pattern::Rate => format!("{x}/s"),
        Pattern::Memcached => format!("{x}/s, median"),
        Pattern::Pairs => format!("{x} at once"),
        Pattern::Connect => "one after another".into(),
        Pattern::Rings => format!("ring of {}", bytes(x)),
        _ => bytes(x),
    }
}

fn figure(pattern: Pattern, value: f64) -> String {
    match pattern {
        _ if is_time(pattern) => time(value),
        Pattern::Stream | Pattern::Both | Pattern::Rings | Pattern::Iperf3 | Pattern::Copy => {
            si(value, "B/s")
        }
        Pattern::Rate => percent(value),
        _ => si(value, "/s"),
    }
}

fn transports(cells: &Cells, programs: bool) -> Vec<Transport> {
    let patterns = patterns(programs);
    let mut found: Vec<Transport> =
        patterns.flat_map(|pattern| cells.transports(pattern)).collect();
    found.sort();
    found.dedup();
    found
}

fn patterns(programs: bool) -> impl Iterator<Item = Pattern> {
    Pattern::ALL.into_iter().filter(move |pattern| pattern.is_app() == programs)
}

/// What was measured of workloads of our own, or of real programs.
fn figures(title: &str, cells: &Cells, programs: bool) -> Option<Grid> {
    let transports = transports(cells, programs);
    let mut rows = Vec::new();
    for pattern in patterns(programs) {
        for x in cells.xs(pattern) {
            let mut row = vec![row_name(pattern, x)];
            row.extend(transports.iter().map(|&transport| {
                let cell = Cell { pattern, x, transport };
                match cells.value(cell) {
                    Some(spread) => figure(pattern, spread.median),
                    None if cells.samples(cell).is_empty() => String::new(),
                    None if cells.remark(cell).is_some_and(|why| why.contains(NOT_INSTALLED)) => {
                        "not installed".into()
                    }
                    None => "failed".into(),
                }
            }));
            rows.push(row);
        }
    }
    let head = std::iter::once(String::new())
        .chain(transports.iter().map(|&transport| words(transport).into()))
        .collect();
    (!rows.is_empty()).then(|| Grid { title: title.into(), head, rows })
}

/// Distributions of the latency.
fn jitter(cells: &Cells) -> Option<Grid> {
    let mut rows = Vec::new();
    for (pattern, usual) in [
        (Pattern::Latency, 64),
        (Pattern::Paused, 64),
        (Pattern::Rate, 10_000),
        (Pattern::Sockperf, 64),
        (Pattern::Memcached, 10_000),
    ] {
        let Some(x) = cells.xs(pattern).into_iter().min_by_key(|x| x.abs_diff(usual)) else {
            continue;
        };
        for transport in cells.transports(pattern) {
            let cell = Cell { pattern, x, transport };
            let (Some(p50), Some(p99), Some(p999)) = (
                cells.spread(cell, |s| s.p50_ns),
                cells.spread(cell, |s| s.p99_ns),
                cells.spread(cell, |s| s.p999_ns),
            ) else {
                continue;
            };
            let mean = cells.mean_and_jitter(cell).map_or_else(String::new, |(mean, jitter)| {
                format!("{} ± {}", time(mean), time(jitter))
            });
            let cpu = |of: fn(&Sample) -> Option<f64>| {
                cells
                    .spread(cell, of)
                    .map_or_else(String::new, |s| format!("{:.0} %", 100.0 * s.median))
            };
            rows.push(vec![
                name(cell),
                time(p50.median),
                time(p99.median),
                time(p999.median),
                mean,
                cpu(|s| s.server_cpu),
                cpu(|s| s.client_cpu),
            ]);
        }
    }
    let head = [
        "",
        "p50",
        "p99",
        "p99.9",
        "mean ± 3σ of the rounds' means",
        "CPU of the server",
        "CPU of the client",
    ];
    (!rows.is_empty()).then(|| Grid {
        title: "Distribution of the latency, and CPU".into(),
        head: head.map(String::from).to_vec(),
        rows,
    })
}

/// CPU time of the two ends.
fn costs(cells: &Cells) -> Option<Grid> {
    let transports = transports(cells, false);
    let mut rows = Vec::new();
    for pattern in [Pattern::Stream, Pattern::Rate] {
        for x in cells.xs(pattern) {
            let cell = |&transport: &Transport| {
                let cell = Cell { pattern, x, transport };
                let end = |of: fn(&Sample) -> Option<f64>| {
                    let spread = match pattern {
                        Pattern::Rate => cells.spread(cell, of),
                        _ => cells
                            .spread(cell, |sample| Some(of(sample)? * sample.seconds_per_gib()?)),
                    };
                    spread.map(|spread| spread.median)
                };
                let written = |value| {
                    if pattern == Pattern::Rate { percent(value) } else { time(1e9 * value) }
                };
                let ends = [end(|sample| sample.server_cpu), end(|sample| sample.client_cpu)];
                let host = end(|sample| sample.host_cpu)
                    .map_or_else(String::new, |value| format!("; host {}", written(value)));
                ends.into_iter().flatten().map(written).collect::<Vec<_>>().join(" + ") + &host
            };
            let what = if pattern == Pattern::Rate { "at a rate of" } else { "a GiB in writes of" };
            rows.push(
                [
                    vec![format!("{what} {}", axis(pattern, x))],
                    transports.iter().map(cell).collect(),
                ]
                .concat(),
            );
        }
    }
    let head = std::iter::once(String::new())
        .chain(transports.iter().map(|&transport| words(transport).into()))
        .collect();
    (!rows.is_empty()).then(|| Grid {
        title:
            "CPU time: receiver or server + sender or client; between guests, what the host spent"
                .into(),
        head,
        rows,
    })
}

/// Another run against the first.
fn changes(before_name: &str, before: &Cells, after_name: &str, after: &Cells) -> Grid {
    let mut rows = Vec::new();
    for cell in after.all() {
        let (Some(b), Some(a)) = (before.value(cell), after.value(cell)) else {
            continue;
        };
        let rounds = |cells: &Cells| {
            cells.samples(cell).iter().filter(|sample| sample.value.is_some()).count()
        };
        let verdict = match change(cell.pattern, (b, rounds(before)), (a, rounds(after))) {
            Change::Better => "better",
            Change::Worse => "WORSE",
            Change::Noise => "",
        };
        let spread = |s: Spread| {
            format!(
                "{} ({} to {})",
                figure(cell.pattern, s.median),
                figure(cell.pattern, s.min),
                figure(cell.pattern, s.max)
            )
        };
        rows.push(vec![
            name(cell),
            spread(b),
            spread(a),
            format!("{:+.1} %", 100.0 * (a.median / b.median - 1.0)),
            verdict.into(),
        ]);
    }
    let head = vec![
        String::new(),
        before_name.into(),
        after_name.into(),
        "change".into(),
        "beyond the noise".into(),
    ];
    Grid {
        title: format!(
            "{after_name} against {before_name}: a difference is beyond the noise where the spreads of at least three rounds do not meet"
        ),
        head,
        rows,
    }
}
