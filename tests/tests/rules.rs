//! The rules of the design's section 2 that no program of `programs.rs` would miss, each in a
//! situation that goes wrong without it. `docs/protocol.md` says which test stands for which rule.

use ginnel_tests::{Stand, build};
use std::time::Duration;

const FIFO: &[(&str, &str)] = &[];
const TOKENS: &[(&str, &str)] = &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")];
const TINY: &[(&str, &str)] = &[("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096")];
const TINY_TOKENS: &[(&str, &str)] = &[
    ("GINNEL_RING", "4096"),
    ("GINNEL_RING_MAX", "4096"),
    ("GINNEL_TOKENS", "1"),
    ("GINNEL_SPIN", "0"),
];

fn stand(name: &str, settings: Option<&[(&str, &str)]>) -> Stand {
    match settings {
        None => Stand::plain(name),
        Some(settings) => Stand::shimmed(name, settings),
    }
    .limit(Duration::from_secs(60))
}

fn says(name: &str, stand: &Stand) -> String {
    let done = stand.run(stand.command(build::program("rules")).arg(name));
    assert!(done.success(), "{name}: {done}");
    done.stdout
}

/// As on TCP, in each of these ways, and rings have carried bytes.
fn holds(name: &str, ways: &[&[(&str, &str)]]) {
    let expected = says(name, &stand(name, None));
    for settings in ways {
        let stand = stand(name, Some(settings));
        assert_eq!(says(name, &stand), expected, "{name}, {settings:?}");
        assert!(
            stand.report().ring_bytes() > 0,
            "{name}, {settings:?}: no byte went through a ring"
        );
    }
}

/// What `ginnel status` says when the program is where it is to be looked at.
fn seen(name: &str, settings: &[(&str, &str)]) -> String {
    let stand = stand(name, Some(settings));
    let mut running = stand.start(stand.command(build::program("rules")).arg(name));
    running.wait_for("seen?");
    let status = stand.status();
    running.signal(libc::SIGUSR1);
    let done = running.finish();
    assert!(done.success(), "{name}: {done}");
    assert!(stand.report().ring_bytes() > 0, "{name}: no byte went through a ring");
    status
}

/// Bytes that went past the shim end the connection, on both sides, and the reason is told.
fn is_noticed(name: &str, settings: &[(&str, &str)]) {
    let status = seen(name, settings);
    assert!(status.contains("\"reason\": \"bypassed\""), "{name}: {status}");
}

#[test]
fn bytes_past_the_shim_are_noticed_when_the_ring_is_left() {
    is_noticed("bypassed_in_ring", FIFO);
    is_noticed("bypassed_in_ring", TOKENS);
}

#[test]
fn bytes_past_the_shim_are_noticed_when_the_ring_is_entered() {
    is_noticed("bypassed_on_tcp", TINY);
}

#[test]
fn who_slept_in_the_kernel_before_is_no_obstacle_to_sense() {
    holds("asleep_before", &[FIFO, TOKENS]);
}

#[test]
fn who_waits_for_room_keeps_nobody_waiting() {
    holds("asleep_for_room", &[TINY, TINY_TOKENS]);
}

#[test]
fn a_hold_keeps_rings_away() {
    holds("held", &[FIFO, TOKENS]);
}

#[test]
fn killed_with_all_read_but_a_token() {
    holds("killed_beside_a_token", &[FIFO, TOKENS]);
}

#[test]
fn killed_with_bytes_unread_in_its_ring() {
    holds("killed_unread", &[FIFO]);
}

#[test]
fn a_program_that_computes_gives_back_what_it_wrote() {
    holds("busy_writer", &[FIFO, TOKENS]);
}

#[test]
fn a_wake_up_at_the_last_moment_costs_no_queued_byte() {
    holds("last_wake_up", &[TINY_TOKENS]);
}

#[test]
fn the_survivor_inherits_the_memory() {
    holds("heirs", &[FIFO, TOKENS]);
}

#[test]
fn a_reset_after_a_clean_close_takes_nothing_away() {
    // What the kernel has, it throws away at a reset: only rings keep it.
    for settings in [FIFO, TOKENS] {
        let stand = stand("clean_then_reset", Some(settings));
        assert!(says("clean_then_reset", &stand).contains("read to the end"), "{settings:?}");
        assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
    }
}

#[test]
fn a_send_is_told_of_a_reset_before_it_is_refused() {
    holds("told_once", &[FIFO, TOKENS]);
}

/// Nobody of the program has to be woken by a byte over TCP.
fn needs_no_token(name: &str) {
    let status = seen(name, FIFO);
    assert!(!status.contains("\"wake\": \"token\""), "{name}: {status}");
}

#[test]
fn a_closed_set_has_nobody_in_it() {
    needs_no_token("closed_sets");
}

#[test]
fn handlers_of_faults_make_no_sleeper_need_tokens() {
    needs_no_token("fault_handlers");
}

#[test]
fn a_set_that_two_threads_sleep_on_has_its_waiter_before_anything_is_armed() {
    needs_no_token("one_set_for_two");
}

#[test]
fn a_connection_that_is_closed_at_its_first_use_leaves_nothing_in_the_ledger() {
    let status = seen("closed_at_first_use", FIFO);
    assert_eq!(status.matches("\"local\"").count(), 2, "{status}");
}
