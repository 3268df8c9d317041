//! Either side killed at random moments: the other sees what TCP shows, nothing of the segment is
//! lost, new pairs work. By hand and for longer: the program `crash`.

use ginnel_tests::crash::{check, run};

const PAIRS: u32 = 250;

#[test]
fn on_tcp() {
    let (_, said) = run("plain", None, PAIRS, ginnel_tests::seed());
    eprintln!("{}", said.trim());
}

#[test]
fn fifo() {
    check("fifo", &[], PAIRS, ginnel_tests::seed());
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn tokens() {
    check("tokens", &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")], PAIRS, ginnel_tests::seed());
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn chaos_in_tiny_rings() {
    let settings = [("GINNEL_CHAOS", "3:10"), ("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096")];
    check("chaos", &settings, PAIRS, ginnel_tests::seed());
}
