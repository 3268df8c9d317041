//! Completions, and where they wait to be read.

use crate::b;
use ginnel_fabric::EndpointId;
use ginnel_fabric::endpoint::{Event, EventKind, Failure};
use ginnel_region::sys::Fd;
use std::collections::VecDeque;
use std::ffi::c_void;

/// A completion.
pub struct Entry {
    /// In its widest form, of which the others are the first words.
    pub wide: b::fi_cq_tagged_entry,
    /// Whose message it tells of; 0: of none.
    pub from: EndpointId,
    /// Where that one's address stands.
    pub book: Option<usize>,
    pub failure: Option<Failure>,
}

impl Entry {
    #[inline]
    pub fn new(event: &Event, book: Option<usize>) -> Self {
        let wide = b::fi_cq_tagged_entry {
            op_context: event.token as *mut c_void,
            flags: flags(event),
            len: event.len,
            buf: event.at as *mut c_void,
            data: event.data.unwrap_or(0),
            tag: event.tag,
        };
        Self { wide, from: event.from, book, failure: event.failure }
    }

    /// Copies as much of it as a caller wants who has entries of `size` bytes.
    ///
    /// # Safety
    /// `place` has room for them: one of libfabric's formats.
    #[inline]
    pub unsafe fn write(&self, place: *mut u8, size: usize) {
        if size == size_of::<b::fi_cq_tagged_entry>() {
            // SAFETY: the caller's promise.
            unsafe { place.cast::<b::fi_cq_tagged_entry>().write_unaligned(self.wide) };
        } else {
            let wide = (&raw const self.wide).cast::<u8>();
            // SAFETY: the caller's promise; every format is the first bytes of the widest.
            unsafe { std::ptr::copy_nonoverlapping(wide, place, size) };
        }
    }
}

// SAFETY: what it has of addresses are the caller's own, and handed back as they came.
unsafe impl Send for Entry {}

fn flags(event: &Event) -> u64 {
    let kind = u64::from(match event.kind {
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
    let data = event.data.map_or(0, |_| b::FI_REMOTE_CQ_DATA);
    let last = if event.last { b::FI_MULTI_RECV } else { 0 };
    kind | u64::from(data | last)
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
