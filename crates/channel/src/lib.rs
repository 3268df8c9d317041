//! What two endpoints of one TCP connection share: finding each other, switching each direction between TCP and a ring at an
//! exact byte, waking each other, and giving the memory back.
//!
//! `docs/protocol.md` is the protocol; here is where each part of it lives:
//!
//! | module | part |
//! |---|---|
//! | [`layout`] | where every shared word of a channel lies |
//! | [`ledger`] | what the processes of one user on one kernel share about their own sockets: never in a segment |
//! | [`join`] | a segment of `ginneld` for a process of the host |
//! | [`node`], [`joined`] | one process's presence in one segment |
//! | [`processes`], [`table`] | who else of this user is there: the process table |
//! | [`attach`] | a node, and the ledger of its sockets |
//! | [`settings`], [`node_settings`] | settings, from the environment |
//! | `rights` | what a process may open as it is now |
//! | [`home`] | the directory of a user's tables and segments, and whether it is that user's alone |
//! | [`policy`] | which connections may be carried at all, as the user says |
//! | [`place`] | which peer this kernel is, where a segment is shared with others |
//! | [`rendezvous`] | the table in which two endpoints meet |
//! | [`proof`] | proof that two ends hold the two ends of one connection |
//! | [`settle`] | from candidate to active channel, step by step, without anybody waiting |
//! | [`uncounted`] | system calls that nobody counts, while the other end seems to have no shim |
//! | [`catchup`] | holding a stream back for a moment, until the other end has caught up |
//! | `rings` | from the numbers of a slot to a ring's memory, checked at each use |
//! | [`growth`] | larger rings, where a ring is full too often or much goes through it |
//! | [`tx`] | the writer's side: upgrade, send, downgrade, re-send |
//! | [`rx`] | the reader's side: classify, receive, freeze |
//! | [`quick`] | the usual send and receive of a small piece, and nothing else |
//! | [`waiter`] | sleeping and being woken: by FIFO, doorbell or the daemon's relay |
//! | [`cork`] | TCP_CORK, which a ring has no use for |
//! | [`path`] | whether TCP still gets through |
//! | [`leave`] | out of a channel while the connection lives: detach |
//! | `renounce` | giving all of it up, before the process goes on as another user |
//! | [`finish`] | shutdown and close |
//! | [`hand_over`] | back to TCP for good |
//! | [`lifetime`] | giving slots and channels back |
//! | [`dead`] | memory of the dead, each kind of page by its handler |
//! | [`reclaim`] | memory of dead connections |
//! | [`census`] | how many connections a segment carries, for one who looks on |
//! | [`bits`] | bitmaps of slots |
//! | [`kernel`] | the system calls on the underlying socket |

pub mod attach;
pub mod bits;
pub mod budget;
pub mod catchup;
pub mod census;
pub mod cgroup;
pub mod cork;
pub mod cursor;
pub mod dead;
mod endpoint;
pub mod finish;
pub mod growth;
pub mod hand_over;
pub mod home;
pub mod join;
pub mod joined;
pub mod kernel;
pub mod layout;
pub mod leave;
pub mod ledger;
pub mod lifetime;
pub mod node;
pub mod node_settings;
pub mod order;
pub mod path;
pub mod place;
pub mod policy;
pub mod processes;
pub mod program;
pub mod proof;
pub mod quick;
pub mod reclaim;
pub mod rendezvous;
mod renounce;
mod rights;
mod rings;
pub mod rx;
pub mod settings;
pub mod settle;
pub mod table;
pub mod tx;
pub mod uncounted;
pub mod waiter;

pub use attach::Attachment;
pub use endpoint::Endpoint;
pub use ledger::{Reason, Slot, Stage};
pub use node::Node;
