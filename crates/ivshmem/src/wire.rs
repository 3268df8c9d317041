//! The messages of the ivshmem client-server protocol, as values and as bytes.
//!
//! Source: QEMU, `docs/specs/ivshmem-spec`, "Client-Server protocol". A message is one
//! little-endian 64-bit signed number. What it means depends on its place and on whether a
//! descriptor came with it:
//!
//! | order | number | descriptor | meaning |
//! |---|---|---|---|
//! | first | 0 | none | protocol version |
//! | second | 0 … 65535 | none | the receiver's own id |
//! | then, once | −1 | the memory | shared memory; its size is the file's |
//! | any later | id | an eventfd | the next vector of that peer (vector 0 first); the receiver's own come last at setup |
//! | any later | id | none | that peer has left |

use crate::Error;

/// The only protocol version there is.
pub const VERSION: i64 = 0;
/// The number that announces the memory.
pub const MEMORY: i64 = -1;
/// Bytes of a message.
pub const MESSAGE: usize = 8;
/// Vectors of one peer that a doorbell can name: QEMU's register cuts the number to 8 bits.
pub const MAX_VECTORS: u16 = 256;

/// What a message says, once its place and its descriptor are known. The descriptor itself travels
/// beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The protocol version, 0.
    Version,
    /// The receiver's own id.
    Id(u16),
    /// The shared memory; a descriptor comes with it.
    Memory,
    /// The next vector of a peer; a descriptor comes with it.
    Doorbell(u16),
    /// A peer has left. `ginneld` never sends this: QEMU frees a departed peer's doorbells twice
    /// when the device is unplugged later.
    Left(u16),
}

impl Message {
    /// The number that is sent.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Version => VERSION,
            Self::Memory => MEMORY,
            Self::Id(id) | Self::Doorbell(id) | Self::Left(id) => i64::from(id),
        }
    }

    /// As bytes on the socket.
    #[must_use]
    pub fn bytes(self) -> [u8; MESSAGE] {
        self.number().to_le_bytes()
    }

    /// Does a descriptor go with it?
    #[must_use]
    pub fn has_descriptor(self) -> bool {
        matches!(self, Self::Memory | Self::Doorbell(_))
    }
}

/// Where the receiver stands in the order above: the next message's meaning depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// Nothing has come.
    #[default]
    Version,
    /// The version has come.
    Id,
    /// The own id has come: everything else may come, in any order.
    Running {
        /// The receiver's own id.
        own: u16,
        /// Has the memory come?
        memory: bool,
    },
}

impl Stage {
    /// What `number` means here, and the stage after it. The number and the presence of a
    /// descriptor come from a server that is not trusted.
    ///
    /// # Errors
    /// [`Error::Version`], [`Error::Number`], [`Error::StrayDescriptor`], [`Error::NoMemory`],
    /// [`Error::SecondMemory`],
    /// [`Error::OwnDeparture`].
    pub fn next(self, number: i64, descriptor: bool) -> Result<(Message, Self), Error> {
        let peer = || u16::try_from(number).map_err(|_| Error::Number { value: number });
        match self {
            Self::Version if number != VERSION => Err(Error::Version { theirs: number }),
            Self::Version | Self::Id if descriptor => Err(Error::StrayDescriptor),
            Self::Version => Ok((Message::Version, Self::Id)),
            Self::Id => peer().map(|own| (Message::Id(own), Self::Running { own, memory: false })),
            Self::Running { memory: true, .. } if number == MEMORY => Err(Error::SecondMemory),
            Self::Running { .. } if number == MEMORY && !descriptor => Err(Error::NoMemory),
            Self::Running { own, .. } if number == MEMORY => {
                Ok((Message::Memory, Self::Running { own, memory: true }))
            }
            Self::Running { own, .. } => match peer()? {
                id if descriptor => Ok((Message::Doorbell(id), self)),
                id if id == own => Err(Error::OwnDeparture),
                id => Ok((Message::Left(id), self)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RUNNING: Stage = Stage::Running { own: 3, memory: true };

    #[test]
    fn numbers_are_little_endian() {
        assert_eq!(Message::Memory.bytes(), [0xff; 8]);
        assert_eq!(Message::Doorbell(0x1234).bytes(), [0x34, 0x12, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_order_of_a_setup() {
        let (message, stage) = Stage::default().next(0, false).expect("a version");
        assert_eq!(message, Message::Version);
        let (message, stage) = stage.next(65535, false).expect("an id");
        assert_eq!(message, Message::Id(65535));
        let (message, stage) = stage.next(-1, true).expect("the memory");
        assert_eq!(
            (message, stage),
            (Message::Memory, Stage::Running { own: 65535, memory: true })
        );
        assert_eq!(stage.next(7, true), Ok((Message::Doorbell(7), stage)));
        assert_eq!(stage.next(7, false), Ok((Message::Left(7), stage)));
    }

    #[test]
    fn what_is_out_of_order_has_its_own_error() {
        assert_eq!(Stage::Version.next(1, false), Err(Error::Version { theirs: 1 }));
        assert_eq!(Stage::Version.next(0, true), Err(Error::StrayDescriptor));
        assert_eq!(Stage::Id.next(4, true), Err(Error::StrayDescriptor));
        assert_eq!(Stage::Id.next(-1, false), Err(Error::Number { value: -1 }));
        assert_eq!(Stage::Id.next(65536, false), Err(Error::Number { value: 65536 }));
        assert_eq!(Stage::Running { own: 3, memory: false }.next(-1, false), Err(Error::NoMemory));
        assert_eq!(RUNNING.next(-1, true), Err(Error::SecondMemory));
        assert_eq!(RUNNING.next(-2, true), Err(Error::Number { value: -2 }));
        assert_eq!(RUNNING.next(3, false), Err(Error::OwnDeparture));
    }

    proptest! {
        /// Any number at any stage is an error or a message that gives the same number back.
        #[test]
        fn every_number_is_understood_or_refused(number: i64, descriptor: bool, own: u16, memory: bool, stage in 0..3) {
            let stage = [Stage::Version, Stage::Id, Stage::Running { own, memory }][stage as usize];
            for number in [number, number & 0xffff, -1, 0] {
                if let Ok((message, _)) = stage.next(number, descriptor) {
                    prop_assert_eq!(message.number(), number);
                    prop_assert_eq!(message.has_descriptor(), descriptor);
                }
            }
        }
    }
}
