//! Small programs, each of which checks one behaviour of sockets: they hold on plain TCP, say the same under the shim, and
//! there bytes have gone through rings. See `tests/programs`.

use ginnel_tests::{Stand, build};
use std::time::Duration;

/// The ways in which each program is run under the shim.
const WAYS: [(&str, &[(&str, &str)]); 4] = [
    ("fifo", &[]),
    ("tokens", &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")]),
    (TINY, &[("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096")]),
    ("chaos", &[("GINNEL_CHAOS", "7:8")]),
];

const TINY: &str = "tiny";

/// Those that do not count on a connection's buffers to hold what nobody reads yet.
const NEED_NO_ROOM: [&str; 16] = [
    "edge_once",
    "edge_short_reads",
    "edge_short_writes",
    "exclusive",
    "exit_without_close",
    "full_connection",
    "half_close",
    "killed_peer",
    "message_calls",
    "oneshot",
    "on_standard_streams",
    "preforked_server",
    "processes_share",
    "send_timeout",
    "signals_interrupt",
    "threads_share",
];

fn run(stand: &Stand, name: &str) -> String {
    let mut command = stand.command(build::program(name));
    // Where it finds the other programs, if it starts any.
    command.arg(build::program("echo_raw").parent().expect("a program lies in a folder"));
    let done = stand.run(&mut command);
    assert!(done.success(), "{name}: {done}");
    assert!(!done.stdout.is_empty(), "{name} has said nothing");
    done.stdout
}

fn plain(name: &str) {
    let _ = (build::static_program("echo_raw"), run(&Stand::plain(name).limit(Duration::from_secs(60)), name));
}

fn same_under_the_shim(name: &str) {
    let _ = build::static_program("echo_raw");
    let expected = run(&Stand::plain(name).limit(Duration::from_secs(60)), name);
    for (way, settings) in WAYS {
        if way == TINY && !NEED_NO_ROOM.contains(&name) {
            continue;
        }
        let stand = Stand::shimmed(&format!("{name}-{way}"), settings).limit(Duration::from_secs(60));
        assert_eq!(run(&stand, name), expected, "{name}, {way}: not what it says without the shim");
        let report = stand.report();
        assert!(report.ring_bytes() > 0, "{name}, {way}: no byte went through a ring: {report:?}");
    }
}

macro_rules! programs {
    ($($name:ident)*) => {
        /// Each program is right about TCP itself.
        mod on_tcp {
            $(#[test] fn $name() { super::plain(stringify!($name)); })*
        }
        /// Each program sees the same under the shim.
        mod under_the_shim {
            $(#[test] fn $name() { super::same_under_the_shim(stringify!($name)); })*
        }
        const LISTED: &[&str] = &[$(stringify!($name)),*];
    };
}

programs! {
    broken_pipe
    close_while_polling
    closes_everything
    daemonizes
    duplicates_in_epoll
    edge_once
    edge_short_reads
    edge_short_writes
    epoll_across_fork
    exclusive
    exec_keeps
    exit_without_close
    full_connection
    half_close
    idle_connections
    killed_peer
    linger_zero_resets
    low_water
    message_calls
    mixed_descriptors
    nested_sets
    numbers_reused
    on_standard_streams
    oneshot
    out_of_band
    pass_to_unshimmed
    preforked_server
    processes_share
    queue_sizes
    receive_timeout
    send_timeout
    several_sets
    shells
    short_connections
    shutdown_wakes
    signals_interrupt
    socket_options
    splice_through
    static_child
    stdio
    threads_share
    unread_data_resets
    waitall_and_peek
}

#[test]
fn every_program_is_listed() {
    let not_tests = ["echo_raw"];
    for entry in std::fs::read_dir(build::tests_dir().join("programs")).expect("tests/programs is there").flatten() {
        let file = entry.file_name().into_string().expect("a name in ASCII");
        if let Some(name) = file.strip_suffix(".c") {
            assert!(LISTED.contains(&name) || not_tests.contains(&name), "{file} is run by no test");
        }
    }
}

/// After thousands of connections, clean and broken ones, and after every process has ended, all of the segment is free.
#[test]
fn no_memory_of_the_segment_is_lost() {
    let stand = Stand::shimmed("memory", &[]);
    run(&stand, "half_close");
    let baseline = stand.free_extents();
    for name in ["short_connections", "numbers_reused", "killed_peer", "unread_data_resets", "exec_keeps", "idle_connections"] {
        run(&stand, name);
    }
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
    stand.assert_nothing_lost(baseline);
}
