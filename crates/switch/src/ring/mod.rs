//! Split virtqueues in another machine's memory (virtio 1.2, 2.7): all raw access to guest memory.
//!
//! This is the one module of the switch with unsafe code. A guest, its QEMU, or whatever else
//! holds the vhost-user socket can write every byte of this memory at any time. The rules:
//!
//! 1. **No reference into guest memory**, except to an atomic word whose alignment was checked.
//!    Everything else is copied by pointer, and the copy is checked and used.
//! 2. **Each value is copied once.** An index, an address, a length or a flag is never read a
//!    second time after it was checked.
//! 3. **Each index is compared with the queue's size, each address and length with the memory
//!    map.** Only [`Memory`] turns an address into a pointer, and what it returns is as long as it
//!    says. A buffer may cross from one region into the next.
//! 4. **Each walk is bounded**: a chain by the size of its table and by [`MAX_CHAIN`], what a guest
//!    can offer at once by the queue's size.
//! 5. **A mapping lives as long as anything points into it**: rings hold their regions by
//!    reference count, and a [`Slice`] borrows the [`Memory`] that it came from.
//! 6. **A file that is cut short costs its own port only**: the handler of SIGBUS puts zeroes in
//!    the place of the whole mapping and notes that it did ([`Mapping::is_cut`]). What is read
//!    from then on is wrong, which rules 2 to 4 bear, and its port is closed.
//! 7. **What the switch wrote is marked in the dirty log**, after it was written and before the
//!    guest is told of it, while a log is set: a machine that is moved loses none of it. That is
//!    so of each word of the used ring, when to be kicked among them.
//! 8. **What is read later is held** ([`Held`]): memory that another host is sent in place stays
//!    mapped by reference count until the send is over, whatever becomes of the guest. Its chain
//!    goes back to the guest only then, and in its turn (`order.rs`).
//! 9. **The order of accesses is that of virtio 1.2, 2.7**: the available index is loaded with
//!    Acquire (it pairs with the driver's release when it publishes), the used index stored with
//!    Release; between publishing and looking whether the other side wants to be told lies a full
//!    fence (the driver has one between arming and looking again).
//!
//! Whatever breaks a rule of virtio is a [`Broken`]: that queue is served no further until its
//! front end sets it up again. Nothing here panics, whatever the memory says.

mod ahead;
mod broken;
mod chain;
mod descriptor;
mod events;
mod held;
mod layout;
mod log;
mod mapping;
mod memory;
mod order;
mod room;
mod split;
#[cfg(test)]
mod tests;

pub use broken::{Broken, Refused};
pub use chain::{Slice, Slices};
pub use held::{Held, Piece};
pub use layout::Layout;
pub use log::Log;
pub use mapping::{MapError, Mapping, cuts, expect_cuts};
pub use memory::{Memory, Region};
pub use room::{Room, Taken};
pub use split::Ring;

/// Descriptors of one chain, as in QEMU (`VIRTQUEUE_MAX_SIZE`) and Linux (`UIO_MAXIOV`).
pub const MAX_CHAIN: usize = 1024;
/// The largest queue (virtio 1.2, 2.7).
pub const MAX_SIZE: u16 = 32768;
