//! A suite both ways, and which of its tests end otherwise.

mod run;

pub use run::Way;
use run::{Bytes, Run, run};
use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::reader::{Verdict, Verdicts};
use super::{Part, Suite, made};

/// The user (nobody) and group (nogroup) as whom suites run where the caller is root: several of
/// them refuse to run as root, and most programs do not.
pub(super) const NOBODY: u32 = 65534;

/// So much of what a run printed is shown, bytes.
const TOLD: usize = 32 << 10;
/// So many tests that ended otherwise are named on the way; the page has them all.
const NAMED: usize = 10;
/// How often a part is run again, both ways, where tests ended otherwise.
const AGAIN: usize = 3;

/// One more test of each part: that its program ends, and well.
const END: &str = "(exit status)";
/// And one of a part that is to be carried: that enough of it was.
const CARRIED: &str = "(bytes through rings)";

/// How a test fared with the shim, beside without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Equally well.
    Same,
    /// It ended well more often.
    Better,
    /// It ended well less often.
    Worse,
}

/// A test that did not end the same way every time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestRecord {
    /// Part and name.
    pub name: String,
    /// Runs, each way.
    pub runs: usize,
    /// How many of them it passed without the shim.
    pub plain: usize,
    /// How many of them it passed with it.
    pub ours: usize,
}

/// How one part went the first time, each way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PartRecord {
    /// Its name.
    pub name: String,
    /// What it said of the version of what it tests; empty where it said nothing.
    pub version: String,
    /// Its tests.
    pub tests: usize,
    /// As [`Outcome::share`], of this part.
    pub share: Option<f64>,
    /// Seconds without the shim.
    pub plain_seconds: f64,
    /// The same with it.
    pub our_seconds: f64,
}

/// What came of a suite.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Version and builder.
    pub version: String,
    /// When it was run, from which commit, and where.
    #[serde(default)]
    pub made: String,
    /// Its parts, in turn.
    #[serde(default)]
    pub parts: Vec<PartRecord>,
    /// What was left out, and why.
    pub remarks: Vec<String>,
    /// What could not be compared: it was not built, or told no results even without the shim.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Tests, each counted once.
    pub tests: usize,
    /// Those that passed without the shim.
    pub passed: usize,
    /// Those that failed without it.
    pub failed: usize,
    /// Those that fared better with it.
    pub better: usize,
    /// Those that fared worse.
    pub worse: usize,
    /// All that did not end the same way in every run.
    pub unsteady: Vec<TestRecord>,
    /// The share of bytes that went through rings, 0 to 1; `None` where no socket moved a byte.
    pub share: Option<f64>,
    /// Bytes received through rings, in all runs.
    pub ring_bytes: u64,
    /// Seconds that the first runs took without the shim.
    pub plain_seconds: f64,
    /// The same with it.
    pub our_seconds: f64,
}

/// Is told what happens.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Runs every part without and with the shim; parts with differing tests again, to tell what
/// differs from what fails at times.
///
/// # Errors
/// When a folder cannot be made.
///
/// # Panics
/// When a stand cannot be made.
pub fn compare(suite: &Suite, way: Way, progress: Progress) -> Result<Outcome> {
    let mut outcome = Outcome {
        version: suite.version.clone(),
        made: made::describe(),
        remarks: suite.remarks.clone(),
        missing: suite.not_built.clone(),
        ..Outcome::default()
    };
    let mut bytes = Bytes::default();
    for part in &suite.parts {
        let Some(plain) = plainly(&mut outcome, part, progress)? else { continue };
        let ours = run(part, Some(way))?;
        bytes.add(ours.bytes);
        outcome.plain_seconds += plain.seconds;
        outcome.our_seconds += ours.seconds;
        progress(&format!(
            "{}: {} tests, {:.0} s plainly, {:.0} s with Ginnel",
            part.name,
            plain.verdicts.len(),
            plain.seconds,
            ours.seconds
        ));
        let names: BTreeMap<&String, ()> =
            plain.verdicts.keys().chain(ours.verdicts.keys()).map(|name| (name, ())).collect();
        outcome.tests += names.len();
        outcome.parts.push(PartRecord {
            name: part.name.clone(),
            version: plain.version.clone(),
            tests: names.len(),
            share: ours.bytes.share(),
            plain_seconds: plain.seconds,
            our_seconds: ours.seconds,
        });
        let ended =
            |wanted| names.keys().filter(|name| verdict(&plain.verdicts, name) == wanted).count();
        outcome.passed += ended(Verdict::Passed);
        outcome.failed += ended(Verdict::Failed);
        let differ: Vec<String> = names
            .into_keys()
            .filter(|name| verdict(&plain.verdicts, name) != verdict(&ours.verdicts, name))
            .cloned()
            .collect();
        if differ.is_empty() {
            continue;
        }
        let runs = again(part, way, (plain, ours), &differ, progress)?;
        for (_, ours) in runs.iter().skip(1) {
            bytes.add(ours.bytes);
        }
        judge(&mut outcome, part, &runs, &differ, progress);
    }
    outcome.ring_bytes = bytes.ring_in;
    outcome.share = bytes.share();
    Ok(outcome)
}

