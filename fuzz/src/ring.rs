//! `ginnel-switch`: what a guest writes into a queue, compared with what it means.

use crate::Bytes;
use crate::ram::{PLACES, Ram};
use crate::virtqueue::{Given, INDIRECT, NEXT, Virtqueue, WRITE, len, plain};
use ginnel_switch::ring::{Layout, Ring, Slices};
use ginnel_switch::wire::HEADER;

/// Sizes of queues, good and bad.
const SIZES: [u16; 8] = [16, 1, 2, 256, 16, 0, 3, 40000];
/// Bytes of the log: that reaches all regions but the last, that ends within one, that is none.
const MARKS: [u64; 4] = [4096, 5, 0, 4];

/// A place for a part of a queue: at an edge of a region, mostly.
fn part(bytes: &mut Bytes<'_>, len: u64, align: u64) -> u64 {
    let place = PLACES[usize::from(bytes.byte() % 8) % PLACES.len()];
    let end = place.user + place.size;
    let last = end.wrapping_sub(len) / align * align;
    match bytes.byte() % 16 {
        0..6 => last,
        6 => last.wrapping_add(align),
        7 => last.wrapping_add(bytes.below(2 * align)),
        8 => end,
        9 => bytes.value(place.user),
        _ => place.user + bytes.below(place.size.saturating_sub(len).max(1)) / align * align,
    }
}

/// A queue that lies anywhere: the switch serves it where it may lie so, and nowhere else.
fn place(bytes: &mut Bytes<'_>, ram: &mut Ram) -> Option<(Ring, Virtqueue)> {
    for _ in 0..8 {
        let size = SIZES[usize::from(bytes.byte()) % SIZES.len()];
        let n = u64::from(size);
        let [descriptors, available, used] = [(16 * n, 16), (6 + 2 * n, 2), (6 + 8 * n, 4)]
            .map(|(len, align)| part(bytes, len, align));
        let guest = ram.find_user(used, 6 + 8 * n).map(|(guest, _)| guest);
        let base = [0, u16::MAX, bytes.word() as u16][usize::from(bytes.byte() % 3)];
        let layout = Layout {
            size,
            descriptors,
            available,
            used,
            used_log: guest.filter(|_| bytes.one_in(2)),
            base,
            event_idx: bytes.one_in(2),
            indirect: !bytes.one_in(4),
        };
        let ring = Ring::new(&ram.memory, layout);
        let wanted = Virtqueue::new(ram, layout);
        assert_eq!(ring.is_ok(), wanted.is_some(), "{layout:x?}: {ring:?}");
        if let Some(both) = ring.ok().zip(wanted) {
            return Some(both);
        }
    }
    None
}

/// A guest: what it has made available.
struct Guest {
    index: u16,
    size: u16,
    /// The next descriptor that it takes for a chain.
    free: u16,
}

impl Guest {
    /// One descriptor of a buffer: 16 bytes.
    fn buffer(bytes: &mut Bytes<'_>, flags: u16, next: u16) -> [u8; 16] {
        let len = match bytes.byte() % 16 {
            0 => 0,
            1 => bytes.below(4) as u32,
            2 => HEADER as u32,
            3 => bytes.value(4096) as u32,
            4 => 4096,
            5 => u32::MAX,
            _ => bytes.below(3000) as u32,
        };
        let address = Ram::address(bytes, len.into());
        let mut one = [0; 16];
        one[..8].copy_from_slice(&address.to_le_bytes());
        one[8..12].copy_from_slice(&len.to_le_bytes());
        one[12..14].copy_from_slice(&flags.to_le_bytes());
        one[14..].copy_from_slice(&next.to_le_bytes());
        one
    }

    /// A number of a descriptor where there are `count`: rarely one that there is not.
    fn number(bytes: &mut Bytes<'_>, good: u16, count: u16) -> u16 {
        match bytes.byte() % 32 {
            0 => count,
            1 => count.wrapping_sub(1),
            2 => count.wrapping_add(1),
            3 => bytes.word() as u16,
            _ => good,
        }
    }

