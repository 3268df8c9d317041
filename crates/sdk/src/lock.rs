//! What the locks have in common: how they say that a holder died.

use crate::Error;
use std::fmt;

/// Why a lock is not simply held. `G`: what stands for holding it.
pub enum LockError<G> {
    /// It is held; but a holder before died, and nobody has said since that all is well again.
    HolderDied(G),
    /// It is not held.
    Failed(Error),
}

impl<G> fmt::Debug for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HolderDied(_) => f.write_str("HolderDied"),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<G> fmt::Display for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HolderDied(_) => f.write_str(
                "a holder died with the lock; put in order what it protects, then mark_consistent",
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<G> std::error::Error for LockError<G> {}

impl<G> From<Error> for LockError<G> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a lock call gives.
pub type LockResult<G> = std::result::Result<G, LockError<G>>;
