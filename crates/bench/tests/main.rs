//! One executable of all tests in this folder: it is linked once, and tests that wait overlap
//! across files. One file's tests, or one: `cargo test -p ginnel-bench bench::`.

mod agreement;
mod bench;
mod table;
