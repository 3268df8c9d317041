//! vhost-user, the back end's side (QEMU, `docs/interop/vhost-user.rst`).
//!
//! A front end (QEMU, DPDK's virtio_user, …) connects to a port's socket, shares the guest's
//! memory, and says where in it the queues lie. [`message`] takes messages apart, [`connection`]
//! reads and writes them without ever waiting, [`device`] is what they amount to.
//!
//! Whatever a front end says that makes no sense ends its connection, with a line in the log. It
//! may come back; QEMU does with `reconnect=`.

pub mod connection;
pub mod device;
pub mod message;
mod model;
mod queue;
mod refusal;

pub use connection::{Connection, Incoming};
pub use device::{Device, Done};
pub use model::{Limits, Model};
pub use queue::Queue;
pub use refusal::Refusal;
