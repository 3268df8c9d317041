//! The words of a page: each is an atomic that others have, too, reached by its offset; and the
//! methods of a channel and of a direction that say which word lies where.

use ginnel_region::Segment;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

/// The words of a page, from some place in it on.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) first: *const AtomicU64,
    pub(super) segment: PhantomData<&'a Segment>,
}

impl<'a> Words<'a> {
    /// The word at byte `offset` from here.
    ///
    /// # Safety
    /// `offset` is a multiple of 8, and the word lies inside the page.
    #[inline]
    pub(super) unsafe fn at(self, offset: usize) -> &'a AtomicU64 {
        // SAFETY: mapped as long as the segment is, aligned; atomics may be shared with anybody who
        // uses the same memory.
        unsafe { &*self.first.byte_add(offset) }
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $offset:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        #[inline]
        pub fn $name(self) -> &'a AtomicU64 {
            const { assert!($offset % 8 == 0 && $offset < 0x200) };
            // SAFETY: of the 512 bytes that a channel's head and each direction have.
            unsafe { self.words.at($offset) }
        }
    )*};
}

macro_rules! side_words {
    ($($(#[$doc:meta])* $name:ident = $offset:expr, $stride:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        #[inline]
        pub fn $name(self, side: u8) -> &'a AtomicU64 {
            const { assert!($offset % 8 == 0 && $offset + $stride < 0x200) };
            // SAFETY: as for the words without a side.
            unsafe { self.words.at($offset + usize::from(side & 1) * $stride) }
        }
    )*};
}

pub(super) use {side_words, words};
