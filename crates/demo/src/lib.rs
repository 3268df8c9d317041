//! What `ginnel-demo` shares with `ginnel bench --apps`: how servers and their clients are found, started and read.

#![forbid(unsafe_code)]

pub mod ports;
pub mod programs;
pub mod tools;
