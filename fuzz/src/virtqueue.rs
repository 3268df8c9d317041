//! What a split virtqueue means (virtio 1.2, 2.7), written down a second time: read from the image
//! of a guest's memory, and written into it. The switch is compared with this.

use crate::ram::{Piece, Ram};
use ginnel_switch::ring::{Broken, Layout, MAX_CHAIN, MAX_SIZE, Refused};

/// Flags of a descriptor.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;
/// Descriptors into which one frame may go.
const MAX_PIECES: usize = 512;
const FEW_PIECES: usize = 64;

/// Something is broken: what, is not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrong;

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    Done,
    Full,
    TooLong,
    Wrong,
}

impl Given {
    /// As the switch says it.
    #[must_use]
    pub fn of(result: Result<(), Refused>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(Refused::Full) => Self::Full,
            Err(Refused::TooLong) => Self::TooLong,
            Err(Refused::Broken(_)) => Self::Wrong,
        }
    }
}

/// A chain's buffers, and of how many descriptors they are.
pub type Chain = (Vec<Piece>, usize);

struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

fn descriptor(ram: &Ram, at: usize) -> Descriptor {
    let [next, flags] = [14, 12].map(|skip| ram.word(at + skip));
    let len = u32::from_le_bytes(ram.bytes(at + 8));
    Descriptor { address: u64::from_le_bytes(ram.bytes(at)), len, flags, next }
}

/// The queue as the device has it.
pub struct Virtqueue {
    layout: Layout,
    descriptors: usize,
    available: usize,
    used: usize,
    /// The next entry of the available ring, and its index when it was looked at.
    pub next: u16,
    seen: u16,
    /// The next entry of the used ring, and what of it was published.
    pub done: u16,
    pub published: u16,
}

impl Virtqueue {
    /// Where it may lie so. It is muted.
    #[must_use]
    pub fn new(ram: &mut Ram, layout: Layout) -> Option<Self> {
        let n = u64::from(layout.size);
        let part = |user, len, align: usize| {
            let (_, range) = ram.find_user(user, len)?;
            range.start.is_multiple_of(align).then_some(range.start)
        };
        if !layout.size.is_power_of_two() || layout.size > MAX_SIZE {
            return None;
        }
        let descriptors = part(layout.descriptors, 16 * n, 16)?;
        let (available, used) =
            (part(layout.available, 6 + 2 * n, 2)?, part(layout.used, 6 + 8 * n, 4)?);
        let (next, seen, done) = (layout.base, layout.base, ram.word(used + 2));
        let (published, of) = (done, layout);
        let it = Self { layout: of, descriptors, available, used, next, seen, done, published };
        it.mute(ram);
        Some(it)
    }

    fn mask(&self) -> u16 {
        self.layout.size - 1
    }

    /// Where an entry of the available ring lies; its index lies two bytes behind its beginning.
    #[must_use]
    pub fn entry(&self, entry: u16) -> usize {
        self.available + 4 + 2 * usize::from(entry & self.mask())
    }

    /// Where the available ring's flags lie, then its index, and what the driver wants to be told.
    #[must_use]
    pub fn of_driver(&self) -> [usize; 3] {
        let event = self.available + 4 + 2 * usize::from(self.layout.size);
        [self.available, self.available + 2, event]
    }

    /// Where a descriptor lies.
    #[must_use]
    pub fn descriptor(&self, index: u16) -> usize {
        self.descriptors + 16 * usize::from(index & self.mask())
    }

    fn waiting(&mut self, ram: &Ram) -> Result<u16, Wrong> {
        if self.seen == self.next {
            self.look(ram)?;
        }
        Ok(self.seen.wrapping_sub(self.next))
    }

    fn look(&mut self, ram: &Ram) -> Result<(), Wrong> {
        let index = ram.word(self.available + 2);
        if index.wrapping_sub(self.next) > self.layout.size {
            return Err(Wrong);
        }
        self.seen = index;
        Ok(())
    }

    fn head(&self, ram: &Ram, entry: u16) -> Result<u16, Wrong> {
        let head = ram.word(self.entry(entry));
        if head < self.layout.size { Ok(head) } else { Err(Wrong) }
    }

