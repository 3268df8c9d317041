//! What a call says when it cannot do what it was asked. Each text names the thing and the way out.

use crate::Kind;
use ginnel_region::names::{NAME_LEN, NAMES};
use std::fmt;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No object of this name is in the segment.
    NotFound {
        /// The name.
        name: String,
    },
    /// An object of this name is in the segment already.
    Taken {
        /// The name.
        name: String,
        /// What it is.
        kind: Kind,
    },
    /// The object of this name is of another kind.
    WrongKind {
        /// The name.
        name: String,
        /// What it is.
        is: Kind,
        /// What was asked for.
        wanted: Kind,
    },
    /// The object was made with other measures than were asked for.
    WrongShape {
        /// The name.
        name: String,
        /// Which measure it is.
        what: &'static str,
        /// What it is.
        is: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// The object was made by another version of Ginnel.
    Version {
        /// The name.
        name: String,
        /// The version of its layout.
        theirs: u16,
        /// The version that this program speaks.
        ours: u16,
    },
    /// A measure that no object can have.
    Invalid {
        /// Which, and what it may be.
        what: String,
    },
    /// A name has 1 to 96 bytes, none of them 0.
    Name {
        /// Bytes of the name that was given.
        len: usize,
    },
    /// Another process has been making an object of this name for seconds, and lives; or it comes
    /// and goes without end.
    Busy {
        /// The name.
        name: String,
    },
    /// The role that was asked for (a queue's receiver, say) is another's, who lives.
    InUse {
        /// The name.
        name: String,
        /// Which role.
        role: &'static str,
        /// The process that has it, as it says; 0 where it does not.
        pid: u32,
    },
    /// All names of the segment are taken.
    NamesFull,
    /// The segment has no run of free pages as long as this.
    SegmentFull {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// The system has no memory left for the segment.
    NoMemory,
    /// This process uses as many objects of one segment as it can.
    TooManyObjects,
    /// This receiver holds as many messages as the queue lets it.
    TooManyMessages {
        /// So many.
        most: u32,
    },
    /// This sender has as many loans out as the queue holds messages: send one, or drop one.
    TooManyLoans {
        /// So many.
        most: u32,
    },
    /// The semaphore has no room for so many more permits.
    TooManyPermits {
        /// So many there can be.
        most: u32,
    },
    /// The message does not fit.
    TooLarge {
        /// Its bytes.
        len: usize,
        /// Bytes of the largest.
        max: u64,
    },
    /// There is nothing to be had, or no room, at the moment; the descriptor tells when there is.
    WouldBlock,
    /// The time that was given is over.
    TimedOut,
    /// Everybody at the other end has left. Who waits again waits for somebody new.
    Ended {
        /// The last of them died, rather than close its end.
        died: bool,
    },
    /// One that takes part in the barrier died before it came. Nobody goes on until another has
    /// taken its seat.
    Broken,
    /// This thread holds the lock already.
    Deadlock,
    /// In-place access is for segments that were opened as trusting.
    NotTrusting,
    /// The handle is that of the process before fork: open the object again in this one.
    Forked,
    /// This process was taken for dead (its machine stood still for long) and what it held was
    /// given to others. Open the objects again.
    Lost,
    /// The device of the segment was unplugged.
    Gone,
    /// Somebody wrote nonsense into the object. Nothing else suffers.
    Corrupt {
        /// The object's name.
        name: String,
    },
    /// The segment cannot be used.
    Segment {
        /// Which, and why, and what to do.
        message: String,
    },
    /// A system call failed.
    System {
        /// What was being done.
        doing: &'static str,
        /// The `errno`.
        errno: i32,
    },
}

impl fmt::Display for Error {
    #[allow(clippy::too_many_lines, reason = "a table: each error with its words")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { name } => {
                write!(
                    f,
                    "no object {name:?} in the segment; `ginnel ls` shows those that are there"
                )
            }
            Self::Taken { name, kind } => write!(
                f,
                "{name:?} is taken by a {kind}; open that one, choose another name, or remove it \
                 with `ginnel rm`"
            ),
            Self::WrongKind { name, is, wanted } => {
                write!(f, "{name:?} is a {is}, not a {wanted}; choose another name")
            }
            Self::WrongShape { name, what, is, wanted } => write!(
                f,
                "{name:?} was made with {what} {is}, not {wanted}; ask for that, or remove it \
                 with `ginnel rm`"
            ),
            Self::Version { name, theirs, ours } => write!(
                f,
                "{name:?} has layout version {theirs}, this Ginnel speaks {ours}; end its users and \
                 remove it with `ginnel rm`"
            ),
            Self::Invalid { what } => f.write_str(what),
            Self::Name { len } => {
                write!(f, "a name has 1 to {NAME_LEN} bytes, none of them 0; this one has {len}")
            }
            Self::Busy { name } => write!(
                f,
                "others have been making or removing {name:?} for as long as this waits; see whether \
                 one of them is stopped, or does so without end"
            ),
            Self::InUse { name, role, pid } => {
                write!(f, "{name:?} has a {role}, process {pid}; end that one, or close its end")
            }
            Self::NamesFull => write!(
                f,
                "all {NAMES} names of the segment are taken; remove some with `ginnel rm`"
            ),
            Self::SegmentFull { bytes } => write!(
                f,
                "no {bytes} free bytes in one piece in the segment; remove objects with `ginnel \
                 rm`, or make a larger segment with `ginnel segment create --size`"
            ),
            Self::NoMemory => {
                write!(f, "the system has no memory left for the segment (is /dev/shm full?)")
            }
            Self::TooManyObjects => {
                write!(f, "this process uses as many objects of one segment as it can; close some")
            }
            Self::TooManyMessages { most } => write!(
                f,
                "{most} messages are held already; drop one, or make the queue with more loans"
            ),
            Self::TooManyLoans { most } => write!(
                f,
                "{most} loans are out already; send or drop one, or make the queue with more capacity"
            ),
            Self::TooManyPermits { most } => write!(
                f,
                "there can be {most} permits at a time; use some up, or make the semaphore with more"
            ),
            Self::TooLarge { len, max } => {
                write!(f, "{len} bytes do not fit: the queue was made for messages of {max}")
            }
            Self::WouldBlock => write!(f, "nothing to be had, or no room, at the moment"),
            Self::TimedOut => write!(f, "time is over"),
            Self::Ended { died: true } => write!(f, "the other end died"),
            Self::Ended { died: false } => write!(f, "the other end was closed"),
            Self::Broken => write!(
                f,
                "one that takes part in the barrier died before it came; start another in its place"
            ),
            Self::Deadlock => write!(f, "this thread holds the lock already"),
            Self::NotTrusting => write!(
                f,
                "in-place access needs a segment that was opened as trusting (Options::trusting); \
                 copy instead"
            ),
            Self::Forked => {
                write!(f, "the handle belongs to the process before fork; open the object again")
            }
            Self::Lost => write!(
                f,
                "this process was taken for dead, and what it held was given to others; open the \
                 objects again"
            ),
            Self::Gone => {
                write!(
                    f,
                    "the segment's device was unplugged; open the segment again when it is back"
                )
            }
            Self::Corrupt { name } => write!(
                f,
                "somebody wrote nonsense into {name:?}; end its users and remove it with `ginnel \
                 rm`"
            ),
            Self::Segment { message } => f.write_str(message),
            Self::System { doing, errno } => {
                write!(f, "{doing}: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::Taken { .. } => ErrorKind::AlreadyExists,
            Error::WouldBlock => ErrorKind::WouldBlock,
            Error::TimedOut => ErrorKind::TimedOut,
            Error::Ended { died: true } => ErrorKind::ConnectionReset,
            Error::Ended { died: false } => ErrorKind::BrokenPipe,
            Error::NoMemory | Error::SegmentFull { .. } => ErrorKind::OutOfMemory,
            Error::Invalid { .. } | Error::Name { .. } | Error::TooLarge { .. } => {
                ErrorKind::InvalidInput
            }
            Error::System { errno, .. } => return Self::from_raw_os_error(*errno),
            _ => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl From<ginnel_region::Error> for Error {
    fn from(error: ginnel_region::Error) -> Self {
        match error {
            ginnel_region::Error::NoMemory => Self::NoMemory,
            ginnel_region::Error::System { doing, errno } => Self::System { doing, errno },
            other => Self::Segment { message: other.to_string() },
        }
    }
}

/// What a call gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;
