//! Sleepers that take turns at a connection are woken by FIFO, each as if it were the only one: a
//! token costs several calls at either end, and once a socket's sleepers need tokens they do for
//! its life.

use ginnel_tests::{Stand, build};

fn of(kind: &str) {
    let program = build::program("turns");
    let stand = Stand::shimmed(&format!("turns-{kind}"), &[("GINNEL_SPIN", "0")]);
    let done = stand.run(stand.command(&program).arg(kind));
    assert!(done.success(), "{done}");
    let report = stand.report();
    let tokens = report.sum("tokens_sent");
    // Two thousand times 64 bytes, there and back, of one connection at least.
    assert!(report.ring_bytes() > 200_000, "{report:?}");
    // A few at the beginning, before there is a waiter.
    assert!(tokens < 200, "{tokens} tokens: {report:?}");
}

#[test]
fn threads_of_a_pool_are_rung() {
    of("pool");
}

#[test]
fn registrations_made_anew_are_rung() {
    of("set");
}
