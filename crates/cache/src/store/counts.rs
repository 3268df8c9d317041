//! What happened to items so far, as memcached counts it.

use crate::layout::{Item, bits};

/// Counters of a store. All but `items` and `bytes` begin anew with `stats reset`.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Items that the index knows.
    pub items: u64,
    /// Bytes that they take in the log.
    pub bytes: u64,
    /// Items stored.
    pub total_items: u64,
    /// Keys asked for over the protocol.
    pub gets: u64,
    /// Of those, not found.
    pub get_misses: u64,
    /// Keys whose item was found expired.
    pub get_expired: u64,
    /// Reads out of the memory that clients told of: a sample where they read faster than that.
    pub direct_hits: u64,
    /// Storing commands.
    pub sets: u64,
    /// touch and gat.
    pub touches: u64,
    /// Of those, not found.
    pub touch_misses: u64,
    /// Deleted, and not found for it.
    pub deletes: (u64, u64),
    /// Incremented, and not found for it.
    pub incrs: (u64, u64),
    /// Decremented, and not found for it.
    pub decrs: (u64, u64),
    /// cas: stored, not found, another number.
    pub cas: (u64, u64, u64),
    /// flush_all.
    pub flushes: u64,
    /// Meta commands `me`.
    pub metas: u64,
    /// Items that were too large to be stored.
    pub too_large: u64,
    /// Items for which there was no room.
    pub no_room: u64,
    /// Items taken out to make room.
    pub evictions: u64,
    /// Of those, never read.
    pub evicted_unfetched: u64,
    /// Items taken out because they were expired.
    pub reclaimed: u64,
    /// Of those, never read.
    pub expired_unfetched: u64,
    /// Evictions because all slots of a key were taken.
    pub displaced: u64,
}

impl Counts {
    pub(super) fn linked(&mut self, item: &Item) {
        self.items += 1;
        self.total_items += 1;
        self.bytes += (item.total_words() * crate::memory::WORD) as u64;
    }

    pub(super) fn unlinked(&mut self, item: &Item) {
        self.items -= 1;
        self.bytes -= (item.total_words() * crate::memory::WORD) as u64;
    }

    /// The server took an item out by itself.
    pub(super) fn dropped(&mut self, item: &Item, expired: bool) {
        let unread = u64::from(item.bits & bits::FETCHED == 0);
        if expired {
            self.reclaimed += 1;
            self.expired_unfetched += unread;
        } else {
            self.evictions += 1;
            self.evicted_unfetched += unread;
        }
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        *self = Self { items: self.items, bytes: self.bytes, ..Self::default() };
    }
}
