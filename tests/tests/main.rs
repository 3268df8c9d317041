//! One executable of all tests in this folder: it is linked once, and tests that wait overlap
//! across files. One file's tests, or one: `cargo test -p ginnel-tests programs::half_close`.

mod bad_input;
mod broker;
mod c_libraries;
mod conformance;
mod containers;
mod crash;
mod detach;
mod differential;
mod go;
mod hostile;
mod in_turn;
mod install;
mod leaks;
mod memory;
mod mpi;
mod mpi4py;
mod musl;
mod packages;
mod path;
mod pid_namespaces;
mod policy;
mod possession;
mod preloads;
mod privileges;
mod programs;
mod rpms;
mod rules;
mod served;
mod service;
mod sleepers;
mod switching;
mod turns;
mod ucx;
mod uring;
mod users;
