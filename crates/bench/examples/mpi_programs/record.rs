//! What a run leaves: run.json with every sample, tables.md, and charts: times and bandwidths by
//! size, and what programs gain by the share of their time that they spend in MPI.

use crate::programs::Figure;
use anyhow::{Context, Result};
use ginnel_bench::chart::{Axis, Chart, Point, Scale, Series};
use ginnel_bench::figures::{bytes, percent, short, si, time};
use ginnel_bench::machine::Machine;
use ginnel_bench::stats::different;
use ginnel_demo::stats::quantile;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Plain TCP, which gains are over.
pub const TCP: &str = "tcp";
/// The mark.
const MARK: &str = "vader";

/// One value of a round.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// In which round.
    pub round: u32,
    /// By which way.
    pub way: String,
    /// What was measured.
    #[serde(flatten)]
    pub figure: Figure,
}

/// How much of a program's time over TCP is in MPI's calls.
#[derive(Serialize)]
pub struct Share {
    /// Which program.
    pub program: String,
    /// 0 to 1.
    pub share: f64,
}

/// Median and quartiles of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Middle {
    median: f64,
    low: f64,
    high: f64,
}

impl Middle {
    fn of(values: &[f64]) -> Option<Self> {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|q| quantile(values, q));
        Some(Self { median: median?, low: low?, high: high? })
    }

    fn point(self, x: f64, scale: f64) -> Point {
        let [y, low, high] = [self.median, self.low, self.high].map(|it| it * scale);
        Point { x, y, low, high }
    }
}

#[derive(Serialize)]
struct Run<'a> {
    machine: &'a Machine,
    shares: &'a [Share],
    samples: &'a [Sample],
}

/// Writes everything into the folder `out`, and prints the table.
///
/// # Errors
/// Those of writing.
pub fn write(machine: &Machine, samples: &[Sample], shares: &[Share], out: &Path) -> Result<()> {
    let charts = out.join("charts");
    std::fs::create_dir_all(&charts).with_context(|| format!("making {}", charts.display()))?;
    for (name, chart) in drawn(samples, shares) {
        std::fs::write(charts.join(format!("{name}.svg")), chart.to_file())?;
    }
    let text = format!("{}\n\n{}", machine.line(), table(samples, shares));
    std::fs::write(out.join("tables.md"), &text)?;
    let run = Run { machine, shares, samples };
    std::fs::write(out.join("run.json"), serde_json::to_string_pretty(&run)? + "\n")?;
    println!("{text}\nSamples: {}", out.join("run.json").display());
    Ok(())
}

fn middle(samples: &[Sample], name: &str, size: u64, way: &str) -> Option<Middle> {
    let is_it = |s: &&Sample| s.figure.name == name && s.figure.bytes == size && s.way == way;
    let values: Vec<f64> = samples.iter().filter(is_it).map(|s| s.figure.value).collect();
    Middle::of(&values)
}

/// A line for each figure, a column for each way: median and quartiles, and how many times as good
/// it is as the mark (more: worse) and as TCP (more: better).
pub fn table(samples: &[Sample], shares: &[Share]) -> String {
    let ways = different(samples, |sample| sample.way.clone());
    let mut text = format!("| | {} |\n|---|{}\n", ways.join(" | "), "---:|".repeat(ways.len()));
    for (name, size) in different(samples, |s| (s.figure.name.clone(), s.figure.bytes)) {
        let Some(any) = samples.iter().find(|s| s.figure.name == name && s.figure.bytes == size)
        else {
            continue;
        };
        let (is_rate, unit) = (any.figure.is_rate(), any.figure.unit());
        let of = |way: &str| middle(samples, &name, size, way);
        let cell = |way: &String| {
            let Some(it) = of(way) else { return String::new() };
            let worse = |base: f64| if is_rate { base / it.median } else { it.median / base };
            let mark = of(MARK).map_or(1.0, |mark| worse(mark.median));
            let tcp = of(TCP).map_or(1.0, |tcp| 1.0 / worse(tcp.median));
            let [middle, low, high] = [it.median, it.low, it.high].map(short);
            format!("{middle} ({low} to {high}); {}, {} ×", short(mark), short(tcp))
        };
        let sized = if size == 0 { String::new() } else { format!(" {}", bytes(size as usize)) };
        let cells: Vec<String> = ways.iter().map(cell).collect();
        let _ = writeln!(text, "| {name}{sized}, {unit} | {} |", cells.join(" | "));
    }
    text += "\nIn each cell: median and quartiles; how many times as long as by vader; how many \
             times as fast as by tcp.\n";
    for Share { program, share } in shares {
        let _ = writeln!(text, "{program} over TCP is in MPI for {} of its time.", percent(*share));
    }
    text
}

