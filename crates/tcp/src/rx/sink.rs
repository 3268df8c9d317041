//! Where the bytes of a receive go.

use crate::cursor::{Cursor, WINDOW};
use libc::iovec;

/// A place in the program's buffers. Moves on as bytes are put there.
pub struct Sink<'a> {
    at: Cursor<'a>,
    filled: usize,
    room: usize,
    pub(super) discard: bool,
}

impl<'a> Sink<'a> {
    /// The buffers of a call. `discard`: MSG_TRUNC: count the bytes, do not store them.
    #[must_use]
    #[inline]
    pub fn new(iov: &'a [iovec], discard: bool) -> Self {
        let room = iov.iter().map(|piece| piece.iov_len).sum();
        Self { at: Cursor::new(iov), filled: 0, room, discard }
    }

    /// Bytes so far.
    #[must_use]
    #[inline]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes that still fit.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.room - self.filled
    }

    /// The next place: (address, bytes); never an empty one.
    pub(super) fn next(&mut self) -> Option<(*mut u8, usize)> {
        self.at.next()
    }

    /// The next places, at most `limit` bytes in all.
    pub(super) fn window<'b>(
        &mut self,
        pieces: &'b mut [iovec; WINDOW],
        limit: u64,
    ) -> &'b [iovec] {
        self.at.window(pieces, limit)
    }

    pub(super) fn moved(&mut self, n: usize) {
        self.filled += n;
        self.at.advance(n);
    }
}
