//! What a run leaves: run.json with every sample, tables.md, and for each route a chart of the time
//! by a file's size.

use anyhow::{Context, Result};
use ginnel_bench::chart::{Axis, Chart, Point, Scale, Series};
use ginnel_bench::figures::{bytes, time};
use ginnel_bench::machine::Machine;
use ginnel_bench::stats::{Spread, different};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The way that the others are compared with.
pub const OWN: &str = "ginnel cp";

/// One copy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sample {
    /// Bytes of each file.
    pub bytes: u64,
    /// How many files.
    pub files: u64,
    /// By which way.
    pub way: String,
    /// From where to where.
    pub route: String,
    /// In which round.
    pub round: u32,
    /// How long it took.
    pub microseconds: u64,
}

/// Median and extremes of the rounds, of one way along one route.
#[derive(Serialize)]
struct Line {
    bytes: u64,
    files: u64,
    way: String,
    route: String,
    microseconds: Spread,
    /// How many times as long as `ginnel cp` it took, within rounds.
    times_as_long: Option<Spread>,
}

#[derive(Serialize)]
struct Run<'a> {
    machine: &'a Machine,
    place: &'a str,
    lines: &'a [Line],
    samples: &'a [Sample],
}

/// Reads the lines that bench-cp.sh wrote.
///
/// # Errors
/// Names the line that is none.
pub fn read(text: &str) -> Result<Vec<Sample>> {
    let sample = |line: &str| {
        let mut parts = line.split('|');
        let (bytes, files) = parts.next()?.split_once('x')?;
        let sample = Sample {
            bytes: bytes.parse().ok()?,
            files: files.parse().ok()?,
            way: parts.next()?.into(),
            route: parts.next()?.into(),
            round: parts.next()?.parse().ok()?,
            microseconds: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(sample)
    };
    text.lines().map(|line| sample(line).with_context(|| format!("no sample: {line}"))).collect()
}

/// Writes everything into the folder `out`, and prints the tables.
///
/// # Errors
/// Those of writing.
pub fn write(samples: &[Sample], place: &str, out: &Path) -> Result<()> {
    let machine = Machine::describe(Path::new("."));
    let charts = out.join("charts");
    std::fs::create_dir_all(&charts).with_context(|| format!("making {}", charts.display()))?;
    for route in different(samples, |sample| sample.route.clone()) {
        if let Some(chart) = chart(&route, samples) {
            let name = format!("copies-{}.svg", route.replace(' ', "-"));
            std::fs::write(charts.join(name), chart.to_file())?;
        }
    }
    let text = format!("{}\n{place}\n\n{}", machine.line(), tables(samples));
    std::fs::write(out.join("tables.md"), &text)?;
    let run = Run { machine: &machine, place, lines: &lines(samples), samples };
    std::fs::write(out.join("run.json"), serde_json::to_string_pretty(&run)? + "\n")?;
    println!("{text}\nSamples: {}", out.join("run.json").display());
    Ok(())
}

fn lines(samples: &[Sample]) -> Vec<Line> {
    let key = |s: &Sample| (s.route.clone(), (s.bytes, s.files), s.way.clone());
    let line = |(route, what, way): (String, (u64, u64), String)| {
        let of = |way: &str| -> Vec<&Sample> {
            let is_it =
                |s: &&Sample| s.route == route && (s.bytes, s.files) == what && s.way == way;
            samples.iter().filter(is_it).collect()
        };
        let (own, its) = (of(OWN), of(&way));
        let ratio = |sample: &&Sample| {
            let same = own.iter().find(|own| own.round == sample.round)?;
            Some(sample.microseconds as f64 / same.microseconds as f64)
        };
        let times_as_long = Spread::of(its.iter().filter_map(ratio));
        let microseconds = Spread::of(its.iter().map(|sample| sample.microseconds as f64))?;
        let (bytes, files) = what;
        Some(Line { bytes, files, way, route, microseconds, times_as_long })
    };
    different(samples, key).into_iter().filter_map(line).collect()
}

/// A table for each route and amount.
pub fn tables(samples: &[Sample]) -> String {
    let lines = lines(samples);
    let shown = |spread: Spread, write: &dyn Fn(f64) -> String| {
        format!("{} ({} to {})", write(spread.median), write(spread.min), write(spread.max))
    };
    let mut text = String::new();
    let mut before = None;
    for line in &lines {
        let what = (&line.route, line.bytes, line.files);
        if before.replace(what) != Some(what) {
            let size = bytes(usize::try_from(line.bytes).unwrap_or(usize::MAX));
            let count = if line.files == 1 { String::new() } else { format!("{} × ", line.files) };
            let _ = write!(text, "\n| {count}{size}, {} | time | times as long |\n", line.route);
            text += "|---|---:|---:|\n";
        }
        let ratio = line.times_as_long.map(|ratio| shown(ratio, &|it| format!("{it:.2}")));
        let took = shown(line.microseconds, &|it| time(it * 1000.0));
        let _ = writeln!(text, "| {} | {took} | {} |", line.way, ratio.unwrap_or_default());
    }
    text
}

/// The time of single files of one route by their size; nothing where there are not two sizes.
fn chart(route: &str, samples: &[Sample]) -> Option<Chart> {
    let lines: Vec<Line> =
        lines(samples).into_iter().filter(|line| line.route == route && line.files == 1).collect();
    let series = |(colour, way): (usize, String)| {
        let mut its: Vec<&Line> = lines.iter().filter(|line| line.way == way).collect();
        its.sort_by_key(|line| line.bytes);
        let point = |line: &&Line| {
            let Spread { median, min, max } = line.microseconds;
            let [y, low, high] = [median, min, max].map(|it| it * 1000.0);
            Point { x: line.bytes as f64, y, low, high }
        };
        let points = its.iter().map(point).collect();
        Series {
            name: way,
            colour: [0, 2, 4, 5, 3, 1, 6][colour % 7],
            run: 0,
            hollow: false,
            points,
        }
    };
    let mut sizes: Vec<u64> = lines.iter().map(|line| line.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return None;
    }
    let x = Axis {
        label: "size of the file",
        scale: Scale::Log,
        write: |size| bytes(size as usize),
        marks: sizes.iter().map(|&size| size as f64).collect(),
    };
    let y = Axis { label: "time of the copy", scale: Scale::Log, write: time, marks: Vec::new() };
    let ways = different(samples, |sample| sample.way.clone());
    let series: Vec<Series> =
        ways.into_iter().enumerate().map(series).filter(|one| !one.points.is_empty()).collect();
    Some(Chart { title: format!("Time of a copy by the file's size, {route}"), x, y, series })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: &str = "4096x1|ginnel cp|there|1|100\n4096x1|nc|there|1|200\n\
        4096x1|ginnel cp|there|2|300\n4096x1|nc|there|2|300\n65536x1|ginnel cp|there|1|400\n\
        65536x1|nc|there|1|500\n4096x9|ginnel cp|back|1|7\n";

    #[test]
    fn ways_are_compared_within_rounds_and_drawn_by_size() {
        let samples = read(TIMES).unwrap();
        let lines = lines(&samples);
        let nc = lines.iter().find(|line| line.way == "nc" && line.bytes == 4096).unwrap();
        let ratio = nc.times_as_long.unwrap();
        assert_eq!((ratio.min, ratio.max, nc.microseconds.median), (1.0, 2.0, 250.0));
        let drawn = chart("there", &samples).unwrap().to_file();
        assert_eq!(drawn.matches("<circle").count(), 4, "two sizes of two ways");
        assert!(chart("back", &samples).is_none(), "one size is no line");
        assert!(tables(&samples).contains("| 9 × 4 KiB, back |"), "{}", tables(&samples));
    }

    #[test]
    fn what_is_no_sample_is_named() {
        for bad in ["4096|nc|there|1|1", "4096x1|nc|there|1", "4096x1|nc|there|1|1|1", "x|||1|1"] {
            let said = read(bad).unwrap_err().to_string();
            assert!(said.contains(bad), "{said}");
        }
    }
}
