//! What memcached's commands do to an item, for all protocols alike.

use super::{Found, Store, fill};
use crate::layout::{self, ITEM_WORDS, Item, bits};
use crate::sync::Ordering;

/// How an item is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Whether there is one of that key or not.
    Set,
    /// Only where there is none.
    Add,
    /// Only where there is one.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
    /// Only where the one that is there has the unique number named.
    Cas,
}

/// An item to be stored.
#[derive(Debug, Clone)]
pub struct Put<'a> {
    /// At most [`layout::MAX_KEY`] bytes.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Second of the server's clock at which it expires; 0: never.
    pub expiry: u32,
    /// How.
    pub mode: Mode,
    /// The unique number that the item there must have, or 0 for any.
    pub cas: u64,
    /// Store a value older than the one there (`ms I`), which then counts as stale.
    pub stale_too: bool,
    /// The key came in base64.
    pub binary_key: bool,
}

impl<'a> Put<'a> {
    /// Returns what sets `key` to `value`, for ever and without flags.
    #[must_use]
    pub fn set(key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            key,
            value,
            flags: 0,
            expiry: 0,
            mode: Mode::Set,
            cas: 0,
            stale_too: false,
            binary_key: false,
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Stored under this unique number.
    Stored(u64),
    /// There is one with another unique number.
    Exists,
    /// There is none whose unique number could be compared.
    NotFound,
    /// The mode does not allow it.
    NotStored,
    /// There is no room for it.
    NoRoom,
}

/// What an item's number is changed by.
#[derive(Debug, Clone, Copy)]
pub struct Delta {
    /// Up, or down to 0.
    pub up: bool,
    /// By how much; upwards it wraps at 2^64.
    pub by: u64,
    /// The unique number that the item must have, or 0 for any.
    pub cas: u64,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The number it is now, and the item's unique number.
    Changed(u64, u64),
    /// The value is no number.
    NotNumber,
    /// There is no such item.
    NotFound,
    /// The item has another unique number.
    Exists,
    /// The number has become longer, and there is no room for it.
    NoRoom,
}

impl Store {
    /// Returns whether memcached would take an item of that size under the same `-I`: 48 bytes of
    /// its own, 8 of the unique number, 4 of flags that are not 0, and three ends of text.
    #[must_use]
    pub fn is_size_allowed(&self, key: usize, flags: u32, value: usize) -> bool {
        let flags = if flags == 0 { 0 } else { 4 };
        48 + 8 + key + 1 + flags + value + 2 <= self.limits.max_item
    }

    /// Returns the second at which an item expires that a client gave `exptime`: seconds from now
    /// up to 30 days, beyond that a Unix time; 0 for never.
    #[must_use]
    pub fn expiry(&self, exptime: i64, started: u64) -> u32 {
        const RELATIVE: i64 = 60 * 60 * 24 * 30;
        let second = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        match exptime {
            0 => 0,
            ..0 => 1,
            1..=RELATIVE => second(i64::from(self.now) + exptime),
            _ => second((exptime - i64::try_from(started).unwrap_or(0)).max(1)),
        }
    }

    /// Returns a unique number that no item had before.
    pub(super) fn next_cas(&mut self) -> u64 {
        self.cas += u64::from(!self.limits.no_cas);
        self.cas
    }

    /// Stores an item, if its mode allows that. Its size was allowed.
    pub fn put(&mut self, put: &Put<'_>) -> Stored {
        self.counts.sets += 1;
        let old = self.find(put.key);
        let compared = match old {
            None if put.mode == Mode::Cas => {
                self.counts.cas.1 += 1;
                return Stored::NotFound;
            }
            None => return self.put_new(put),
            // With -C a number that a client names is not kept, so it is compared with nothing.
            Some(_) if self.limits.no_cas => Compared::Any,
            Some(old) => Compared::of(put, &old.item),
        };
        let old = old.expect("there is one");
        match (put.mode, compared) {
            (Mode::Add, _) => {
                self.rewrite(old.place, Item { accessed: self.now, ..old.item });
                Stored::NotStored
            }
            (Mode::Cas, Compared::Same | Compared::Older) => {
                self.counts.cas.0 += 1;
                self.put_over(put, &old, compared)
            }
            (Mode::Cas, _) => {
                self.counts.cas.2 += 1;
                Stored::Exists
            }
            (Mode::Append | Mode::Prepend, Compared::Older | Compared::Other) => Stored::Exists,
            (Mode::Append | Mode::Prepend, _) => self.put_together(put, &old),
            (Mode::Set | Mode::Replace, _) => self.put_over(put, &old, Compared::Same),
        }
    }

