//! The `ginnel` command.
fn main() {}