    /// Describes a chain of some buffers. Returns its head.
    fn describe(&mut self, bytes: &mut Bytes<'_>, ram: &mut Ram, to: &Virtqueue, flag: u16) -> u16 {
        let count = 1 + bytes.below(4) as u16;
        let head = self.free % self.size.max(1);
        for n in 0..count {
            let index = self.free % self.size;
            self.free = self.free.wrapping_add(1);
            let more = n + 1 < count;
            let odd = if bytes.one_in(64) { u16::from(bytes.byte()) } else { 0 };
            let next = Self::number(bytes, self.free % self.size, self.size);
            let flags = (flag | if more { NEXT } else { 0 }) ^ odd;
            ram.write(to.descriptor(index), &Self::buffer(bytes, flags, next));
        }
        head
    }

    /// Describes a chain by a table, and what lies behind that as if it went on.
    fn describe_table(
        &mut self,
        bytes: &mut Bytes<'_>,
        ram: &mut Ram,
        to: &Virtqueue,
        flag: u16,
    ) -> u16 {
        let count = 1 + bytes.below(4) as u16;
        let all = 16 * (u64::from(count) + 1);
        let len = if bytes.one_in(2) { all } else { all - 16 };
        let address = Ram::address(bytes, len);
        for n in 0..=count {
            let more = n + 1 < count || bytes.one_in(4) && n < count;
            let flags = flag | if more { NEXT } else { 0 } | u16::from(bytes.one_in(64)) << 2;
            let next = Self::number(bytes, n + 1, count);
            let one = Self::buffer(bytes, flags, next);
            let at = address.wrapping_add(16 * u64::from(n));
            if let Some((_, range)) = ram.find_whole(at, 16) {
                ram.write(range.start, &one);
            }
        }
        let odd = [0, 0, 0, 0, 1, 15, 16][usize::from(bytes.byte() % 7)];
        let head = self.free % self.size;
        self.free = self.free.wrapping_add(1);
        let mut one = [0; 16];
        one[..8].copy_from_slice(&address.to_le_bytes());
        one[8..12].copy_from_slice(&(16 * u32::from(count) + odd).to_le_bytes());
        one[12..14]
            .copy_from_slice(&(INDIRECT | (flag * u16::from(bytes.byte() & 1))).to_le_bytes());
        ram.write(to.descriptor(head), &one);
        head
    }

    /// What the switch found wrong is put right: the next chain is one good buffer.
    fn mend(&mut self, ram: &mut Ram, to: &Virtqueue, flag: u16) {
        let mut one = [0; 16];
        one[..8].copy_from_slice(&PLACES[1].guest.to_le_bytes());
        one[8..12].copy_from_slice(&64u32.to_le_bytes());
        one[12..14].copy_from_slice(&flag.to_le_bytes());
        ram.write(to.descriptor(0), &one);
        ram.write(to.entry(to.next), &[0, 0]);
        self.index = to.next.wrapping_add(1);
        ram.write(to.of_driver()[1], &self.index.to_le_bytes());
    }

    /// What a guest does before the switch looks again.
    fn act(&mut self, bytes: &mut Bytes<'_>, ram: &mut Ram, to: &Virtqueue, flag: u16) {
        let [flags, index, event] = to.of_driver();
        match bytes.byte() % 16 {
            kind @ 0..10 => {
                let head = match kind {
                    0..7 => self.describe(bytes, ram, to, flag),
                    _ => self.describe_table(bytes, ram, to, flag),
                };
                let head = Self::number(bytes, head, self.size);
                ram.write(to.entry(self.index), &head.to_le_bytes());
                self.index = self.index.wrapping_add(1);
                ram.write(index, &self.index.to_le_bytes());
            }
            10 => {
                let near = [self.size, self.size.wrapping_add(1), 1][usize::from(bytes.byte() % 3)];
                ram.write(index, &to.next.wrapping_add(near).to_le_bytes());
            }
            11 => ram.write(index, &self.index.to_le_bytes()),
            12 => ram.write(flags, &u16::from(bytes.byte() % 3).to_le_bytes()),
            13 => {
                let at = Ram::address(bytes, 8);
                if let Some((_, range)) = ram.find_whole(at, 8) {
                    ram.write(range.start, bytes.take(8));
                }
            }
            _ => {
                let near = [to.published, to.done][usize::from(bytes.byte() % 2)];
                let near = near.wrapping_add(u16::from(bytes.byte() % 3)).wrapping_sub(1);
                ram.write(event, &near.to_le_bytes());
            }
        }
    }
}

