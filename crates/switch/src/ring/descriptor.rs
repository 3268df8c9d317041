//! One descriptor, and tables of them in guest memory.

use super::broken::Broken;
use super::chain::Slices;
use super::memory::Memory;
use super::{MAX_CHAIN, MAX_SIZE};

/// The chain goes on (virtio 1.2, 2.7.5).
pub const NEXT: u16 = 1;
/// The device writes into it.
pub const WRITE: u16 = 2;
/// It is a table of descriptors.
pub const INDIRECT: u16 = 4;
/// Bytes of a descriptor.
pub const DESCRIPTOR: u64 = 16;

/// One descriptor, copied.
pub struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub flags: u16,
    pub next: u16,
}

impl Descriptor {
    #[inline(always)]
    pub fn of(words: [u64; 2]) -> Self {
        let [address, rest] = words.map(u64::from_le);
        Self { address, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }
}

/// Appends one buffer.
#[inline]
pub fn append<'m>(
    memory: &'m Memory,
    descriptor: &Descriptor,
    flag: u16,
    to: &mut Slices<'m>,
) -> Result<(), Broken> {
    if descriptor.flags & WRITE != flag {
        return Err(Broken::Direction);
    }
    if memory.append(descriptor.address, u64::from(descriptor.len), to) {
        Ok(())
    } else {
        Err(Broken::Address(descriptor.address, descriptor.len))
    }
}

/// Appends the buffers of a table of indirect descriptors (virtio 1.2, 2.7.5.3). Returns how many.
pub fn walk_table<'m>(
    memory: &'m Memory,
    table: &Descriptor,
    flag: u16,
    to: &mut Slices<'m>,
) -> Result<usize, Broken> {
    let bytes = u64::from(table.len);
    let count = bytes / DESCRIPTOR;
    if count == 0 || bytes % DESCRIPTOR != 0 || count > u64::from(MAX_SIZE) {
        return Err(Broken::Indirect);
    }
    let mut index = 0u64;
    for walked in 1..=MAX_CHAIN.min(count as usize) {
        let at = table.address.checked_add(index * DESCRIPTOR).ok_or(Broken::Indirect)?;
        let gone = Broken::Address(table.address, table.len);
        let slice = memory.slice(at, DESCRIPTOR).ok_or(gone)?;
        let mut bytes = [0u8; DESCRIPTOR as usize];
        slice.read(&mut bytes);
        let word = |n: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[8 * n + i]));
        let descriptor = Descriptor::of([word(0), word(1)]);
        if descriptor.flags & INDIRECT != 0 {
            return Err(Broken::Indirect);
        }
        append(memory, &descriptor, flag, to)?;
        if descriptor.flags & NEXT == 0 {
            return Ok(walked);
        }
        index = u64::from(descriptor.next);
        if index >= count {
            return Err(Broken::Descriptor(descriptor.next));
        }
    }
    Err(Broken::Endless)
}
