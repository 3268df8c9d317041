//! Programs in Go that are reached like others, though something about them is unusual.

use super::{carries, command, end, everywhere, run, serve, stand};
use ginnel_tests::go::{CGO, NAMELESS, STATIC, program};
use ginnel_tests::{build, is_root, skip};
use std::path::Path;

/// Without a build id, which a linker's flag leaves out, they are Go's all the same: they are
/// carried, and go on with a connection that a program had before it became them.
#[test]
fn programs_without_a_build_id_are_reached() {
    let Some(before) = program(CGO).or_else(|| program(STATIC)) else { return };
    for nameless in NAMELESS.into_iter().filter_map(program) {
        carries(&nameless, &["echo", "4", "300"], 80);
        let stand = stand("go-nameless", &[]);
        let (server, address) = serve(&stand, &before, "serve");
        run(&stand, &before, &["replace", &address, &nameless.to_string_lossy()]);
        end(server);
        assert!(stand.report().sum("ring_in") > 0);
    }
}

/// Wherever it lies, and whatever it is called.
#[test]
fn a_static_program_in_memory_is_reached() {
    let Some(program) = program(STATIC) else { return };
    let stand = stand("go-memory", &[]);
    let copy = stand.dir().join("a copy\nof it");
    assert!(copy.starts_with("/dev/shm"), "{}", copy.display());
    build::copy_program(&program, &copy);
    run(&stand, &copy, &["echo", "4", "300"]);
    let line = format!("'{}' echo 4 300", copy.display());
    let done = stand.run(&mut command(&stand, Path::new("/bin/sh"), &["-c", &line]));
    assert!(done.success() && done.stdout == "OK\n", "{done}");
    let report = stand.report();
    assert!(report.sum("ring_in") > 2 * report.sum("tcp_in"));
    assert_eq!(report.processes_of("a copy?of it"), 2, "its name is one line of a report");
}

/// `mlockall` means the program's memory, not the segment.
#[test]
fn memory_is_locked_without_the_segment() {
    if !is_root() {
        return skip("mlockall and Go", "it needs root");
    }
    everywhere(&["lock"], 60);
}
