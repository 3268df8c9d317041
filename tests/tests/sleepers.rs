//! Threads that sleep on connections in every way there is, several at a time, beside changes: at
//! random, by a seed. Nobody is forgotten.
//!
//! The seeds of the fast tier are always the same, so that a change is what makes a run fail;
//! `GINNEL_SEED` sets another first one. With the planted fault that a thread which adds a
//! registration wakes nobody, though its connection has bytes already, each of three seeds failed
//! within 25 rounds.

use ginnel_tests::{Stand, build, permit, seed};
use std::ops::Range;

/// How sleepers are woken, and what is made scarce.
const WAYS: [&[(&str, &str)]; 6] = [
    &[("GINNEL_SPIN", "0")],
    &[("GINNEL_CHAOS", "1000:2"), ("GINNEL_SPIN", "0")],
    &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")],
    &[],
    &[("GINNEL_RING", "4096"), ("GINNEL_SPIN", "0")],
    &[("GINNEL_CHAOS", "1000:2"), ("GINNEL_TOKENS", "1")],
];

fn sleepers(ways: &[&[(&str, &str)]], seeds: &Range<u64>, rounds: u32) {
    let _permit = permit::cpu(2);
    let program = build::program("sleepers");
    for way in ways {
        let stand = Stand::shimmed("sleepers", way);
        for seed in seeds.clone() {
            let done =
                stand.run(stand.command(&program).args([seed.to_string(), rounds.to_string()]));
            assert!(done.success(), "{way:?}, seed {seed}: {done}");
        }
        assert!(stand.report().ring_bytes() > 0, "{way:?}: {:?}", stand.report());
    }
}

#[test]
fn nobody_is_forgotten() {
    let first = std::env::var_os("GINNEL_SEED").map_or(1000, |_| seed());
    sleepers(&WAYS[..3], &(first..first + 2), 100);
}

#[test]
#[ignore = "test-all: many seeds, minutes"]
fn nobody_is_forgotten_for_long() {
    let first = seed();
    sleepers(&WAYS, &(first..first + 40), 300);
}

/// The receive slept while TCP carried, and so did poll: the token by which the ring began was
/// thrown away by the one, and the other was to be rung no more.
#[test]
fn poll_is_told_beside_a_receive() {
    let program = build::program("poll_beside_a_receive");
    let stand =
        Stand::shimmed("poll-beside-a-receive", &[("GINNEL_CHAOS", "1:2"), ("GINNEL_SPIN", "0")]);
    let done = stand.run(&mut stand.command(&program));
    assert!(done.success(), "{done}");
    assert!(stand.report().ring_bytes() > 0, "{:?}", stand.report());
}
