//! A place in the buffers of a call, which moves on with the bytes.

use libc::iovec;

/// How many pieces the kernel is given at once.
pub const WINDOW: usize = 16;

/// Points at the next byte of a call's buffers.
pub struct Cursor<'a> {
    iov: &'a [iovec],
    index: usize,
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// At their first byte.
    #[must_use]
    #[inline]
    pub fn new(iov: &'a [iovec]) -> Self {
        Self { iov, index: 0, offset: 0 }
    }

    /// The next place: (address, bytes); never an empty one.
    pub(crate) fn next(&mut self) -> Option<(*mut u8, usize)> {
        self.advance(0);
        let piece = self.iov.get(self.index)?;
        // SAFETY: `offset` lies inside the piece.
        Some((unsafe { piece.iov_base.cast::<u8>().add(self.offset) }, piece.iov_len - self.offset))
    }

    /// The next places, at most `limit` bytes in all.
    pub fn window<'b>(&mut self, pieces: &'b mut [iovec; WINDOW], limit: u64) -> &'b [iovec] {
        self.advance(0);
        let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut count = 0;
        for (place, piece) in pieces.iter_mut().zip(self.iov.iter().skip(self.index)) {
            if left == 0 {
                break;
            }
            let skip = if count == 0 { self.offset } else { 0 };
            let len = (piece.iov_len - skip).min(left);
            *place = iovec {
                // SAFETY: `offset` lies inside the piece.
                iov_base: unsafe { piece.iov_base.cast::<u8>().add(skip) }.cast(),
                iov_len: len,
            };
            left -= len;
            count += 1;
        }
        pieces.get(..count).unwrap_or(&[])
    }

    /// Moves on by `n` bytes, and past pieces that are empty.
    pub fn advance(&mut self, mut n: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_through_all_pieces_and_past_empty_ones() {
        let bytes = [0u8; 10];
        let piece = |at: usize, len: usize| iovec {
            iov_base: bytes[at..].as_ptr().cast_mut().cast(),
            iov_len: len,
        };
        let iov = [piece(0, 0), piece(0, 3), piece(3, 0), piece(3, 7)];
        let mut cursor = Cursor::new(&iov);
        let mut pieces = [piece(0, 0); WINDOW];
        let seen = |window: &[iovec]| -> Vec<(usize, usize)> {
            window
                .iter()
                .map(|piece| (piece.iov_base.addr() - bytes.as_ptr().addr(), piece.iov_len))
                .collect()
        };
        assert_eq!(seen(cursor.window(&mut pieces, u64::MAX)), [(0, 3), (3, 0), (3, 7)]);
        assert_eq!(seen(cursor.window(&mut pieces, 5)), [(0, 3), (3, 0), (3, 2)]);
        cursor.advance(2);
        assert_eq!(
            cursor.next().map(|(at, len)| (at.addr() - bytes.as_ptr().addr(), len)),
            Some((2, 1))
        );
        cursor.advance(4);
        assert_eq!(seen(cursor.window(&mut pieces, u64::MAX)), [(6, 4)]);
        cursor.advance(4);
        assert!(cursor.next().is_none() && cursor.window(&mut pieces, u64::MAX).is_empty());
    }
}
