//! The figures as tables: for the terminal and for the page.

use super::pictures::words;
use super::{bytes, si, time};
use crate::args::{Pattern, Transport};
use crate::cells::{Cells, Change, change, is_time};
use crate::plan::Cell;
use crate::record::Recorded;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use ginnel_bench::stats::Spread;

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
        table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic).set_header(&grid.head);
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
            println!("{}{cell}: {why}", if runs.len() > 1 { format!("{}: ", run.run.name) } else { String::new() });
        }
    }
}

/// The tables of a report.
pub fn of(runs: &[Recorded]) -> Vec<Grid> {
    let cells: Vec<Cells> = runs.iter().map(Cells::of).collect();
    let mut grids = Vec::new();
    match &cells[..] {
        [one] => {
            grids.push(figures(one));
            grids.extend(ratios(one));
            grids.extend(jitter(one));
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

/// What failed, or is to be taken with care: of what, and why. Cells with the same reason stand together.
pub fn remarks(run: &Recorded) -> Vec<(String, String)> {
    let cells = Cells::of(run);
    let mut found: Vec<(Transport, &str, Vec<String>)> = Vec::new();
    for cell in cells.all() {
        let Some(why) = cells.remark(cell) else {
            continue;
        };
        let place = format!("{}, {}", cell.pattern.name(), axis(cell.pattern, cell.x));
        match found.iter_mut().find(|(transport, reason, _)| (*transport, *reason) == (cell.transport, why)) {
            Some((_, _, places)) => places.push(place),
            None => found.push((cell.transport, why, vec![place])),
        }
    }
    let whole = |transport| cells.all().filter(|cell| cell.transport == transport).count();
    let named = found.into_iter().map(|(transport, why, places)| {
        let of = if places.len() == whole(transport) { "everything".into() } else { places.join("; ") };
        (format!("{}: {of}", words(transport)), why.to_owned())
    });
    named.collect()
}

fn name(cell: Cell) -> String {
    format!("{}, {}, {}", cell.pattern.name(), axis(cell.pattern, cell.x), words(cell.transport))
}

fn axis(pattern: Pattern, x: usize) -> String {
    match pattern {
        Pattern::Many => format!("{x} connection{}", if x == 1 { "" } else { "s" }),
        Pattern::Pairs => format!("{x} at once"),
        Pattern::Connect => "one after another".into(),
        Pattern::Rings => format!("ring of {}", bytes(x)),
        _ => bytes(x),
    }
}

fn figure(pattern: Pattern, value: f64) -> String {
    match pattern {
        _ if is_time(pattern) => time(value),
        Pattern::Stream | Pattern::Both | Pattern::Rings => si(value, "B/s"),
        _ => si(value, "/s"),
    }
}

fn all_transports(cells: &Cells) -> Vec<Transport> {
    let mut found: Vec<Transport> = Pattern::ALL.iter().flat_map(|&pattern| cells.transports(pattern)).collect();
    found.sort();
    found.dedup();
    found
}

fn figures(cells: &Cells) -> Grid {
    let transports = all_transports(cells);
    let mut rows = Vec::new();
    for pattern in Pattern::ALL {
        for x in cells.xs(pattern) {
            let mut row = vec![format!("{}, {}", pattern.name(), axis(pattern, x))];
            row.extend(transports.iter().map(|&transport| {
                let cell = Cell { pattern, x, transport };
                match cells.value(cell) {
                    Some(spread) => figure(pattern, spread.median),
                    None if cells.samples(cell).is_empty() => String::new(),
                    None => "failed".into(),
                }
            }));
            rows.push(row);
        }
    }
    let head = std::iter::once(String::new()).chain(transports.iter().map(|&transport| words(transport).into())).collect();
    Grid { title: "Medians".into(), head, rows }
}

/// Ginnel against the others over the same ground.
fn ratios(cells: &Cells) -> Option<Grid> {
    let pairs = [
        (Transport::Ginnel, Transport::Tcp, "Ginnel : TCP"),
        (Transport::GinnelVeth, Transport::Veth, "Ginnel : TCP, two namespaces"),
        (Transport::Ginnel, Transport::Unix, "Ginnel : Unix socket"),
    ];
    let mut rows = Vec::new();
    for pattern in Pattern::ALL {
        for x in cells.xs(pattern) {
            let ratio = |(this, base, _): &(Transport, Transport, &str)| {
                cells.times_better(Cell { pattern, x, transport: *this }, Cell { pattern, x, transport: *base })
            };
            let found: Vec<Option<Spread>> = pairs.iter().map(ratio).collect();
            if found.iter().any(Option::is_some) {
                let mut row = vec![format!("{}, {}", pattern.name(), axis(pattern, x))];
                let digits = super::short;
                row.extend(found.iter().map(|r| {
                    r.map_or_else(String::new, |r| format!("{} × ({} to {})", digits(r.median), digits(r.min), digits(r.max)))
                }));
                rows.push(row);
            }
        }
    }
    let head = std::iter::once(String::new()).chain(pairs.iter().map(|pair| pair.2.into())).collect();
    (!rows.is_empty()).then(|| Grid {
        title: "How many times better, within each round: median (least to greatest)".into(),
        head,
        rows,
    })
}

/// Distributions of the latency.
fn jitter(cells: &Cells) -> Option<Grid> {
    let mut rows = Vec::new();
    for pattern in [Pattern::Latency, Pattern::Paused] {
        let Some(x) = cells.xs(pattern).into_iter().min_by_key(|x| x.abs_diff(64)) else {
            continue;
        };
        for transport in cells.transports(pattern) {
            let cell = Cell { pattern, x, transport };
            let (Some(p50), Some(p99), Some(p999)) =
                (cells.spread(cell, |s| s.p50_ns), cells.spread(cell, |s| s.p99_ns), cells.spread(cell, |s| s.p999_ns))
            else {
                continue;
            };
            let mean =
                cells.mean_and_jitter(cell).map_or_else(String::new, |(mean, jitter)| format!("{} ± {}", time(mean), time(jitter)));
            let cpu = |of: fn(&crate::record::Sample) -> Option<f64>| {
                cells.spread(cell, of).map_or_else(String::new, |s| format!("{:.0} %", 100.0 * s.median))
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
    let head = ["", "p50", "p99", "p99.9", "mean ± 3σ of the rounds' means", "CPU of the server", "CPU of the client"];
    (!rows.is_empty()).then(|| Grid {
        title: "Distribution of the latency, and CPU".into(),
        head: head.map(String::from).to_vec(),
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
        let rounds = |cells: &Cells| cells.samples(cell).iter().filter(|sample| sample.value.is_some()).count();
        let verdict = match change(cell.pattern, (b, rounds(before)), (a, rounds(after))) {
            Change::Better => "better",
            Change::Worse => "WORSE",
            Change::Noise => "",
        };
        let spread = |s: Spread| {
            format!("{} ({} to {})", figure(cell.pattern, s.median), figure(cell.pattern, s.min), figure(cell.pattern, s.max))
        };
        rows.push(vec![name(cell), spread(b), spread(a), format!("{:+.1} %", 100.0 * (a.median / b.median - 1.0)), verdict.into()]);
    }
    let head = vec![String::new(), before_name.into(), after_name.into(), "change".into(), "beyond the noise".into()];
    Grid {
        title: format!(
            "{after_name} against {before_name}: a difference is beyond the noise where the spreads of at least three rounds do not meet"
        ),
        head,
        rows,
    }
}
