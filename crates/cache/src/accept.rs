//! Accepting where readiness is edge-triggered: whoever still waits is not told of again.

use rustix::io::Errno;
use std::io;

/// Connections that are accepted from one socket before others have their turn.
pub const AT_ONCE: usize = 256;

/// Who still waits at a socket once no more are accepted from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Nobody: the next one is told of.
    Nobody,
    /// Perhaps somebody, who can be accepted now.
    Perhaps,
    /// Somebody who cannot be accepted now, mostly for want of descriptors; nothing tells when.
    Stuck,
}

impl Waiting {
    /// Returns who waits after accept(2) failed, or nothing if that was about one connection alone:
    /// it hands on what the network had to say of it.
    #[must_use]
    pub fn after(error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error) {
            Some(Errno::AGAIN) => Some(Self::Nobody),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::PERM) => {
                Some(Self::Stuck)
            }
            _ => None,
        }
    }
}
