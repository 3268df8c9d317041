//! One executable of all tests in this folder: it is linked once, and tests that wait overlap across files.
//! One file's tests, or one: `cargo test -p ginnel-tests programs::half_close`.

mod bad_input;
mod c_libraries;
mod conformance;
mod containers;
mod crash;
mod detach;
mod differential;
mod go;
mod hostile;
mod install;
mod leaks;
mod memory;
mod mpi;
mod packages;
mod path;
mod pid_namespaces;
mod policy;
mod possession;
mod preloads;
mod privileges;
mod programs;
mod rules;
mod served;
mod service;
mod switching;
mod uring;
mod users;
