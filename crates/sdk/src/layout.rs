//! What stands in the first page of every named object, and what of it is asked of objects that are
//! not opened.
//!
//! | offset | what stands in an object's first page |
//! |---|---|
//! | 0x00 | magic |
//! | 0x08 | kind (bits 0–15) and version of its layout (16–31) |
//! | 0x10 | where it stands in the table of names: entry (bits 0–31), generation (32–63) |
//! | 0x18 | bytes for its users |
//! | 0x20 | pages, the first one included, that it was made with |
//! | 0x28, 0x30, 0x38 | three numbers of its kind |
//! | 0x40 … | words of its kind |

use ginnel_region::{Extent, Head, PAGE, Segment};
use std::sync::atomic::Ordering::Acquire;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GINNELOB");
/// Version of the objects' layouts: another one is refused.
pub(crate) const VERSION: u16 = 2;

pub(crate) const KIND: usize = 0x08;
pub(crate) const ENTRY: usize = 0x10;
pub(crate) const SIZE: usize = 0x18;
pub(crate) const PAGES: usize = 0x20;
pub(crate) const NUMBERS: usize = 0x28;

/// Of an object that another library lays out: where what it was given to carry begins, and how
/// many bytes that is.
pub(crate) const LOAD: usize = 0x50;
pub(crate) const LOAD_LEN: usize = 0x58;

/// Where an object says that it stands in the table of names: (entry, generation).
pub(crate) fn stands_in(segment: &Segment, head: Head) -> (u32, u32) {
    let word = segment.word(u64::from(head.page()) * PAGE + ENTRY as u64).load(Acquire);
    (word as u32, (word >> 32) as u32)
}

/// The pages beside its first of an object that another library lays out, as it says itself: with
/// many ports that come and go, a look through all pages of the segment for each would be most of
/// what they cost.
pub(crate) fn parts(segment: &Segment, head: Head) -> [Extent; 2] {
    let word = |at| {
        let at = u64::from(head.page()) * PAGE + at as u64;
        u32::try_from(segment.word(at).load(Acquire)).unwrap_or(0)
    };
    let loaded = u64::from(word(LOAD_LEN)).div_ceil(PAGE) as u32;
    let body = Extent { page: head.page().saturating_add(1), pages: word(PAGES).saturating_sub(1) };
    [body, Extent { page: word(LOAD), pages: loaded }]
}
