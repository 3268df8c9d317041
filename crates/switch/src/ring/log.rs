//! The dirty log of a machine that is being moved (vhost-user, "Migration"): one bit for each page
//! of 4 KiB of guest memory, in a file that the front end shares and clears.

use super::mapping::{MapError, Mapping};
use super::room::Taken;
use crate::closer::Closer;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// `VHOST_LOG_PAGE`.
const PAGE: u64 = 4096;

/// The log.
#[derive(Debug)]
pub struct Log {
    mapping: Mapping,
    bytes: u64,
}

impl Log {
    /// Maps it.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(file: impl AsFd, offset: u64, bytes: u64) -> Result<Self, MapError> {
        Ok(Self { mapping: Mapping::new(file, offset, bytes)?, bytes })
    }

    /// As a [region](super::Region::until_closed).
    #[must_use]
    pub fn until_closed(mut self, closer: &Arc<Closer>, room: Taken) -> Self {
        self.mapping.until_closed(closer, room);
        self
    }

    /// Marks the pages that hold `len` bytes of guest memory from `gpa` on. Those beyond the log's
    /// end are the front end's mistake, and are left out.
    pub fn mark(&self, gpa: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = gpa.saturating_add(len - 1) / PAGE;
        for page in gpa / PAGE..=end.min((self.bytes * 8).saturating_sub(1)) {
            let byte = usize::try_from(page / 8).unwrap_or(0);
            // SAFETY: `page` is below eight times `bytes`, so `byte` is below `bytes`, and the
            // mapping is that long. A byte is always aligned. Release: the page was written
            // before; it pairs with the front end's exchange of the word.
            unsafe { AtomicU8::from_ptr(self.mapping.start().add(byte)) }
                .fetch_or(1 << (page % 8), Ordering::Release);
        }
    }

    /// Was its file cut short?
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.mapping.is_cut()
    }
}
