//! The page that heads a pair's group:
//!
//! | word | what stands there | written by |
//! |---|---|---|
//! | 0x00 | [`PAIR`] | maker |
//! | 0x08, 0x10 | the writer's name, the reader's | maker |
//! | 0x18, 0x20 | where the ring begins, its size | maker |
//! | 0x40 | how far the reader is | reader |
//! | 0x80 | bit 0: the writer has let go, bit 1: the reader, bit 2: the reader takes nothing more | each |

use super::{EndpointId, head_of, word};
use ginnel_region::{Head, Segment};
use std::sync::atomic::Ordering;

/// First word of a pair's page.
pub(crate) const PAIR: u64 = u64::from_le_bytes(*b"GINNELPR");
pub(crate) const WRITER: u64 = 0x08;
pub(crate) const READER: u64 = 0x10;
pub(crate) const RING: u64 = 0x18;
pub(crate) const SIZE: u64 = 0x20;
pub(crate) const DONE: u64 = 0x40;
pub(crate) const RELEASED: u64 = 0x80;
pub(crate) const BY_WRITER: u64 = 1;
pub(crate) const BY_READER: u64 = 2;
pub(crate) const REFUSED: u64 = 4;

/// The head of a pair of which this endpoint is one end.
pub(crate) fn mine(segment: &Segment, page: u32, id: EndpointId) -> Option<Head> {
    let head = head_of(segment, page, PAIR)?;
    let value = |at| word(segment, page, at).load(Ordering::Acquire);
    [value(WRITER), value(READER)].contains(&id.0).then_some(head)
}

/// Says in every pair of this endpoint's that it has let go. The caller has the guard.
pub(crate) fn release_all(segment: &Segment, id: EndpointId) {
    let pages: Vec<u32> = segment.heads_within_reach().map(Head::page).collect();
    for page in pages.into_iter().filter(|page| mine(segment, *page, id).is_some()) {
        let by =
            |at, bit| if word(segment, page, at).load(Ordering::Relaxed) == id.0 { bit } else { 0 };
        word(segment, page, RELEASED)
            .fetch_or(by(WRITER, BY_WRITER) | by(READER, BY_READER), Ordering::AcqRel);
    }
}

/// Has each end of the pair let go, or died?
pub(crate) fn is_nobodys(segment: &Segment, page: u32, lives: impl Fn(EndpointId) -> bool) -> bool {
    let released = word(segment, page, RELEASED).load(Ordering::Acquire);
    let gone = |at, bit| {
        released & bit != 0 || !lives(EndpointId(word(segment, page, at).load(Ordering::Relaxed)))
    };
    gone(WRITER, BY_WRITER) && gone(READER, BY_READER)
}
