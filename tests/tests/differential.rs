//! Random programs, plainly and under the shim, for a bounded time; by hand and for longer: the program `differential`.
//!
//! The seeds are always the same here, so that a change is what makes one fail; `GINNEL_SEED` sets the first.

use ginnel_tests::differential::{Search, Verdict, judge_file, kept, search};
use std::time::Duration;

fn first_seed() -> u64 {
    std::env::var_os("GINNEL_SEED").map_or(1, |_| ginnel_tests::seed())
}

/// Each kept script is the same in every mode; one that is still open says so in its header.
#[test]
fn kept_scripts_are_the_same() {
    let (mut failed, mut open) = (Vec::new(), 0);
    for file in kept() {
        let text = std::fs::read_to_string(&file).expect("a kept script can be read");
        if text.lines().any(|line| line.starts_with("# open:")) {
            open += 1;
            continue;
        }
        for (script, mode, verdict) in judge_file(&file, None) {
            if let Verdict::Differs(found) = verdict {
                failed.push(format!("{} {}: {found:?}", script.name, mode.name));
            }
        }
    }
    eprintln!("{open} kept scripts are open");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
