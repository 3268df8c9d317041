//! Random calls of several processes, plainly and carried: every answer is the same.
//! `programs/random.c` makes them of a seed.

use crate::support::{carried, compiled, place, ran, text};
use std::path::Path;
use std::process::Command;

/// Milliseconds that those who sleep have to be woken before they are looked at: more of them each
/// time that it is tried.
const PATIENCE: [u32; 3] = [0, 30, 200];

fn says(command: &mut Command, seed: u64, steps: u32, patience: u32) -> String {
    let done =
        ran(command.args([&seed.to_string(), &steps.to_string(), &patience.to_string()]), 600);
    assert!(
        done.status.success(),
        "seed {seed}: {}\n{}{}",
        done.status,
        text(&done.stdout),
        text(&done.stderr)
    );
    text(&done.stdout)
}

fn plainly(program: &Path, seed: u64, steps: u32, patience: u32) -> String {
    says(&mut Command::new(program), seed, steps, patience)
}

fn carried_says(program: &Path, seed: u64, steps: u32, patience: u32) -> String {
    let place = place();
    says(&mut carried(place.path(), program), seed, steps, patience)
}

/// The first line in which they differ, with what comes before.
fn difference(plain: &str, other: &str) -> Option<String> {
    let lines = || {
        plain
            .lines()
            .chain(std::iter::repeat("(end)"))
            .zip(other.lines().chain(std::iter::repeat("(end)")))
    };
    let at = lines()
        .take_while(|(one, two)| *one != "(end)" || *two != "(end)")
        .position(|(one, two)| one != two)?;
    let before: Vec<_> = plain.lines().take(at).collect();
    let (one, two) = lines().nth(at)?;
    Some(format!("{}\n-{one}\n+{two}\n", before.join("\n")))
}

/// Threads are told to sleep by what the kernel shows of them, now and then wrongly: so it has
/// three tries.
fn same(program: &Path, seed: u64, steps: u32) {
    let mut found = String::new();
    for patience in PATIENCE {
        let plain = plainly(program, seed, steps, patience);
        let carried = carried_says(program, seed, steps, patience);
        match difference(&plain, &carried) {
            None => return,
            Some(difference) => found = difference,
        }
    }
    panic!("seed {seed}, {steps} steps (GINNEL_SEED={seed}):\n{found}");
}

fn first_seed() -> u64 {
    let own = std::env::var("GINNEL_SEED").ok().and_then(|text| text.parse().ok());
    own.unwrap_or_else(ginnel_tests::fresh_seed)
}

#[test]
fn every_answer_is_the_kernels() {
    let place = place();
    let program = compiled(place.path(), "random.c", &[]);
    // The second once lost what was to be undone, the third told one that waits for zeros too early
    // that another had risen. Fresh ones are the long test's.
    for (seed, steps) in [(7, 600), (1500, 600), (1902, 450)] {
        same(&program, seed, steps);
    }
}

#[test]
#[ignore = "test-all: minutes of the same"]
fn every_answer_is_the_kernels_for_long() {
    let place = place();
    let program = compiled(place.path(), "random.c", &[]);
    let first = first_seed();
    let count = std::env::var("GINNEL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for seed in first..first + count {
        same(&program, seed, 1500);
    }
}

/// The comparison is worth something: calls that are wrong now and then are found.
#[test]
fn a_planted_fault_is_found() {
    let place = place();
    let program = compiled(place.path(), "random.c", &[]);
    let wrong = compiled(place.path(), "wrong.c", &["-shared", "-fPIC"]);
    for fault in ["value", "undo", "attached", "mode"] {
        let found = (1..9).any(|seed| {
            let mut command = Command::new(&program);
            command.env("LD_PRELOAD", &wrong).env("WRONG", fault);
            let faulty = says(&mut command, seed, 250, 0);
            let plain = [0; 2].map(|_| plainly(&program, seed, 250, 0));
            difference(&plain[0], &faulty).is_some() && difference(&plain[0], &plain[1]).is_none()
        });
        assert!(found, "{fault} is not found");
    }
}
