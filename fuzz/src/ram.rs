//! A guest's memory as the fuzz targets have it: several regions with fences around each, and a
//! second image of all bytes. What the guest writes goes into both; what the switch may write is
//! written into the image beside it, and the two are compared.

use crate::Bytes;
use crate::fence::{Fence, PAGE};
use ginnel_switch::ring::{Log, Memory, Region};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A region: where the guest has it, where its front end does, where it lies in the file, bytes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub guest: u64,
    pub user: u64,
    pub offset: u64,
    pub size: u64,
}

const fn place(guest: u64, user: u64, first: u64, pages: u64) -> Place {
    let page = PAGE as u64;
    Place { guest, user: user << 32, offset: first * page, size: pages * page }
}

/// Two that follow each other in the guest alone, one behind a hole, the first page of all, and
/// nearly the last.
pub const PLACES: [Place; 5] = [
    place(0x10000, 1, 0, 16),
    place(0x20000, 3, 16, 4),
    place(0x25000, 2, 20, 2),
    place(0, 4, 22, 1),
    place(0u64.wrapping_sub(0x2000), 9, 23, 1),
];
const PAGES: usize = 24;
/// Bytes of the file of a log, and pages that one byte stands for.
const LOG: usize = PAGE;
const OF_BYTE: u64 = 8;

/// A part of guest memory: where the guest has it, and where it is in the image.
pub type Piece = (u64, Range<usize>);

/// The memory.
pub struct Ram {
    file: File,
    image: Vec<u8>,
    /// The switch's side of it. Before the fences, as it goes first.
    pub memory: Memory,
    log: Option<(File, Vec<u8>)>,
    /// Bytes of the log: more than that is not marked.
    marks: u64,
    _fences: Vec<Fence>,
}

fn file(pages: usize) -> File {
    let file = memfd_create("ram", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, (pages * PAGE) as u64).expect("long");
    File::from(file)
}

impl Ram {
    /// With a log, where `marks` is more than none, of so many bytes.
    ///
    /// # Panics
    /// When it cannot be had.
    #[must_use]
    pub fn new(marks: u64) -> Self {
        let shared = file(PAGES);
        let image: Vec<u8> = (0..PAGES * PAGE).map(|at| (at ^ at >> 8) as u8 | 1).collect();
        shared.write_all_at(&image, 0).expect("written");
        let mut fences = Vec::new();
        let regions = PLACES.map(|Place { guest, user, offset, size }| {
            let map = || Region::new(&shared, offset, guest, size, user).expect("mapped");
            let (region, fence) = Fence::around(size as usize, map);
            fences.push(fence);
            Arc::new(region)
        });
        let log = (marks > 0).then(|| file(1));
        let mapped = log.as_ref().map(|file| {
            let map = || Log::new(file, 0, marks).expect("mapped");
            let (log, fence) = Fence::around(LOG, map);
            fences.push(fence);
            Arc::new(log)
        });
        let (memory, log) = (Memory::new(regions.into(), mapped), log.map(|f| (f, vec![0; LOG])));
        Self { file: shared, image, memory, log, marks, _fences: fences }
    }

    /// Where `len` bytes of the guest's lie, region by region. `None`: some are nowhere.
    #[must_use]
    pub fn find(&self, mut guest: u64, mut len: u64) -> Option<Vec<Piece>> {
        let mut all = Vec::new();
        while len > 0 {
            let holds = |one: &&Place| guest >= one.guest && guest - one.guest < one.size;
            let place = PLACES.iter().find(holds)?;
            let skip = guest - place.guest;
            let part = len.min(place.size - skip);
            let at = (place.offset + skip) as usize;
            all.push((guest, at..at + part as usize));
            (guest, len) = (guest + part, len - part);
        }
        Some(all)
    }

    /// The same where one region holds them all.
    #[must_use]
    pub fn find_whole(&self, guest: u64, len: u64) -> Option<Piece> {
        let mut all = self.find(guest, len)?;
        if all.len() == 1 { all.pop() } else { None }
    }

    /// Where `len` bytes lie that the front end has at `user`.
    #[must_use]
    pub fn find_user(&self, user: u64, len: u64) -> Option<Piece> {
        PLACES.iter().find_map(|place| {
            let skip = user.checked_sub(place.user)?;
            let fits = u128::from(skip) + u128::from(len) <= u128::from(place.size);
            let at = (place.offset + skip) as usize;
            fits.then(|| (place.guest + skip, at..at + len as usize))
        })
    }

    /// Bytes of the image.
    #[must_use]
    pub fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|n| self.image[at + n])
    }

    /// The same of pieces, in their order.
    #[must_use]
    pub fn all(&self, pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|(_, range)| self.image[range.clone()].iter().copied()).collect()
    }

    /// Two bytes as a number.
    #[must_use]
    pub fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    /// The guest writes.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
        self.file.write_all_at(bytes, at as u64).expect("written");
    }

    /// The switch is to write this.
    pub fn expect(&mut self, at: usize, bytes: &[u8]) {
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The switch is to mark so many bytes of the guest's.
    pub fn expect_mark(&mut self, guest: u64, len: u64) {
        let Some((_, log)) = self.log.as_mut().filter(|_| len > 0) else { return };
        let page = PAGE as u64;
        for page in guest / page..=(guest + (len - 1)) / page {
            if page / OF_BYTE < self.marks {
                log[(page / OF_BYTE) as usize] |= 1 << (page % OF_BYTE);
            }
        }
    }

    /// The switch has written what it was to write, and marked that.
    ///
    /// # Panics
    /// When it has not, or more.
    pub fn check(&self, after: &str) {
        let of = |file: &File, len: usize| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, 0).expect("read");
            bytes
        };
        let now = of(&self.file, self.image.len());
        if now != self.image {
            let at = now.iter().zip(&self.image).position(|(is, was)| is != was);
            panic!("{after}: byte {at:?} is not what it should be");
        }
        if let Some((file, log)) = &self.log {
            assert!(of(file, LOG) == *log, "{after}: the log is not what it should be");
        }
    }

    /// An address for `len` bytes: at an edge of a region, across one, or anywhere.
    pub fn address(bytes: &mut Bytes<'_>, len: u64) -> u64 {
        let place = PLACES[usize::from(bytes.byte()) % PLACES.len()];
        let end = place.guest.wrapping_add(place.size);
        let last = end.wrapping_sub(len);
        match bytes.byte() % 64 {
            0..24 => last,
            24 => last.wrapping_add(1),
            25 => last.wrapping_sub(1),
            26 => end,
            27 => end.wrapping_sub(1),
            28 => place.guest.wrapping_sub(1),
            29 => bytes.value(place.guest),
            30..36 => place.guest,
            _ => place.guest + bytes.below(place.size.saturating_sub(len).max(1)),
        }
    }
}
