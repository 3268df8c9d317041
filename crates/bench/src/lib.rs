//! What the two benches share: child processes with time limits, what must not outlive a bench, the
//! `ginnel` command, the machine, network namespaces, medians, and charts.
//!
//! `ginnel-bench` (behind `ginnel bench`, src/bench/) compares transports on the user's machine;
//! `ginnel-bench-table` (behind `make bench`, src/table/) compares Ginnel with the targets of its
//! design; `ginnel-bench-ycsb` (in `make bench-cache`, src/ycsb/) compares caches.

#![forbid(unsafe_code)]

pub mod chart;
pub mod child;
pub mod cleanup;
pub mod figures;
pub mod ginnel;
pub mod machine;
pub mod mpi;
pub mod network;
pub mod stats;
