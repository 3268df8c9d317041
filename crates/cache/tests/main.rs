//! All tests of this crate that are not beside its code, in one executable.
#![cfg(not(loom))]

mod hostile;
#[path = "support/random.rs"]
mod random;
mod store;
mod stress;
