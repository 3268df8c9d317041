//! Where the bytes of a receive go.

use libc::iovec;

/// A place in the program's buffers. Moves on as bytes are put there.
pub struct Sink<'a> {
    iov: &'a [iovec],
    index: usize,
    offset: usize,
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
        Self { iov, index: 0, offset: 0, filled: 0, room, discard }
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
        self.moved(0);
        let piece = self.iov.get(self.index)?;
        // SAFETY: `offset` lies inside the piece.
        Some((unsafe { piece.iov_base.cast::<u8>().add(self.offset) }, piece.iov_len - self.offset))
    }

    /// The next places, at most `limit` bytes in all.
    pub(super) fn window<'b>(&mut self, pieces: &'b mut [iovec; 16], limit: u64) -> &'b [iovec] {
        self.moved(0);
        let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut count = 0;
        for (place, piece) in pieces.iter_mut().zip(self.iov.iter().skip(self.index)) {
            if left == 0 {
                break;
            }
            let skip = if count == 0 { self.offset } else { 0 };
            let len = (piece.iov_len - skip).min(left);
            // SAFETY: `offset` lies inside the piece.
            *place = iovec { iov_base: unsafe { piece.iov_base.cast::<u8>().add(skip) }.cast(), iov_len: len };
            left -= len;
            count += 1;
        }
        pieces.get(..count).unwrap_or(&[])
    }

    pub(super) fn moved(&mut self, mut n: usize) {
        self.filled += n;
        while let Some(piece) = self.iov.get(self.index) {
            let left = piece.iov_len - self.offset;
            if n < left {
                self.offset += n;
                return;
            }
            n -= left;
            self.index += 1;
            self.offset = 0;
        }
    }
}