    /// The buffers of the chain that begins with this descriptor, all for the device to write, or
    /// none.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn chain(&self, ram: &Ram, head: u16, writes: bool) -> Result<Chain, Wrong> {
        let (mut all, mut index) = (Vec::new(), head);
        for count in 1..=usize::from(self.layout.size).min(MAX_CHAIN) {
            if index >= self.layout.size {
                return Err(Wrong);
            }
            let one = descriptor(ram, self.descriptor(index));
            if one.flags & INDIRECT != 0 {
                let may = self.layout.indirect && one.flags & NEXT == 0;
                let (table, walked) =
                    if may { self.table(ram, &one, writes)? } else { Err(Wrong)? };
                all.extend(table);
                return Ok((all, walked));
            }
            all.extend(buffer(ram, &one, writes)?);
            if one.flags & NEXT == 0 {
                return Ok((all, count));
            }
            index = one.next;
        }
        Err(Wrong)
    }

    /// The same of a table of descriptors, each of which lies in one region.
    fn table(&self, ram: &Ram, table: &Descriptor, writes: bool) -> Result<Chain, Wrong> {
        let count = table.len / 16;
        if table.len == 0 || !table.len.is_multiple_of(16) || count > MAX_SIZE.into() {
            return Err(Wrong);
        }
        let (mut all, mut index) = (Vec::new(), 0);
        for walked in 1..=MAX_CHAIN.min(count as usize) {
            if index >= count {
                return Err(Wrong);
            }
            let at = table.address.checked_add(16 * u64::from(index)).ok_or(Wrong)?;
            let (_, range) = ram.find_whole(at, 16).ok_or(Wrong)?;
            let one = descriptor(ram, range.start);
            if one.flags & INDIRECT != 0 {
                return Err(Wrong);
            }
            all.extend(buffer(ram, &one, writes)?);
            if one.flags & NEXT == 0 {
                return Ok((all, walked));
            }
            index = one.next.into();
        }
        Err(Wrong)
    }

    /// The next chain, which the guest sends.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn take(&mut self, ram: &Ram) -> Result<Option<(u16, Vec<Piece>)>, Wrong> {
        if self.waiting(ram)? == 0 {
            return Ok(None);
        }
        let head = self.head(ram, self.next)?;
        let (pieces, _) = self.chain(ram, head, false)?;
        self.next = self.next.wrapping_add(1);
        Ok(Some((head, pieces)))
    }

    /// A chain is given back.
    pub fn complete(&mut self, ram: &mut Ram, head: u16, len: u32) {
        let skip = 4 + 8 * usize::from(self.done & self.mask());
        ram.expect(self.used + skip, &u32::from(head).to_le_bytes());
        ram.expect(self.used + skip + 4, &len.to_le_bytes());
        self.mark_used(ram, skip, 8);
        self.done = self.done.wrapping_add(1);
    }

    fn mark_used(&self, ram: &mut Ram, skip: usize, len: u64) {
        if let Some(guest) = self.layout.used_log {
            ram.expect_mark(guest + skip as u64, len);
        }
    }

    /// What is completed is published. Is the guest to be interrupted?
    pub fn publish(&mut self, ram: &mut Ram) -> bool {
        let (old, new) = (self.published, self.done);
        if old == new {
            return false;
        }
        self.published = new;
        ram.expect(self.used + 2, &new.to_le_bytes());
        self.mark_used(ram, 0, 4);
        let [flags, _, event] = self.of_driver();
        if !self.layout.event_idx {
            return ram.word(flags) & 1 == 0;
        }
        // Of the entries that are new now, is one that which it waits for?
        let (event, count) = (ram.word(event), new.wrapping_sub(old));
        (0..count).any(|n| old.wrapping_add(n) == event)
    }

    fn say(&self, ram: &mut Ram, event: u16, flags: u16) {
        let (skip, what) = match self.layout.event_idx {
            true => (4 + 8 * usize::from(self.layout.size), event),
            false => (0, flags),
        };
        ram.expect(self.used + skip, &what.to_le_bytes());
        self.mark_used(ram, skip, 2);
    }

    /// The guest need not kick.
    pub fn mute(&self, ram: &mut Ram) {
        self.say(ram, self.next.wrapping_sub(1), 1);
    }

    /// The guest is to kick. Does something wait already?
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn arm(&mut self, ram: &mut Ram) -> Result<bool, Wrong> {
        self.say(ram, self.next, 0);
        self.look(ram)?;
        Ok(self.seen != self.next)
    }

    /// How much the next chains have room for, at most so many of them: for whoever wants to fill
    /// them to their edge.
    #[must_use]
    pub fn room(&self, ram: &Ram, chains: u16) -> u64 {
        let entries = (0..chains).map(|n| self.next.wrapping_add(n));
        let heads = entries.map_while(|entry| self.head(ram, entry).ok());
        let chains = heads.map_while(|head| self.chain(ram, head, true).ok());
        chains.map(|(pieces, _)| len(&pieces)).sum()
    }

    /// A frame is put into the next chains: its bytes begin with a header of so many.
    pub fn deliver(&mut self, ram: &mut Ram, frame: &[u8], header: usize, merges: bool) -> Given {
        match self.find_room(ram, frame.len(), header, merges) {
            Ok(chains) => {
                self.fill(ram, frame, header, merges, &chains);
                Given::Done
            }
            Err(why) => why,
        }
    }

    /// The chains that it goes into, and the buffers of each.
    fn find_room(
        &mut self,
        ram: &Ram,
        total: usize,
        header: usize,
        merges: bool,
    ) -> Result<Vec<(u16, Vec<Piece>)>, Given> {
        let wrong = |_| Given::Wrong;
        if self.waiting(ram).map_err(wrong)? == 0 {
            return Err(Given::Full);
        }
        let head = self.head(ram, self.next).map_err(wrong)?;
        let one = descriptor(ram, self.descriptor(head));
        let whole = ram.find_whole(one.address, total as u64);
        if let Some(piece) = whole.filter(|_| one.flags == WRITE && one.len as usize >= total) {
            // What lies behind the frame is not looked at.
            return Ok(vec![(head, vec![piece])]);
        }
        let (mut chains, mut room, mut walked) = (Vec::new(), 0, 0);
        let most = MAX_PIECES.min(FEW_PIECES + total / 128);
        while room < total {
            let entry = self.next.wrapping_add(chains.len() as u16);
            if entry == self.seen {
                self.look(ram).map_err(wrong)?;
                if usize::from(self.seen.wrapping_sub(self.next)) <= chains.len() {
                    return Err(Given::Full);
                }
            }
            if !chains.is_empty() && !merges {
                return Err(Given::TooLong);
            }
            let head = self.head(ram, entry).map_err(wrong)?;
            let (pieces, count) = self.chain(ram, head, true).map_err(wrong)?;
            let len = len(&pieces) as usize;
            (room, walked) = (room + len, walked + count);
            if len < header || walked > most {
                return Err(Given::Wrong);
            }
            chains.push((head, pieces));
        }
        Ok(chains)
    }

    fn fill(
        &mut self,
        ram: &mut Ram,
        frame: &[u8],
        header: usize,
        merges: bool,
        chains: &[(u16, Vec<Piece>)],
    ) {
        let mut frame = frame.to_vec();
        let count = chains.len() as u16;
        if merges && count > 1 {
            // Written twice, the second time right: so also where buffers overlap.
            put(ram, chains, 0, &frame);
            frame[header - 2..header].copy_from_slice(&count.to_le_bytes());
            put(ram, chains, header - 2, &frame[header - 2..header]);
        } else {
            put(ram, chains, 0, &frame);
        }
        let mut left = frame.len();
        for (head, pieces) in chains {
            let part = left.min(len(pieces) as usize);
            self.complete(ram, *head, part as u32);
            self.next = self.next.wrapping_add(1);
            left -= part;
        }
    }
}

/// Bytes of all.
#[must_use]
pub fn len(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|(_, range)| range.len() as u64).sum()
}

fn buffer(ram: &Ram, one: &Descriptor, writes: bool) -> Result<Vec<Piece>, Wrong> {
    if (one.flags & WRITE != 0) != writes {
        return Err(Wrong);
    }
    ram.find(one.address, one.len.into()).ok_or(Wrong)
}

/// Bytes go into the buffers of chains, `skip` bytes behind the first.
fn put(ram: &mut Ram, chains: &[(u16, Vec<Piece>)], mut skip: usize, mut bytes: &[u8]) {
    for (guest, range) in chains.iter().flat_map(|(_, pieces)| pieces) {
        let skipped = skip.min(range.len());
        skip -= skipped;
        let (head, tail) = bytes.split_at(bytes.len().min(range.len() - skipped));
        ram.expect(range.start + skipped, head);
        ram.expect_mark(guest + skipped as u64, head.len() as u64);
        bytes = tail;
    }
}

/// As the switch says it.
///
/// # Errors
/// [`Wrong`].
pub fn plain<T>(result: Result<T, Broken>) -> Result<T, Wrong> {
    result.map_err(|_| Wrong)
}
