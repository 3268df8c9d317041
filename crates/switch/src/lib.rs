//! `ginnel-switch`: an Ethernet switch for virtual machines on one host.
#![deny(unsafe_code)]

pub mod bucket;
pub mod fdb;
pub mod filter;
pub mod offload;
pub mod poller;
#[allow(unsafe_code, reason = "the one module that touches guest memory; its rules are at its head")]
pub mod ring;
pub mod vhost;
pub mod wire;
