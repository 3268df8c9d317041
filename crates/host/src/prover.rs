//! `ginnel-prover`: reads the initial sequence numbers of TCP connections for programs of the host
//! that may not read them, and tells nobody the numbers.
//!
//! A program hands its socket over a Unix socket, with what is to be proved about it
//! ([`ginnel_tcp::proof::helper`] is its side, and the messages). The prover answers with the
//! connection's secret ([`ginnel_tcp::proof`]), as the guest driver does for machines.
//!
//! | module | part |
//! |---|---|
//! | [`numbers`] | a socket's numbers, from the kernel's counts of it |
//! | [`program`] | the BPF program that shows these counts |
//! | [`types`] | where the kernel's structures have what it looks at |
//! | [`bpf`] | the calls of bpf(2) that it takes |
//! | [`server`] | who asks, and that nobody keeps another waiting |
//! | [`turn_away`] | hanging up without waiting for what lies unread |
//! | [`rights`] | giving up what it started with |
//!
//! It is a process of its own: the daemon, which speaks with machines, needs no capability.

pub mod bpf;
pub mod numbers;
pub mod program;
pub mod rights;
pub mod server;
pub mod turn_away;
pub mod types;
