//! `ginneld`, the host daemon: makes segments and hands them to virtual machines, by QEMU's
//! ivshmem-server protocol, and to processes of the host.
//!
//! | module | part |
//! |---|---|
//! | [`args`] | the command lines |
//! | [`config`] | the TOML file, and what is wrong with it |
//! | [`rundir`] | the directory of sockets and locks: whose it must be |
//! | [`memory`] | sealed memory |
//! | [`segment`] | one segment: memory, doorbells, slots |
//! | [`server`] | the loop: one thread, one epoll set; within it who joins (`joiners`), who does not read what he is sent (`unread`), the status page (`web`, `page`) |
//! | [`keep`], [`keeper`] | descriptors that outlive the daemon: systemd's store, or `ginneld --keep` |
//! | [`look`] | what the peers have written about their connections |
//! | [`metrics`] | Prometheus metrics |
//! | [`prover`] | `ginnel-prover`, the proof of connections for programs without privileges |
//! | [`broker`] | `ginnel-broker`, memory for each pair of processes |
//! | [`qemu`] | the options by which QEMU joins |
//!
//! The rules that keep QEMU alive, each for a reason given where it is kept, and each with a test
//! that is named for it: ids are slots and never change hands; every peer gets every doorbell when
//! it joins, and is never told that one came or left; no connection is closed before its setup is
//! read, and the refused get a whole setup with an empty memory; the memory's size is sealed; a
//! process of the host never gets a machine's doorbell.
//!
//! ```no_run
//! let config = ginnel_host::config::Config::load(None)?;
//! println!("slot 1 of the first segment: {}", config.socket("default", 1).display());
//! ginnel_host::server::Server::new(config)?.run()?;
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod args;
pub mod broker;
pub mod config;
pub mod keep;
pub mod keeper;
pub mod look;
pub mod memory;
pub mod metrics;
mod patience;
pub mod program;
pub mod prover;
pub mod qemu;
pub mod rundir;
pub mod segment;
pub mod server;
mod sockets;
mod users;
