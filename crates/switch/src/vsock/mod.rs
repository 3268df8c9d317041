//! Sockets between machines, and between machines and programs of the host, without a network
//! (virtio 1.2, 5.10; vsock(7)).
//!
//! Each machine has a vhost-user-vsock device with a context id. A packet that one machine sends to
//! another goes from the first one's queue into the second one's, in one copy; what it says of its
//! sender is checked. While the receiver has made no room available, what is sent to it waits in
//! the hub, as far as the receiver's credit goes: so a machine that stands still stops its own
//! connections and nobody else's. [`host`] has the programs of the host.
//!
//! | module | part |
//! |---|---|
//! | [`packet`] | a packet's header |
//! | [`connection`] | two ends, their credit, and what waits for them |
//! | [`machine`] | a machine: its device, its connections |
//! | [`hub`], `give` | where packets go; how machines are given them |
//! | `ends` | how connections begin and end |
//! | `host` | streams of the host |
//! | `server` | the loop, in a thread of its own beside that of the frames |

pub mod connection;
mod ends;
mod give;
mod host;
pub mod hub;
pub mod machine;
pub mod packet;
pub mod reload;
mod server;

pub use hub::Hub;
