//! A message that a receiver has taken and not given back.

use super::Receiver;
use super::layout::{FREE, want_space_at};
use crate::raw::Area;
use crate::{Error, Result, wait};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// A message in the sender's buffer, which is the sender's again when this is dropped.
pub struct Message<'a> {
    pub(super) receiver: &'a Receiver,
    pub(super) lane: usize,
    pub(super) buffer: u32,
    /// What stands in the buffer's state while this has it.
    pub(super) state: u64,
    pub(super) area: Area,
}

shown! {
    Message<'_> as "Message": |own| { queue: own.receiver.name(), len: own.len() };
}

impl Message<'_> {
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a message of 0 bytes is one all the same")]
    pub fn len(&self) -> usize {
        self.area.len()
    }

    /// Copies bytes out, from `at` on; as many as there are. Returns how many.
    #[inline]
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> usize {
        self.area.copy_out(at, bytes)
    }

    /// A copy of all of it.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.area.append_to(&mut bytes);
        bytes
    }

    /// Where it lies, for as long as this value lives. A process that does not keep to the rules
    /// can write it at any time.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.area.as_ptr()
    }

    /// The bytes themselves.
    ///
    /// # Errors
    /// [`Error::NotTrusting`] unless the segment was opened as trusting.
    ///
    /// # Safety
    /// No process of the segment breaks the rules: whoever writes there changes what the reference
    /// says cannot change.
    #[expect(unsafe_code, reason = "in place, for those that trust")]
    pub unsafe fn in_place(&self) -> Result<&[u8]> {
        if !self.receiver.trusting {
            return Err(Error::NotTrusting);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { self.area.bytes() })
    }
}

/// A message that was taken apart, with its bytes, for as long as its receiver lives.
pub(crate) struct MessageParts {
    lane: usize,
    buffer: u32,
    state: u64,
    area: Area,
}

impl Message<'_> {
    /// What is needed to go on with it: it is held until [`Receiver::whole`].
    pub(crate) fn into_whole(self) -> MessageParts {
        let (lane, buffer, state, area) = (self.lane, self.buffer, self.state, self.area);
        std::mem::forget(self);
        MessageParts { lane, buffer, state, area }
    }
}

impl Receiver {
    /// The message that was taken apart; `None` in a child of fork, whose it is not.
    pub(crate) fn whole(&self, parts: MessageParts) -> Option<Message<'_>> {
        self.object.presence().check().ok()?;
        let MessageParts { lane, buffer, state, area } = parts;
        Some(Message { receiver: self, lane, buffer, state, area })
    }
}

/// For the interface in C, whose callers keep the parts themselves.
impl<'a> Message<'a> {
    /// What is needed to give it back: it is held until [`Self::from_parts`].
    #[doc(hidden)]
    #[must_use]
    pub fn into_parts(self) -> (usize, u32, u64) {
        let parts = (self.lane, self.buffer, self.state);
        std::mem::forget(self);
        parts
    }

    /// The message that was taken apart, without its bytes; `None` where there cannot be such a
    /// one.
    #[doc(hidden)]
    #[must_use]
    pub fn from_parts(
        receiver: &'a Receiver,
        (lane, buffer, state): (usize, u32, u64),
    ) -> Option<Self> {
        let area = {
            let lanes = receiver.lanes.borrow();
            let incoming = lanes.get(lane).filter(|incoming| incoming.held > 0)?;
            incoming.lane.buffer(buffer, 0)?
        };
        Some(Self { receiver, lane, buffer, state, area })
    }
}

impl Drop for Message<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.receiver.object.presence().check().is_err() {
            return;
        }
        let mut lanes = self.receiver.lanes.borrow_mut();
        let Some(incoming) = lanes.get_mut(self.lane) else { return };
        incoming.held -= 1;
        // What was taken for dead has given its messages to others.
        if self.receiver.object.presence().check_all().is_err() {
            return;
        }
        // Only from what it was: a machine that stood still for so long that its buffers were given
        // to others frees none of theirs.
        let state = incoming.lane.state(self.buffer);
        let _ = state.compare_exchange(self.state, FREE, AcqRel, Relaxed);
        let space: &AtomicU64 = self.receiver.object.words.word(want_space_at(incoming.number));
        if space.load(Relaxed) != 0 {
            wait::wake(self.receiver.object.presence(), space);
        }
    }
}
