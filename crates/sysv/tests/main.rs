//! One executable of all tests in this folder: they run programs under `ginnel run --sysv`, built
//! by `make product`. One file's tests, or one: `cargo test -p ginnel-sysv random::`.

mod calls;
mod random;
mod servers;
mod suite;
mod support;
