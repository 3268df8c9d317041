//! The pages of a lane: how a sender gets them, so that a death at any step strands none.
//!
//! | the lane's word | what it says |
//! |---|---|
//! | 0 | no pages |
//! | bit 63, and perhaps an extent | being made: such pages of the extent as are the queue's are this lane's |
//! | an extent | all of its pages are the queue's, and this lane's |
//!
//! 1. The pages are claimed as the party's: they go with it where it dies.
//! 2. The word names them, with bit 63.
//! 3. Page by page they become the queue's.
//! 4. Bit 63 is taken away.
//!
//! A sender that finds bit 63 takes the word over, and frees every page of the queue that no lane's
//! word names: strays are those of its predecessor, or of another lane's that was left so. Pages of
//! a lane that is being made are named before they are the queue's, so nobody takes them for
//! strays. `tests/lane_pages_model.rs` walks every run of it, with a death at each step.

use super::lane::Lane;
use super::layout::{Geometry, pages_at};
use crate::object::Object;
use crate::{Error, Result};
use ginnel_region::Extent;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

const BEING_MADE: u64 = 1 << 63;

fn word_of(extent: Extent) -> u64 {
    u64::from(extent.pages) << 32 | u64::from(extent.page)
}

/// The pages of a lane that this process has claimed: those of the sender before, or new ones.
pub(super) fn prepare(object: &Object, geometry: Geometry, number: u32) -> Result<Lane> {
    let word = object.words.word(pages_at(number));
    let known = word.load(Acquire);
    if let Some(lane) = Lane::new(object, geometry, known) {
        return Ok(lane);
    }
    // From what was seen only: a party that was taken for dead does not undo its successor's.
    let change = |from: u64, to: u64| {
        word.compare_exchange(from, to, AcqRel, Acquire).map(|_| to).map_err(|_| Error::Lost)
    };
    let mut now = known;
    if known != 0 {
        now = change(now, BEING_MADE)?;
        free_strays(object, geometry);
        now = change(now, 0)?;
    }
    let bytes = geometry.bytes();
    let extent = object.claim(geometry.pages().ok_or(Error::SegmentFull { bytes })?)?;
    let whole = word_of(extent);
    now = change(now, BEING_MADE | whole).inspect_err(|_| object.give_up(extent))?;
    object.hand_over(extent)?;
    change(now, whole)?;
    Lane::new(object, geometry, whole).ok_or(Error::Lost)
}

/// Frees the queue's pages that no lane names.
fn free_strays(object: &Object, geometry: Geometry) {
    let is_named = |page: u32| {
        (0..geometry.lanes).any(|number| {
            let word = object.words.word(pages_at(number)).load(Acquire) & !BEING_MADE;
            let (first, pages) = (word as u32, (word >> 32) as u32);
            page.checked_sub(first).is_some_and(|at| at < pages)
        })
    };
    object.presence().segment().release_strays(object.head, is_named);
}
