//! What was built to be shipped, for the tests of crates that stand on the cache.

use std::path::PathBuf;

/// Where the product lies: beside this test's own target folder.
pub fn product(name: &str) -> PathBuf {
    let target = std::env::current_exe().expect("this program");
    let target = target.ancestors().nth(3).expect("target, profile, deps").to_owned();
    let path = target.join("release").join(name);
    assert!(path.exists(), "{} is missing: make product", path.display());
    path
}
