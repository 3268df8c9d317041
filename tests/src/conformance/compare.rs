//! A suite both ways, and which of its tests end otherwise.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::reader::{Verdict, Verdicts};
use super::{Part, RESULTS, Suite, made};
use crate::{Stand, build, is_root};

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
    /// Parts that could not be compared: they told no results even without the shim.
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

/// The settings of the runs with Ginnel. Every connection is a candidate from its first byte in
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The library's own.
    Usual,
    /// Wake-ups by tokens alone, rings that are full after 4 KiB, and no spinning before a sleep:
    /// each sleep, each full ring and each wake-up over TCP happens as often as it can.
    Hard,
}

impl Way {
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Usual => &[],
            Self::Hard => &[
                ("GINNEL_TOKENS", "1"),
                ("GINNEL_RING", "4096"),
                ("GINNEL_RING_MAX", "4096"),
                ("GINNEL_SPIN", "0"),
            ],
        }
    }
}

/// Is told what happens.
pub type Progress<'a> = &'a dyn Fn(&str);

/// One run of one part.
struct Run {
    verdicts: Verdicts,
    seconds: f64,
    success: bool,
    /// What it said of the version of what it tests: the rest of a line of its own.
    version: String,
    bytes: Bytes,
    text: String,
}

/// With this begins the line in which a part says what it tests.
const VERSION: &str = "# version: ";

/// Bytes through rings and in all.
#[derive(Clone, Copy, Default)]
struct Bytes {
    ring_in: u64,
    ring: u64,
    all: u64,
}

impl Bytes {
    fn add(&mut self, more: Self) {
        self.ring_in += more.ring_in;
        self.ring += more.ring;
        self.all += more.all;
    }

    /// `None` where there are none.
    #[expect(clippy::cast_precision_loss, reason = "counts of bytes stay far below 2^53")]
    fn share(self) -> Option<f64> {
        (self.all > 0).then_some(self.ring as f64 / self.all as f64)
    }
}

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
        ..Outcome::default()
    };
    let mut bytes = Bytes::default();
    for part in &suite.parts {
        let mut plain = run(part, None)?;
        if plain.verdicts.is_empty() && !plain.success {
            progress(&format!("{} tells no results, without the shim; once more", part.name));
            plain = run(part, None)?;
        }
        if plain.verdicts.is_empty() && plain.success {
            progress(&format!("{}: no tests", part.name));
            continue;
        }
        if plain.verdicts.is_empty() {
            progress(&format!("{} tells no results, without the shim: {}", part.name, plain.text));
            outcome.missing.push(part.name.clone());
            continue;
        }
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
        let mut runs = vec![(plain, ours)];
        for round in 1..=AGAIN {
            let first: Vec<&str> = differ.iter().take(NAMED).map(String::as_str).collect();
            progress(&format!(
                "{}: {} ended otherwise; again, {round} of {AGAIN}: {}{}",
                part.name,
                differ.len(),
                first.join(", "),
                if differ.len() > NAMED { ", …" } else { "" }
            ));
            let (plain, ours) = (run(part, None)?, run(part, Some(way))?);
            bytes.add(ours.bytes);
            runs.push((plain, ours));
        }
        let mut worse = None;
        for name in &differ {
            match standing(&runs, name) {
                Standing::Same => {}
                Standing::Better => outcome.better += 1,
                Standing::Worse => {
                    outcome.worse += 1;
                    progress(&format!("{}: {name} is WORSE", part.name));
                    worse.get_or_insert(name);
                }
            }
            let passed = |pick: fn(&(Run, Run)) -> &Run| {
                runs.iter()
                    .filter(|run| verdict(&pick(run).verdicts, name) == Verdict::Passed)
                    .count()
            };
            outcome.unsteady.push(TestRecord {
                name: format!("{}: {name}", part.name),
                runs: runs.len(),
                plain: passed(|run| &run.0),
                ours: passed(|run| &run.1),
            });
        }
        let failed = worse.and_then(|name| {
            runs.iter().find(|(_, ours)| verdict(&ours.verdicts, name) != Verdict::Passed)
        });
        if let Some((_, ours)) = failed {
            let last = &ours.text.as_bytes()[ours.text.len().saturating_sub(TOLD)..];
            progress(&format!(
                "{}: what the first such run printed at last:\n{}",
                part.name,
                String::from_utf8_lossy(last)
            ));
        }
    }
    outcome.ring_bytes = bytes.ring_in;
    outcome.share = bytes.share();
    Ok(outcome)
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

