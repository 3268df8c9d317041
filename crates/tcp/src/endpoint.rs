//! One process's view of one socket. What is done with it stands where it belongs:
//! [`crate::settle`], [`crate::tx`], [`crate::rx`], [`crate::finish`] and the like.

use crate::Attachment;
use crate::layout::Channel;
use crate::ledger::{Slot, flag};
use std::sync::atomic::Ordering::Relaxed;

/// One process's view of one socket: what every operation on it needs. Two words, so that it is
/// handed on in registers.
#[derive(Clone, Copy)]
pub struct Endpoint<'a> {
    /// The process's attachment.
    pub attachment: &'a Attachment,
    /// The number of the socket's slot, and (lower half) a descriptor of the socket in this
    /// process.
    socket: u64,
}

impl<'a> Endpoint<'a> {
    /// This process's entry.
    #[inline]
    pub fn me(self) -> u32 {
        self.attachment.node.me()
    }

    /// Slot `index` of the attachment's ledger, of which `fd` is a descriptor.
    #[must_use]
    #[inline]
    pub fn new(attachment: &'a Attachment, index: u32, fd: i32) -> Self {
        Self { attachment, socket: u64::from(index) << 32 | u64::from(fd.cast_unsigned()) }
    }

    /// A descriptor of the socket in this process.
    #[must_use]
    #[inline]
    pub fn fd(self) -> i32 {
        self.socket as i32
    }

    /// The number of the socket's slot.
    #[must_use]
    #[inline]
    pub fn index(self) -> u32 {
        (self.socket >> 32) as u32
    }

    /// The socket's slot.
    #[must_use]
    #[inline]
    pub fn slot(self) -> &'a Slot {
        self.attachment.ledger.slot(self.index())
    }

    /// What stands in a lock that this process holds.
    #[inline]
    pub fn ticket(self) -> u32 {
        self.attachment.node.ticket()
    }

    /// The socket's channel; a page that says nothing where there is none.
    #[inline]
    pub fn channel(self) -> Channel<'a> {
        self.channel_of(self.slot())
    }

    /// [`channel`](Self::channel), for who has found `slot`, which is this endpoint's.
    #[inline]
    pub(crate) fn channel_of(self, slot: &Slot) -> Channel<'a> {
        match slot.channel.load(Relaxed) {
            0 => Channel::nowhere(),
            page if !slot.has(flag::PAIR) => {
                Channel::at(&self.attachment.node.joined().segment, page)
            }
            page => self
                .attachment
                .joined_of(slot)
                .map_or_else(Channel::nowhere, |joined| Channel::at(&joined.segment, page)),
        }
    }
}
