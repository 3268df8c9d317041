//! What a device is offered as: its features, its queues, its configuration.

use crate::ring::Room;
use crate::wire::features;
use std::sync::Arc;

/// Protocol features (vhost-user.rst), by their bits.
pub(super) mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const RARP: u64 = 1 << 2;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const MTU: u64 = 1 << 4;
    pub const CONFIG: u64 = 1 << 9;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
    /// What every device has.
    pub const COMMON: u64 = LOG_SHMFD | REPLY_ACK | RESET_DEVICE | CONFIGURE_MEM_SLOTS | STATUS;
}

/// A kind of device.
#[derive(Debug, Clone)]
pub struct Model {
    /// Virtio features that it offers.
    pub features: u64,
    pub(super) protocol: u64,
    /// How many queues it has.
    pub queues: u16,
    /// The answer to GET_QUEUE_NUM.
    pub(super) counted: u16,
    /// Its configuration space, where the front end asks the back end for it.
    pub config: Vec<u8>,
}

impl Model {
    /// A network card with so many pairs of queues.
    #[must_use]
    pub fn net(pairs: u16) -> Self {
        let protocol = protocol::COMMON | protocol::MQ | protocol::RARP | protocol::MTU;
        let (features, queues) = (features::OFFERED, 2 * pairs);
        Self { features, protocol, queues, counted: pairs, config: Vec::new() }
    }

    /// Sockets between machines, for the machine of this context id (virtio 1.2, 5.10).
    #[must_use]
    pub fn vsock(cid: u32) -> Self {
        Self {
            features: features::COMMON,
            protocol: protocol::COMMON | protocol::CONFIG,
            // To receive into, to send from, and one for events, which QEMU keeps to itself.
            queues: 3,
            counted: 3,
            config: u64::from(cid).to_le_bytes().to_vec(),
        }
    }
}

/// How much memory a front end may have mapped.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of its own.
    pub own: u64,
    /// What there is for all.
    pub room: Arc<Room>,
}

impl Limits {
    /// None but that of the address space.
    #[must_use]
    pub fn none() -> Self {
        Self { own: u64::MAX, room: Room::new(Room::half_of_all()) }
    }
}
