//! Random programs of two processes, one in each of two guests (`tests/differential`): every answer
//! is the same whether their connections are carried by the segment or go over the network.

use crate::common::{Lab, PATIENCE, reported};
use ginnel_guest::machine;
use ginnel_tests::build;
use ginnel_tests::differential::{Said, Script, Verdict, judge_runs, kept};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Microseconds in which the network delivers between emulated machines, on a busy host.
const DELIVERED: &str = "15000";
/// Seconds after which a script hangs: a whole one takes some three.
const SECONDS: u32 = 60;
/// How many at once: they mostly wait.
const JOBS: u64 = 3;

/// Runs a script: its first process in the first guest, B in the second.
fn run(lab: &Lab, job: u64, script: &Script, carried: bool) -> Said {
    static PORTS: AtomicU16 = AtomicU16::new(0);
    let port = 7000 + PORTS.fetch_add(1, Ordering::Relaxed) % 20_000;
    let how = if carried {
        "GINNEL_AFTER=0 GINNEL_SPIN=0 GINNEL_REPORT=/root/report ginnel run --"
    } else {
        ""
    };
    let (one, two, file) = (&lab.guests[0], &lab.guests[1], format!("/root/script.{job}"));
    one.put(&file, 0o644, script.program().as_bytes()).expect("put there");
    let begin = |guest: &machine::Guest, script: &str| {
        let command = format!("{how} ./interpret {script} {SECONDS} 10.77.0.1 {port} {DELIVERED}");
        guest.start(&command, PATIENCE).expect("started")
    };
    let (first, second) = (begin(one, &file), begin(two, "-"));
    let (first, second) = (first.finish().expect("ended"), second.finish().expect("ended"));
    let ended = (first.status != 0 || second.status != 0)
        .then(|| format!("{} {} {}", first.status, first.err.trim_end(), second.err.trim_end()));
    Said::read(script, &first.out, ended)
}

/// Judges a script. What differs, if that is so by most runs.
fn judge(lab: &Lab, job: u64, script: &Script, found: &Found) -> Option<String> {
    let plain = run(lab, job, script, false);
    let plainly = || run(lab, job, script, false);
    let carried = || {
        found.warmed.fetch_add(2 * script.warmed(), Ordering::Relaxed);
        run(lab, job, script, true)
    };
    match judge_runs(script, &[], plain, plainly, carried) {
        Verdict::Same => None,
        Verdict::Limits(_) => {
            found.limits.fetch_add(1, Ordering::Relaxed);
            None
        }
        Verdict::Open(_) | Verdict::Seldom(_) => {
            found.open.fetch_add(1, Ordering::Relaxed);
            None
        }
        Verdict::Differs(found) => {
            let step = script.steps.get(found.at).cloned().unwrap_or_default();
            Some(format!("{}: {step}: {found:?}", script.name))
        }
    }
}

/// What was found in all.
#[derive(Default)]
struct Found {
    warmed: AtomicU64,
    limits: AtomicU64,
    open: AtomicU64,
    differ: Mutex<Vec<String>>,
}

/// Judges these scripts in two guests.
fn scripts_are_the_same(scripts: impl Iterator<Item = Script> + Send) {
    let _alone = machine::alone();
    let interpreter = std::fs::read(build::interpreter()).expect("compiled");
    let lab = Lab::with_files(2, vec![("/root/interpret".to_owned(), 0o755, interpreter)]);
    let (left, found, count) = (Mutex::new(scripts), Found::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for job in 0..JOBS {
            let (lab, left, found, count) = (&lab, &left, &found, &count);
            let next = || left.lock().expect("nobody panicked").next();
            scope.spawn(move || {
                while let Some(script) = next() {
                    count.fetch_add(1, Ordering::Relaxed);
                    if let Some(differs) = judge(lab, job, &script, found) {
                        eprintln!("{differs}");
                        found.differ.lock().expect("nobody panicked").push(differs);
                    }
                }
            });
        }
    });
    let moved: u64 = lab.guests.iter().map(|guest| reported(guest, "upgrades")).sum();
    let Found { warmed, limits, open, differ } = found;
    let (warmed, open, limits) = (warmed.into_inner(), open.into_inner(), limits.into_inner());
    let (count, differ) = (count.into_inner(), differ.into_inner().expect("nobody panicked"));
    eprintln!(
        "{count} scripts: {} differ, {limits} by known limits, {open} open or seldom; {moved} of {warmed} warmed directions carried",
        differ.len()
    );
    assert!(moved * 10 > warmed * 8, "too little was carried: {moved} of {warmed}");
    assert!(open * 5 < count, "{open} of {count} scripts proved nothing");
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    lab.assert_healthy();
}

/// The kept scripts of two processes.
fn kept_between() -> impl Iterator<Item = Script> + Send {
    let script = |file: std::path::PathBuf| {
        let text = std::fs::read_to_string(&file).expect("readable");
        Script::parse(&file.to_string_lossy(), &text)
    };
    kept().into_iter().map(script).filter(Script::is_between)
}

/// The same seeds always, but where `GINNEL_SEED` says otherwise.
fn first_seed() -> u64 {
    std::env::var_os("GINNEL_SEED").map_or(1, |_| ginnel_tests::seed())
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn random_scripts_between_two_guests() {
    let first = first_seed();
    scripts_are_the_same(kept_between().chain((first..first + 24).map(Script::between)));
}

/// Tests that no target runs.
mod by_hand {
    use super::*;

    #[test]
    #[ignore = "by hand: half an hour and more"]
    fn a_thousand_scripts_between_two_guests() {
        let count = std::env::var("GINNEL_SEEDS").ok().and_then(|text| text.parse().ok());
        let first = first_seed();
        scripts_are_the_same((first..first + count.unwrap_or(1000)).map(Script::between));
    }
}
