//! What test programs print, as verdicts by name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// How one test ended. The order is from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should.
    Passed,
    /// It said that it does not apply here.
    Skipped,
    /// Otherwise, or not at all.
    Failed,
}

/// Verdicts by the test's name.
pub type Verdicts = BTreeMap<String, Verdict>;

/// The form in which results are told.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// JUnit's XML, in files in the folder for results.
    Junit,
    /// The Test Anything Protocol, on standard output.
    Tap,
    /// The same, of a program that makes as many tests as it rolls the dice: those of one name are
    /// one, good if all are.
    TapByName,
    /// What `go test -v` prints.
    Go,
    /// What Rust's test harness prints.
    Libtest,
    /// What Redis's test harness prints.
    Redis,
}

impl Reader {
    /// The verdicts of a program that printed `stdout` and left its files in `results`.
    ///
    /// # Errors
    /// When a file of results cannot be read or understood.
    pub fn read(self, stdout: &str, results: &Path) -> Result<Verdicts> {
        Ok(match self {
            Reader::Junit => {
                let mut all = Verdicts::new();
                for file in
                    std::fs::read_dir(results).with_context(|| results.display().to_string())?
                {
                    let path = file?.path();
                    if path.extension().is_some_and(|end| end == "xml") {
                        let text = std::fs::read_to_string(&path)
                            .with_context(|| path.display().to_string())?;
                        all.extend(junit(&text).with_context(|| path.display().to_string())?);
                    }
                }
                all
            }
            Reader::Tap => tap(stdout),
            Reader::TapByName => by_name(tap(stdout)),
            Reader::Go => go(stdout),
            Reader::Libtest => libtest(stdout),
            Reader::Redis => redis(stdout),
        })
    }
}

/// `<testcase>` elements, wherever they are. One that appears twice (a class that runs in several
/// ways) gets a number.
fn junit(text: &str) -> Result<Verdicts> {
    let document = roxmltree::Document::parse(text).context("no XML")?;
    let mut all = Verdicts::new();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let name = case.attribute("name").unwrap_or("?");
        let name = case
            .attribute("classname")
            .map_or_else(|| name.to_owned(), |class| format!("{class}.{name}"));
        let has = |what| case.children().any(|child| child.has_tag_name(what));
        let verdict = if has("failure") || has("error") {
            Verdict::Failed
        } else if has("skipped") || case.attribute("status") == Some("notrun") {
            Verdict::Skipped
        } else {
            Verdict::Passed
        };
        insert(&mut all, name, verdict);
    }
    Ok(all)
}

fn insert(all: &mut Verdicts, name: String, verdict: Verdict) {
    let mut free = name.clone();
    let mut number = 1;
    while all.contains_key(&free) {
        number += 1;
        free = format!("{name} #{number}");
    }
    all.insert(free, verdict);
}

/// Longer words in a test's name are values.
const WORD_MAX: usize = 40;

/// "ok 1 - name", "not ok 2 name # TODO why", "ok 3 # SKIP why".
fn tap(stdout: &str) -> Verdicts {
    let mut all = Verdicts::new();
    for line in stdout.lines() {
        let (good, rest) = match (line.strip_prefix("not ok "), line.strip_prefix("ok ")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => continue,
        };
        let (rest, directive) =
            rest.split_once(" # ").or_else(|| rest.split_once("# ")).unwrap_or((rest, ""));
        let directive = directive.to_ascii_uppercase();
        let (number, name) = rest.split_once(' ').unwrap_or((rest, ""));
        if number.parse::<u32>().is_err() {
            continue;
        }
        let verdict = match (directive.starts_with("SKIP"), good || directive.starts_with("TODO")) {
            (true, _) => Verdict::Skipped,
            (_, true) => Verdict::Passed,
            _ => Verdict::Failed,
        };
        // A name may hold a number of bytes or a process's, or a random value, another in each run;
        // its position says which test it is.
        let word = |word: &str| {
            if word.len() > WORD_MAX {
                "…".to_owned()
            } else {
                word.replace(|c: char| c.is_ascii_digit(), "#")
            }
        };
        let name = name
            .trim_start_matches("- ")
            .split_whitespace()
            .map(word)
            .collect::<Vec<_>>()
            .join(" ");
        insert(&mut all, format!("{number} {name}").trim_end().to_owned(), verdict);
    }
    all
}

fn by_name(numbered: Verdicts) -> Verdicts {
    let mut all = Verdicts::new();
    for (name, verdict) in numbered {
        let name = name.split_once(' ').map_or("", |(_, name)| name).to_owned();
        let worst = all.entry(name).or_insert(verdict);
        if verdict == Verdict::Failed {
            *worst = verdict;
        }
    }
    all
}

/// "--- PASS: TestName (0.00s)", indented for a test within a test.
fn go(stdout: &str) -> Verdicts {
    let mut all = Verdicts::new();
    for line in stdout.lines() {
        let Some((word, rest)) =
            line.trim_start().strip_prefix("--- ").and_then(|rest| rest.split_once(": "))
        else {
            continue;
        };
        let verdict = match word {
            "PASS" => Verdict::Passed,
            "SKIP" => Verdict::Skipped,
            "FAIL" => Verdict::Failed,
            _ => continue,
        };
        let name = rest.rsplit_once(" (").map_or(rest, |(name, _)| name);
        insert(&mut all, name.to_owned(), verdict);
    }
    all
}

