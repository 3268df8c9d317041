//! Go's releases, each with a runtime of its own: what strains a runtime is done by a program of
//! each, beside traffic.

use super::carries;
use ginnel_tests::go::{CGO, RELEASES, STATIC, program_of};
use ginnel_tests::permit;

/// What is done, and how many of a hundred bytes come out of rings at least: the collector at 10 %,
/// 600 threads that end, the profiler's signals, SIGURG without end, nil dereferenced, programs
/// executed, bodies compared.
const WORDS: [(&str, u64); 11] = [
    ("collect", 60),
    ("threads", 5),
    ("profile", 50),
    ("signals", 60),
    ("fault", 40),
    ("exec", 70),
    ("http", 50),
    ("trace", 60),
    ("deadlines", 40),
    ("forward", 80),
    ("many", 30),
];

#[test]
#[ignore = "test-all: fetches toolchains"]
fn programs_of_other_releases_bear_what_strains_them() {
    let _permit = permit::cpu(1);
    for release in RELEASES {
        for program in [STATIC, CGO].into_iter().filter_map(|kind| program_of(kind, release)) {
            WORDS.into_iter().for_each(|(word, share)| carries(&program, &[word], share));
        }
    }
}
