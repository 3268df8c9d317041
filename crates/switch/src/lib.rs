//! `ginnel-switch`: an Ethernet switch for virtual machines of one host. Guests have the stock
//! virtio-net driver; their QEMUs share memory with the switch by vhost-user.
//!
//! | module | part |
//! |---|---|
//! | [`ring`] | virtqueues in guests' memory: unsafe code, as in [`hosts::libfabric`] and [`tap`] |
//! | [`vhost`] | vhost-user: messages, connections, what they amount to |
//! | [`port`], [`seat`], [`tap`] | a port, and what is at its other end |
//! | [`switch`], [`forward`], [`attach`] | ports and table; moving frames; front ends that come and go |
//! | [`fdb`], [`filter`], [`bucket`], [`offload`] | where addresses are; who may say what; rates; checksums and segments |
//! | [`server`], [`poller`], [`rests`], [`clock`] | the loop, what it sleeps on, what it leaves alone for a moment, the time |
//! | [`scratch`] | memory for frames that cannot be copied straight |
//! | [`closer`] | closing what others have sent, in a thread of its own |
//! | [`vsock`] | sockets between machines |
//! | [`hosts`], [`secret`] | other hosts whose machines belong to the same segments; what they have in common |
//! | [`loan`] | machines' memory that is sent to them where it is, until it is given back |
//! | [`control`], [`status`], [`trace`], [`metrics`], [`page`] | what others are told |
//! | [`config`], [`places`], [`reload`] | the TOML file; sockets and tap devices; another file while it runs |
//! | [`front_end`] | the other side of vhost-user, for tests, fuzzing and measuring |
//!
//! ```no_run
//! use ginnel_switch::{config::{Config, PortConfig}, server::Server};
//! let port = |name: &str| PortConfig::new(name, format!("/tmp/{name}.sock").into(), 0);
//! let config = Config::new("/tmp/switch".into(), vec![port("vm1"), port("vm2")]);
//! let (end, _ends) = std::os::unix::net::UnixStream::pair()?;
//! Server::new(&config)?.run(end)?;
//! # Ok::<(), anyhow::Error>(())
//! ```
#![deny(unsafe_code)]

pub mod args;
pub mod attach;
pub mod bucket;
pub mod clock;
pub mod closer;
pub mod config;
pub mod control;
pub mod counters;
pub mod fdb;
pub mod filter;
pub mod forward;
pub mod front_end;
pub mod hosts;
pub mod loan;
pub mod metrics;
pub mod offload;
pub mod page;
pub mod places;
pub mod poller;
pub mod port;
pub mod reload;
pub mod rests;
#[allow(unsafe_code, reason = "all access to guests' memory; its rules are at its head")]
pub mod ring;
pub mod scratch;
pub mod seat;
pub mod secret;
pub mod server;
pub mod status;
pub mod switch;
pub mod tap;
pub mod trace;
pub mod vhost;
pub mod vsock;
pub mod wire;
