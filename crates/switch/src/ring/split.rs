//! One split virtqueue, as the device sees it (virtio 1.2, 2.7).

use super::ahead::Ahead;
use super::broken::{Broken, Refused};
use super::chain::Slices;
use super::descriptor::{DESCRIPTOR, Descriptor, INDIRECT, NEXT, WRITE, append, walk_table};
use super::layout::{Layout, Part};
use super::memory::Memory;
use super::order::Order;
use super::{MAX_CHAIN, MAX_SIZE};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Descriptors into which one received frame may go: those of 64 KiB are 128 bytes each, on
/// average. A short one may go into few of them, as many of those fit into a sender's turn; a
/// driver without mergeable buffers has 19 for each (Linux, `add_recvbuf_big`).
const MAX_PIECES: usize = 512;
const FEW_PIECES: usize = 64;

/// One queue that is being served.
#[derive(Debug)]
pub struct Ring {
    pub(super) layout: Layout,
    mask: u16,
    descriptors: Part,
    pub(super) available: Part,
    pub(super) used: Part,
    /// The next entry of the available ring.
    pub(super) next: u16,
    /// The available index, as it was last seen.
    pub(super) seen: u16,
    /// The next entry of the used ring, and what of it the guest was told.
    pub(super) done: u16,
    pub(super) published: u16,
    /// Chains that were taken, and wait for one that is lent.
    pub(super) order: Order,
    pub(super) ahead: Ahead,
}

// SAFETY: its pointers are into shared mappings, which belong to no thread, and its parts keep
// those mapped.
unsafe impl Send for Ring {}

