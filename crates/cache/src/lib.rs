//! A cache that any memcached client can use, and whose neighbours read items themselves.
//!
//! The server keeps items and their index in one piece of shared memory, which it alone writes.
//! A client on the same kernel is handed a read-only descriptor of it and looks keys up by itself:
//! no message, no lock, no wake-up. Everything else goes over memcached's protocols.
//!
//! | module | part |
//! |---|---|
//! | [`memory`] | the mapping; the only raw memory |
//! | [`layout`] | what lies where in it |
//! | [`seq`] | a bucket's version |
//! | [`store`] | the writer: items, eviction, expiry |
//! | [`reader`] | looking up without the server |
//! | [`protocol`] | memcached's protocols, apart from sockets |
//! | [`server`] | sockets, threads, the clock |
//! | [`client`] | reading items oneself, and asking where that is not possible |
//! | [`door`] | how a neighbour is handed the memory |
//! | [`far`] | a copy of it for readers in other machines |
//! | [`hints`], [`life`] | what readers tell the server, and how they see that it ended |
#![deny(unsafe_code)]

#[cfg(not(loom))]
mod accept;
#[cfg(not(loom))]
pub mod client;
#[cfg(not(loom))]
pub mod door;
#[cfg(not(loom))]
pub mod far;
pub mod hints;
pub mod layout;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "the kernel is given a list by address")]
pub mod life;
#[allow(unsafe_code, reason = "mappings")]
pub mod memory;
pub mod number;
#[cfg(not(loom))]
pub mod protocol;
pub mod reader;
pub mod seq;
#[cfg(not(loom))]
pub mod server;
pub mod store;
pub mod sync;
