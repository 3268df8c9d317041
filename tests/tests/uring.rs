//! Programs that use io_uring, whose requests no hook sees: they work, on TCP, beside peers that are accelerated. Where the ring is set up by liburing's shared library
//! that is heard of at once, also by connections in rings; where the program has liburing in itself, at its next connection.

use ginnel_tests::{Stand, build, skip};
use std::path::{Path, PathBuf};

/// The program, linked with liburing in this way, and what it says without the shim; `None` where it cannot be built or the kernel lets nobody have a ring.
fn program(output: &str, library: &str, arguments: &[&str]) -> Option<(PathBuf, String)> {
    if !Path::new("/usr/include/liburing.h").exists() {
        skip("io_uring", "liburing is not installed (Debian: liburing-dev)");
        return None;
    }
    if std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|disabled| disabled.trim() != "0") {
        skip("io_uring", "the kernel's setting io_uring_disabled forbids it");
        return None;
    }
    let program = build::program_with("uring", output, &[library]);
    let plain = Stand::plain("uring");
    let done = plain.run(plain.command(&program).args(arguments));
    assert!(done.success(), "without the shim: {done}");
    Some((program, done.stdout))
}

/// In these ways of waking.
const WAYS: [&[(&str, &str)]; 2] = [&[], &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")]];

/// What was in a ring when the io_uring was set up comes over TCP.
#[test]
fn by_the_shared_library() {
    let Some((program, expected)) = program("uring", "-luring", &["late"]) else { return };
    for way in WAYS {
        let stand = Stand::shimmed("uring", way);
        let done = stand.run(stand.command(&program).arg("late"));
        assert!(done.success(), "{way:?}: {done}");
        assert_eq!(done.stdout, expected, "{way:?}");
        // The one that was in use before.
        assert!(stand.report().ring_bytes() > 0, "{way:?}: no byte went through a ring before");
        assert!(stand.report().ring_bytes() < 100_000, "{way:?}: {:?}", stand.report());
    }
}

/// liburing within the program makes its system calls itself.
#[test]
fn within_the_program() {
    let Some((program, expected)) = program("uring-within", "-l:liburing.a", &[]) else { return };
    for way in WAYS {
        let stand = Stand::shimmed("uring-within", way);
        let done = stand.run(&mut stand.command(&program));
        assert!(done.success(), "{way:?}: {done}");
        assert_eq!(done.stdout, expected, "{way:?}");
        assert_eq!(stand.report().ring_bytes(), 0, "{way:?}");
    }
}
