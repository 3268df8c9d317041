//! How peers of a segment find each other's memory and doorbells: QEMU's ivshmem protocol, both
//! ends of it.
//!
//! A *peer* is one kernel that is attached to a segment: a guest through its ivshmem device, or the
//! host. The server (`ginneld`) gives each its id, the memory, and an eventfd for every vector of
//! every peer; from then on peers ring each other without it. The protocol is QEMU's
//! (`docs/specs/ivshmem-spec`): a unix stream socket on which only the server speaks, in messages
//! of one little-endian 64-bit number, each with at most one descriptor beside it.
//!
//! | module | part |
//! |---|---|
//! | [`wire`] | the messages as values, and as bytes |
//! | [`outbox`] | the server's end: messages to one peer, sent as far as it takes them, never waiting |
//! | `burst` | many messages in one system call, so that a kill leaves all of a setup or nothing |
//! | [`inbox`] | messages as they come in, in pieces of any size, from a server that is not trusted |
//! | [`client`] | the joining end: checks the order, keeps the memory and the doorbells |
//! | [`doorbell`] | eventfds, and how to ring and read those that somebody else can alter |
//! | [`credentials`] | who is at the other end of a socket |
//!
//! ```no_run
//! use ginnel_ivshmem::client::Client;
//! use std::time::{Duration, Instant};
//! let mut peer = Client::connect("/run/ginnel/default/host.sock".as_ref())?;
//! peer.settle(4, Instant::now() + Duration::from_secs(5))?;
//! println!("peer {:?}, memory {:?}", peer.id(), peer.memory());
//! peer.ring(3, 0)?; // peer 3, vector 0
//! # Ok::<(), ginnel_ivshmem::Error>(())
//! ```

mod burst;
pub mod client;
pub mod credentials;
pub mod doorbell;
mod error;
pub mod inbox;
pub mod outbox;
pub mod wire;

pub use error::Error;
