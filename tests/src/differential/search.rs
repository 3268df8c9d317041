//! Many seeds: shared among threads, counted, and the first of each kind made small.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::run::shimmed;
use super::script::BETWEEN;
use super::{Carried, Judge, MODES, Mode, Script, Verdict, minimise};
use crate::build;

/// What to search.
pub struct Search {
    /// The first seed, and the one to stop before.
    pub seeds: (u64, u64),
    /// When to begin no further seed.
    pub limit: Option<Duration>,
    /// The one mode, or `None`: each seed with FIFOs and in one of the others, in turn.
    pub mode: Option<Mode>,
    /// Whether the scripts are for two processes, of which none forked the other.
    pub between: bool,
    /// How many scripts at once.
    pub jobs: usize,
    /// How many seeds of each kind of difference to make small.
    pub minimised: usize,
    /// Where small scripts go.
    pub to: PathBuf,
    /// Kinds of differences that are passed over, to see what is behind them.
    pub ignored: Vec<String>,
    /// Says each difference when it is found.
    pub says: bool,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Summary {
    /// Scripts that were run, in all modes together.
    pub runs: u64,
    /// Seeds that were begun.
    pub seeds: u64,
    /// Runs that plain TCP itself does not repeat, by the kind of what it does not repeat.
    pub open: BTreeMap<String, u64>,
    /// Runs that differ by a known limit of Ginnel's, by its name.
    pub limits: BTreeMap<&'static str, u64>,
    /// Runs that differed half of the time, or less often.
    pub seldom: u64,
    /// Runs that differ, by the kind of their first difference, with some of their seeds.
    pub differ: BTreeMap<String, (u64, Vec<String>)>,
    /// How much was carried.
    pub carried: Carried,
}

impl Summary {
    /// How many runs differ.
    #[must_use]
    pub fn differing(&self) -> u64 {
        self.differ.values().map(|kind| kind.0).sum()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<_> = self.differ.iter().collect();
        kinds.sort_by_key(|(_, found)| std::cmp::Reverse(found.0));
        for (kind, (count, seeds)) in kinds {
            writeln!(f, "{count:6}  {kind} ({})", seeds.join(", "))?;
        }
        for (kind, count) in &self.open {
            writeln!(f, "{count:6}  open: {kind}")?;
        }
        for (limit, count) in &self.limits {
            writeln!(f, "{count:6}  limit: {limit}")?;
        }
        let share = 100 * self.carried.moved / self.carried.warmed.max(1);
        write!(
            f,
            "{} seeds, {} runs: {} differ, {} by known limits, {} seldom, {} open; {share} % of {} warmed directions carried",
            self.seeds,
            self.runs,
            self.differing(),
            self.limits.values().sum::<u64>(),
            self.seldom,
            self.open.values().sum::<u64>(),
            self.carried.warmed
        )
    }
}

fn modes_of(search: &Search, seed: u64) -> Vec<Mode> {
    match search.mode {
        Some(mode) => vec![mode],
        None => {
            let others = &MODES[1..];
            let place = usize::try_from(seed % others.len() as u64).unwrap_or(0);
            vec![MODES[0], others[place]]
        }
    }
}

/// Judges seeds until there are none left, or no time.
///
/// # Panics
/// When a thread of its own panics.
#[must_use]
pub fn search(search: &Search) -> Summary {
    let next = AtomicU64::new(search.seeds.0);
    let summary = Mutex::new(Summary::default());
    let since = Instant::now();
    let _ = build::interpreter();
    std::thread::scope(|scope| {
        for _ in 0..search.jobs.max(1) {
            scope.spawn(|| {
                let mut judges: Vec<Judge> = Vec::new();
                while search.limit.is_none_or(|limit| since.elapsed() < limit) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= search.seeds.1 {
                        break;
                    }
                    one_seed(search, seed, &mut judges, &summary);
                }
                let mut summary = lock(&summary);
                judges.into_iter().for_each(|judge| summary.carried += judge.carried.carried());
            });
        }
    });
    summary.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock(summary: &Mutex<Summary>) -> std::sync::MutexGuard<'_, Summary> {
    summary.lock().unwrap_or_else(PoisonError::into_inner)
}

