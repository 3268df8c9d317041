//! Threads that are none of the C library's and none that Go's scheduler knows.

use super::{command, stand};
use ginnel_tests::go::{STATIC, own_tests};

/// `runtime.newosproc0` makes a thread without an `m`. Go's own test of it.
#[test]
#[ignore = "test-all: compiles the runtime's tests"]
fn a_thread_without_an_m_runs() {
    let Some(tests) = own_tests("runtime", STATIC) else { return };
    let stand = stand("go-bare", &[]);
    let done = stand.run(&mut command(&stand, &tests, &["-test.v", "-test.run=^TestNewOSProc0$"]));
    assert!(done.success() && done.stdout.contains("--- PASS: TestNewOSProc0"), "{done}");
}
