//! What a run leaves: run.json with every sample, tables.md, and a chart of each load's
//! distribution.

use crate::Options;
use crate::clients::{QUANTILES, Sample, Workload};
use crate::ways::Way;
use anyhow::{Context, Result};
use ginnel_bench::chart::{Axis, Chart, Point, Scale, Series};
use ginnel_bench::figures::{si, time};
use ginnel_bench::machine::Machine;
use ginnel_bench::stats::Spread;
use serde::Serialize;
use std::fmt::Write;

/// A load: one table, one chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Load {
    workload: Workload,
    wanted: Option<u32>,
}

impl Load {
    fn words(self) -> String {
        let workload = match self.workload {
            Workload::B => "B (95 % reads)",
            Workload::C => "C (reads)",
            Workload::W => "W (B's updates alone)",
        };
        match self.wanted {
            Some(rate) => format!("Workload {workload}, {rate} operations a second"),
            None => format!("Workload {workload}, full speed"),
        }
    }

    /// Are reads what it is about?
    fn reads(self) -> bool {
        self.workload != Workload::W
    }

    fn file(self) -> String {
        let rate = if self.wanted.is_some() { "rate" } else { "full" };
        format!("ycsb-{:?}-{rate}.svg", self.workload).to_lowercase()
    }

    fn has(self, sample: &Sample) -> bool {
        sample.workload == self.workload && sample.wanted == self.wanted
    }
}

/// Median and extremes of the rounds, of one way under one load.
#[derive(Serialize)]
struct Line {
    load: Load,
    way: Way,
    /// Operations a second.
    rate: Spread,
    read_p50_ns: Option<Spread>,
    read_p99_ns: Option<Spread>,
    /// memcached's median of a read over this way's, within rounds.
    times_faster: Option<Spread>,
    update_p50_ns: Option<Spread>,
    misses: u64,
}

#[derive(Serialize)]
struct Run<'a> {
    machine: &'a Machine,
    place: &'a str,
    options: &'a Options,
    quantiles: [f64; 6],
    lines: &'a [Line],
    samples: &'a [Sample],
}

/// Writes everything into the folder that the options name, and prints the tables.
pub fn write(machine: &Machine, place: &str, options: &Options, samples: &[Sample]) -> Result<()> {
    let mut loads: Vec<Load> = Vec::new();
    for sample in samples {
        let load = Load { workload: sample.workload, wanted: sample.wanted };
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    let lines: Vec<Line> = loads
        .iter()
        .flat_map(|&load| Way::ALL.iter().filter_map(move |&way| line(load, way, samples)))
        .collect();
    let charts = options.out.join("charts");
    std::fs::create_dir_all(&charts).with_context(|| format!("making {}", charts.display()))?;
    for &load in &loads {
        std::fs::write(charts.join(load.file()), chart(load, samples).to_file())?;
    }
    let text = format!("{}\n{place}\n\n{}", machine.line(), tables(&loads, &lines));
    std::fs::write(options.out.join("tables.md"), &text)?;
    let run = Run { machine, place, options, quantiles: QUANTILES, lines: &lines, samples };
    std::fs::write(options.out.join("run.json"), serde_json::to_string_pretty(&run)? + "\n")?;
    println!("{text}\nSamples: {}", options.out.join("run.json").display());
    Ok(())
}

fn line(load: Load, way: Way, samples: &[Sample]) -> Option<Line> {
    let of = |way: Way| samples.iter().filter(move |sample| load.has(sample) && sample.way == way);
    let quantile =
        |sample: &Sample, at: usize| sample.reads.quantiles_ns.get(at).map(|&ns| ns as f64);
    let base: Vec<f64> = of(Way::Memcached).filter_map(|sample| quantile(sample, 0)).collect();
    let ratios = of(way).zip(&base).filter_map(|(sample, base)| Some(base / quantile(sample, 0)?));
    Some(Line {
        load,
        way,
        rate: Spread::of(of(way).map(|sample| sample.rate))?,
        read_p50_ns: Spread::of(of(way).filter_map(|sample| quantile(sample, 0))),
        read_p99_ns: Spread::of(of(way).filter_map(|sample| quantile(sample, 3))),
        times_faster: Spread::of(ratios),
        update_p50_ns: Spread::of(
            of(way).filter_map(|sample| sample.updates.quantiles_ns.first().map(|&ns| ns as f64)),
        ),
        misses: of(way).map(|sample| sample.misses).sum(),
    })
}

fn tables(loads: &[Load], lines: &[Line]) -> String {
    let with = |spread: Option<Spread>, write: fn(f64) -> String| {
        let shown = |one: Spread| {
            format!("{} ({} to {})", write(one.median), write(one.min), write(one.max))
        };
        spread.map_or_else(String::new, shown)
    };
    let mut text = String::new();
    for &load in loads {
        let _ = writeln!(
            text,
            "| {} | operations | a read, median | 99 % of reads | times faster | an update, median | misses |",
            load.words()
        );
        text += "|---|---:|---:|---:|---:|---:|---:|\n";
        for line in lines.iter().filter(|line| line.load == load) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                line.way.words(),
                with(Some(line.rate), |rate| si(rate, "/s")),
                with(line.read_p50_ns, time),
                with(line.read_p99_ns, time),
                with(line.times_faster, |ratio| format!("{ratio:.2}")),
                with(line.update_p50_ns, time),
                line.misses
            );
        }
        text.push('\n');
    }
    text
}

