//! Which charts a report has.

use super::{bytes, percent, si, time};
use crate::args::{Pattern, Transport};
use crate::cells::Cells;
use crate::plan::Cell;
use crate::record::{Recorded, Sample};
use ginnel_bench::chart::{Axis, Chart, Point, Scale, Series};
use ginnel_bench::stats::Spread;

/// A chart, with its place in the report.
pub struct Picture {
    /// Name of its file, without extension.
    pub file: &'static str,
    /// What is to be known about it.
    pub words: &'static str,
    /// The chart.
    pub chart: Chart,
}

/// What a chart shows of each sample.
struct View {
    file: &'static str,
    title: &'static str,
    words: &'static str,
    pattern: Pattern,
    label: &'static str,
    scale: Scale,
    write: fn(f64) -> String,
    what: fn(&Sample) -> Option<f64>,
}

const VIEWS: &[View] = &[
    View {
        file: "latency",
        title: "Latency",
        words: "Half a round trip, nothing between messages: whoever may spin does. Median of each round's medians; the band is from the least to the greatest round.",
        pattern: Pattern::Latency,
        label: "half a round trip",
        scale: Scale::Log,
        write: time,
        what: |sample| sample.value,
    },
    View {
        file: "latency-paused",
        title: "Latency of a receiver that sleeps",
        words: "The same with a millisecond between messages: every message wakes a sleeping process.",
        pattern: Pattern::Paused,
        label: "half a round trip",
        scale: Scale::Log,
        write: time,
        what: |sample| sample.value,
    },
    View {
        file: "bandwidth",
        title: "Bandwidth in one direction",
        words: "Writes of one size, measured where they arrive.",
        pattern: Pattern::Stream,
        label: "bytes a second",
        scale: Scale::Linear,
        write: |v| si(v, "B/s"),
        what: |sample| sample.value,
    },
    View {
        file: "message-rate",
        title: "Small messages a second",
        words: "The same run, counted in writes.",
        pattern: Pattern::Stream,
        label: "writes a second",
        scale: Scale::Log,
        write: |v| si(v, "/s"),
        what: |sample| (sample.x <= 4096).then(|| Some(sample.value? / sample.x as f64))?,
    },
    View {
        file: "bandwidth-both",
        title: "Bandwidth in both directions at once",
        words: "Both directions together; each end is one thread that writes and reads as it can.",
        pattern: Pattern::Both,
        label: "bytes a second",
        scale: Scale::Linear,
        write: |v| si(v, "B/s"),
        what: |sample| sample.value,
    },
    View {
        file: "cpu",
        title: "CPU time for a GiB",
        words: "Both ends together, in the stream in one direction. Spinning counts as CPU time.",
        pattern: Pattern::Stream,
        label: "CPU seconds a GiB",
        scale: Scale::Log,
        write: |v| time(v * 1e9),
        what: Sample::cpu_per_gib,
    },
    View {
        file: "cpu-rate",
        title: "CPU time at a fixed rate",
        words: "Both ends together, for so many messages of 64 B to and fro in a second; 100 % is one processor. Sleeping, waking and spinning, as they come by themselves.",
        pattern: Pattern::Rate,
        label: "processor time",
        scale: Scale::Linear,
        write: percent,
        what: |sample| sample.value,
    },
    View {
        file: "connections",
        title: "Many connections",
        words: "A server with one epoll set; 64 B to and fro, 16 messages under way, each on another connection.",
        pattern: Pattern::Many,
        label: "exchanges a second",
        scale: Scale::Log,
        write: |v| si(v, "/s"),
        what: |sample| sample.value,
    },
    View {
        file: "pairs",
        title: "Many pairs of processes",
        words: "Ping-pong of 64 B by several pairs at once, together. Beyond the processors they take turns.",
        pattern: Pattern::Pairs,
        label: "exchanges a second",
        scale: Scale::Log,
        write: |v| si(v, "/s"),
        what: |sample| sample.value,
    },
    View {
        file: "rings",
        title: "Size of the ring",
        words: "A stream of 64 KiB writes through rings of one size (GINNEL_RING, GINNEL_RING_MAX).",
        pattern: Pattern::Rings,
        label: "bytes a second",
        scale: Scale::Linear,
        write: |v| si(v, "B/s"),
        what: |sample| sample.value,
    },
    View {
        file: "nginx",
        title: "nginx and wrk",
        words: "A page of 1 KiB, again and again on some connections.",
        pattern: Pattern::Nginx,
        label: "requests a second",
        scale: Scale::Linear,
        write: |v| si(v, "/s"),
        what: |sample| sample.value,
    },
    View {
        file: "memcached",
        title: "memcached at a fixed rate",
        words: "95 % reads of 1 KiB records, the popular ones far more often, on 16 connections. What all but the slowest hundredth waited, each from when its request was due.",
        pattern: Pattern::Memcached,
        label: "99 % of the requests took less than",
        scale: Scale::Log,
        write: time,
        what: |sample| sample.p99_ns,
    },
];

/// The charts that have something to show.
pub fn of(runs: &[Recorded]) -> Vec<Picture> {
    let cells: Vec<Cells> = runs.iter().map(Cells::of).collect();
    let mut pictures: Vec<Picture> =
        VIEWS.iter().filter_map(|view| picture(view, runs, &cells)).collect();
    if let Some(tails) = tails(Pattern::Latency, 64, runs, &cells) {
        pictures.insert(pictures.len().min(1), tails);
    }
    pictures.extend(tails(Pattern::Memcached, 10_000, runs, &cells));
    pictures
}

