//! One executable of all tests in this folder: it is linked once, and tests that wait overlap across files.
//! One file's tests, or one: `cargo test -p ginnel-host joining::`.

mod common;
mod joining;
mod page;
mod qemu;
mod restarting;
mod strangers;
mod systemd;
mod traps;
