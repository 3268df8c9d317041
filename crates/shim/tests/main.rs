//! One executable of all tests in this folder: it is linked once, and tests that wait overlap
//! across files. One file's tests, or one: `cargo test -p ginnel-shim calls::`.

mod calls;
mod coverage;
mod needs;
