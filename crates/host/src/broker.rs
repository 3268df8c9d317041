//! `ginnel-broker`: memory for each pair of processes, of different users or containers on one
//! kernel.
//!
//! A process hands its end of a TCP connection over a Unix socket ([`ginnel_tcp::broker`] has the
//! messages). The broker reads the connection's initial sequence numbers, as the prover does, and
//! waits for a moment whether another process comes with the other end. Then both processes get one
//! sealed memory, which nobody else has; for every later connection between them they get a number
//! under which its ends meet there. The broker keeps neither the sockets nor the memory: what is
//! carried goes on without it.
//!
//! | module | part |
//! |---|---|
//! | [`lines`] | by what the two wake each other |
//! | [`matching`] | who waits with which end, who is a pair with whom, and what a user may have of it |
//! | [`memory`] | a pair's memory, and whether there is room for it |
//! | [`server`] | who asks, and that nobody keeps another waiting |
//!
//! It is a process of its own, for the reasons that the prover is one.

pub mod lines;
pub mod matching;
pub mod memory;
pub mod server;
