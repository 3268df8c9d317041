//! One executable of all tests in this folder: it is linked once, and tests that wait overlap
//! across files. One file's tests, or one: `cargo test -p ginnel-host joining::`.

mod askers;
mod broker;
mod broker_chaos;
mod broker_cost;
mod broker_hostile;
mod broker_memory;
mod common;
mod joining;
mod page;
mod prover;
mod qemu;
mod restarting;
mod strangers;
mod systemd;
mod traps;

use std::sync::LazyLock;

/// The release build's `ginneld`, as users have it.
fn ginneld() -> &'static str {
    static PROGRAM: LazyLock<String> =
        LazyLock::new(|| ginnel_tests::build::release_dir().join("ginneld").display().to_string());
    &PROGRAM
}
