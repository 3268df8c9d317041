//! `docs/compatibility.md`: what came of all suites, for people who want to know whether their
//! program will run.

use std::fmt::Write as _;

use super::Outcome;

/// The heading above the second table.
const HARD: &str = "The hard way";

/// Suites by name, where they come from, and what came of them.
pub type Row<'a> = (&'a str, &'a str, Option<Said>);

/// What is said of a suite.
pub enum Said {
    /// What came of it in the last run here.
    Outcome(Outcome),
    /// What an earlier page said of it: a line of the table, and the part about it.
    Before {
        /// The line, without its end.
        row: String,
        /// From its heading on.
        part: String,
    },
}

impl Said {
    /// What `page` says of the suite `name`, if it says something.
    #[must_use]
    pub fn before(page: &str, name: &str) -> Option<Self> {
        let row = page.lines().find(|line| {
            line.starts_with(&format!("| {name} | ")) && !line.contains("| not run |")
        })?;
        let at = page.find(&format!("\n## {name}\n"))?;
        let part = page.get(at + 1..)?;
        let part = part.find("\n## ").and_then(|end| part.get(..end)).unwrap_or(part);
        Some(Self::Before { row: row.to_owned(), part: part.trim_end().to_owned() })
    }

    /// The same of its run the hard way: a line alone.
    #[must_use]
    pub fn before_hard(page: &str, name: &str) -> Option<Self> {
        let (_, hard) = page.split_once(&format!("\n## {HARD}\n"))?;
        let row = hard.lines().find(|line| line.starts_with(&format!("| {name} | ")))?;
        Some(Self::Before { row: row.to_owned(), part: String::new() })
    }
}

/// The table alone, as Markdown.
#[must_use]
pub fn table<'a>(rows: impl IntoIterator<Item = &'a Row<'a>>) -> String {
    let mut text = String::from(
        "| suite | version | tests | same | better | worse | bytes through rings | seconds, plainly | with Ginnel |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, _, outcome) in rows {
        let outcome = match outcome {
            Some(Said::Outcome(outcome)) => outcome,
            Some(Said::Before { row, .. }) => {
                let _ = writeln!(text, "{row}");
                continue;
            }
            None => {
                let _ = writeln!(text, "| {name} | | not run | | | | | | |");
                continue;
            }
        };
        let Outcome { version, tests, better, worse, share, plain_seconds, our_seconds, .. } =
            outcome;
        let share = percent(*share);
        let same = tests - better - worse;
        let _ = writeln!(
            text,
            "| {name} | {version} | {tests} | {same} | {better} | {worse} | {share} | {plain_seconds:.0} | {our_seconds:.0} |"
        );
    }
    text
}

fn percent(share: Option<f64>) -> String {
    share.map_or("none moved".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Of parts that say what they test, where not all is one program: a table of them.
fn parts(outcome: &Outcome) -> String {
    let mut text = String::new();
    let told: Vec<_> = outcome.parts.iter().filter(|part| !part.version.is_empty()).collect();
    if !told.is_empty() {
        text += "\n| part | of | tests | bytes through rings | seconds, plainly | with Ginnel |\n|---|---|---:|---:|---:|---:|\n";
    }
    for part in told {
        let (share, plain, ours) = (percent(part.share), part.plain_seconds, part.our_seconds);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {share} | {plain:.0} | {ours:.0} |",
            part.name, part.version, part.tests
        );
    }
    text
}

/// The table of what was run the hard way, with what it takes to read it.
fn hard_way(rows: &[Row]) -> String {
    let told: Vec<&Row> = rows.iter().filter(|row| row.2.is_some()).collect();
    if told.is_empty() {
        return String::new();
    }
    let text = "Once more with wake-ups by tokens alone (`GINNEL_TOKENS=1`), rings of 4 KiB that never grow, and no \
                spinning before a sleep: so every sleep is slept, and rings are full most of the time. \
                `make conformance CONFORMANCE_ARGS='--hard'` repeats it.";
    format!("\n## {HARD}\n\n{text}\n\n{}", table(told))
}

/// The whole page: `rows` as they are run usually, `hard` with settings of
/// [`Way::Hard`](super::Way).
#[must_use]
pub fn page(rows: &[Row], hard: &[Row]) -> String {
    let mut text = String::from(
        "# Compatibility\n\n\
         Other people's test suites, run plainly and with every socket accelerated over loopback, compared test by test.\n\
         This page is written by `make conformance`; `make conformance CONFORMANCE_ARGS='--only libuv'` repeats one row.\n\n",
    );
    text += &table(rows);
    text += "\n\"Same\": the test ended the same way both ways, well or not. A part in which a test ended otherwise is run \
             three times more, both ways. \"Worse\" is then a test that ended well less often with Ginnel in these three \
             runs, \"better\" one that did so more often. A missing result is a failure.\n\n\
             The suites run as an ordinary user in a network namespace with nothing but loopback in it. Every connection \
             is a candidate from its first byte (`GINNEL_AFTER=0`; the default waits for some exchanges). \"Bytes through \
             rings\" is the share of all bytes that the programs moved over TCP sockets, static programs in Go \
             (`GINNEL_GO=1`) among them. Where a part has a least share, that is one of its tests.\n";
    for (name, source, outcome) in rows {
        let outcome = match outcome {
            Some(Said::Outcome(outcome)) => outcome,
            Some(Said::Before { part, .. }) => {
                let _ = write!(text, "\n{part}\n");
                continue;
            }
            None => continue,
        };
        let _ = write!(
            text,
            "\n## {name}\n\nFrom: {source}. {} of {} tests pass without Ginnel here.\n",
            outcome.passed, outcome.tests
        );
        if !outcome.made.is_empty() {
            let _ = writeln!(text, "Run: {}.", outcome.made);
        }
        for remark in &outcome.remarks {
            let _ = writeln!(text, "{remark}");
        }
        if !outcome.missing.is_empty() {
            let _ = writeln!(
                text,
                "Not compared, as it was not built, or told no results without Ginnel either: {}.",
                outcome.missing.join(", ")
            );
        }
        if outcome.unsteady.is_empty() {
            text += "Every test ended the same way, both ways.\n";
            text += &parts(outcome);
            continue;
        }
        text += "\nTests that did not end the same way in every run:\n\n| test | runs each way | passed plainly | passed with Ginnel |\n|---|---:|---:|---:|\n";
        for test in &outcome.unsteady {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                test.name.replace('|', "\\|"),
                test.runs,
                test.plain,
                test.ours
            );
        }
        text += &parts(outcome);
    }
    text += &hard_way(hard);
    wrapped(&text)
}

