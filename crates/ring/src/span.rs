//! Positions, free space and the copies.

use crate::copy::copy;
use ginnel_region::{Corrupt, Untrusted};
use std::sync::atomic::AtomicU64;

/// Where a ring's bytes lie in this process, and how many: a power of two.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    base: *mut u8,
    size: u64,
    /// The absolute position that lies at `base`.
    origin: u64,
}

impl Span {
    /// A ring whose position `origin` lies at `base`.
    ///
    /// # Safety
    /// `base..base + size` is mapped, readable and writable, as long as the value is used; `size`
    /// is a power of two. Other parties may write it at any time. Of a ring whose
    /// [words](Self::word) are used, `base` is a multiple of 8, and `size` is at least 8.
    #[must_use]
    #[inline]
    pub unsafe fn new(base: *mut u8, size: u64, origin: u64) -> Self {
        Self { base, size, origin }
    }

    /// Bytes that fit.
    #[must_use]
    #[inline]
    pub fn size(self) -> u64 {
        self.size
    }

    /// The piece of the ring at `position`, at most `len` bytes, up to the buffer's end: (address,
    /// bytes).
    #[must_use]
    #[inline]
    pub fn piece(self, position: u64, len: u64) -> (*mut u8, usize) {
        let at = position.wrapping_sub(self.origin) & (self.size - 1);
        let len = len.min(self.size - at);
        // SAFETY: `at < size`.
        (unsafe { self.base.add(at as usize) }, len as usize)
    }

    /// The word at `position`: its offset from the ring's origin is a multiple of 8, or the word
    /// before it is meant.
    #[must_use]
    #[inline]
    pub fn word(&self, position: u64) -> &AtomicU64 {
        let at = position.wrapping_sub(self.origin) & (self.size - 1) & !7;
        // SAFETY: inside the ring, and aligned, by the promise made to `new`; atomics may be shared
        // with anybody who uses the same memory.
        unsafe { &*self.base.add(at as usize).cast::<AtomicU64>() }
    }

    /// Copies `len` bytes into the ring from `from`, wrapping at the end. Of more than the ring
    /// holds, no byte is written beyond the ring: `len` may follow from counts that others can
    /// write.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    #[inline]
    pub unsafe fn copy_in(self, position: u64, from: *const u8, len: usize) {
        let (at, first) = self.piece(position, len as u64);
        // SAFETY: both pieces stay inside the ring, the second by the minimum; source and ring
        // cannot overlap: the program does not know the ring.
        unsafe {
            copy(from, at, first);
            if first < len {
                copy(from.add(first), self.base, (len - first).min(self.size as usize));
            }
        }
    }

    /// Copies `len` bytes out of the ring to `to`, wrapping at the end. Of more than the ring
    /// holds, no byte is read beyond the ring, as for [`copy_in`](Self::copy_in).
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    #[inline]
    pub unsafe fn copy_out(self, position: u64, to: *mut u8, len: usize) {
        let (at, first) = self.piece(position, len as u64);
        // SAFETY: as for `copy_in`. A peer that writes at the same time makes the bytes garbage,
        // which is its own stream.
        unsafe {
            copy(at, to, first);
            if first < len {
                copy(self.base, to.add(first), (len - first).min(self.size as usize));
            }
        }
    }
}

/// Bytes a writer may still put in: its own `tail` against the reader's `head`, which is not
/// trusted.
///
/// # Errors
/// [`Corrupt`] if `head` is ahead of `tail` or more than `size` behind it.
#[inline]
pub fn free(tail: u64, head: Untrusted<u64>, size: u64) -> Result<u64, Corrupt> {
    // head must lie in tail-size..=tail.
    let used = size - head.ahead_of(tail.wrapping_sub(size), size)?;
    Ok(size - used)
}

/// Bytes a reader may take: the writer's `tail`, which is not trusted, against its own `head`.
///
/// # Errors
/// [`Corrupt`] if `tail` is behind `head` or more than `size` ahead of it.
#[inline]
pub fn available(tail: Untrusted<u64>, head: u64, size: u64) -> Result<u64, Corrupt> {
    tail.ahead_of(head, size)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(free(100, Untrusted::new(101), 64), Err(Corrupt));
        assert_eq!(free(100, Untrusted::new(35), 64), Err(Corrupt));
        assert_eq!(free(100, Untrusted::new(36), 64), Ok(0));
        assert_eq!(free(100, Untrusted::new(100), 64), Ok(64));
        assert_eq!(free(3, Untrusted::new(u64::MAX), 64), Ok(60), "positions wrap");
        assert_eq!(available(Untrusted::new(99), 100, 64), Err(Corrupt));
        assert_eq!(available(Untrusted::new(165), 100, 64), Err(Corrupt));
        assert_eq!(available(Untrusted::new(164), 100, 64), Ok(64));
    }

    #[test]
    fn words_lie_in_the_ring_at_every_position() {
        let mut memory = [0u64, 1, 2, 3];
        // SAFETY: `memory` outlives the span, and has 32 bytes that begin on a word.
        let span = unsafe { Span::new(memory.as_mut_ptr().cast(), 32, 64) };
        let word = |position| span.word(position).load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!([64, 72, 88, 96, 96 + 8].map(word), [0, 1, 3, 0, 1], "they wrap");
        assert_eq!([71, 95, 0, u64::MAX].map(word), [0, 3, 0, 3], "none crosses the end");
    }

    proptest! {
        /// Whatever sizes are put in and taken out, from whatever position on, the bytes come out
        /// as they went in.
        #[test]
        fn bytes_come_out_as_they_went_in(
            start in any::<u64>(),
            log_size in 0u32..9,
            steps in proptest::collection::vec((0usize..700, 0usize..700), 1..60),
        ) {
            let size = 1u64 << log_size;
            let mut memory = vec![0u8; size as usize];
            // SAFETY: `memory` outlives the span.
            let span = unsafe { Span::new(memory.as_mut_ptr(), size, start) };
            let (mut head, mut tail) = (start, start);
            let (mut put, mut got) = (0u64, 0u64);
            for (write, read) in steps {
                let room = free(tail, Untrusted::new(head), size).expect("own head");
                prop_assert_eq!(room, size - tail.wrapping_sub(head));
                let n = (write as u64).min(room) as usize;
                let bytes: Vec<u8> = (0..n).map(|i| (put + i as u64).wrapping_mul(31).to_le_bytes()[0]).collect();
                // SAFETY: `n` bytes are readable and free in the ring.
                unsafe { span.copy_in(tail, bytes.as_ptr(), n) };
                tail = tail.wrapping_add(n as u64);
                put += n as u64;
                let n = (read as u64).min(available(Untrusted::new(tail), head, size).expect("own tail")) as usize;
                let mut out = vec![0u8; n];
                // SAFETY: `n` bytes are writable.
                unsafe { span.copy_out(head, out.as_mut_ptr(), n) };
                for byte in out {
                    prop_assert_eq!(byte, got.wrapping_mul(31).to_le_bytes()[0]);
                    got += 1;
                }
                head = head.wrapping_add(n as u64);
            }
        }
    }
}
