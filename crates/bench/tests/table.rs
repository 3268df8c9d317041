//! `ginnel-bench-table`, behind `make bench`: what its own programs measure, and what
//! `ginnel-bench` measures for it.

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
#[ignore = "test-all: measures"]
fn the_figures_are_measured() {
    let _permit = ginnel_tests::permit::machine();
    let table = ginnel_tests::build::ginnel().with_file_name("ginnel-bench-table");
    let only = ["ginnel/both", "pairs-1", "connect :", "stream-64 :", "blocking : limit"]
        .map(|figure| ["--only", figure]);
    let out = Command::new("timeout")
        .args([
            "300",
            table.to_str().expect("UTF-8"),
            "--no-build",
            "--no-veth",
            "--quick",
            "--rounds",
            "1",
        ])
        .args(only.as_flattened())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let said =
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    // Of other networks than the loopback there are none here.
    let rows: Vec<&str> =
        said.lines().filter(|line| line.contains(" : ") && !line.contains("veth")).collect();
    assert!(out.status.success() && rows.len() >= 8, "{said}");
    // Below the table stands why a figure is not there. That the processors came to lie at another
    // distance meanwhile is no fault of a program.
    let failed: Vec<_> = rows
        .iter()
        .filter(|row| !row.starts_with('│') && !row.contains(": the limit moved"))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}\n{said}");
}

/// Somebody kept a run, or changed one, and did not draw the page anew.
#[test]
fn the_history_is_that_of_the_runs_that_were_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
    let folder = tempfile::tempdir().expect("a directory");
    for part in ["benchmarks", "docs", "crates/bench"] {
        std::fs::create_dir_all(folder.path().join(part)).expect("a directory");
    }
    for entry in std::fs::read_dir(root.join("benchmarks")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|kind| kind == "json") {
            let to = folder.path().join("benchmarks").join(path.file_name().expect("a name"));
            std::fs::copy(&path, to).expect("copied");
        }
    }
    let out = Command::new(ginnel_tests::build::ginnel().with_file_name("ginnel-bench-table"))
        .arg("--history")
        .env("CARGO_MANIFEST_DIR", folder.path().join("crates/bench"))
        .output()
        .expect("it starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let page = |of: &Path| std::fs::read_to_string(of.join("docs/history.md")).expect("a page");
    let drawn = page(folder.path());
    assert_eq!(drawn, page(root), "ginnel-bench-table --history draws it anew");
    let charts = drawn.lines().filter(|line| line.starts_with("!["));
    for chart in charts.map(|line| line.split("../").nth(1).expect("a place").trim_end_matches(')'))
    {
        let read = |of: &Path| std::fs::read_to_string(of.join(chart)).expect("a chart");
        assert_eq!(read(folder.path()), read(root), "{chart}");
    }
}
