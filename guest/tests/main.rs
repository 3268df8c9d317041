//! One executable of all tests in this folder: it is linked once, and tests that wait overlap
//! across files. One file's tests, or one: `cargo test -p ginnel-guest death::`.

mod bench;
mod boot;
mod cache;
mod common;
mod cp;
mod death;
mod differential;
mod dkms;
mod doctor;
mod driver;
mod host;
mod hostile;
mod iceoryx2;
mod libvirt;
mod migrate;
mod mpi;
mod objects;
mod pairs;
mod plug;
mod possession;
mod rxe;
mod segments;
mod servers;
mod sriov;
mod story;
mod switch;
mod switch_deaths;
mod sysv;
mod vsock;
