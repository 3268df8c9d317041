//! Messages between many processes that share a segment: the engine under `libginnel-fi.so`.
//!
//! An [`Endpoint`] is one process's presence. It sends messages, with tags or without, writes and
//! reads registered memory of others, and applies operations to it. Nothing of it knows libfabric,
//! whose words (endpoint, tag, completion, memory region) it shares.
//!
//! | module | part |
//! |---|---|
//! | `layout` | the segment's pages: what stands where, and whose it is |
//! | [`node`] | the segment: who is in it and lives, waking, memory of the dead |
//! | `neighbour` | what that stands on: joining, waiters, locks |
//! | [`pair`] | a ring of frames from one endpoint to another |
//! | [`frame`] | what a frame says, and which ones are refused |
//! | [`matching`] | receives that were posted, messages that came before them |
//! | [`endpoint`] | all of it together: opened, closed, making progress; what the owner asks for; the way to another endpoint |
//! | [`operation`] | operations, what waits for its other end, what the owner is told |
//! | [`active`] | endpoints that only send and take active messages: the engine under `libuct_ginnel.so` |
//! | [`shared`] | memory in the segment that others use directly |
//! | [`memory`] | registered memory, and operations on it |
//! | [`idle`] | what a caller does while nothing comes |
//!
//! Trust: endpoints of one job trust each other's data. Whoever else has the segment can garble it,
//! as it can garble any memory it may write, but not end a process: every index, length and offset
//! that comes out of the segment is copied once and checked, and requests are known by number and
//! generation, never by address.

pub mod active;
pub mod endpoint;
pub mod frame;
pub mod idle;
mod layout;
pub mod matching;
pub mod memory;
mod neighbour;
pub mod node;
pub mod operation;
pub mod pair;
mod requests;
mod seal;
pub mod shared;

pub use endpoint::{Endpoint, Event, EventKind};
pub use layout::EndpointId;
use std::fmt;

/// Why an operation was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No room for now: to be tried again after progress.
    Again,
    /// The other endpoint is gone.
    Gone,
    /// Nothing to report: a message that was looked for has not come.
    NoMessage,
    /// The segment has no pages left for a ring, or the file system no memory.
    NoMemory,
    /// As many others as the other endpoint can hear send to it already.
    TooMany,
    /// More bytes than this kind of operation may have.
    TooLong,
    /// Not what this operation can do.
    Invalid,
    /// The segment cannot be joined: why, in words.
    Refused(&'static str),
    /// The system said no, with this `errno`, while doing what is named.
    System(&'static str, i32),
}

/// What joining a segment says to its user.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoMemory => f.write_str(
                "no memory is left in its file system, or no pages in it (GINNEL_SIZE makes a \
                 larger one)",
            ),
            Self::Refused(why) => f.write_str(why),
            Self::System(doing, errno) => {
                write!(f, "{doing}: {}", std::io::Error::from_raw_os_error(errno))
            }
            ref other => write!(f, "{other:?}"),
        }
    }
}

impl From<ginnel_region::Error> for Error {
    fn from(error: ginnel_region::Error) -> Self {
        match error {
            ginnel_region::Error::Full
            | ginnel_region::Error::NoMemory
            | ginnel_region::Error::Limited => Self::NoMemory,
            ginnel_region::Error::System { doing, errno } => Self::System(doing, errno),
            _ => Self::System("open the segment", libc::EINVAL),
        }
    }
}