fn run(part: &Part, way: Option<Way>) -> Result<Run> {
    let plain = Stand::plain("conformance").limit(part.limit);
    let results = plain.dir().join("results");
    // On disk: some need hundreds of megabytes.
    let temporary =
        tempfile::Builder::new().prefix("ginnel-conformance-").tempdir().context("a folder")?;
    let temporary = temporary.path();
    // Where another user may read it, wherever the build lies; beside it, what loads static
    // programs in Go.
    let shim = plain.dir().join("libginnel_shim.so");
    for (file, at) in
        [(build::shim(), shim.clone()), (build::go_loader(), plain.dir().join("ginnel-go-loader"))]
    {
        std::fs::copy(&file, &at).with_context(|| file.display().to_string())?;
    }
    let shim = shim.to_string_lossy();
    let ours = way.map(|way| {
        let settings = [&[("LD_PRELOAD", &*shim), ("GINNEL_GO", "1")], way.settings()].concat();
        Stand::shimmed("conformance", &settings).limit(part.limit)
    });
    let stand = ours.as_ref().unwrap_or(&plain);
    std::fs::create_dir(&results).with_context(|| results.display().to_string())?;
    std::fs::set_permissions(plain.dir(), std::fs::Permissions::from_mode(0o755))?;
    let mut wrapper = Vec::new();
    if is_root() {
        for dir in [&results, temporary, stand.dir()] {
            chown(dir, Some(NOBODY), Some(NOBODY)).with_context(|| dir.display().to_string())?;
        }
        // A network of its own, so that no service's port is in the way; and a host name, which one
        // suite sets.
        wrapper.extend([
            "unshare",
            "--net",
            "--uts",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ]);
        wrapper.extend([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--pdeathsig",
            "TERM",
        ]);
    } else {
        wrapper.extend(["setpriv", "--pdeathsig", "TERM"]);
    }
    let (program, args) = part.command.split_first().context("a part has a command")?;
    let results_name = results.to_string_lossy();
    let mut command = stand.command_behind(&wrapper, program);
    command.args(args.iter().map(|arg| arg.replace(RESULTS, &results_name)));
    command.current_dir(part.dir.as_deref().unwrap_or(temporary));
    command
        .env("HOME", temporary)
        .env("TMPDIR", temporary)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("CI");
    let since = Instant::now();
    let (success, told, text) = match stand.try_run(&mut command) {
        Ok(done) => (done.success(), done.stdout.clone(), done.to_string()),
        // What it had told before it was stuck counts.
        Err(seen) => (false, seen.clone(), seen),
    };
    let seconds = since.elapsed().as_secs_f64();
    // Files that were cut short when a program was killed are no results.
    let (mut verdicts, text) = match part.reader.read(&told, &results) {
        Ok(verdicts) => (verdicts, text),
        Err(error) => (Verdicts::new(), format!("{error:#}\n{text}")),
    };
    if !verdicts.is_empty() {
        verdicts.insert(END.to_owned(), if success { Verdict::Passed } else { Verdict::Failed });
    }
    let report = stand.report();
    let ring = report.sum("ring_in") + report.sum("ring_out");
    let bytes = Bytes {
        ring_in: report.ring_bytes(),
        ring,
        all: ring + report.sum("tcp_in") + report.sum("tcp_out"),
    };
    if !verdicts.is_empty() && part.least > 0 {
        let enough = way.is_none()
            || bytes.share().is_some_and(|share| share * 100.0 >= f64::from(part.least));
        verdicts.insert(CARRIED.to_owned(), if enough { Verdict::Passed } else { Verdict::Failed });
    }
    let version =
        told.lines().find_map(|line| line.strip_prefix(VERSION)).unwrap_or_default().to_owned();
    Ok(Run { verdicts, seconds, success, version, bytes, text })
}
