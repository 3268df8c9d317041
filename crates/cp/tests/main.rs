//! `ginnel cp` between real processes; docs/tests.md says what each file proves.
//! One file's tests, or one: `cargo test -p ginnel-cp faults::`.

mod attacks;
mod differential;
mod faults;
mod hostile;
mod outside;
mod quota;
mod replacing;
mod resume;
mod rules;
mod stage;
mod trees;
