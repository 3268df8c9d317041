//! A ring of frames from one endpoint to another.
//!
//! Unlike the byte ring of a connection it has no tail that both ends look at: the reader looks at
//! the first word of the place where the next frame will begin. So a frame of up to 32 bytes
//! crosses in one cache line (compare the fast boxes of Open MPI's btl/vader). The writer zeroes
//! the first word of what follows before it publishes a frame, so that the reader never takes an
//! older lap's bytes for a frame. The reader says how far it is once for a quarter of the ring.
//!
//! The writer makes the page that heads a pair's group (`layout::pair`). Nobody frees it as long as
//! one of its ends may use it: whoever is the second to let go does, or whoever finds the ends
//! dead.

use crate::Error;
use crate::frame::{Frame, LINE, WORDS};
use crate::layout::pair::{
    BY_READER, BY_WRITER, DONE, PAIR, READER, REFUSED, RELEASED, RING, SIZE, WRITER, is_nobodys,
    mine,
};
use crate::layout::{EndpointId, head_of, word};
use crate::node::{Guard, Node};
use ginnel_region::{Corrupt, Head, Owner, PAGE, Segment, Untrusted, Use};
use ginnel_ring::span::{Span, free};
use std::sync::atomic::{AtomicU64, Ordering};

/// Sizes of a ring that a reader takes.
const SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 23;

/// The most bytes that a frame of a ring of this size may have, words and all: then there is always
/// room for one, since the reader is silent about a quarter of the ring at most.
fn most(size: u64) -> u64 {
    size / 2
}

/// Bytes of a frame with so many bytes of payload: whole lines.
fn step(payload: usize) -> u64 {
    ((WORDS + payload) as u64).next_multiple_of(LINE)
}

/// What both ends know of a pair.
struct Common {
    page: u32,
    span: Span,
    position: u64,
}

// SAFETY: its pointer is into the segment's map, which every thread of the process may use.
unsafe impl Send for Common {}

impl Common {
    fn new(segment: &Segment, page: u32, ring: u64, size: u64) -> Result<Self, Corrupt> {
        let size = Untrusted::new(size).power_of_two(*SIZES.start(), *SIZES.end())?;
        let ring = Untrusted::new(ring)
            .checked(|ring| ring.is_multiple_of(PAGE) && segment.holds(*ring, size))?;
        let base = segment.ring(ring, size)?;
        // SAFETY: `Segment::ring`: so many bytes lie there in the map, which stays until the
        // endpoint that keeps this leaves; `size` is a power of two.
        let span = unsafe { Span::new(base, size, 0) };
        Ok(Self { page, span, position: 0 })
    }

    /// The word at a position of the ring, a multiple of 8.
    #[inline]
    fn at(&self, position: u64) -> &AtomicU64 {
        self.span.word(position)
    }
}

/// The writing end.
pub struct Writer {
    common: Common,
    /// How far the reader was when it was last looked at.
    done: u64,
}

impl Writer {
    /// Makes a ring of `size` bytes to `reader` and tells that one.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::TooMany`]; [`Error::Gone`] where there is no such endpoint.
    pub fn connect(
        _guard: &Guard,
        node: &Node,
        reader: EndpointId,
        size: u64,
    ) -> Result<Self, Error> {
        if !node.lives(reader) {
            return Err(Error::Gone);
        }
        let segment = node.segment();
        let head = segment.claim_head(Owner::new(node.member(), Use::Endpoint))?;
        let made = Self::make(node, head, reader, size);
        if made.is_err() {
            let head = segment.head(head.page()).filter(|now| now.owner() == head.owner());
            if let Some(head) = head.and_then(|head| segment.take(head)) {
                segment.release_groups(&[head]);
            }
        }
        made
    }

    fn make(node: &Node, head: Head, reader: EndpointId, size: u64) -> Result<Self, Error> {
        let (segment, page) = (node.segment(), head.page());
        segment.clear(page);
        let pages = u32::try_from(size / PAGE).map_err(|_| Error::Invalid)?;
        let owner = Owner { tag: Some(page), ..Owner::new(node.member(), Use::Ring) };
        let ring = segment.claim(pages, owner)?.offset();
        let common = Common::new(segment, page, ring, size).map_err(|Corrupt| Error::Invalid)?;
        common.at(0).store(0, Ordering::Relaxed);
        for (at, value) in [(WRITER, node.id().0), (READER, reader.0), (RING, ring), (SIZE, size)] {
            word(segment, page, at).store(value, Ordering::Relaxed);
        }
        // Release pairs with the Acquire by which it is found: whoever finds a pair finds it whole.
        word(segment, page, 0).store(PAIR, Ordering::Release);
        segment.settle(head).ok_or(Error::NoMemory)?;
        node.enter_pair(reader, page)?;
        Ok(Self { common, done: 0 })
    }

    /// The most bytes of payload that one frame may have.
    #[must_use]
    pub fn most(&self) -> usize {
        most(self.common.span.size()) as usize - WORDS
    }

