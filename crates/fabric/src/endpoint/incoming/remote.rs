//! Frames that read, write or change memory which this endpoint has registered, without a call of
//! its owner's.

use super::copy_to;
use crate::endpoint::Endpoint;
use crate::frame::{Frame, Kind, flag};
use crate::matching::Buffers;
use crate::memory::{self, Element, Memory};
use crate::operation::{Event, EventKind, Request};
use crate::pair::Got;
use ginnel_region::Corrupt;
use smallvec::SmallVec;

impl Endpoint {
    pub(super) fn on_write(
        &mut self,
        at: usize,
        got: &Got,
        memory: &Memory,
    ) -> Result<(), Corrupt> {
        let incoming = &self.incoming[at];
        let (back, reader) = (incoming.back, &incoming.reader);
        let [key, address, number] = got.frame.words;
        let mut skip = 0;
        let mut told = |flag| {
            if got.frame.flags & flag == 0 {
                return Ok(None);
            }
            let word = reader.number(got, skip).ok_or(Corrupt)?;
            skip += 8;
            Ok(Some(word))
        };
        let (data, before) = (told(flag::DATA)?, told(flag::BEFORE)?.unwrap_or(0));
        let len = got.len - skip;
        // The last frame of a write is right where all of it was.
        let all = before.saturating_add(len as u64);
        let target = memory
            .find(key, address.wrapping_sub(before), all, true, false)
            .map(|start| start.wrapping_add(before as usize));
        if let Some(target) = target {
            copy_to(reader, got, skip, &Buffers::one(target, len), 0, len);
        }
        let from = reader.writer();
        if got.frame.flags & flag::LAST != 0 {
            if let (Some(data), true) = (data, target.is_some()) {
                let event = Event::new(EventKind::Written, 0, true);
                self.tell_owner(Event { data: Some(data), len: all as usize, from, ..event });
            }
            self.tell(
                back,
                Frame::new(Kind::Done, [number, target.map_or(libc::EACCES as u64, |_| 0), 0]),
                &[],
            );
        }
        Ok(())
    }

    pub(super) fn on_read(&mut self, at: usize, got: &Got, memory: &Memory) -> Result<(), Corrupt> {
        let incoming = &self.incoming[at];
        let back = incoming.back;
        let [key, address, theirs] = got.frame.words;
        let len = incoming.reader.number(got, 0).ok_or(Corrupt)?;
        if memory.find(key, address, len, false, true).is_none() {
            self.tell(back, Frame::new(Kind::Done, [theirs, libc::EACCES as u64, 0]), &[]);
            return Ok(());
        }
        let end = usize::try_from(len).map_err(|_| Corrupt)?;
        let number =
            self.requests.insert(Request::Giving { to: back, theirs, key, address, at: 0, end });
        if !self.push_or_give(number, memory) {
            self.pushing.push_back(number);
        }
        Ok(())
    }

    /// Puts as many pieces of a request as there is room for. True: that was the last of them.
    pub(in crate::endpoint) fn push_or_give(&mut self, number: u64, memory: &Memory) -> bool {
        let eager = self.eager();
        while let Some(Request::Giving { to, theirs, key, address, at, end }) =
            self.requests.get_mut(number)
        {
            let (len, to, theirs, from) = ((*end - *at).min(eager), *to, *theirs, *at);
            // The region may have been taken back since.
            let source =
                memory.find(*key, address.wrapping_add(from as u64), len as u64, false, true);
            if len == 0 || source.is_none() {
                self.requests.remove(number);
                if source.is_none() {
                    self.tell(to, Frame::new(Kind::Done, [theirs, libc::EACCES as u64, 0]), &[]);
                }
                return true;
            }
            let frame = Frame::new(Kind::Piece, [theirs, from as u64, 0]);
            let buffers = Buffers::one(source.unwrap_or(std::ptr::null_mut()), len);
            match self.put_piece(to, &frame, &buffers, len) {
                Ok(true) => {
                    if let Some(Request::Giving { at, .. }) = self.requests.get_mut(number) {
                        *at += len;
                    }
                }
                Ok(false) => return false,
                Err(Corrupt) => {
                    self.requests.remove(number);
                    return true;
                }
            }
        }
        self.push(number)
    }

    pub(super) fn on_apply(
        &mut self,
        at: usize,
        got: &Got,
        memory: &Memory,
    ) -> Result<(), Corrupt> {
        let incoming = &self.incoming[at];
        let (back, [key, address, number]) = (incoming.back, got.frame.words);
        if got.len > self.eager() {
            // More than goes back in one frame: no caller of this version asks for it.
            return Err(Corrupt);
        }
        let mut payload: SmallVec<[u8; 128]> = SmallVec::from_elem(0, got.len);
        // SAFETY: it has as many bytes.
        unsafe { incoming.reader.copy_out(got, 0, payload.as_mut_ptr(), got.len) };
        let fetch = got.frame.flags & flag::FETCH != 0;
        match applied(&payload, key, address, memory, fetch) {
            Some(before) if fetch => {
                self.tell(back, Frame::new(Kind::Piece, [number, 0, 0]), &before)
            }
            Some(_) => self.tell(back, Frame::new(Kind::Done, [number, 0, 0]), &[]),
            None => self.tell(back, Frame::new(Kind::Done, [number, libc::EACCES as u64, 0]), &[]),
        }
        Ok(())
    }
}

/// Applies what a payload says; what was there before, if that is wanted. `None`: it may not be.
fn applied(
    payload: &[u8],
    key: u64,
    address: u64,
    memory: &Memory,
    fetch: bool,
) -> Option<SmallVec<[u8; 128]>> {
    let (head, operands) = payload.split_at_checked(8)?;
    let (operation, element) = (u32::from(*head.first()?), Element::of(u32::from(*head.get(1)?))?);
    let count = u32::from_le_bytes(head.get(4..8)?.try_into().ok()?) as usize;
    let bytes = count.checked_mul(element.size())?;
    let sets = if memory::compares(operation) { 2 } else { 1 };
    if !memory::is_known(operation, element) || operands.len() != bytes.checked_mul(sets)? {
        return None;
    }
    let (with, compare) = operands.split_at(bytes);
    let writes = operation != memory::op::READ;
    let target = memory.find(key, address, bytes as u64, writes, fetch)?;
    let mut now: SmallVec<[u8; 128]> = SmallVec::from_elem(0, bytes);
    // SAFETY: `find`: so many bytes are readable there, as whoever registered them promised.
    unsafe { std::ptr::copy_nonoverlapping(target, now.as_mut_ptr(), bytes) };
    let before = if fetch { now.clone() } else { SmallVec::new() };
    let size = element.size();
    for (at, old) in now.chunks_exact_mut(size).enumerate() {
        let range = at * size..(at + 1) * size;
        memory::apply(
            operation,
            element,
            old,
            with.get(range.clone())?,
            compare.get(range).unwrap_or(&[0; 8][..size]),
        );
    }
    if writes {
        // SAFETY: `find`: they are writable, too.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), target, bytes) };
    }
    Some(before)
}
