//! CPython's own tests of sockets and selectors (Debian's libpython3.11-testsuite, Debian's interpreter), plainly and under
//! the shim: each test must end the same.

use ginnel_tests::{Stand, is_root};
use std::collections::BTreeMap;
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3.11";
const TESTS: &str = "-m test -u network -i *VSOCK* --timeout 120 -v test_socket test_selectors test_epoll test_poll test_select";

/// Each test's result, by its full name.
fn results(output: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut open: Option<String> = None;
    for line in output.lines() {
        // "test_name (test.test_socket.Class.test_name) ... ok"; a first line of documentation may stand before the dots,
        // and what the test prints after them.
        let named = line.split_once(" (test.").and_then(|(start, rest)| Some((start, rest.split_once(')')?.0)));
        if let Some((start, name)) = named.filter(|(start, name)| start.starts_with("test") && name.ends_with(start)) {
            open = Some(name.to_owned());
            if !line.contains(&format!("{start}) ... ")) {
                continue;
            }
        }
        let result = ["ok", "FAIL", "ERROR", "skipped", "expected failure", "unexpected success"]
            .into_iter()
            .find(|word| line.split_once("... ").is_some_and(|(_, end)| end.starts_with(word)) || line == *word);
        if let (Some(name), Some(result)) = (&open, result) {
            all.insert(name.clone(), result.to_owned());
            open = None;
        }
    }
    all
}

fn run(stand: &Stand) -> (BTreeMap<String, String>, String) {
    let args: Vec<&str> = TESTS.split(' ').collect();
    // In namespaces of its own each, where that is possible: the two then run side by side (one test sets the host name), and no service's port is in
    // the way of either.
    let mut command = if is_root() {
        let enter = ["unshare", "-n", "-u", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
        stand.command_behind(&enter, PYTHON)
    } else {
        stand.command(PYTHON)
    };
    command.args(args).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(stand.dir());
    let done = stand.run(&mut command);
    (results(&done.stdout), done.to_string())
}

#[test]
fn same_as_without_the_shim() {
    let installed = std::path::Path::new("/usr/lib/python3.11/test/test_socket.py").exists();
    if !installed || !std::path::Path::new(PYTHON).exists() {
        ginnel_tests::skip("cpython", "libpython3.11-testsuite is not installed");
        return;
    }
    let limit = Duration::from_secs(400);
    let bare = Stand::plain("cpython").limit(limit);
    let shimmed = Stand::shimmed("cpython-shim", &[]).limit(limit);
    let ((plain, plain_text), (ours, our_text)) = if is_root() {
        std::thread::scope(|scope| {
            let plain = scope.spawn(|| run(&bare));
            let ours = run(&shimmed);
            (plain.join().expect("the plain run ends"), ours)
        })
    } else {
        (run(&bare), run(&shimmed))
    };
    assert!(plain.len() > 400, "only {} results were understood: {plain_text}", plain.len());
    let mut differ = Vec::new();
    for (name, result) in &plain {
        let other = ours.get(name).map_or("no result", String::as_str);
        if other != result {
            differ.push(format!("{name}: {result} without the shim, {other} with it"));
        }
    }
    differ.extend(ours.keys().filter(|name| !plain.contains_key(*name)).map(|name| format!("{name}: with the shim only")));
    let of = |results: &BTreeMap<String, String>, word| results.values().filter(|r| *r == word).count();
    let report = shimmed.report();
    eprintln!(
        "cpython: {} tests: plain {} ok, {} skipped; under the shim {} ok, {} skipped; {} bytes through rings",
        plain.len(),
        of(&plain, "ok"),
        of(&plain, "skipped"),
        of(&ours, "ok"),
        of(&ours, "skipped"),
        report.ring_bytes()
    );
    assert!(differ.is_empty(), "{}\n{our_text}", differ.join("\n"));
    assert!(of(&plain, "ok") > 400, "hardly a test passes even without the shim: {plain_text}");
    assert!(report.ring_bytes() > 0, "no byte went through a ring: {report:?}");
}
