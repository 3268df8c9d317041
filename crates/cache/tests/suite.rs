//! memcached's own tests, pointed at this server: each file passes as many as
//! docs/cache-compatibility.md says.

use std::path::{Path, PathBuf};
use std::process::Command;

fn page() -> String {
    std::fs::read_to_string("../../docs/cache-compatibility.md").expect("the page")
}

/// Returns files, how many of their tests pass, and how many there are, by a part of the page.
fn rows(part: &str) -> Vec<(String, usize, usize)> {
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let file = cells.next().filter(|file| file.ends_with(".t"))?.to_owned();
        Some((file, cells.next()?.parse().ok()?, cells.next()?.parse().ok()?))
    };
    part.lines().filter_map(row).collect()
}

/// What the page says of a whole table is the sum of its rows.
#[test]
fn the_page_counts_right() {
    let page = page();
    let (passing, rest) = page.split_once("## Files of which some").expect("two tables");
    let (passing, partly) = (rows(passing), rows(rest));
    let sum = |rows: &[(String, usize, usize)]| {
        rows.iter().fold((0, 0), |(passed, of), row| (passed + row.1, of + row.2))
    };
    let (all, some) = (sum(&passing), sum(&partly));
    assert_eq!(all.0, all.1);
    let says = format!("{} files, {} tests.", passing.len(), all.0);
    assert!(page.contains(&says), "{says}");
    let says = format!("{} files: {} of {} tests pass.", partly.len(), some.0, some.1);
    assert!(page.contains(&says), "{says}");
}

/// The product, beside this test's own target folder.
fn product() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let path = program.ancestors().nth(3).expect("the target folder").join("release/ginnel-cache");
    assert!(path.exists(), "{} is missing: make product", path.display());
    path
}

#[test]
#[ignore = "test-all: minutes of memcached's own tests"]
fn as_many_of_memcacheds_own_tests_pass_as_the_page_says() {
    let expected = rows(&page());
    assert!(expected.len() > 40, "the page has no table any more");
    let script = Path::new("../../scripts/cache-suite.sh").canonicalize().expect("the script");
    let files = expected.iter().map(|(file, ..)| file);
    let output = Command::new(script).arg(product()).args(files).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        println!("skipped: {words}");
        return;
    }
    assert!(output.status.success(), "{said}{words}");
    for (file, passes, _) in expected {
        let line = said.lines().find(|line| line.starts_with(&format!("{file} ")));
        let passed = line.and_then(|line| line.split(' ').nth(1)?.parse::<usize>().ok());
        assert!(passed >= Some(passes), "{file}: {line:?}, but the page says {passes}");
    }
}
