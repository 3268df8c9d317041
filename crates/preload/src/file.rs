//! Reading a few numbers of a file, with no memory from an allocator.

use ginnel_region::sys;

/// A file with the part of it that was read last.
pub(super) struct File {
    pub(super) fd: i32,
    part: [u8; 1024],
    at: u64,
    len: usize,
}

impl File {
    pub(super) const fn new(fd: i32) -> Self {
        Self { fd, part: [0; 1024], at: 0, len: 0 }
    }

    /// The `len` bytes at `at`, no more than a kilobyte; `None` where the file ends before, or
    /// cannot be read.
    pub(super) fn bytes(&mut self, at: u64, len: usize) -> Option<&[u8]> {
        let inside = |part: &Self| {
            let start = usize::try_from(at.checked_sub(part.at)?).ok()?;
            let end = start.checked_add(len)?;
            (end <= part.len).then_some(start..end)
        };
        if inside(self).is_none() {
            (self.at, self.len) = (at, 0);
            self.len = sys::pread(self.fd, &mut self.part, at).unwrap_or(0);
        }
        let range = inside(self)?;
        self.part.get(range)
    }

    /// A little-endian number of `len` bytes.
    pub(super) fn number(&mut self, at: u64, len: usize) -> Option<u64> {
        Some(self.bytes(at, len)?.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    pub(super) fn holds(&mut self, at: u64, what: &[u8]) -> bool {
        self.bytes(at, what.len()) == Some(what)
    }
}
