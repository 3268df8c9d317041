//! A buffer that a sender has borrowed for a message.

use super::Sender;
use super::layout::{FREE, LENT};
use crate::raw::Area;
use crate::{Error, Result};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A buffer that is the program's to write, until it is sent or dropped.
#[must_use]
pub struct Loan<'a> {
    pub(super) sender: &'a Sender,
    pub(super) buffer: u32,
    pub(super) area: Area,
    pub(super) len: usize,
}

shown! {
    Loan<'_> as "Loan": |own| { queue: own.sender.name(), len: own.len };
}

impl Loan<'_> {
    /// Bytes of the message.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a message of 0 bytes is one all the same")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes into it from `at` on; as many as there is room for. Returns how many.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> usize {
        self.area.copy_in(at, bytes)
    }

    /// Makes the message shorter. Longer it does not become.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Where it lies, for as long as this value lives. The receiver does not read it before it is
    /// sent; a process that does not keep to the rules can write it at any time.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.area.as_ptr()
    }

    /// The bytes themselves, to be written.
    ///
    /// # Errors
    /// [`Error::NotTrusting`] unless the segment was opened as trusting.
    ///
    /// # Safety
    /// No process of the segment breaks the rules: whoever writes there makes two references to one
    /// place.
    #[expect(unsafe_code, reason = "in place, for those that trust")]
    pub unsafe fn in_place(&mut self) -> Result<&mut [u8]> {
        if !self.sender.trusting {
            return Err(Error::NotTrusting);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { self.area.bytes_mut() })
    }

    #[inline]
    pub(super) fn send_copy(mut self, bytes: &[u8]) -> Result<()> {
        self.write(0, bytes);
        self.send()
    }

    /// Sends it. There is room: it was kept when the buffer was borrowed. Loans that are out at a
    /// time may be sent in any order, which is the order in which they arrive.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Lost`], [`Error::Gone`]: nothing is sent.
    #[inline]
    pub fn send(self) -> Result<()> {
        let (sender, buffer, len) = (self.sender, self.buffer, self.len);
        std::mem::forget(self);
        sender.publish(buffer, len)
    }
}

/// For the interface in C, whose callers keep the parts themselves.
impl<'a> Loan<'a> {
    /// The buffer's number: the loan is out until [`Self::from_parts`].
    #[doc(hidden)]
    #[must_use]
    pub fn into_parts(self) -> u32 {
        let buffer = self.buffer;
        std::mem::forget(self);
        buffer
    }

    /// The loan that was taken apart; `None` where there cannot be such a one.
    #[doc(hidden)]
    #[must_use]
    pub fn from_parts(sender: &'a Sender, buffer: u32, len: usize) -> Option<Self> {
        let lent = sender.lent.get() > 0 && buffer < sender.lane.geometry.buffers();
        let lent = lent && sender.lane.state(buffer).load(Relaxed) == LENT;
        let area = sender.lane.buffer(buffer, len).filter(|_| lent)?;
        Some(Self { sender, buffer, area, len })
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let presence = self.sender.object.presence();
        if presence.check().is_err() {
            return;
        }
        self.sender.lent.set(self.sender.lent.get() - 1);
        if presence.check_all().is_ok() {
            self.sender.lane.state(self.buffer).store(FREE, Release);
        }
    }
}
