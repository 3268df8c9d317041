//! What two endpoints of one TCP connection share: finding each other, switching each direction
//! between TCP and a ring at an exact byte, waking each other, and giving the memory back.
//!
//! `docs/protocol.md` is the protocol; here is where each part of it lives:
//!
//! | module | part |
//! |---|---|
//! | [`layout`] | where every shared word of a channel lies |
//! | [`ledger`] | what the processes of one user on one kernel share about their own sockets: never in a segment |
//! | [`attach`] | a node, and the ledger of its sockets |
//! | [`settings`] | settings, from the environment |
//! | `tuple` | between which addresses a connection is |
//! | [`policy`] | which connections may be carried at all, as the user says |
//! | [`rendezvous`] | the table in which two endpoints meet |
//! | [`proof`] | proof that two ends hold the two ends of one connection |
//! | [`broker`] | the messages by which two processes get memory of their own |
//! | [`pairs`], `meet` | that memory, and which connections are to meet there |
//! | [`settle`] | from candidate to active channel, step by step, without anybody waiting |
//! | [`uncounted`] | system calls that nobody counts, while the other end seems to have no shim |
//! | [`catchup`] | holding a stream back for a moment, until the other end has caught up |
//! | `rings` | from the numbers of a slot to a ring's memory, checked at each use |
//! | [`growth`] | larger rings, where a ring is full too often or much goes through it |
//! | [`tx`] | the writer's side: upgrade, send, downgrade, re-send |
//! | [`rx`] | the reader's side: classify, receive, freeze |
//! | [`quick`] | the usual send and receive of a small piece, and nothing else |
//! | [`cork`] | TCP_CORK, which a ring has no use for |
//! | [`path`] | whether TCP still gets through |
//! | [`leave`] | out of a channel while the connection lives: detach |
//! | `renounce` | giving all of it up, before the process goes on as another user |
//! | [`finish`] | shutdown and close |
//! | [`hand_over`] | back to TCP for good |
//! | [`lifetime`] | giving slots and channels back |
//! | [`reclaim`] | memory of dead connections |
//! | `stamp` | when something was put into a ring, in one word |
//! | `clocks` | what another machine's times say by this one's counter |
//! | [`census`] | how many connections a segment carries, for one who looks on |
//! | [`kernel`] | the system calls on the underlying socket |

pub mod attach;
pub mod broker;
pub mod by_tcp;
pub mod catchup;
pub mod census;
mod clocks;
pub mod cork;
pub mod cursor;
mod endpoint;
pub mod finish;
pub mod growth;
pub mod hand_over;
pub mod kernel;
pub mod layout;
pub mod leave;
pub mod ledger;
pub mod lifetime;
mod meet;
pub mod order;
pub mod pairs;
pub mod path;
pub mod policy;
pub mod proof;
pub mod quick;
pub mod reclaim;
pub mod rendezvous;
mod renounce;
mod rings;
pub mod rx;
pub mod settings;
pub mod settle;
mod stamp;
mod tuple;
pub mod tx;
pub mod uncounted;
mod unix;

pub use attach::Attachment;
pub use endpoint::Endpoint;
pub use ledger::{Reason, Slot, Stage};