impl Ring {
    /// Serves a queue from `layout.base` on. The used ring goes on where it stands in memory: what
    /// an earlier device took and did not give back comes again.
    ///
    /// # Errors
    /// [`Broken::Size`], [`Broken::Place`].
    pub fn new(memory: &Memory, layout: Layout) -> Result<Self, Broken> {
        let size = layout.size;
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(Broken::Size(size));
        }
        let n = u64::from(size);
        let descriptors = Part::new(memory, layout.descriptors, DESCRIPTOR * n, 16)?;
        let available = Part::new(memory, layout.available, 6 + 2 * n, 2)?;
        let used = Part::new(memory, layout.used, 6 + 8 * n, 4)?;
        // SAFETY: the used ring's index, which is aligned as the part is.
        let done = u16::from_le(unsafe { used.u16(2) }.load(Ordering::Relaxed));
        let base = layout.base;
        let ring = Self {
            layout,
            mask: size - 1,
            descriptors,
            available,
            used,
            next: base,
            seen: base,
            done,
            published: done,
            order: Order::new(),
            ahead: Ahead::default(),
        };
        ring.mute(memory);
        Ok(ring)
    }

    /// Index of the entry of the available ring at which another device goes on: the first one
    /// whose chain was not given back.
    #[must_use]
    pub fn base(&self) -> u16 {
        // No more of them than the queue has entries.
        self.next.wrapping_sub(self.order.len() as u16)
    }

    /// Takes this entry next.
    pub(super) fn follow(&mut self, entry: u16) {
        (self.next, self.seen) = (entry, entry);
    }

    /// What it was made of.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where the used ring's writes are logged from now on.
    pub fn set_used_log(&mut self, guest: Option<u64>) {
        self.layout.used_log = guest;
    }

    /// How many entries of the available ring wait.
    ///
    /// # Errors
    /// [`Broken::AvailableIndex`].
    #[inline]
    pub fn waiting(&mut self) -> Result<u16, Broken> {
        if self.seen == self.next {
            // SAFETY: the available ring's index. Acquire: pairs with the driver's publishing.
            let index = u16::from_le(unsafe { self.available.u16(2) }.load(Ordering::Acquire));
            // What waits, and what the guest was not given back yet.
            let out = usize::from(index.wrapping_sub(self.next)) + self.order.len();
            if out > usize::from(self.layout.size) {
                return Err(Broken::AvailableIndex(index, self.next));
            }
            self.seen = index;
        }
        Ok(self.seen.wrapping_sub(self.next))
    }

    /// The same, having looked again at what is there.
    pub(super) fn waiting_now(&mut self) -> Result<u16, Broken> {
        let was = std::mem::replace(&mut self.seen, self.next);
        self.waiting().inspect_err(|_| self.seen = was)
    }

    /// The head of the chain at an entry of the available ring that waits.
    #[inline]
    pub(super) fn head(&self, entry: u16) -> Result<u16, Broken> {
        let offset = 4 + 2 * usize::from(entry & self.mask);
        // SAFETY: an entry below the size, which the part holds.
        let head = u16::from_le(unsafe { self.available.u16(offset) }.load(Ordering::Relaxed));
        if head <= self.mask { Ok(head) } else { Err(Broken::Descriptor(head)) }
    }

    /// Where a descriptor of the table lies.
    #[inline]
    pub(super) fn place_of(&self, index: u16) -> *mut u8 {
        // SAFETY: a descriptor below the size, which the part holds.
        unsafe { self.descriptors.at.add(16 * usize::from(index & self.mask)) }
    }

    /// A descriptor of the table; `index` is below the size.
    #[inline]
    pub(super) fn descriptor(&self, index: u16) -> Descriptor {
        let place = self.place_of(index);
        // SAFETY: its 16 bytes are in the part; the table is aligned to as many.
        let word = |n: usize| unsafe {
            AtomicU64::from_ptr(place.add(8 * n).cast()).load(Ordering::Relaxed)
        };
        Descriptor::of([word(0), word(1)])
    }

    /// Appends the buffers of a chain to `to`. Returns of how many descriptors it is: empty ones
    /// take their time, too.
    #[inline]
    fn walk<'m>(
        &self,
        memory: &'m Memory,
        head: u16,
        flag: u16,
        to: &mut Slices<'m>,
    ) -> Result<usize, Broken> {
        let mut index = head;
        for walked in 1..=usize::from(self.layout.size).min(MAX_CHAIN) {
            let descriptor = self.descriptor(index);
            if descriptor.flags & INDIRECT != 0 {
                if !self.layout.indirect || descriptor.flags & NEXT != 0 {
                    return Err(Broken::Indirect);
                }
                return walk_table(memory, &descriptor, flag, to);
            }
            append(memory, &descriptor, flag, to)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(walked);
            }
            index = descriptor.next;
            if index > self.mask {
                return Err(Broken::Descriptor(index));
            }
        }
        Err(Broken::Endless)
    }

    /// Takes the next chain that a guest sends: its buffers into `to`, and its head, for
    /// [`Self::complete`]. `None` where nothing waits.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn take<'m>(
        &mut self,
        memory: &'m Memory,
        to: &mut Slices<'m>,
    ) -> Result<Option<u16>, Broken> {
        to.clear();
        if self.waiting()? == 0 {
            return Ok(None);
        }
        self.fetch_ahead(memory);
        let head = self.head(self.next)?;
        to.walked = self.walk(memory, head, 0, to)?;
        self.next = self.next.wrapping_add(1);
        Ok(Some(head))
    }

    /// Gives a chain back, into which `len` bytes were written. The guest sees it once it is
    /// published, and once all that were taken before are given back too.
    #[inline]
    pub fn complete(&mut self, memory: &Memory, head: u16, len: u32) {
        if self.order.is_empty() {
            self.write_used(memory, head, len);
        } else {
            self.order.push(head, len);
        }
    }

    /// Where an entry of the used ring lies.
    #[inline(always)]
    pub(super) fn place_of_used(&self, entry: u16) -> *mut u8 {
        // SAFETY: an entry below the size, which the part holds.
        unsafe { self.used.at.add(self.offset_of_used(entry)) }
    }

    #[inline(always)]
    fn offset_of_used(&self, entry: u16) -> usize {
        4 + 8 * usize::from(entry & self.mask)
    }

    /// Writes the next entry of the used ring.
    #[inline]
    pub(super) fn write_used(&mut self, memory: &Memory, head: u16, len: u32) {
        let (offset, place) = (self.offset_of_used(self.done), self.place_of_used(self.done));
        // SAFETY: its 8 bytes are in the part, and aligned to 4.
        unsafe {
            let word = |n: usize| AtomicU32::from_ptr(place.add(4 * n).cast());
            word(0).store(u32::from(head).to_le(), Ordering::Relaxed);
            word(1).store(len.to_le(), Ordering::Relaxed);
        }
        self.done = self.done.wrapping_add(1);
        if let Some(guest) = self.layout.used_log {
            memory.mark(guest.saturating_add(offset as u64), 8);
        }
    }

    /// Looks at the next chain into which something may be written: its buffers into `to`, and its
    /// head, for [`Self::fill`]. `None` where nothing waits.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn peek<'m>(
        &mut self,
        memory: &'m Memory,
        to: &mut Slices<'m>,
    ) -> Result<Option<u16>, Broken> {
        to.clear();
        if self.waiting()? == 0 {
            return Ok(None);
        }
        let head = self.head(self.next)?;
        to.walked = self.walk(memory, head, WRITE, to)?;
        if to.walked > MAX_PIECES { Err(Broken::Endless) } else { Ok(Some(head)) }
    }

    /// Writes `front`, and then `rest`, as far as there is room, into the chain that was looked at,
    /// and gives it back. Returns how many bytes were written.
    pub fn fill(
        &mut self,
        memory: &Memory,
        (head, buffers): (u16, &Slices<'_>),
        front: &[u8],
        rest: &Slices<'_>,
    ) -> usize {
        let written = buffers.write(memory, front, rest);
        self.complete(memory, head, u32::try_from(written).unwrap_or(u32::MAX));
        self.next = self.next.wrapping_add(1);
        written
    }

    /// Puts a frame into the next buffers that a guest made available: `front`, which begins with
    /// a header of `header` bytes, and then `rest`. With `mergeable` it may take several, and their
    /// number is written into the header's last two bytes (virtio 1.2, 5.1.6.4). All or nothing.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    pub fn deliver(
        &mut self,
        memory: &Memory,
        front: &[u8],
        rest: &Slices<'_>,
        header: usize,
        mergeable: bool,
    ) -> Result<(), Refused> {
        let total = front.len() + rest.len();
        // Enough of what was seen before? Else it is looked at again, once.
        if self.waiting()? == 0 {
            return Err(Refused::Full);
        }
        self.fetch_ahead_to_write(memory);
        if self.deliver_into_one(memory, front, rest, total)? {
            return Ok(());
        }
        let mut buffers = Slices::new();
        let mut chains: SmallVec<[(u16, usize); 4]> = SmallVec::new();
        let (mut walked, most) = (0, MAX_PIECES.min(FEW_PIECES + total / 128));
        while buffers.len() < total {
            let entry = self.next.wrapping_add(chains.len() as u16);
            if entry == self.seen {
                let waits = usize::from(self.waiting_now()?);
                if waits <= chains.len() {
                    return Err(Refused::Full);
                }
            }
            if !chains.is_empty() && !mergeable {
                return Err(Refused::TooLong);
            }
            let (head, before) = (self.head(entry)?, buffers.len());
            walked += self.walk(memory, head, WRITE, &mut buffers)?;
            let room = buffers.len() - before;
            if room < header {
                return Err(Broken::Tiny(room).into());
            }
            // Who offers crumbs would have every sender's turn spent on them.
            if walked > most {
                return Err(Broken::Endless.into());
            }
            chains.push((head, room));
        }
        buffers.write(memory, front, rest);
        if mergeable && chains.len() > 1 {
            let count = u16::try_from(chains.len()).unwrap_or(u16::MAX);
            buffers.patch(memory, header.saturating_sub(2), &count.to_le_bytes());
        }
        let mut left = total;
        for (head, room) in chains {
            let len = left.min(room);
            self.complete(memory, head, u32::try_from(len).unwrap_or(u32::MAX));
            self.next = self.next.wrapping_add(1);
            left -= len;
        }
        Ok(())
    }

    /// The same where the next chain is one buffer with room for all, as nearly all are.
    #[inline]
    fn deliver_into_one(
        &mut self,
        memory: &Memory,
        front: &[u8],
        rest: &Slices<'_>,
        total: usize,
    ) -> Result<bool, Broken> {
        let head = self.head(self.next)?;
        let descriptor = self.descriptor(head);
        if descriptor.flags != WRITE || (descriptor.len as usize) < total {
            return Ok(false);
        }
        let Some(place) = memory.slice(descriptor.address, total as u64) else { return Ok(false) };
        let done = place.write(front);
        rest.write_to(place.behind(done));
        memory.mark(descriptor.address, total as u64);
        self.complete(memory, head, total as u32);
        self.next = self.next.wrapping_add(1);
        Ok(true)
    }
}
