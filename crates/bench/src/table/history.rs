//! `--history`: one page that draws each figure over the runs that were kept.

use crate::keep::{Figure, Kept};
use crate::results::short;
use anyhow::{Context, Result, ensure};
use ginnel_bench::chart::{Axis, COLOURS, Chart, Point, Scale, Series};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Lines of a chart: as many as there are colours.
const LINES: usize = COLOURS.len();

/// Writes docs/history.md and its charts in benchmarks/history from the runs in benchmarks, all of
/// them below `root`.
///
/// # Errors
/// A run could not be read, or a file not written.
pub fn draw(root: &Path) -> Result<()> {
    let runs = read(&root.join("benchmarks"))?;
    ensure!(!runs.is_empty(), "there is no run in {}", root.join("benchmarks").display());
    let folder = root.join("benchmarks/history");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("removing {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut page = head(&runs);
    let mut number = 0;
    for (group, figures) in groups(&runs) {
        write!(page, "\n## {group}\n")?;
        for part in figures.chunks(LINES) {
            number += 1;
            let name = format!("{number:02}.svg");
            std::fs::write(folder.join(&name), chart(group, part, &runs).to_file())
                .with_context(|| format!("writing {}", folder.join(&name).display()))?;
            let ids: Vec<&str> = part.iter().map(|(id, _)| *id).collect();
            write!(page, "\n![{group}: {}](../benchmarks/history/{name})\n\n", ids.join("; "))?;
            page.push_str(&table(part));
        }
    }
    let path = root.join("docs/history.md");
    std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

/// The runs by date, each with the name of its file.
fn read(folder: &Path) -> Result<Vec<(String, Kept)>> {
    let mut runs = Vec::new();
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?
    {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !name.ends_with(".json") {
            continue;
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        // Records of `make demo` and of costs are of another shape.
        if let Ok(kept) = serde_json::from_str::<Kept>(&text) {
            runs.push((name.to_owned(), kept));
        }
    }
    runs.sort_by(|a, b| a.1.machine.date.cmp(&b.1.machine.date));
    Ok(runs)
}

fn head(runs: &[(String, Kept)]) -> String {
    let mut page = String::from(
        "# History of the figures\n\n\
         What `make bench` measured in the runs that were kept: medians, with the least and greatest\n\
         round as a shade. A figure is a ratio within one run, or what its name says; machines differ,\n\
         so that a step may be the machine's. Not every run measured every figure. Written by\n\
         `ginnel-bench-table --history`.\n\n\
         | run | day | processor | kernel |\n|---|---|---|---|\n",
    );
    for (i, (name, run)) in runs.iter().enumerate() {
        let machine = &run.machine;
        let _ = writeln!(
            page,
            "| {} | [{}](../benchmarks/{name}) | {} | {} |",
            i + 1,
            machine.date.get(..10).unwrap_or(&machine.date),
            machine.cpu,
            machine.kernel
        );
    }
    page
}

/// A figure over the runs: its name, and what each run (by number, from 1) has of it.
type History<'a> = (&'a str, Vec<(usize, &'a Figure)>);

/// Groups in the order in which they first appear, each with its figures in theirs.
fn groups(runs: &[(String, Kept)]) -> Vec<(&str, Vec<History<'_>>)> {
    let mut places: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    let mut groups: Vec<(&str, Vec<History<'_>>)> = Vec::new();
    for (number, (_, run)) in runs.iter().enumerate() {
        for figure in run.figures.iter().filter(|figure| figure.value.is_some()) {
            let key = (figure.group.as_str(), figure.id.as_str());
            let (group, place) = *places.entry(key).or_insert_with(|| {
                let group =
                    groups.iter().position(|(name, _)| *name == key.0).unwrap_or_else(|| {
                        groups.push((key.0, Vec::new()));
                        groups.len() - 1
                    });
                groups[group].1.push((key.1, Vec::new()));
                (group, groups[group].1.len() - 1)
            });
            groups[group].1[place].1.push((number + 1, figure));
        }
    }
    groups
}

fn chart(group: &str, figures: &[History<'_>], runs: &[(String, Kept)]) -> Chart {
    let point = |(number, figure): &(usize, &Figure)| {
        let value = figure.value?;
        Some(Point { x: *number as f64, y: value.median, low: value.min, high: value.max })
    };
    let series = figures.iter().enumerate().map(|(i, (id, values))| Series {
        name: (*id).to_owned(),
        colour: i,
        run: 0,
        hollow: false,
        points: values.iter().filter_map(point).collect(),
    });
    let series: Vec<Series> = series.collect();
    let positive = series.iter().flat_map(|line| &line.points).all(|point| point.low > 0.0);
    let written = |value: f64| short(value);
    let whole = |value: f64| format!("{value:.0}");
    let marks = (1..=runs.len()).map(|number| number as f64).collect();
    Chart {
        title: group.to_owned(),
        x: Axis { label: "run", scale: Scale::Linear, write: whole, marks },
        y: Axis {
            label: "figure",
            scale: if positive { Scale::Log } else { Scale::Linear },
            write: written,
            marks: Vec::new(),
        },
        series,
    }
}

/// First and newest values beside the target.
fn table(figures: &[History<'_>]) -> String {
    let mut text = String::from("| figure | target | first | newest |\n|---|---|---|---|\n");
    for (id, values) in figures {
        let said = |at: Option<&(usize, &Figure)>| {
            let (number, figure) = at?;
            Some(format!("{} (run {number})", short(figure.value?.median)))
        };
        let (first, newest) = (said(values.first()), said(values.last()));
        let target = values.last().map_or("", |(_, figure)| figure.target.as_str());
        let _ = writeln!(
            text,
            "| {id} | {target} | {} | {} |",
            first.unwrap_or_default(),
            newest.unwrap_or_default()
        );
    }
    text
}