/// "test name ... ok"; what the test itself prints may stand between.
fn libtest(stdout: &str) -> Verdicts {
    let mut all = Verdicts::new();
    for line in stdout.lines() {
        let Some((name, end)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            continue;
        };
        let verdict = match end.split([',', ' ']).next() {
            Some("ok") => Verdict::Passed,
            Some("ignored") => Verdict::Skipped,
            _ => Verdict::Failed,
        };
        insert(&mut all, name.trim_end_matches(" - should panic").to_owned(), verdict);
    }
    all
}

/// "[ok]: name (3 ms)", "[err]: name in tests/unit/x.tcl", "[skip]: name", "[ignore]: name: why".
fn redis(stdout: &str) -> Verdicts {
    let mut all = Verdicts::new();
    for line in stdout.lines() {
        let Some((word, rest)) =
            line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
        else {
            continue;
        };
        let (verdict, end) = match word {
            "ok" => (Verdict::Passed, " ("),
            "err" | "exception" | "timeout" => (Verdict::Failed, " in tests/"),
            "skip" | "ignore" => (Verdict::Skipped, ": "),
            _ => continue,
        };
        let name = rest.rsplit_once(end).map_or(rest, |(name, _)| name);
        // Some have a number in them that is another in each run.
        insert(&mut all, name.replace(|c: char| c.is_ascii_digit(), "#"), verdict);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Failed, Passed, Skipped};
    use super::*;

    fn list(all: &Verdicts) -> Vec<(&str, Verdict)> {
        all.iter().map(|(name, verdict)| (name.as_str(), *verdict)).collect()
    }

    #[test]
    fn junit_of_any_nesting() {
        let text = r#"<?xml version="1.0"?><testsuites><testsuite name="s">
            <testcase name="a.b.c" status="run" result="completed" time="0.1"/>
            <testcase classname="K" name="m()"><failure message="x">y</failure></testcase>
            <testcase classname="K" name="m()"><error/></testcase>
            <testcase classname="K" name="n()"><skipped>no IPv6</skipped></testcase>
            </testsuite></testsuites>"#;
        let found = junit(text).expect("XML");
        assert_eq!(
            list(&found),
            [("K.m()", Failed), ("K.m() #2", Failed), ("K.n()", Skipped), ("a.b.c", Passed)]
        );
        assert!(junit("<a").is_err());
    }

    #[test]
    fn tap_lines_and_no_others() {
        let bare = "1..4\nok 1 - fork_socketpair\nnot ok 2 - tcp_ping\n# Output from process\nok 3 - udp # SKIP no IPv6\nok so far\nnot ok 4 - x # TODO later\n";
        let found = tap(bare);
        assert_eq!(
            list(&found),
            [
                ("1 fork_socketpair", Passed),
                ("2 tcp_ping", Failed),
                ("3 udp", Skipped),
                ("4 x", Passed)
            ]
        );
        assert_eq!(
            list(&tap("ok 1 - took 12 ms\nok\nok 2\n")),
            [("1 took ## ms", Passed), ("2", Passed)]
        );
        let value = "X".repeat(20_000);
        assert_eq!(list(&tap(&format!("ok 1 - key is {value}\n"))), [("1 key is …", Passed)]);
    }

    #[test]
    fn tests_of_one_name_are_good_if_all_are() {
        let found = by_name(tap("ok 1 - a\nnot ok 2 - b\nok 3 - a\nok 4 - b\nok 5\n"));
        assert_eq!(list(&found), [("", Passed), ("a", Passed), ("b", Failed)]);
    }

    #[test]
    fn go_with_tests_in_tests() {
        let text = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- SKIP: TestA/sub (1) (0.01s)\n--- FAIL: TestB (0.00s)\nPASS\n";
        assert_eq!(
            list(&go(text)),
            [("TestA", Passed), ("TestA/sub (1)", Skipped), ("TestB", Failed)]
        );
    }

    #[test]
    fn libtest_results() {
        let text = "running 3 tests\ntest a::b ... ok\ntest c - should panic ... FAILED\ntest d ... ignored, why\n\ntest result: FAILED. 1 passed\n";
        assert_eq!(list(&libtest(text)), [("a::b", Passed), ("c", Failed), ("d", Skipped)]);
    }

    #[test]
    fn redis_results() {
        let text = "[ok]: SET and GET (12 ms)\n[err]: LPOP (x) in tests/unit/type/list.tcl\nExpected 1\n\
                    [skip]: large (not now)\n[ok]: SET and GET (3 ms)\n[1/1 done]: unit/x (1 seconds)\n";
        let want = [
            ("LPOP (x)", Failed),
            ("SET and GET", Passed),
            ("SET and GET #2", Passed),
            ("large (not now)", Skipped),
        ];
        assert_eq!(list(&redis(text)), want);
    }
}
