//! The tests of `sysv_ipc`, Python's module for System V objects (PyPI), plainly and carried: none
//! is worse. Fetched once, by pip, into the target folder.

use crate::support::{carried, place, ran, root, text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = "1.2.0";
/// So many tests it has, at least.
const TESTS: usize = 130;

/// The unpacked sources, and a Python that has the module; why not, where they cannot be had.
fn fetched() -> Result<(PathBuf, PathBuf), String> {
    let target = root().join("target/sysv_ipc");
    let (sources, python) =
        (target.join(format!("sysv_ipc-{VERSION}")), target.join("python/bin/python"));
    if target.join("whole").is_file() {
        return Ok((sources, python));
    }
    let _ = std::fs::remove_dir_all(&target);
    std::fs::create_dir_all(&target).map_err(|error| error.to_string())?;
    let step = |command: &mut Command| {
        let done = ran(command.current_dir(&target), 300);
        if done.status.success() {
            Ok(())
        } else {
            Err(format!("{command:?}: {}", text(&done.stderr)))
        }
    };
    let package = format!("sysv_ipc=={VERSION}");
    step(Command::new("python3").args(["-m", "venv", "python"]))?;
    step(Command::new(&python).args([
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        &package,
    ]))?;
    step(Command::new("tar").args(["xf", &format!("sysv_ipc-{VERSION}.tar.gz")]))?;
    step(Command::new(&python).args([
        "-m",
        "pip",
        "install",
        "-q",
        &format!("./sysv_ipc-{VERSION}"),
    ]))?;
    std::fs::write(target.join("whole"), "").map_err(|error| error.to_string())?;
    Ok((sources, python))
}

/// What became of each test.
fn results(command: &mut Command, sources: &Path) -> BTreeMap<String, String> {
    let done = ran(command.args(["-m", "unittest", "-v"]).current_dir(sources), 300);
    let said = text(&done.stderr);
    let line = |line: &str| {
        // A test that has a description says its result on the line of that.
        let (name, result) = line.rsplit_once(" ... ")?;
        Some((name.to_owned(), result.split(' ').next()?.to_owned()))
    };
    let results: BTreeMap<_, _> = said.lines().filter_map(line).collect();
    assert!(results.len() >= TESTS, "{}\n{said}", results.len());
    results
}

#[test]
fn none_of_sysv_ipcs_tests_is_worse() {
    let (sources, python) = match fetched() {
        Ok(both) => both,
        Err(why) => {
            ginnel_tests::skip("sysv_ipc's tests", &why);
            return;
        }
    };
    let place = place();
    let plain = results(&mut Command::new(&python), &sources);
    let carried = results(&mut carried(place.path(), &python), &sources);
    let good = |result: Option<&String>| {
        result.is_some_and(|result| result == "ok" || result == "skipped")
    };
    let worse: Vec<_> = plain
        .iter()
        .filter(|(name, result)| good(Some(result)) && !good(carried.get(*name)))
        .collect();
    assert!(worse.is_empty(), "worse: {worse:?}");
}
