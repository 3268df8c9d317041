//! What a program in Go says of itself when it crashes, or is asked to: every goroutine is told.

use super::{command, serve, stand};
use ginnel_tests::go::{KINDS, program};
use ginnel_tests::json;
use std::time::Duration;

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn a_crash_tells_all_goroutines() {
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-crash", &[]);
        let done = stand.run(&mut command(&stand, &program, &["crash"]));
        assert_eq!(done.status.code(), Some(2), "{done}");
        for part in [
            "nil pointer dereference",
            "goroutine 1 [running]",
            "main.crash(",
            "main.answer(",
            "[select (no cases)]",
        ] {
            assert!(done.stderr.contains(part), "{part}: {done}");
        }
        assert!(!done.stderr.contains("fatal error"), "{done}");
    }
}

/// SIGQUIT, as an operator sends it to see where a server is: under load, with every goroutine
/// told.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn sigquit_tells_all_goroutines() {
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-quit", &[]);
        let (server, address) = serve(&stand, &program, "serve");
        let client = stand.start(&mut command(&stand, &program, &["ask", &address, "4", "200000"]));
        stand.wait_until(Duration::from_secs(20), "rings carry", || {
            json::sum(&stand.status(), "in_ring") > 100_000
        });
        server.signal(libc::SIGQUIT);
        let done = server.finish();
        assert_eq!(done.status.code(), Some(2), "{done}");
        for part in ["SIGQUIT: quit", "main.serve(", "main.answer("] {
            assert!(done.stderr.contains(part), "{part}: {done}");
        }
        assert!(!done.stderr.contains("fatal error"), "{done}");
        drop(client);
    }
}

/// With GOTRACEBACK=crash each thread tells its own, and the process ends by SIGABRT, for a core
/// dump.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn a_crash_for_a_core_dump_ends() {
    use std::os::unix::process::ExitStatusExt;
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-core", &[("GOTRACEBACK", "crash")]).limit(Duration::from_secs(40));
        let done = stand.run(&mut command(&stand, &program, &["crash"]));
        assert_eq!(done.status.signal(), Some(libc::SIGABRT), "{done}");
        assert!(done.stderr.contains("[running]") && done.stderr.contains("main.crash("), "{done}");
    }
}