/// The text with no line of more than 100 characters, but tables' and that of a longer word.
fn wrapped(text: &str) -> String {
    let mut whole = String::new();
    for line in text.lines() {
        let mut width = 0;
        for word in line.split_inclusive(' ') {
            let more = word.trim_end().chars().count();
            if width > 0 && width + more > 100 && !line.starts_with('|') {
                whole.truncate(whole.trim_end().len());
                whole.push('\n');
                width = 0;
            }
            whole += word;
            width += word.chars().count();
        }
        whole.push('\n');
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::super::PartRecord;
    use super::*;

    fn outcome(tests: usize) -> Outcome {
        let part = PartRecord {
            name: "a".to_owned(),
            version: "a 7".to_owned(),
            tests,
            share: Some(0.25),
            ..PartRecord::default()
        };
        Outcome {
            version: "1".to_owned(),
            made: "today".to_owned(),
            tests,
            passed: tests,
            parts: vec![part],
            ..Outcome::default()
        }
    }

    #[test]
    fn lines_end_after_a_hundred_characters() {
        let long = "µs ".repeat(67);
        let page = wrapped(&format!("## a\n\n{long}\n| {long} |\n"));
        let widths: Vec<usize> = page.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [4, 0, 98, 98, 3, 205], "{page}");
        assert_eq!(wrapped(&page), page, "once is enough");
    }

    #[test]
    fn what_a_page_said_of_other_suites_stays() {
        let first = page(
            &[
                ("one", "a", Some(Said::Outcome(outcome(3)))),
                ("two", "b", Some(Said::Outcome(outcome(4)))),
                ("three", "c", None),
            ],
            &[("two", "b", Some(Said::Outcome(outcome(9))))],
        );
        assert!(
            first.contains("Run: today.") && first.contains("| a | a 7 | 4 | 25.0 % |"),
            "{first}"
        );
        let kept = |name| Said::before(&first, name);
        let hard = |page: &str| {
            [
                ("one", "a", Said::before_hard(page, "one")),
                ("two", "b", Said::before_hard(page, "two")),
            ]
        };
        assert!(hard(&first)[0].2.is_none() && first.contains("| two | 1 | 9 |"), "{first}");
        assert!(kept("three").is_none() && kept("tw").is_none());
        assert_eq!(
            page(
                &[
                    ("one", "a", kept("one")),
                    ("two", "b", kept("two")),
                    ("three", "c", kept("three"))
                ],
                &hard(&first)
            ),
            first
        );
        let again = page(
            &[
                ("one", "a", kept("one")),
                ("two", "b", Some(Said::Outcome(outcome(5)))),
                ("three", "c", None),
            ],
            &[],
        );
        assert!(
            again.contains("| one | 1 | 3 |")
                && again.contains("| two | 1 | 5 |")
                && again.contains("3 of 3 tests")
                && !again.contains("4 of 4")
        );
    }
}
