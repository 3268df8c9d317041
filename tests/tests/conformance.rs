//! The short selection of other people's test suites: CPython's own tests of sockets and selectors,
//! plainly and under the shim. Each test must end as well as without it. All suites: `make
//! conformance`.

use ginnel_tests::conformance::{Way, compare, cpython_sockets};

#[test]
#[ignore = "test-all: two minutes"]
fn cpython_sockets_and_selectors() {
    let suite = match cpython_sockets(std::path::Path::new("/")) {
        Ok(suite) => suite,
        Err(why) => return ginnel_tests::skip("cpython", &why.to_string()),
    };
    let outcome = compare(&suite, Way::Usual, &|line| eprintln!("{line}")).expect("its results are understood");
    assert!(outcome.passed > 400, "hardly a test passes even without the shim: {outcome:?}");
    assert_eq!(outcome.worse, 0, "{outcome:?}");
    assert!(outcome.ring_bytes > 0, "no byte went through a ring: {outcome:?}");
}
