//! Pieces of guest memory, and copies out of them and into them.

use super::memory::Memory;
use ginnel_ring::copy::copy;
use smallvec::SmallVec;
use std::marker::PhantomData;

/// A piece of guest memory: readable and writable for `len` bytes while the memory map is borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'m> {
    at: *mut u8,
    len: usize,
    /// Where the guest has it.
    guest: u64,
    memory: PhantomData<&'m Memory>,
}

impl Slice<'_> {
    /// # Safety
    /// `at` is readable and writable for `len` bytes as long as the slice lives.
    #[inline(always)]
    pub(super) unsafe fn new(at: *mut u8, len: usize, guest: u64) -> Self {
        Self { at, len, guest, memory: PhantomData }
    }

    /// Bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is it empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it begins here.
    #[inline(always)]
    pub(super) fn start(self) -> *const u8 {
        self.at
    }

    /// Where the guest has it.
    #[must_use]
    pub fn guest(&self) -> u64 {
        self.guest
    }

    /// The first `len` bytes, or all that there are.
    fn first(self, len: usize) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// What lies behind the first `skip` bytes.
    #[inline(always)]
    pub(super) fn behind(self, skip: usize) -> Self {
        let skip = skip.min(self.len);
        // SAFETY: no more than the length, so at most one past the end.
        let at = unsafe { self.at.add(skip) };
        Self { at, len: self.len - skip, guest: self.guest + skip as u64, ..self }
    }

    /// Copies its first bytes out: as many as both have.
    #[inline]
    pub fn read(&self, into: &mut [u8]) -> usize {
        let len = self.len.min(into.len());
        // SAFETY: both are at least `len` long; `into` is ours and lies in no guest's memory.
        unsafe { copy(self.at, into.as_mut_ptr(), len) };
        len
    }

    /// Copies bytes in: as many as both have.
    #[inline]
    pub fn write(&self, from: &[u8]) -> usize {
        let len = self.len.min(from.len());
        // SAFETY: as for `read`.
        unsafe { copy(from.as_ptr(), self.at, len) };
        len
    }

    #[inline]
    /// Copies from one guest's memory to another's (or the same, where they might overlap).
    fn write_from(&self, from: &Slice<'_>) -> usize {
        let len = self.len.min(from.len);
        let apart = (self.at as usize).abs_diff(from.at as usize) >= len;
        // SAFETY: both are at least `len` long. Two front ends may share one file, but each has a
        // mapping of its own, so addresses tell whether the ranges overlap here.
        unsafe {
            if apart {
                copy(from.at, self.at, len);
            } else {
                std::ptr::copy(from.at, self.at, len);
            }
        }
        len
    }
}

/// The pieces of one chain, or of several.
#[derive(Debug, Default)]
pub struct Slices<'m> {
    pieces: SmallVec<[Slice<'m>; 8]>,
    /// Bytes of all.
    len: usize,
    /// Descriptors that they come from.
    pub(super) walked: usize,
}

impl<'m> Slices<'m> {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes all out.
    #[inline]
    pub fn clear(&mut self) {
        self.pieces.clear();
        (self.len, self.walked) = (0, 0);
    }

    /// Appends one.
    #[inline]
    pub fn push(&mut self, slice: Slice<'m>) {
        // A piece has at most the 2^32 bytes of a descriptor, and there are few.
        self.len += slice.len;
        self.pieces.push(slice);
    }

    /// Bytes of all.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Of how many descriptors the chain is that was [taken](super::Ring::take), empty ones among
    /// them: each of them takes its time.
    #[must_use]
    #[inline]
    pub fn descriptors(&self) -> usize {
        self.walked
    }

    /// Copies the first bytes out, and takes them off: as many as both have.
    #[inline]
    pub fn take_front(&mut self, into: &mut [u8]) -> usize {
        let (mut done, mut used) = (0, 0);
        for piece in &mut self.pieces {
            let len = piece.read(&mut into[done..]);
            *piece = piece.behind(len);
            done += len;
            if !piece.is_empty() {
                break;
            }
            used += 1;
        }
        if used == self.pieces.len() {
            self.pieces.clear();
        } else if used > 0 {
            self.pieces.drain(..used);
        }
        self.len -= done;
        done
    }

    /// Takes the first bytes off: so many, or all that there are.
    pub fn skip(&mut self, mut len: usize) {
        let mut used = 0;
        for piece in &mut self.pieces {
            let skipped = len.min(piece.len);
            *piece = piece.behind(skipped);
            (self.len, len) = (self.len - skipped, len - skipped);
            if !piece.is_empty() {
                break;
            }
            used += 1;
        }
        self.pieces.drain(..used);
    }

    /// Keeps the first bytes only: so many, or all that there are.
    pub fn keep(&mut self, mut len: usize) {
        self.len = self.len.min(len);
        for piece in &mut self.pieces {
            *piece = piece.first(len);
            len -= piece.len;
        }
    }

    /// Bytes of the last `count` pieces.
    #[must_use]
    pub fn len_of_last(&self, count: usize) -> usize {
        self.last(count).map(|(_, len)| len).sum()
    }

    /// The last `count` pieces, by address and length.
    pub(super) fn last(&self, count: usize) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        let skip = self.pieces.len().saturating_sub(count);
        self.pieces.iter().skip(skip).map(|piece| (piece.at.cast_const(), piece.len))
    }

    /// Appends all bytes to `to`, which is ours.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        for piece in &self.pieces {
            let start = to.len();
            to.resize(start + piece.len, 0);
            piece.read(&mut to[start..]);
        }
    }

    /// Copies all bytes to `to`, which is ours, as far as it has room.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) {
        let mut done = 0;
        for piece in &self.pieces {
            done += piece.read(to.get_mut(done..).unwrap_or_default());
        }
    }

    /// Writes all bytes to `to`, as far as it has room.
    #[inline]
    pub(super) fn write_to(&self, mut to: Slice<'_>) {
        for piece in &self.pieces {
            let done = to.write_from(piece);
            to = to.behind(done);
        }
    }

    /// Writes `front` and then `rest` into these pieces, as far as there is room; marks it in the
    /// log of `memory`, whose pieces they are. Returns how many bytes were written.
    pub(super) fn write(&self, memory: &Memory, front: &[u8], rest: &Slices<'_>) -> usize {
        let mut front = front;
        let mut rest_pieces = rest.pieces.iter().copied();
        let mut from = rest_pieces.next();
        let mut total = 0;
        for piece in &self.pieces {
            let mut room = *piece;
            while !room.is_empty() {
                let done = if !front.is_empty() {
                    let done = room.write(front);
                    front = &front[done..];
                    done
                } else if let Some(source) = from {
                    let done = room.write_from(&source);
                    let left = source.behind(done);
                    from = if left.is_empty() { rest_pieces.next() } else { Some(left) };
                    done
                } else {
                    break;
                };
                memory.mark(room.guest, done as u64);
                total += done;
                room = room.behind(done);
            }
        }
        total
    }

    /// Writes a few bytes at `offset` again: what is known only after the rest.
    pub(super) fn patch(&self, memory: &Memory, mut offset: usize, bytes: &[u8]) {
        let mut bytes = bytes;
        for piece in &self.pieces {
            if offset < piece.len {
                let place = piece.behind(offset).first(bytes.len());
                let done = place.write(bytes);
                memory.mark(place.guest, done as u64);
                bytes = &bytes[done..];
            }
            offset = offset.saturating_sub(piece.len);
            if bytes.is_empty() {
                return;
            }
        }
    }
}
