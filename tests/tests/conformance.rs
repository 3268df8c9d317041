//! The short selection of other people's test suites: CPython's own tests of sockets and selectors,
//! and servers in Go with their own clients, plainly and under the shim. Each test must end as well
//! as without it. All suites: `make conformance`.

use ginnel_tests::conformance::{Way, compare, cpython_sockets, servers_in_go};
use std::os::unix::fs::PermissionsExt;

#[test]
#[ignore = "test-all: two minutes"]
fn cpython_sockets_and_selectors() {
    let suite = match cpython_sockets(std::path::Path::new("/")) {
        Ok(suite) => suite,
        Err(why) => return ginnel_tests::skip("cpython", &why.to_string()),
    };
    let outcome = compare(&suite, Way::Usual, &|line| eprintln!("{line}"))
        .expect("its results are understood");
    assert!(outcome.passed > 400, "hardly a test passes even without the shim: {outcome:?}");
    assert_eq!(outcome.worse, 0, "{outcome:?}");
    assert!(outcome.ring_bytes > 0, "no byte went through a ring: {outcome:?}");
}

/// Static and position-independent, built from Go's module proxy; that enough of their bytes went
/// through rings is among their tests. Where Go or the proxy is not there nothing is built; where
/// some servers are built, all are to be.
#[test]
#[ignore = "test-all: some minutes, and as many for what is built once"]
fn servers_in_go_are_carried() {
    // Where every user may enter it.
    let base = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o755))
        .expect("its mode");
    let suite = servers_in_go(base.path(), 8).expect("scripts");
    if suite.parts.is_empty() {
        return ginnel_tests::skip("servers in Go", &suite.not_built.join("; "));
    }
    assert!(suite.not_built.is_empty(), "{}", suite.not_built.join("\n"));
    let outcome = compare(&suite, Way::Usual, &|line| eprintln!("{line}"))
        .expect("their results are understood");
    assert_eq!((outcome.worse, outcome.failed), (0, 0), "{outcome:?}");
    assert_eq!((outcome.parts.len(), &outcome.missing), (suite.parts.len(), &Vec::new()));
    // The script's one word, and the two that are added to each.
    for part in outcome.parts.iter().filter(|part| part.tests <= 3) {
        ginnel_tests::skip(&part.name, "its client is not installed: install-deps.sh conformance");
    }
}