    fn put_new(&mut self, put: &Put<'_>) -> Stored {
        match put.mode {
            Mode::Set | Mode::Add => self.make(put, put.expiry, 0),
            _ => Stored::NotStored,
        }
    }

    /// One that is stored late keeps the life and the state of the one that it replaces.
    fn put_over(&mut self, put: &Put<'_>, old: &Found, compared: Compared) -> Stored {
        if compared == Compared::Older {
            return self.make(put, old.item.expiry, bits::STALE | old.item.bits & bits::WON);
        }
        self.make(put, put.expiry, 0)
    }

    fn put_together(&mut self, put: &Put<'_>, old: &Found) -> Stored {
        let Found { item, .. } = *old;
        let len = item.value_len as usize + put.value.len();
        if !self.is_size_allowed(put.key.len(), item.flags, len) {
            return Stored::NotStored;
        }
        let mut value = Vec::with_capacity(len);
        if put.mode == Mode::Prepend {
            value.extend_from_slice(put.value);
        }
        self.append_value(old, &mut value);
        if put.mode == Mode::Append {
            value.extend_from_slice(put.value);
        }
        let binary_key = item.bits & bits::BINARY_KEY != 0;
        let whole = Put { value: &value, flags: item.flags, binary_key, ..put.clone() };
        self.make(&whole, item.expiry, 0)
    }

    /// Makes the item and links it.
    fn make(&mut self, put: &Put<'_>, expiry: u32, state: u8) -> Stored {
        let cas = self.next_cas();
        let (Ok(key_len), Ok(value_len)) =
            (u8::try_from(put.key.len()), u32::try_from(put.value.len()))
        else {
            return Stored::NoRoom;
        };
        let binary = if put.binary_key { bits::BINARY_KEY } else { 0 };
        let (accessed, stored) = (self.now, self.now);
        let bits = state | binary;
        let flags = put.flags;
        let item = Item { cas, expiry, flags, value_len, key_len, bits, read: 0, accessed, stored };
        self.scratch.clear();
        self.scratch.extend_from_slice(put.key);
        self.scratch.extend_from_slice(put.value);
        let linked = self.link(item);
        // A large value's room is not kept for small ones.
        self.scratch.shrink_to(64 << 10);
        if linked.is_none() {
            self.counts.no_room += 1;
            return Stored::NoRoom;
        }
        Stored::Stored(cas)
    }

    /// Reads an item: it counts as read, and expires as told.
    pub fn get(&mut self, key: &[u8]) -> Option<Found> {
        self.counts.gets += 1;
        let Some(found) = self.find(key) else {
            self.counts.get_misses += 1;
            return None;
        };
        self.read(&found);
        Some(found)
    }

    /// Notes that an item was read.
    pub fn read(&mut self, found: &Found) {
        self.note_read(found.place, self.item_at(found.place));
    }

    /// Gives an item another expiry, and counts it as read.
    pub fn touch(&mut self, key: &[u8], expiry: u32) -> Option<Found> {
        self.counts.touches += 1;
        let Some(mut found) = self.find(key) else {
            self.counts.touch_misses += 1;
            return None;
        };
        self.set_expiry(&mut found, expiry);
        self.read(&found);
        Some(found)
    }

    /// Gives an item another expiry.
    pub fn set_expiry(&mut self, found: &mut Found, expiry: u32) {
        found.item.expiry = expiry;
        self.rewrite(found.place, found.item);
        self.log.extend(found.place, expiry);
    }

