//! Why a process could not join its segment.

use crate::join;
use ginnel_region::Error;
use std::path::Path;

/// Why a process could not join its segment. The number stands in its entry
/// ([`crate::processes::Process::reason`]); libraries have others for why they left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// The file system has no memory left.
    NoMemory = 7,
    /// No table, no segment, or no room for the process.
    NoSegment = 15,
    /// It was to join a segment of `ginneld`, and could not.
    NotServed = 20,
    /// The memory limit of its cgroup leaves no room.
    MemoryLimit = 25,
}

/// A process that could not join its segment.
#[derive(Debug)]
pub struct Unattached {
    /// Why not, in short.
    pub refusal: Refusal,
    /// In words.
    pub message: String,
}

impl Unattached {
    pub(crate) fn new(what: &Path, error: &Error) -> Self {
        let refusal = match error {
            Error::NoMemory => Refusal::NoMemory,
            Error::Limited => Refusal::MemoryLimit,
            _ if join::is_socket(what) => Refusal::NotServed,
            _ => Refusal::NoSegment,
        };
        Self { refusal, message: format!("{}: {error}", what.display()) }
    }

    pub(crate) fn because(message: String) -> Self {
        Self { refusal: Refusal::NoSegment, message }
    }
}
