//! What the two benches share: child processes with time limits, what must not outlive a bench, the `ginnel` command, the machine, network
//! namespaces, and medians.
//!
//! `ginnel-bench` (behind `ginnel bench`, src/bench/) compares transports on the user's machine; `ginnel-bench-table` (behind `make bench`,
//! src/table/) compares Ginnel with the targets of its design.

#![forbid(unsafe_code)]

pub mod child;
pub mod cleanup;
pub mod ginnel;
pub mod machine;
pub mod network;
pub mod stats;