    /// Sets an item's [`bits`] to others.
    pub fn set_bits(&mut self, found: &mut Found, bits: u8) {
        found.item.bits = bits;
        self.rewrite(found.place, found.item);
    }

    /// Marks an item as stale, under a new unique number, so that one client is told to renew it.
    pub fn mark_stale(&mut self, found: &mut Found) {
        let cas = self.next_cas();
        found.item.cas = cas;
        let bits = (found.item.bits | bits::STALE) & !bits::WON;
        let (bucket, place) = (found.spot.bucket, found.place);
        self.memory.change(bucket, |words| words[place].store(cas, Ordering::Relaxed));
        self.set_bits(found, bits);
    }

    /// Deletes a key's item if it has the unique number, or any if that is 0.
    ///
    /// Returns nothing where there is none, else whether it is gone.
    pub fn delete(&mut self, key: &[u8], cas: u64) -> Option<bool> {
        let Some(found) = self.find(key) else {
            self.counts.deletes.1 += 1;
            return None;
        };
        if cas != 0 && cas != found.item.cas {
            return Some(false);
        }
        self.counts.deletes.0 += 1;
        self.remove(&found);
        Some(true)
    }

    /// Changes an item that is a number.
    pub fn change(&mut self, key: &[u8], delta: Delta) -> Change {
        let Some(found) = self.find(key) else {
            if delta.up {
                self.counts.incrs.1 += 1
            } else {
                self.counts.decrs.1 += 1
            }
            return Change::NotFound;
        };
        let mut text = Vec::new();
        self.append_value(&found, &mut text);
        if text.is_empty() {
            return Change::NotNumber;
        }
        if delta.cas != 0 && delta.cas != found.item.cas {
            return Change::Exists;
        }
        let Some(old) = crate::number::unsigned(&text) else { return Change::NotNumber };
        let (up, down) = (old.wrapping_add(delta.by), old.saturating_sub(delta.by));
        let new = if delta.up { up } else { down };
        if delta.up {
            self.counts.incrs.0 += 1
        } else {
            self.counts.decrs.0 += 1
        }
        let digits = new.to_string();
        if digits.len() <= text.len() {
            text.fill(b' ');
            text[..digits.len()].copy_from_slice(digits.as_bytes());
            return Change::Changed(new, self.overwrite(&found, key, &text));
        }
        let binary_key = found.item.bits & bits::BINARY_KEY != 0;
        let put = Put { flags: found.item.flags, binary_key, ..Put::set(key, digits.as_bytes()) };
        match self.make(&put, found.item.expiry, 0) {
            Stored::Stored(cas) => Change::Changed(new, cas),
            _ => Change::NoRoom,
        }
    }

    /// Writes a value of the same length over an item's, under a new unique number.
    fn overwrite(&mut self, found: &Found, key: &[u8], value: &[u8]) -> u64 {
        let cas = self.next_cas();
        let mut body = key.to_vec();
        body.extend_from_slice(value);
        let place = found.place;
        // The bytes change where they are: the version keeps readers from believing a mixture.
        self.memory.change(found.spot.bucket, |words| {
            words[place].store(cas, Ordering::Relaxed);
            fill(&words[place + ITEM_WORDS..place + found.item.total_words()], &body);
        });
        self.rewrite(found.place, Item { accessed: self.now, ..found.item });
        cas
    }
}

/// How the unique number that a client named stands to the item's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// It named none.
    Any,
    Same,
    /// Lower, and the client would have its value stored as a stale one.
    Older,
    Other,
}

impl Compared {
    fn of(put: &Put<'_>, old: &Item) -> Self {
        match put.cas {
            0 => Self::Any,
            cas if cas == old.cas => Self::Same,
            cas if cas < old.cas && put.stale_too => Self::Older,
            _ => Self::Other,
        }
    }
}

const _: () = assert!(layout::MAX_KEY == 250, "memcached's");
