//! What `ginnel-demo` shares with `ginnel bench --apps`: how servers and their clients are found,
//! started and read, and how their figures are summed up.

#![forbid(unsafe_code)]

pub mod ports;
pub mod programs;
pub mod stats;
pub mod tools;
