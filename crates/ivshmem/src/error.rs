use std::fmt;

/// What can go wrong between a server and a peer. A peer that sees anything but [`Error::System`]
/// or [`Error::Timeout`] speaks to something that is no ivshmem server, and leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// A system call failed.
    System {
        /// What was being done.
        doing: &'static str,
        /// The `errno`.
        errno: i32,
    },
    /// The other end closed the connection, between two messages.
    Closed,
    /// The other end closed the connection inside a message.
    Truncated {
        /// Bytes of the message that had come, 1 … 7.
        bytes: usize,
    },
    /// Another protocol version than 0.
    Version {
        /// The version that was sent.
        theirs: i64,
    },
    /// A number that is neither a peer's id (0 … 65535) nor −1, where one of these had to come.
    Number {
        /// What was sent.
        value: i64,
    },
    /// A descriptor beside a message that has none (the version, or a peer's own id).
    StrayDescriptor,
    /// More than one descriptor with a message, or more than the receiver can be given.
    ManyDescriptors,
    /// The message −1 came without the memory's descriptor.
    NoMemory,
    /// The memory came twice.
    SecondMemory,
    /// The server says that this peer itself has left.
    OwnDeparture,
    /// More doorbells than a segment can have: vectors of one peer, or all together.
    ManyDoorbells,
    /// A message would not fit into the bounded queue: the peer takes nothing.
    Overflow,
    /// There is no such doorbell.
    NoDoorbell {
        /// The peer's id.
        peer: u16,
        /// The vector.
        vector: u16,
    },
    /// Not everything had come in time.
    Timeout,
}

impl Error {
    pub(crate) fn system(doing: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::System { doing, errno: errno.raw_os_error() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { doing, errno } => {
                write!(f, "{doing}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Closed => write!(f, "the ivshmem server closed the connection"),
            Self::Truncated { bytes } => write!(
                f,
                "the ivshmem server closed the connection after {bytes} of a message's 8 bytes"
            ),
            Self::Version { theirs } => write!(
                f,
                "the server speaks ivshmem protocol version {theirs}; only version 0 is known"
            ),
            Self::Number { value } => {
                write!(f, "the server sent {value}, which is no peer id (0 to 65535)")
            }
            Self::StrayDescriptor => {
                write!(f, "the server sent a descriptor with a message that has none")
            }
            Self::ManyDescriptors => {
                write!(f, "the server sent more than one descriptor with a message")
            }
            Self::NoMemory => {
                write!(f, "the server announced the memory and sent no descriptor with it")
            }
            Self::SecondMemory => write!(f, "the server sent the memory twice"),
            Self::OwnDeparture => write!(f, "the server says that this peer left"),
            Self::ManyDoorbells => {
                write!(f, "the server sent more doorbells than a segment can have")
            }
            Self::Overflow => write!(f, "the peer does not take what is sent to it"),
            Self::NoDoorbell { peer, vector } => write!(f, "peer {peer} has no doorbell {vector}"),
            Self::Timeout => write!(f, "the ivshmem server did not send everything in time"),
        }
    }
}

impl std::error::Error for Error {}