/// How long all but the slowest calls took.
fn chart(load: Load, samples: &[Sample]) -> Chart {
    let series = |(colour, &way): (usize, &Way)| {
        let points = QUANTILES.iter().enumerate().filter_map(|(at, share)| {
            let of = samples.iter().filter(|sample| load.has(sample) && sample.way == way);
            // Only where each round has it.
            let times = |sample: &Sample| {
                if load.reads() { sample.reads.clone() } else { sample.updates.clone() }
            };
            let values: Option<Vec<f64>> =
                of.map(|sample| times(sample).quantiles_ns.get(at).map(|&ns| ns as f64)).collect();
            let Spread { median, min, max } = Spread::of(values?)?;
            Some(Point { x: 1.0 / (1.0 - share), y: median, low: min, high: max })
        });
        Series {
            name: way.words().into(),
            colour: [2, 0, 4, 5][colour],
            run: 0,
            hollow: false,
            points: points.collect(),
        }
    };
    let x = Axis {
        label: "quantile",
        scale: Scale::Log,
        write: |v| format!("{} %", (100_000.0 * (1.0 - 1.0 / v)).round() / 1000.0),
        marks: QUANTILES.iter().map(|share| 1.0 / (1.0 - share)).collect(),
    };
    let label = if load.reads() { "time of a read" } else { "time of an update" };
    let y = Axis { label, scale: Scale::Log, write: time, marks: Vec::new() };
    Chart { title: load.words(), x, y, series: Way::ALL.iter().enumerate().map(series).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Times;

    fn sample(way: Way, round: u32, ns: u64) -> Sample {
        let reads =
            Times { count: 1000, mean_ns: ns as f64, quantiles_ns: vec![ns, ns, ns, ns * 3] };
        let (workload, wanted, updates) = (Workload::C, None, Times::default());
        Sample {
            round,
            way,
            workload,
            wanted,
            rate: 9.0,
            reads,
            updates,
            misses: 1,
            failed: 0,
            direct: 0,
            asked: 0,
            ring_share: 0.0,
        }
    }

    #[test]
    fn ways_are_compared_within_rounds() {
        let samples = [
            (Way::Memcached, 1, 1000),
            (Way::Direct, 1, 100),
            (Way::Memcached, 2, 4000),
            (Way::Direct, 2, 200),
        ]
        .map(|(way, round, ns)| sample(way, round, ns));
        let load = Load { workload: Workload::C, wanted: None };
        let line = line(load, Way::Direct, &samples).unwrap();
        let faster = line.times_faster.unwrap();
        assert_eq!((faster.min, faster.max, line.misses), (10.0, 20.0, 2));
        assert!(super::line(load, Way::CarriedCache, &samples).is_none());
        let drawn = chart(load, &samples).to_file();
        assert_eq!(drawn.matches("<circle").count(), 8, "four quantiles of two ways");
        assert!(tables(&[load], &[line]).contains("| ginnel-cache, direct reads | 9.00 /s"));
    }
}
