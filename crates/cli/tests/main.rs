//! One executable of all tests in this folder: it is linked once, and tests that wait overlap
//! across files. One file's tests, or one: `cargo test -p ginnel-cli doctor::`.

mod common;
mod doctor;
mod help;
mod mpirun;
mod objects;
mod run;
mod segment;
mod top;
mod vm;

use std::sync::LazyLock;

/// The release build's `ginnel`, as users have it.
fn ginnel() -> &'static str {
    static PROGRAM: LazyLock<String> =
        LazyLock::new(|| ginnel_tests::build::release_dir().join("ginnel").display().to_string());
    &PROGRAM
}