    /// Is there room for a frame with so many bytes of payload?
    ///
    /// # Errors
    /// [`Corrupt`] where the reader's count makes no sense.
    #[inline]
    pub fn has_room(&mut self, segment: &Segment, payload: usize) -> Result<bool, Corrupt> {
        let (size, position) = (self.common.span.size(), self.common.position);
        // The line after it, too: its first word is zeroed.
        let wanted = step(payload) + LINE;
        if free(position, Untrusted::new(self.done), size)? < wanted {
            // Acquire pairs with the Release store in `Reader::advance`: the reader is done with
            // these bytes.
            self.done = word(segment, self.common.page, DONE).load(Ordering::Acquire);
            return Ok(free(position, Untrusted::new(self.done), size)? >= wanted);
        }
        Ok(true)
    }

    /// How far this end is: where the next frame will begin.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.common.position
    }

    /// Has the reader [said](Reader::refuse) that it takes nothing more?
    #[must_use]
    pub fn is_refused(&self, node: &Node) -> bool {
        let (segment, page) = (node.segment(), self.common.page);
        mine(segment, page, node.id()).is_some()
            && word(segment, page, RELEASED).load(Ordering::Acquire) & REFUSED != 0
    }

    /// Where the payload of the next frame will lie, if that is one piece of `most` bytes.
    #[must_use]
    #[inline]
    pub fn place(&self, most: usize) -> Option<*mut u8> {
        let (at, len) = self.common.span.piece(self.common.position + WORDS as u64, most as u64);
        (len == most).then_some(at)
    }

    /// Puts a frame whose payload was written to [`Self::place`]. There was [room](Self::has_room)
    /// for it.
    #[inline]
    pub fn publish(&mut self, frame: &Frame, payload: usize) {
        let common = &mut self.common;
        let position = common.position;
        common.at(position + step(payload)).store(0, Ordering::Relaxed);
        for (i, value) in frame.words.into_iter().enumerate() {
            common.at(position + 8 * (i as u64 + 1)).store(value, Ordering::Relaxed);
        }
        // As in `put`.
        common.at(position).store(frame.head(payload, position), Ordering::Release);
        common.position = position + step(payload);
    }

    /// Puts a frame whose payload is `parts` in order, `payload` bytes together. False: there is no
    /// room.
    ///
    /// # Errors
    /// [`Corrupt`] where the reader's count makes no sense.
    ///
    /// # Safety
    /// Each part is readable for its length; their lengths add up to `payload`, which is at most
    /// [`Self::most`].
    #[inline]
    pub unsafe fn put(
        &mut self,
        segment: &Segment,
        frame: &Frame,
        payload: usize,
        parts: impl Iterator<Item = (*const u8, usize)>,
    ) -> Result<bool, Corrupt> {
        if !self.has_room(segment, payload)? {
            return Ok(false);
        }
        let common = &mut self.common;
        let (position, step) = (common.position, step(payload));
        common.at(position + step).store(0, Ordering::Relaxed);
        for (i, value) in frame.words.into_iter().enumerate() {
            common.at(position + 8 * (i as u64 + 1)).store(value, Ordering::Relaxed);
        }
        let mut at = position + WORDS as u64;
        for (from, len) in parts {
            // SAFETY: the caller's promise; `copy_in` writes nothing beyond the ring.
            unsafe { common.span.copy_in(at, from, len) };
            at += len as u64;
        }
        // Release pairs with the Acquire load in `Reader::look`: who sees the frame sees all of it,
        // and the zero behind it.
        common.at(position).store(frame.head(payload, position), Ordering::Release);
        common.position = position + step;
        Ok(true)
    }
}

/// A frame that was got, and where its payload lies.
#[derive(Debug, Clone, Copy)]
pub struct Got {
    /// Its words.
    pub frame: Frame,
    /// Bytes of payload.
    pub len: usize,
    at: u64,
}

/// The reading end.
pub struct Reader {
    common: Common,
    writer: EndpointId,
    entry: u64,
    /// How far this end has said that it is.
    said: u64,
}

impl Reader {
    /// A pair that stands in this endpoint's table. `None`: it is not one that this endpoint is to
    /// read.
    pub fn open(node: &Node, entry: u64, page: u32) -> Option<Self> {
        let segment = node.segment();
        head_of(segment, page, PAIR)?;
        let value = |at| word(segment, page, at).load(Ordering::Acquire);
        if value(READER) != node.id().0 {
            return None;
        }
        let common = Common::new(segment, page, value(RING), value(SIZE)).ok()?;
        Some(Self { common, writer: EndpointId(value(WRITER)), entry, said: 0 })
    }