/// A part without the shim; `None` where that tells of no tests.
fn plainly(outcome: &mut Outcome, part: &Part, progress: Progress) -> Result<Option<Run>> {
    let mut plain = run(part, None)?;
    if plain.verdicts.is_empty() && !plain.success {
        progress(&format!("{} tells no results, without the shim; once more", part.name));
        plain = run(part, None)?;
    }
    if plain.verdicts.is_empty() && plain.success {
        progress(&format!("{}: no tests", part.name));
        return Ok(None);
    }
    if plain.verdicts.is_empty() {
        progress(&format!("{} tells no results, without the shim: {}", part.name, plain.text));
        outcome.missing.push(part.name.clone());
        return Ok(None);
    }
    Ok(Some(plain))
}

/// Runs a part in which tests ended otherwise again, both ways. Returns all its runs.
fn again(
    part: &Part,
    way: Way,
    first: (Run, Run),
    differ: &[String],
    progress: Progress,
) -> Result<Vec<(Run, Run)>> {
    let mut runs = vec![first];
    for round in 1..=AGAIN {
        let first: Vec<&str> = differ.iter().take(NAMED).map(String::as_str).collect();
        progress(&format!(
            "{}: {} ended otherwise; again, {round} of {AGAIN}: {}{}",
            part.name,
            differ.len(),
            first.join(", "),
            if differ.len() > NAMED { ", …" } else { "" }
        ));
        runs.push((run(part, None)?, run(part, Some(way))?));
    }
    Ok(runs)
}

/// Enters the tests that ended otherwise, by all runs of their part.
fn judge(
    outcome: &mut Outcome,
    part: &Part,
    runs: &[(Run, Run)],
    differ: &[String],
    progress: Progress,
) {
    let mut worse = None;
    for name in differ {
        match standing(runs, name) {
            Standing::Same => {}
            Standing::Better => outcome.better += 1,
            Standing::Worse => {
                outcome.worse += 1;
                progress(&format!("{}: {name} is WORSE", part.name));
                worse.get_or_insert(name);
            }
        }
        let passed = |pick: fn(&(Run, Run)) -> &Run| {
            runs.iter().filter(|run| verdict(&pick(run).verdicts, name) == Verdict::Passed).count()
        };
        outcome.unsteady.push(TestRecord {
            name: format!("{}: {name}", part.name),
            runs: runs.len(),
            plain: passed(|run| &run.0),
            ours: passed(|run| &run.1),
        });
    }
    let without = |run: &&Run, name| verdict(&run.verdicts, name) != Verdict::Passed;
    let plain = differ
        .iter()
        .find_map(|name| runs.iter().map(|(run, _)| run).find(|run| without(run, name)));
    let ours =
        worse.and_then(|name| runs.iter().map(|(_, run)| run).find(|run| without(run, name)));
    for (run, way) in [(plain, "without the shim"), (ours, "with it")] {
        if let Some(run) = run {
            progress(&format!(
                "{}: what the first run that was not well {way} printed at last:\n{}",
                part.name,
                last_words(run)
            ));
        }
    }
}

/// The end of what a run printed.
fn last_words(run: &Run) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&run.text.as_bytes()[run.text.len().saturating_sub(TOLD)..])
}

/// No result is a failure: the program ended before it came to it.
fn verdict(verdicts: &Verdicts, name: &str) -> Verdict {
    verdicts.get(name).copied().unwrap_or(Verdict::Failed)
}

/// Judged by the runs that came after the first, which was chosen because it differed.
fn standing(runs: &[(Run, Run)], name: &str) -> Standing {
    let count = |verdicts: fn(&(Run, Run)) -> &Verdicts, wanted| {
        runs.iter().skip(1).filter(|run| verdict(verdicts(run), name) == wanted).count()
    };
    let plain = |wanted| count(|run| &run.0.verdicts, wanted);
    let ours = |wanted| count(|run| &run.1.verdicts, wanted);
    match (ours(Verdict::Failed), ours(Verdict::Skipped))
        .cmp(&(plain(Verdict::Failed), plain(Verdict::Skipped)))
    {
        std::cmp::Ordering::Less => Standing::Better,
        std::cmp::Ordering::Equal => Standing::Same,
        std::cmp::Ordering::Greater => Standing::Worse,
    }
}