fn picture(view: &View, runs: &[Recorded], cells: &[Cells]) -> Option<Picture> {
    let mut series = Vec::new();
    let mut marks = Vec::new();
    for (number, (run, cells)) in runs.iter().zip(cells).enumerate() {
        marks.extend(cells.xs(view.pattern));
        for transport in cells.transports(view.pattern) {
            let points = cells.xs(view.pattern).into_iter().filter_map(|x| {
                let Spread { median, min, max } =
                    cells.spread(Cell { pattern: view.pattern, transport, x }, view.what)?;
                Some(Point { x: x as f64, y: median, low: min, high: max })
            });
            series.push(line(runs, run, number, transport, points.collect()));
        }
    }
    series.retain(|series| !series.points.is_empty());
    marks.sort_unstable();
    marks.dedup();
    let counted = !Cell::axis(view.pattern).contains("size");
    let x = Axis {
        label: Cell::axis(view.pattern),
        scale: Scale::Log,
        write: if counted { |v| format!("{v}") } else { |v| bytes(v as usize) },
        marks: marks.iter().map(|&x| x as f64).collect(),
    };
    let y = Axis { label: view.label, scale: view.scale, write: view.write, marks: Vec::new() };
    // A single size has a table, not a line.
    let drawn = !series.is_empty() && marks.len() > 1;
    drawn.then(|| Picture {
        file: view.file,
        words: view.words,
        chart: Chart { title: view.title.into(), x, y, series },
    })
}

/// The distribution of a latency, at the value nearest to `x` of what varies: the share that took
/// longer, against time.
fn tails(pattern: Pattern, x: usize, runs: &[Recorded], cells: &[Cells]) -> Option<Picture> {
    let x = cells.first()?.xs(pattern).into_iter().min_by_key(|other| other.abs_diff(x))?;
    type Of = fn(&Sample) -> Option<f64>;
    let quantiles: [(f64, Of); 6] = [
        (0.5, |s| s.p50_ns),
        (0.25, |s| s.p75_ns),
        (0.1, |s| s.p90_ns),
        (0.01, |s| s.p99_ns),
        (0.001, |s| s.p999_ns),
        (0.0001, |s| s.p9999_ns),
    ];
    let mut series = Vec::new();
    for (number, (run, cells)) in runs.iter().zip(cells).enumerate() {
        for transport in cells
            .transports(pattern)
            .into_iter()
            .filter(|&transport| transport != Transport::Memory)
        {
            let cell = Cell { pattern, transport, x };
            let points = quantiles.iter().filter_map(|&(share, what)| {
                // So rare a message must have been seen ten times in each round.
                if cells
                    .samples(cell)
                    .iter()
                    .any(|sample| sample.count.unwrap_or(0.0) * share < 10.0)
                {
                    return None;
                }
                let Spread { median, min, max } = cells.spread(cell, what)?;
                Some(Point { x: 1.0 / share, y: median, low: min, high: max })
            });
            series.push(line(runs, run, number, transport, points.collect()));
        }
    }
    series.retain(|series| !series.points.is_empty());
    let across = Axis {
        label: "quantile",
        scale: Scale::Log,
        write: |v| format!("{} %", (100_000.0 * (1.0 - 1.0 / v)).round() / 1000.0),
        marks: quantiles.iter().map(|(share, _)| 1.0 / share).collect(),
    };
    let (file, title, words, label) = match pattern {
        Pattern::Memcached => (
            "memcached-tails",
            format!("Tails of memcached's latency, {x} requests a second"),
            "How long all but the slowest took, each from when its request was due.",
            "time of a request",
        ),
        _ => (
            "latency-tails",
            format!("Tails of the latency, {}", bytes(x)),
            "How long all but the slowest took. The right side is what the slowest one in ten thousand waits for.",
            "half a round trip",
        ),
    };
    let y = Axis { label, scale: Scale::Log, write: time, marks: Vec::new() };
    (!series.is_empty()).then_some(Picture {
        file,
        words,
        chart: Chart { title, x: across, y, series },
    })
}

fn line(
    runs: &[Recorded],
    run: &Recorded,
    number: usize,
    transport: Transport,
    points: Vec<Point>,
) -> Series {
    let name = if runs.len() > 1 {
        format!("{}: {}", run.run.name, words(transport))
    } else {
        words(transport).into()
    };
    Series { name, colour: colour(transport), run: number, hollow: transport.is_veth(), points }
}

/// Number of a transport's colour; of the two ends in namespaces as of those without, see
/// [`Series::hollow`]. Networks between machines have those of what is never measured beside them.
fn colour(transport: Transport) -> usize {
    match transport {
        Transport::Ginnel | Transport::GinnelVeth => 0,
        Transport::Ring => 1,
        Transport::Tcp | Transport::Veth => 2,
        Transport::Unix | Transport::Virtio => 4,
        Transport::Pipes | Transport::Switch => 5,
        Transport::Vsock | Transport::Function | Transport::FunctionEmulated => 3,
        Transport::Memory => 6,
    }
}

/// A transport in words.
pub fn words(transport: Transport) -> &'static str {
    match transport {
        Transport::Ginnel => "Ginnel",
        Transport::GinnelVeth => "Ginnel, two namespaces",
        Transport::Ring => "Ginnel's ring alone",
        Transport::Tcp => "TCP",
        Transport::Veth => "TCP, two namespaces",
        Transport::Unix => "Unix socket",
        Transport::Pipes => "pipes",
        Transport::Vsock => "vsock",
        Transport::Virtio => "TCP, virtio and a bridge",
        Transport::Switch => "TCP, ginnel-switch",
        Transport::Function => "TCP, functions of a card",
        Transport::FunctionEmulated => "TCP, functions of an emulated card",
        Transport::Memory => "memory (the limit)",
    }
}
