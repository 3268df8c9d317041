//! How many times better one transport is than another over the same ground.

use super::{Grid, patterns, row_name, transports};
use crate::args::{Pattern, Transport};
use crate::cells::Cells;
use crate::plan::Cell;

/// Which transports are set against each other.
const AGAINST: [(Transport, Transport, &str); 4] = [
    (Transport::Ginnel, Transport::Tcp, "Ginnel : TCP"),
    (Transport::GinnelVeth, Transport::Veth, "Ginnel : TCP, two namespaces"),
    (Transport::Ginnel, Transport::Unix, "Ginnel : Unix socket"),
    (Transport::Ginnel, Transport::Ring, "Ginnel : its ring alone"),
];

/// How many times better, median and spread over the rounds.
pub(super) fn ratio(
    cells: &Cells,
    pattern: Pattern,
    x: usize,
    (this, base, _): (Transport, Transport, &str),
) -> Option<String> {
    let r = cells
        .times_better(Cell { pattern, x, transport: this }, Cell { pattern, x, transport: base })?;
    let digits = crate::page::short;
    Some(format!("{} × ({} to {})", digits(r.median), digits(r.min), digits(r.max)))
}

/// Ginnel against the others over the same ground.
pub(super) fn ratios(cells: &Cells) -> Option<Grid> {
    let mut rows = Vec::new();
    for pattern in patterns(false) {
        for x in cells.xs(pattern) {
            let found = AGAINST.map(|pair| ratio(cells, pattern, x, pair));
            if found.iter().any(Option::is_some) {
                rows.push(
                    [vec![row_name(pattern, x)], found.map(Option::unwrap_or_default).to_vec()]
                        .concat(),
                );
            }
        }
    }
    let head =
        std::iter::once(String::new()).chain(AGAINST.iter().map(|pair| pair.2.into())).collect();
    (!rows.is_empty()).then(|| Grid {
        title: "How many times better, within each round: median (least to greatest)".into(),
        head,
        rows,
    })
}

/// The same beside the figures of programs.
pub(super) fn with_ratios(mut grid: Grid, cells: &Cells) -> Grid {
    let found = transports(cells, true);
    for pair in
        AGAINST.into_iter().filter(|(this, base, _)| found.contains(this) && found.contains(base))
    {
        grid.head.push(format!("{}, times better", pair.2));
        let settings = patterns(true)
            .flat_map(|pattern| cells.xs(pattern).into_iter().map(move |x| (pattern, x)));
        for (row, (pattern, x)) in grid.rows.iter_mut().zip(settings) {
            row.push(ratio(cells, pattern, x, pair).unwrap_or_default());
        }
    }
    grid
}
