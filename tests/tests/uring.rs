//! Programs that use io_uring, whose requests no hook sees: they work, on TCP, beside peers that
//! are accelerated. Where liburing's shared library submits, that is so from the first request that
//! may touch a connection, also for those in rings, and a program whose requests are of files alone
//! keeps them; where the program has liburing in itself, from its next connection.

use ginnel_tests::{Report, Stand, build, skip};
use std::path::{Path, PathBuf};

/// The program, linked with liburing in this way, and what it says without the shim; `None` where
/// it cannot be built or the kernel lets nobody have a ring.
fn program(output: &str, library: &str, arguments: &[&str]) -> Option<(PathBuf, String)> {
    program_of("uring", output, library, arguments)
}

/// The same of another program than `uring`.
fn program_of(
    name: &str,
    output: &str,
    library: &str,
    arguments: &[&str],
) -> Option<(PathBuf, String)> {
    if !Path::new("/usr/include/liburing.h").exists() {
        skip("io_uring", "liburing is not installed (Debian: liburing-dev)");
        return None;
    }
    if std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .is_ok_and(|disabled| disabled.trim() != "0")
    {
        skip("io_uring", "the kernel's setting io_uring_disabled forbids it");
        return None;
    }
    let program = build::program_with(name, output, &[library]);
    let plain = Stand::plain("uring");
    let done = plain.run(plain.command(&program).args(arguments));
    assert!(done.success(), "without the shim: {done}");
    Some((program, done.stdout))
}

/// In these ways of waking.
const WAYS: [&[(&str, &str)]; 2] = [&[], &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")]];

/// Under the shim it says the same. What it reports.
fn carried(program: &Path, arguments: &[&str], way: &[(&str, &str)], expected: &str) -> Report {
    let stand = Stand::shimmed("uring", way);
    let done = stand.run(stand.command(program).args(arguments));
    assert!(done.success(), "{arguments:?}, {way:?}: {done}");
    assert_eq!(done.stdout, expected, "{arguments:?}, {way:?}");
    stand.report()
}

/// What was in a ring when the io_uring was set up comes over TCP.
#[test]
fn by_the_shared_library() {
    let Some((program, expected)) = program("uring", "-luring", &["late"]) else { return };
    for way in WAYS {
        let report = carried(&program, &["late"], way, &expected);
        // The one that was in use before.
        assert!(report.ring_bytes() > 0, "{way:?}: no byte went through a ring before");
        assert!(report.ring_bytes() < 100_000, "{way:?}: {report:?}");
    }
}

/// A database's way: files by io_uring, connections by ordinary calls.
#[test]
fn of_files_alone() {
    let Some((program, expected)) = program("uring", "-luring", &["files"]) else { return };
    for way in WAYS {
        let report = carried(&program, &["files"], way, &expected);
        // Forty times 50,000 bytes, there and back, at both ends.
        assert!(report.ring_bytes() > 3_000_000, "{way:?}: {report:?}");
    }
}

/// The same until a request is of a connection, with bytes under way both ways.
#[test]
fn of_files_first() {
    let Some((program, expected)) = program("uring", "-luring", &["turn"]) else { return };
    for way in WAYS {
        let report = carried(&program, &["turn"], way, &expected);
        assert!((3_000_000..9_000_000).contains(&report.ring_bytes()), "{way:?}: {report:?}");
    }
}

/// What the kernel would come to without a look at it, or after the look.
#[test]
fn of_connections_unseen() {
    for how in ["kept0", "kept1", "kept2", "link", "drain", "registered", "own"] {
        let Some((program, expected)) =
            program_of("uring_unseen", "uring-unseen", "-luring", &[how])
        else {
            return;
        };
        let report = carried(&program, &[how], &[], &expected);
        assert!(report.ring_bytes() > 0, "{how}: no byte went through a ring before");
    }
}

/// liburing within the program makes its system calls itself.
#[test]
fn within_the_program() {
    let Some((program, expected)) = program("uring-within", "-l:liburing.a", &[]) else { return };
    for way in WAYS {
        assert_eq!(carried(&program, &[], way, &expected).ring_bytes(), 0, "{way:?}");
    }
}
