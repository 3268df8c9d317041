//! `ginnel-bench-table`, behind `make bench`: what its own programs measure, and what `ginnel-bench` measures for it.

use std::process::{Command, Stdio};

#[test]
#[ignore = "test-all: measures"]
fn the_figures_are_measured() {
    let _permit = ginnel_tests::permit::machine();
    let table = ginnel_tests::build::ginnel().with_file_name("ginnel-bench-table");
    let only = ["ginnel/both", "pairs-1", "connect :", "stream-64 :", "blocking : limit"].map(|figure| ["--only", figure]);
    let out = Command::new("timeout")
        .args(["300", table.to_str().expect("UTF-8"), "--no-build", "--no-veth", "--quick", "--rounds", "1"])
        .args(only.as_flattened())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    // Of other networks than the loopback there are none here.
    let rows: Vec<&str> = said.lines().filter(|line| line.contains(" : ") && !line.contains("veth")).collect();
    assert!(out.status.success() && rows.len() >= 8, "{said}");
    // Below the table stands why a figure is not there. That the processors came to lie at another distance meanwhile is no fault of a program.
    let failed: Vec<_> = rows.iter().filter(|row| !row.starts_with('│') && !row.contains(": the limit moved")).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{said}");
}
