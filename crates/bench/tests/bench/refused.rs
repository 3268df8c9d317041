//! What cannot be measured: it is said, with the way out, and the rest is measured all the same.

use super::{bench, run, text};
use std::process::{Command, Stdio};

#[test]
fn a_program_that_is_missing_is_a_row_that_names_its_package() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("run");
    let options = [
        "--pattern",
        "netpipe,sockperf",
        "--transport",
        "tcp",
        "--rounds",
        "1",
        "--pin",
        "none",
        "--out",
    ];
    let output = run(bench().args(options).arg(&out).env("PATH", folder.path()));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for (row, package) in [("NetPIPE, 64 B", "netpipe-tcp"), ("sockperf, 64 B", "sockperf")] {
        assert!(
            said.lines().any(|line| line.contains(row) && line.contains("not installed")),
            "{said}"
        );
        assert!(said.contains(&format!("the Debian package {package}")), "{said}");
    }
    assert!(
        std::fs::read_to_string(out.join("report.html"))
            .expect("a report")
            .contains("the Debian package netpipe-tcp")
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().expect("a directory");
    let wrong = |arguments: &[&str], words: &[&str]| {
        let output = run(bench().current_dir(folder.path()).args(arguments));
        let said = text(&output);
        assert!(
            !output.status.success() && words.iter().all(|word| said.contains(word)),
            "{arguments:?}: {said}"
        );
    };
    wrong(&["--sizes", "0"], &["1 to 64M"]);
    wrong(&["--pattern", "rings", "--transport", "pipes"], &["nothing to measure"]);
    wrong(
        &["--connect", "127.0.0.1:1", "--pattern", "latency", "--pin", "none"],
        &["nobody listens", "ginnel bench serve"],
    );
    wrong(&["report", "."], &["no directory of a run"]);
    wrong(&["--apps", "--connect", "127.0.0.1"], &["cannot be used with"]);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a directory").count(),
        0,
        "nothing half-done is left"
    );
    std::fs::write(folder.path().join("run.json"), "{}").expect("written");
    wrong(&["report", "."], &["another version"]);
    wrong(&["--out", ".", "--pattern", "connect"], &["has a run already", "--out"]);
    // One processor needs no pinning to two.
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        wrong(&["--pin", "0,4000"], &["no processor 4000", "--pin none"]);
    }
}

#[test]
fn a_transport_that_fails_is_shown_as_failed() {
    let folder = tempfile::tempdir().expect("a directory");
    // Without ginnel beside it.
    let alone = folder.path().join("ginnel-bench");
    ginnel_tests::build::copy_program(
        &ginnel_tests::build::release_dir().join("ginnel-bench"),
        &alone,
    );
    let out = folder.path().join("run");
    let options = [
        "--pattern",
        "latency",
        "--transport",
        "ginnel,unix",
        "--sizes",
        "64",
        "--seconds",
        "0.02",
        "--rounds",
        "1",
    ];
    let mut command = Command::new(&alone);
    command
        .args(options)
        .args(["--pin", "none", "--out"])
        .arg(&out)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = run(&mut command);
    let said = text(&output);
    assert!(
        output.status.success()
            && said.contains("failed")
            && said.contains("belong into one folder"),
        "{said}"
    );
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains(">failed<") && page.contains("belong into one folder"));
}