/// The charts and the names of their files.
fn drawn(samples: &[Sample], shares: &[Share]) -> Vec<(String, Chart)> {
    let mut all = Vec::new();
    for name in different(samples, |sample| sample.figure.name.clone()) {
        let of_it = |s: &&Sample| s.figure.name == name && s.figure.bytes > 0;
        let its: Vec<Sample> = samples.iter().filter(of_it).cloned().collect();
        if different(&its, |sample| sample.figure.bytes).len() > 1 {
            all.push((format!("mpi-{}", name.to_lowercase()), by_size(&name, &its)));
        }
    }
    if !shares.is_empty() {
        all.push(("mpi-share".into(), by_share(samples, shares)));
    }
    all
}

fn line(colour: usize, way: &str, points: Vec<Point>) -> Series {
    Series {
        name: way.into(),
        colour: [6, 1, 0, 4, 2, 5][colour % 6],
        run: 0,
        hollow: false,
        points,
    }
}

/// One figure by the messages' size, a line for each way.
fn by_size(name: &str, samples: &[Sample]) -> Chart {
    let mut sizes = different(samples, |sample| sample.figure.bytes);
    sizes.sort_unstable();
    let is_rate = samples.first().is_some_and(|sample| sample.figure.is_rate());
    // Nanoseconds or bytes a second, which the axis writes with their unit.
    let scale = if is_rate { 1e6 } else { 1e3 };
    let series = |(colour, way): (usize, String)| {
        let point =
            |&size: &u64| Some(middle(samples, name, size, &way)?.point(size as f64, scale));
        line(colour, &way, sizes.iter().filter_map(point).collect())
    };
    let ways = different(samples, |sample| sample.way.clone());
    let x = Axis {
        label: "size of the message",
        scale: Scale::Log,
        write: |size| bytes(size as usize),
        marks: sizes.iter().map(|&size| size as f64).collect(),
    };
    let y = Axis {
        label: if is_rate { "bandwidth" } else { "time" },
        scale: Scale::Log,
        write: if is_rate { |rate| si(rate, "B/s") } else { time },
        marks: Vec::new(),
    };
    let series = ways.into_iter().enumerate().map(series).collect();
    Chart { title: format!("MPI: {name} by the message's size"), x, y, series }
}

/// What whole programs gain over TCP, by the share of their time over TCP that they are in MPI.
fn by_share(samples: &[Sample], shares: &[Share]) -> Chart {
    let mut shares: Vec<&Share> = shares.iter().collect();
    shares.sort_by(|a, b| a.share.total_cmp(&b.share));
    let series = |(colour, way): (usize, String)| {
        let point = |share: &&Share| {
            let tcp = middle(samples, &share.program, 0, TCP)?.median;
            let Middle { median, low, high } = middle(samples, &share.program, 0, &way)?;
            Some(Point { x: share.share, y: tcp / median, low: tcp / high, high: tcp / low })
        };
        line(colour, &way, shares.iter().filter_map(point).collect())
    };
    let ways = different(samples, |sample| sample.way.clone());
    let x = Axis {
        label: "share of the time over TCP that is in MPI",
        scale: Scale::Linear,
        write: percent,
        marks: Vec::new(),
    };
    let y = Axis {
        label: "times as fast as over TCP",
        scale: Scale::Log,
        write: |times| format!("{} ×", short(times)),
        marks: Vec::new(),
    };
    let series = ways.into_iter().enumerate().map(series).collect();
    let names: Vec<&str> = shares.iter().map(|share| share.program.as_str()).collect();
    let title = format!("Gain over TCP by the share of time in MPI: {}", names.join(", "));
    Chart { title, x, y, series }
}
