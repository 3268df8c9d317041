//! Random programs in Go: each seed is played plainly and carried, and says the same both ways.
//! What they do is `programs/go/random`; what timing decides they never say.
//!
//! `GINNEL_SEED` sets the first seed. One seed by hand: build the program, then `random SEED
//! [SCENES]`.
#![cfg(target_arch = "x86_64")]

use ginnel_tests::go::{CGO, KINDS, Kind, PIE, RELEASES, STATIC, random};
use ginnel_tests::spoil::{PAGE, Spoiler};
use ginnel_tests::{Done, Stand, build, permit};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than a program takes that finds itself hanging.
const LIMIT: Duration = Duration::from_secs(150);

fn first_seed() -> u64 {
    std::env::var_os("GINNEL_SEED").map_or(1, |_| ginnel_tests::seed())
}

fn plainly(program: &Path, words: &[&str]) -> Done {
    plainly_with(&[], program, words)
}

fn plainly_with(settings: &[Setting], program: &Path, words: &[&str]) -> Done {
    let stand = Stand::plain("go-random").limit(LIMIT);
    stand.run(stand.command(program).args(words).envs(settings.iter().copied()))
}

fn carried(stand: &Stand, program: &Path, words: &[&str]) -> Done {
    stand.run(stand.command(build::ginnel()).arg("run").arg(program).args(words))
}

fn stand() -> Stand {
    stand_with(&[])
}

fn stand_with(settings: &[Setting]) -> Stand {
    let all = [&[("GINNEL_GO", "1")], settings].concat();
    Stand::shimmed("go-random", &all).limit(LIMIT)
}

/// Name and value of a variable.
type Setting = (&'static str, &'static str);

/// What else a program may be started with, by its seed: one thread at a time; goroutines that only
/// leave the processor themselves.
fn settings(seed: u64) -> &'static [Setting] {
    match seed % 4 {
        1 => &[("GOMAXPROCS", "1")],
        2 => &[("GODEBUG", "asyncpreemptoff=1")],
        _ => &[],
    }
}

/// What the two said of lines that differ.
fn differences(plain: &Done, ours: &Done) -> Vec<String> {
    let lines = plain.stdout.lines().zip(ours.stdout.lines());
    let mut differ: Vec<String> = lines
        .filter(|(one, other)| one != other)
        .map(|(one, other)| format!("{one}\n  {other}"))
        .collect();
    if plain.stdout.lines().count() != ours.stdout.lines().count()
        || plain.status.code() != ours.status.code()
    {
        differ.push(format!("{} and {}: {ours}", plain.status, ours.status));
    }
    differ
}

/// Plays seeds with a program of each kind in turn; says how many bytes came out of rings for a
/// hundred in all.
fn play(kinds: &[Kind], release: Option<&str>, seeds: std::ops::Range<u64>) {
    let programs: Vec<_> = kinds.iter().filter_map(|kind| random(*kind, release)).collect();
    if programs.is_empty() {
        return;
    }
    let _permit = permit::cpu(1);
    let (mut ring, mut tcp) = (0, 0);
    for seed in seeds {
        let turn = usize::try_from(seed).expect("a small number") % programs.len();
        let (program, word) = (&programs[turn], seed.to_string());
        let plain = plainly_with(settings(seed), program, &[&word]);
        assert!(
            plain.success() && plain.stdout.ends_with("nothing is left\n"),
            "{}: {plain}",
            program.display()
        );
        let stand = stand_with(settings(seed));
        let ours = carried(&stand, program, &[&word]);
        let differ = differences(&plain, &ours);
        assert!(
            differ.is_empty(),
            "seed {seed} of {}:\n{}\n{}",
            program.display(),
            differ.join("\n"),
            ours.stderr
        );
        let report = stand.report();
        (ring, tcp) = (ring + report.sum("ring_in"), tcp + report.sum("tcp_in"));
    }
    assert!(ring * 2 > tcp, "{ring} bytes out of rings, {tcp} over TCP");
    eprintln!("{} % out of rings", ring * 100 / (ring + tcp));
}

#[test]
fn programs_say_what_they_say_plainly() {
    let first = first_seed();
    play(&KINDS, None, first..first + 6);
}

/// A reset is told once, and then the end, also where no mark in memory says that it is meant.
#[test]
#[ignore = "test-all: hundreds of resets"]
fn a_reset_is_told_once() {
    let Some(program) = random(STATIC, None) else { return };
    let _permit = permit::cpu(1);
    for seed in ["1", "12", "25", "34"] {
        let words = [seed, "resets"];
        let differ = differences(&plainly(&program, &words), &carried(&stand(), &program, &words));
        assert!(differ.is_empty(), "seed {seed}: {}", differ.join("\n"));
    }
}

/// What is written after a reset is refused, also where the other end closed while it moved.
#[test]
#[ignore = "test-all: hundreds of resets"]
fn a_write_after_a_reset_is_refused() {
    let Some(program) = random(STATIC, None) else { return };
    let _permit = permit::cpu(1);
    for seed in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"] {
        let words = [seed, "refused"];
        let differ = differences(&plainly(&program, &words), &carried(&stand(), &program, &words));
        assert!(differ.is_empty(), "seed {seed}: {}", differ.join("\n"));
    }
}

#[test]
#[ignore = "test-all: some minutes"]
fn more_programs_say_what_they_say_plainly() {
    let first = first_seed() + 100;
    play(&KINDS, None, first..first + 60);
}

#[test]
#[ignore = "test-all: fetches toolchains"]
fn programs_of_other_releases_say_what_they_say_plainly() {
    for (release, first) in RELEASES.into_iter().zip([1000, 1100, 1200, 1300, 1400]) {
        play(&[STATIC, PIE], Some(release), first..first + 8);
    }
}

/// The test of the test: what goes through rings is spoilt there now and then, and is found to be.
#[test]
#[ignore = "test-all: the test of a test"]
fn bytes_that_are_spoilt_in_a_ring_are_found() {
    let Some(program) = random(CGO, None).or_else(|| random(STATIC, None)) else { return };
    let words = ["7", "stream"];
    let plain = plainly(&program, &words);
    let stand = stand();
    let spoiler = Spoiler::small(&stand);
    let ended = AtomicBool::new(false);
    let ours = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                spoiler
                    .rings()
                    .into_iter()
                    .for_each(|page| spoiler.put(page + PAGE / 2, 0x5550_4f49_4c54));
            }
        });
        let ours = carried(&stand, &program, &words);
        ended.store(true, Ordering::Relaxed);
        ours
    });
    let differ = differences(&plain, &ours);
    assert!(differ.iter().any(|line| line.contains("the same: false")), "{differ:?}\n{ours}");
}

/// The test of the test: each fault that is planted in the program's calls is found.
#[test]
#[ignore = "test-all: the test of a test"]
fn planted_faults_are_found() {
    let Some(program) = random(STATIC, None) else { return };
    let usual: &[&str] = &["11", "stream", "endings", "stalls", "chain", "listeners"];
    let starts: &[&str] = &["11", "starts", "becomes", "secret", "paths", "stream"];
    for (fault, words) in [
        ("byte", usual),
        ("error", usual),
        ("early", usual),
        ("leak", usual),
        ("leak", starts),
        ("parts", starts),
    ] {
        let plain = plainly(&program, words);
        let stand = stand();
        let ours = stand.run(
            stand
                .command(build::ginnel())
                .arg("run")
                .arg(&program)
                .args(words)
                .env("RANDOM_FAULT", fault),
        );
        assert!(!differences(&plain, &ours).is_empty(), "{fault}: {ours}");
    }
}
