//! A run's figures in Markdown files: what stands between `<!-- bench NAME: PART -->` and `<!--
//! bench end -->` is replaced, where NAME is the run's.
//!
//! So that a document's figures are those of a recorded run, and follow when that is recorded
//! again.

use super::pictures::Picture;
use super::tables::{self, Grid};
use crate::record::Recorded;
use anyhow::{Context, Result, bail};
use std::path::Path;

const BEGIN: &str = "<!-- bench ";
const END: &str = "<!-- bench end -->";

/// What is between two marks, anew. `place`: the run's directory, as it is to be called.
fn part(
    name: &str,
    run: &Recorded,
    pictures: &[Picture],
    place: &Path,
    above: &str,
) -> Result<String> {
    let runs = std::slice::from_ref(run);
    Ok(match name {
        "machine" => machine(run, place),
        "charts" => {
            let chart = |picture: &Picture| {
                let file = place.join("charts").join(picture.file).with_extension("svg");
                let words = wrapped(picture.words, "");
                format!("![{0}]({above}{1})\n\n{words}", picture.chart.title, file.display())
            };
            pictures.iter().map(chart).collect::<Vec<_>>().join("\n")
        }
        "failed" => {
            let remarks = tables::remarks(run);
            let line = |(cell, why): &(String, String)| wrapped(&format!("- {cell}: {why}"), "  ");
            let lines: Vec<String> = remarks.iter().map(line).collect();
            if lines.is_empty() { "Nothing.\n".into() } else { lines.concat() }
        }
        _ => match tables::named(name, runs) {
            Some(grid) => table(&grid),
            None => bail!(
                "there is no part {name:?}: machine, charts, failed, {}",
                tables::NAMES.join(", ")
            ),
        },
    })
}

fn machine(run: &Recorded, place: &Path) -> String {
    let (machine, run) = (&run.run.machine, &run.run);
    let incomplete = if run.complete { "" } else { " It was interrupted." };
    let words = format!(
        "{}; ginnel bench {} ({}), {} rounds of {} s samples, {:.0} minutes.{incomplete} Raw samples: `{}`.",
        machine.line(),
        run.version,
        if machine.commit.is_empty() { "no commit" } else { &machine.commit },
        run.rounds,
        run.seconds,
        run.took / 60.0,
        place.display(),
    );
    wrapped(&words, "")
}

/// Text in lines of at most 100 characters, each but the first behind `indent`. A longer word has a
/// line of its own.
fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let more = word.chars().count();
        if width == 0 {
            width = more;
        } else if width + 1 + more <= 100 {
            lines.push(' ');
            width += 1 + more;
        } else {
            lines += "\n";
            lines += indent;
            width = indent.len() + more;
        }
        lines += word;
    }
    lines + "\n"
}

fn table(grid: &Grid) -> String {
    let line = |cells: &[String]| {
        format!(
            "| {} |\n",
            cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | ")
        )
    };
    let rule = format!("|---|{}\n", "---:|".repeat(grid.head.len().saturating_sub(1)));
    line(&grid.head) + &rule + &grid.rows.iter().map(|row| line(row)).collect::<String>()
}

/// The text with this run's parts anew, and how many there were.
fn fill(
    text: &str,
    run: &Recorded,
    pictures: &[Picture],
    place: &Path,
    above: &str,
) -> Result<(String, usize)> {
    let (mut filled, mut rest, mut count) = (String::new(), text, 0);
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        filled += before;
        let (mark, after) = from.split_once("-->").context("a mark without an end")?;
        let name = mark[BEGIN.len()..].trim();
        let (of, name) =
            name.split_once(':').with_context(|| format!("{mark}-->: no mark with a part"))?;
        let (old, after) =
            after.split_once(END).with_context(|| format!("{mark}-->: no {END} after it"))?;
        if of.trim() == run.run.name {
            let new = part(name.trim(), run, pictures, place, above)?;
            filled += &format!("{mark}-->\n\n{new}\n{END}");
            count += 1;
        } else {
            filled += &format!("{mark}-->{old}{END}");
        }
        rest = after;
    }
    Ok((filled + rest, count))
}

/// Fills a file.
pub fn write(path: &Path, run: &Recorded, pictures: &[Picture], place: &Path) -> Result<()> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    // From the file's folder to where the paths begin.
    let above = "../".repeat(path.parent().map_or(0, |folder| folder.components().count()));
    let (filled, count) =
        fill(&text, run, pictures, place, &above).with_context(|| path.display().to_string())?;
    if count == 0 {
        bail!(
            "{} has no mark for a run that is called {:?}: {BEGIN}{}: summary -->",
            path.display(),
            run.run.name,
            run.run.name
        );
    }
    std::fs::write(path, filled).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Pattern, Transport};
    use crate::plan::Cell;
    use crate::record::{Sample, tests::run};

    #[test]
    fn lines_have_at_most_a_hundred_characters() {
        let text = format!("- {}", "µs ".repeat(100));
        let wrapped = wrapped(&text, "  ");
        let lines: Vec<&str> = wrapped.lines().collect();
        assert_eq!(
            lines.iter().map(|line| line.chars().count()).collect::<Vec<_>>(),
            [100, 100, 100, 4]
        );
        assert!(lines[1..].iter().all(|line| line.starts_with("  µs")), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().count(), text.split_whitespace().count());
    }

    #[test]
    fn what_is_between_a_runs_marks_is_replaced_and_nothing_else() {
        let cell = Cell { pattern: Pattern::Stream, x: 65536, transport: Transport::Tcp };
        let recorded = Recorded {
            run: run("a"),
            samples: vec![Sample { value: Some(2.5e9), ..Sample::of(1, cell) }],
        };
        let filled = |text: &str| fill(text, &recorded, &[], "benchmarks/x".as_ref(), "../");
        let text = "one\n<!-- bench a: medians -->old<!-- bench end -->\ntwo <!-- bench b: no such -->kept<!-- bench end --> three";
        let (new, count) = filled(text).unwrap();
        assert_eq!(count, 1);
        assert!(
            new.starts_with("one\n<!-- bench a: medians -->\n\n|  | TCP |\n|---|---:|\n| stream, 64 KiB | 2.50 GB/s |\n"),
            "{new}"
        );
        assert!(
            new.ends_with(
                "<!-- bench end -->\ntwo <!-- bench b: no such -->kept<!-- bench end --> three"
            ),
            "{new}"
        );
        assert_eq!(filled(&new).unwrap().0, new, "again it changes nothing");
        for wrong in [
            "<!-- bench a: nothing --><!-- bench end -->",
            "<!-- bench a: medians -->",
            "<!-- bench a --><!-- bench end -->",
        ] {
            assert!(filled(wrong).is_err(), "{wrong}");
        }
    }
}
