//! The few figures that say most, each with the command that measures it again.

use super::ratios::ratio;
use super::{Grid, figure};
use crate::args::{Pattern, Transport};
use crate::cells::Cells;
use crate::page::pictures::words;
use crate::plan::Cell;
use crate::record::Run;

/// A row of [`summary`]: a pattern, its x (bytes, connections, messages a second), and how a page
/// calls it.
type Row = (Pattern, usize, &'static str);

/// The figures that say most of `ginnel bench`'s own workloads.
pub(super) const SUMMARY: [Row; 9] = [
    (Pattern::Latency, 64, "64 B one way, nothing between messages"),
    (Pattern::Paused, 64, "64 B one way, to a receiver that sleeps"),
    (Pattern::Rate, 10_000, "CPU time at 10,000 messages a second, both ends"),
    (Pattern::Stream, 64, "a stream in writes of 64 B"),
    (Pattern::Stream, 64 << 10, "a stream in writes of 64 KiB"),
    (Pattern::Both, 64 << 10, "both directions at once, writes of 64 KiB"),
    (Pattern::Connect, 1, "connections made one after another"),
    (Pattern::Many, 100, "exchanges on 100 connections"),
    (Pattern::Pairs, 2, "exchanges by 2 pairs of processes"),
];

/// What a reader of the README sees first: real programs, and the best and the least of the others.
pub(super) const GAINS: [Row; 5] = [
    (Pattern::Redis, 1, "redis-benchmark, SET and GET, 50 connections"),
    (Pattern::Nginx, 16, "nginx and wrk, a page of 1 KiB, 16 connections"),
    (Pattern::Stream, 64 << 10, "a stream in writes of 64 KiB"),
    (Pattern::Latency, 64, "64 B one way, both ends busy"),
    (Pattern::Paused, 64, "64 B one way, to a receiver that sleeps"),
];

/// Some figures, each with the command that measures it again.
pub(super) fn summary(cells: &Cells, run: &Run, chosen: &[Row]) -> Option<Grid> {
    let namespaces = cells.transports(Pattern::Latency).contains(&Transport::GinnelVeth);
    let (ours, theirs) = if namespaces {
        (Transport::GinnelVeth, Transport::Veth)
    } else {
        (Transport::Ginnel, Transport::Tcp)
    };
    let mut rows = Vec::new();
    for &(pattern, x, what) in chosen {
        let value = |transport| {
            cells.value(Cell { pattern, x, transport }).map(|spread| figure(pattern, spread.median))
        };
        let Some(own) = value(ours) else { continue };
        let sizes = match pattern {
            Pattern::Latency | Pattern::Paused | Pattern::Stream | Pattern::Both => {
                format!(" --sizes {x}")
            }
            _ => String::new(),
        };
        let far = if run.options.connect.is_some() { " --connect HOST" } else { "" };
        let full = if run.options.full { " --full" } else { "" };
        rows.push(vec![
            what.into(),
            value(theirs).unwrap_or_default(),
            own,
            ratio(cells, pattern, x, (ours, theirs, "")).unwrap_or_default(),
            format!(
                "`ginnel bench --pattern {}{sizes} --transport {},{}{far}{full}`",
                pattern.name(),
                ours.name(),
                theirs.name()
            ),
        ]);
    }
    let head = ["", words(theirs), words(ours), "times better", "again"].map(String::from).to_vec();
    (!rows.is_empty()).then(|| Grid { title: "The figures that say most".into(), head, rows })
}
