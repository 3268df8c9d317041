//! One executable of all tests in this folder: it is linked once, and tests that wait overlap across files.
//! One file's tests, or one: `cargo test -p ginnel-cli doctor::`.

mod common;
mod doctor;
mod help;
mod run;
mod segment;
mod top;
mod vm;