/// A queue whose parts, descriptors, rings and tables lie and say what a guest likes, mostly at the
/// edge of what they may. What the switch takes, writes, marks in the log, tells the guest and
/// refuses is what virtio says, and beyond the guest's memory it touches nothing.
///
/// # Panics
/// When that is not so.
pub fn ring(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let mut ram = Ram::new(MARKS[usize::from(bytes.byte()) % MARKS.len()]);
    let sends = bytes.one_in(2);
    let Some((mut ring, mut wanted)) = place(&mut bytes, &mut ram) else { return };
    let (flag, size) = (if sends { 0 } else { WRITE }, ring.layout().size);
    let mut guest = Guest { index: wanted.next, size, free: 0 };
    ram.write(wanted.of_driver()[1], &guest.index.to_le_bytes());
    while !bytes.is_empty() {
        guest.act(&mut bytes, &mut ram, &wanted, flag);
        let good = match (bytes.byte() % 8, sends) {
            (0, _) => {
                assert_eq!(ring.publish(&ram.memory), wanted.publish(&mut ram), "an interrupt");
                true
            }
            (1, _) => {
                let waits = wanted.arm(&mut ram);
                assert_eq!(plain(ring.arm(&ram.memory)), waits);
                waits.is_ok()
            }
            (2, _) => {
                ring.mute(&ram.memory);
                wanted.mute(&mut ram);
                true
            }
            (3, true) | (4.., false) => deliver(&mut bytes, &mut ram, &mut ring, &mut wanted),
            _ => take(&mut bytes, &mut ram, &mut ring, &mut wanted),
        };
        assert_eq!(ring.base(), wanted.next);
        ram.check("after a turn");
        if !good {
            guest.mend(&mut ram, &wanted, flag);
        }
    }
}

/// Was nothing wrong?
fn take(bytes: &mut Bytes<'_>, ram: &mut Ram, ring: &mut Ring, wanted: &mut Virtqueue) -> bool {
    let mut chain = Slices::new();
    let taken = plain(ring.take(&ram.memory, &mut chain));
    let expected = wanted.take(ram);
    let head = |taken: &Option<(u16, _)>| taken.as_ref().map(|(head, _)| *head);
    assert_eq!(taken, expected.as_ref().map(head).map_err(|&wrong| wrong));
    let Ok(Some((head, pieces))) = expected else { return expected.is_ok() };
    assert_eq!(chain.len() as u64, len(&pieces));
    let mut all = vec![0; bytes.below(200) as usize];
    let got = chain.take_front(&mut all);
    all.truncate(got);
    if chain.len() < 1 << 17 {
        chain.append_to(&mut all);
        assert!(all == ram.all(&pieces), "other bytes than the guest has sent");
    }
    drop(chain);
    ring.complete(&ram.memory, head, 7);
    wanted.complete(ram, head, 7);
    true
}

/// Was nothing wrong?
fn deliver(bytes: &mut Bytes<'_>, ram: &mut Ram, ring: &mut Ring, wanted: &mut Virtqueue) -> bool {
    // As long as one or two chains have room for, nearly, or anything.
    let near = wanted.room(ram, bytes.below(3) as u16).wrapping_add(bytes.below(3));
    let near = if bytes.one_in(2) { near.wrapping_sub(1) } else { bytes.below(5000) };
    let frame = vec![7; usize::try_from(near.min(70_000)).unwrap_or(0).max(HEADER)];
    let merges = !bytes.one_in(4);
    let got = ring.deliver(&ram.memory, &frame, &Slices::new(), HEADER, merges);
    let expected = wanted.deliver(ram, &frame, HEADER, merges);
    assert_eq!(Given::of(got), expected, "{} bytes", frame.len());
    expected != Given::Wrong
}
