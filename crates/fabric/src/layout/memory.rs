//! The page that heads a group of memory which others use directly:
//!
//! | word | what stands there |
//! |---|---|
//! | 0x00 | [`MEMORY`] |
//! | 0x08 | the owner's name |
//! | 0x10 | the owner's job |

use super::{EndpointId, word};
use ginnel_region::{Head, Segment, Use};
use std::sync::atomic::Ordering;

/// First word of the page.
pub(crate) const MEMORY: u64 = u64::from_le_bytes(*b"GINNELMM");
pub(crate) const OWNER: u64 = 0x08;
pub(crate) const JOB: u64 = 0x10;

/// The owner of memory, and its job; `None`: it is none.
pub(crate) fn owner_of(segment: &Segment, head: Head) -> Option<(EndpointId, u64)> {
    let word = |at| word(segment, head.page(), at);
    let is_memory = head.owner().kind == Use::Endpoint
        && !head.is_busy()
        && word(0).load(Ordering::Acquire) == MEMORY;
    is_memory.then(|| {
        (EndpointId(word(OWNER).load(Ordering::Relaxed)), word(JOB).load(Ordering::Relaxed))
    })
}