fn one_seed(search: &Search, seed: u64, judges: &mut Vec<Judge>, summary: &Mutex<Summary>) {
    let script = if search.between { Script::between(seed) } else { Script::of_seed(seed) };
    lock(summary).seeds += 1;
    let mut plain = None;
    for mode in modes_of(search, seed).into_iter().filter(|mode| mode.takes(&script)) {
        let place = judges.iter().position(|judge| judge.mode.name == mode.name);
        let place = place.unwrap_or_else(|| {
            judges.push(Judge::new(mode).ignoring(&search.ignored));
            judges.len() - 1
        });
        let judge = &mut judges[place];
        let plain = plain.get_or_insert_with(|| judge.run_plainly(&script)).clone();
        let verdict = judge.judge_beside(&script, plain);
        note(search, &script, judge, verdict, summary);
    }
}

fn note(
    search: &Search,
    script: &Script,
    judge: &mut Judge,
    verdict: Verdict,
    summary: &Mutex<Summary>,
) {
    let mut all = lock(summary);
    all.runs += 1;
    let found = match verdict {
        Verdict::Same => return,
        Verdict::Limits(limits) => {
            // One run counts once.
            if let Some(first) = limits.first() {
                *all.limits.entry(first).or_default() += 1;
            }
            return;
        }
        Verdict::Open(found) => {
            *all.open.entry(found.kind).or_default() += 1;
            return;
        }
        Verdict::Seldom(_) => {
            all.seldom += 1;
            return;
        }
        Verdict::Differs(found) => found,
    };
    let kind = all.differ.entry(found.kind.clone()).or_default();
    kind.0 += 1;
    let makes_small = kind.0 <= search.minimised as u64;
    if kind.1.len() < 5 {
        kind.1.push(format!("{} {}", script.name.trim_start_matches("seed "), judge.mode.name));
    }
    drop(all);
    let step = script.steps.get(found.at).map_or("the end", String::as_str);
    if search.says {
        let name = judge.mode.name;
        eprintln!(
            "{} {name}: {step}\n  plain   {}\n  carried {}",
            script.name, found.plain, found.carried
        );
    }
    if makes_small {
        let small = minimise(judge, script, &found.kind);
        let file = write(search, &small, judge, &found.kind);
        if search.says {
            let file = file.display();
            eprintln!(
                "made small: {} steps; replay: differential --replay {file}",
                small.steps.len()
            );
        }
    }
}

/// Writes a small script, with what both runs answered, and returns where it is.
fn write(search: &Search, script: &Script, judge: &mut Judge, kind: &str) -> PathBuf {
    let name = format!("{}-{}.txt", script.name.replace(' ', "-"), judge.mode.name);
    let file = search.to.join(name);
    let _ = std::fs::create_dir_all(&search.to);
    let mut text = script.clone();
    text.header.retain(|line| line == BETWEEN);
    text.header.push(format!("{}, mode: {}", script.name, judge.mode.name));
    text.header.push(format!("kind: {kind}"));
    if let Verdict::Differs(found) | Verdict::Seldom(found) | Verdict::Open(found) =
        judge.judge(script)
    {
        let step = script.steps.get(found.at).map_or("the end", String::as_str);
        text.header.push(step.to_owned());
        text.header.push(format!("plain:   {}", found.plain));
        text.header.push(format!("carried: {}", found.carried));
        let look = (found.carried == "HANG").then(|| judge.carried.look(script)).flatten();
        look.map(|seen| std::fs::write(file.with_extension("look"), seen));
    }
    std::fs::write(&file, text.text())
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    file
}

/// The scripts of former failures, by name.
///
/// # Panics
/// When they cannot be read.
#[must_use]
pub fn kept() -> Vec<PathBuf> {
    let folder = build::tests_dir().join("differential/kept");
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "txt"));
    files.sort();
    files
}

/// Judges the script in `file` in each mode of the shim that takes it, or in `mode`.
///
/// # Panics
/// When the file cannot be read.
#[must_use]
pub fn judge_file(file: &Path, mode: Option<Mode>) -> Vec<(Script, Mode, Verdict)> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let script = Script::parse(&file.to_string_lossy(), &text);
    let modes: Vec<Mode> = mode.map_or_else(|| shimmed().collect(), |mode| vec![mode]);
    let taken = modes.into_iter().filter(|mode| mode.takes(&script));
    taken.map(|mode| (script.clone(), mode, Judge::new(mode).judge(&script))).collect()
}
