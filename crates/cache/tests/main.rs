//! All tests of this crate that are not beside its code, in one executable.
#![cfg(not(loom))]

#[path = "support/answers.rs"]
mod answers;
#[path = "support/commands.rs"]
mod commands;
mod differential;
mod far;
mod hostile;
mod neighbours;
mod no_room;
#[path = "support/random.rs"]
mod random;
#[path = "support/script.rs"]
mod script;
#[path = "support/server.rs"]
mod server;
#[path = "support/servers.rs"]
mod servers;
mod serving;
mod store;
mod stress;
mod suite;
