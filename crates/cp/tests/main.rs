//! `ginnel cp` between real processes; docs/tests.md says what each file proves.
//! One file's tests, or one: `cargo test -p ginnel-cp faults::`.

mod faults;
mod hostile;
mod outside;
mod rules;
mod stage;
mod trees;
