use std::fmt;

/// Why a segment could not be opened, created or used. Each says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A system call failed on the segment file.
    System {
        /// What was being done.
        doing: &'static str,
        /// The `errno`.
        errno: i32,
    },
    /// The file is not a segment.
    Foreign,
    /// Written by another version of Ginnel.
    Version {
        /// The version in the file.
        theirs: u32,
        /// The version of this program.
        ours: u32,
    },
    /// The guest driver speaks another version of its interface.
    Driver {
        /// The driver's version.
        theirs: u32,
        /// The version of this program.
        ours: u32,
    },
    /// The file is shorter or longer than its header says.
    Truncated {
        /// Bytes that the header names.
        expected: u64,
        /// Bytes that are there.
        actual: u64,
    },
    /// The process may not make files of this size (`ulimit -f`).
    FileLimit {
        /// Bytes that the file needs.
        needed: u64,
        /// Bytes that a file may have.
        allowed: u64,
    },
    /// A size that no segment can have.
    Size(u64),
    /// `ginneld` does not let this process join.
    Refused,
    /// The memory that came from `ginneld` can be cut short by others.
    Unsealed,
    /// What listens where `ginneld` should speaks no sense, or not at all.
    NoDaemon(&'static str),
    /// All pages of the segment are taken.
    Full,
    /// The file system that holds the segment has no memory left (`/dev/shm` is full).
    NoMemory,
    /// The memory limit of this process's cgroup leaves too little.
    Limited,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { doing, errno } => {
                write!(f, "{doing}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Foreign => {
                write!(f, "not a Ginnel segment; remove the file or name another with --segment")
            }
            Self::Version { theirs, ours } => write!(
                f,
                "segment has layout version {theirs}, this Ginnel speaks {ours}; end its users and remove it with `ginnel segment remove`"
            ),
            Self::Driver { theirs, ours } => write!(
                f,
                "the guest driver ginnel.ko speaks version {theirs} of its interface, this Ginnel {ours}; install both from one release"
            ),
            Self::Truncated { expected, actual } => {
                write!(
                    f,
                    "segment file has {actual} bytes, its header says {expected}; remove it with `ginnel segment remove`"
                )
            }
            Self::FileLimit { needed, allowed } => {
                write!(
                    f,
                    "a file of {needed} bytes is needed, and files may have {allowed} (ulimit -f)"
                )
            }
            Self::Size(size) => write!(
                f,
                "a segment cannot have {size} bytes: at least 16 MiB, at most 1 TiB, whole pages"
            ),
            Self::Refused => write!(
                f,
                "ginneld does not let this process in; its log says why (users, groups or processes of segment.NAME.host)"
            ),
            Self::Unsealed => {
                write!(f, "the memory is not sealed, as ginneld's is; see what listens there")
            }
            Self::NoDaemon(what) => write!(f, "{what}; see whether ginneld runs there"),
            Self::Full => {
                write!(f, "segment full; create a larger one with `ginnel segment create --size`")
            }
            Self::NoMemory => write!(f, "no memory left in the file system of the segment"),
            Self::Limited => {
                write!(f, "the cgroup's memory limit leaves too little for shared memory; raise it")
            }
        }
    }
}

impl std::error::Error for Error {}