    /// Those that were entered in this endpoint's table, and are not known. Whatever else somebody
    /// entered there is taken out.
    pub fn entered(node: &Node, is_known: impl Fn(u32) -> bool) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for (entry, page) in node.entries() {
            if is_known(page) || found.iter().any(|reader| reader.page() == page) {
                continue;
            }
            match Self::open(node, entry, page) {
                Some(reader) => found.push(reader),
                None => node.forget_entry(entry, page),
            }
        }
        found
    }

    /// Who writes.
    #[must_use]
    pub fn writer(&self) -> EndpointId {
        self.writer
    }

    /// The pair's page.
    #[must_use]
    pub fn page(&self) -> u32 {
        self.common.page
    }

    /// How far this end is: where the next frame will begin.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.common.position
    }

    /// Is there a next frame, or what should be one?
    #[must_use]
    #[inline]
    pub fn has_news(&self) -> bool {
        self.common.at(self.common.position).load(Ordering::Acquire) != 0
    }

    /// The next frame, if there is one.
    ///
    /// # Errors
    /// [`Corrupt`] where what is there is none.
    #[inline]
    pub fn look(&self) -> Result<Option<Got>, Corrupt> {
        let (common, position) = (&self.common, self.common.position);
        let head = common.at(position).load(Ordering::Acquire);
        if head == 0 {
            return Ok(None);
        }
        let (kind, flags, len) = Frame::check(head, position, most(common.span.size()))?;
        let value = |i: u64| common.at(position + 8 * i).load(Ordering::Relaxed);
        let frame = Frame { kind, flags, words: [value(1), value(2), value(3)] };
        Ok(Some(Got { frame, len, at: position + WORDS as u64 }))
    }

    /// Copies `len` bytes of a frame's payload from its byte `from` on. Bytes beyond the payload
    /// are not copied.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    #[inline]
    pub unsafe fn copy_out(&self, got: &Got, from: usize, to: *mut u8, len: usize) {
        let len = len.min(got.len.saturating_sub(from));
        // SAFETY: the caller's promise; `copy_out` reads nothing beyond the ring.
        unsafe { self.common.span.copy_out(got.at + from as u64, to, len) };
    }

    /// Where a frame's payload lies, if that is one piece. It stays until this end is
    /// [done](Self::advance) with the frame; whoever has the segment may write it meanwhile.
    #[must_use]
    #[inline]
    pub fn place(&self, got: &Got) -> Option<*mut u8> {
        let (at, len) = self.common.span.piece(got.at, got.len as u64);
        (len == got.len).then_some(at)
    }

    /// The 8 bytes of a frame's payload from its byte `from` on; `None`: it has fewer.
    #[must_use]
    pub fn number(&self, got: &Got, from: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        if got.len < from.checked_add(bytes.len())? {
            return None;
        }
        // SAFETY: the array has as many bytes.
        unsafe { self.copy_out(got, from, bytes.as_mut_ptr(), bytes.len()) };
        Some(u64::from_le_bytes(bytes))
    }

    /// Done with a frame. True where the writer was told how far this end is, and may have waited
    /// for that.
    #[inline]
    pub fn advance(&mut self, segment: &Segment, got: &Got) -> bool {
        let common = &mut self.common;
        common.position += step(got.len);
        if common.position - self.said < common.span.size() / 4 {
            return false;
        }
        self.said = common.position;
        // Release pairs with the Acquire load in `Writer::put`.
        word(segment, common.page, DONE).store(common.position, Ordering::Release);
        true
    }

    /// Tells the writer that nothing more of it is taken.
    pub fn refuse(&self, node: &Node) {
        let (segment, page) = (node.segment(), self.common.page);
        if mine(segment, page, node.id()).is_some() {
            word(segment, page, RELEASED).fetch_or(REFUSED, Ordering::AcqRel);
        }
    }

    /// Lets go of the pair; frees it if the writer has let go, or is dead.
    pub fn release(self, _guard: &Guard, node: &Node) {
        let (segment, page) = (node.segment(), self.common.page);
        node.forget_entry(self.entry, page);
        let Some(head) = mine(segment, page, node.id()) else { return };
        word(segment, page, RELEASED).fetch_or(BY_READER, Ordering::AcqRel);
        if is_nobodys(segment, page, |id| node.lives(id)) {
            free_group(segment, head);
        }
    }

    /// Has the writer let go, or died?
    #[must_use]
    pub fn is_left(&self, node: &Node) -> bool {
        word(node.segment(), self.common.page, RELEASED).load(Ordering::Acquire) & BY_WRITER != 0
            || !node.lives(self.writer)
    }
}

fn free_group(segment: &Segment, head: Head) {
    if let Some(head) = segment.take(head) {
        segment.release_groups(&[head]);
    }
}

/// Lets go of the writing end of a pair whose reader is gone; frees it.
pub(crate) fn release_writer(_guard: &Guard, node: &Node, writer: &Writer) {
    let (segment, page) = (node.segment(), writer.common.page);
    let Some(head) = mine(segment, page, node.id()) else { return };
    word(segment, page, RELEASED).fetch_or(BY_WRITER, Ordering::AcqRel);
    if is_nobodys(segment, page, |id| node.lives(id)) {
        free_group(segment, head);
    }
}
