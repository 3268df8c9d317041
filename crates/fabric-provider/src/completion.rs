//! Completions, and where they wait to be read.

use crate::b;
use ginnel_fabric::endpoint::{Event, EventKind};
use ginnel_region::sys::Fd;
use std::collections::VecDeque;
use std::ffi::c_void;

/// A completion.
pub struct Entry {
    pub event: Event,
    pub book: Option<usize>,
}

impl Entry {
    pub fn new(event: Event, book: Option<usize>) -> Self {
        Self { event, book }
    }

    fn flags(&self) -> u64 {
        let kind = u64::from(match self.event.kind {
            EventKind::Send(true) => b::FI_SEND | b::FI_TAGGED,
            EventKind::Send(false) => b::FI_SEND | b::FI_MSG,
            EventKind::Receive(true) => b::FI_RECV | b::FI_TAGGED,
            EventKind::Receive(false) => b::FI_RECV | b::FI_MSG,
            EventKind::Write => b::FI_RMA | b::FI_WRITE,
            EventKind::Read => b::FI_RMA | b::FI_READ,
            EventKind::Change => b::FI_ATOMIC | b::FI_WRITE,
            EventKind::Fetch => b::FI_ATOMIC | b::FI_READ,
            EventKind::Written => b::FI_RMA | b::FI_REMOTE_WRITE,
        });
        let data = self.event.data.map_or(0, |_| b::FI_REMOTE_CQ_DATA);
        let last = if self.event.last { b::FI_MULTI_RECV } else { 0 };
        kind | u64::from(data | last)
    }

    /// The completion in its widest form, of which the others are the first words.
    pub fn wide(&self) -> b::fi_cq_tagged_entry {
        let event = &self.event;
        b::fi_cq_tagged_entry {
            op_context: event.token as *mut c_void,
            flags: self.flags(),
            len: event.len,
            buf: event.at as *mut c_void,
            data: event.data.unwrap_or(0),
            tag: event.tag,
        }
    }
}

/// A queue.
pub struct Queue {
    pub entries: VecDeque<Entry>,
    /// Bytes of an entry as the caller wants them.
    pub size: usize,
    /// The set of the descriptors that become readable, where the caller wants one.
    pub set: Option<Fd>,
    pub signalled: bool,
}

impl Queue {
    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// An endpoint is bound to it.
    pub fn watch(&self, fifo: i32) {
        if let Some(set) = &self.set {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: two descriptors of this process's, and an event of the kernel's shape.
            unsafe { libc::epoll_ctl(set.0, libc::EPOLL_CTL_ADD, fifo, &raw mut event) };
        }
    }
}
