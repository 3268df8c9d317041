//! What stands where in a segment of endpoints: the words of each kind of page that heads a group,
//! and what can be said of a group by them alone. Nothing here knows an endpoint that is open.
//!
//! | module | the group |
//! |---|---|
//! | [`endpoint`] | an endpoint: its page, its table of incoming pairs |
//! | [`pair`] | a ring from one endpoint to another |
//! | [`memory`] | memory that others use directly |
//!
//! Builds of different [`FORMAT`]s share a segment without talking to each other. Each frees what
//! the other's dead left: so the words by which `node::dead` judges whose a group is stay what they
//! are, whatever the format.

pub(crate) mod endpoint;
pub(crate) mod memory;
pub(crate) mod pair;

use ginnel_region::{Head, PAGE, Segment, Use};
use std::sync::atomic::{AtomicU64, Ordering};

/// An endpoint's name in its segment: its page, and below it its nonce, which is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndpointId(pub u64);

impl EndpointId {
    /// Its page.
    #[must_use]
    pub fn page(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn nonce(self) -> u64 {
        self.0 & 0xffff_ffff
    }
}

/// The word `at` bytes into a page.
#[inline]
pub(crate) fn word(segment: &Segment, page: u32, at: u64) -> &AtomicU64 {
    segment.word(u64::from(page) * PAGE + at)
}

/// What endpoints write into each other's pages and rings: one more with each change of a page, of a
/// frame ([`crate::frame`]), or of what a frame's payload holds.
const FORMAT: u64 = 1;

/// What two endpoints have in common if they can talk: the segment and the [`FORMAT`]. Plug-ins
/// exchange it in their addresses, and leave whoever has another number to another transport.
#[must_use]
pub(crate) fn meeting(segment: &Segment) -> u64 {
    segment.id() ^ FORMAT
}

/// The head of the page, if it is `what` (the first word of its page).
pub(crate) fn head_of(segment: &Segment, page: u32, what: u64) -> Option<Head> {
    let head =
        segment.head(page).filter(|head| head.owner().kind == Use::Endpoint && !head.is_busy())?;
    (word(segment, page, 0).load(Ordering::Acquire) == what).then_some(head)
}
