//! A segment's file in the hands of somebody who means harm: words of it by what they are, as the
//! tests write them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Stand, build};

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Bytes of header, rendezvous and members, behind which the owner words lie.
const OWNERS: u64 = PAGE + (2 << 20) + (64 << 10);
/// Bytes of the segments that [`Spoiler::small`] makes.
pub const SMALL: u64 = 16 << 20;
const USED: u64 = 1 << 62;

/// An open segment.
pub struct Spoiler {
    file: File,
    path: PathBuf,
    size: u64,
}

impl Spoiler {
    /// The default segment of a stand, made anew and small.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn small(stand: &Stand) -> Self {
        let made = Command::new(build::ginnel())
            .args(["segment", "create", "default", "--size", "16M"])
            .env("GINNEL_DIR", stand.dir())
            .output()
            .expect("ginnel runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self::open(&stand.dir().join("default"))
    }

    /// A segment that is there.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let size = file.metadata().expect("an open file has a length").len();
        Self { file, path: path.to_owned(), size }
    }

    /// The segment's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The word at `at`.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).unwrap_or_else(|e| panic!("{at:#x}: {e}"));
        u64::from_ne_bytes(bytes)
    }

    /// Overwrites the word at `at`.
    ///
    /// # Panics
    /// When there is none.
    pub fn put(&self, at: u64, value: u64) {
        self.file.write_all_at(&value.to_ne_bytes(), at).unwrap_or_else(|e| panic!("{at:#x}: {e}"));
    }

    fn pages(&self, kind: u64) -> impl Iterator<Item = u64> + '_ {
        (0..self.size / PAGE).filter(move |page| {
            let owner = self.word(OWNERS + page * 8);
            owner & USED != 0 && owner >> 57 & 15 == kind
        })
    }

    /// Offset of the only channel.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[must_use]
    pub fn channel(&self) -> u64 {
        let found = self.channels();
        assert_eq!(found.len(), 1, "channels: {found:?}");
        found[0]
    }

    /// Offsets of all channels.
    #[must_use]
    pub fn channels(&self) -> Vec<u64> {
        self.pages(1).map(|page| page * PAGE).collect()
    }

    /// Offsets of the pages of rings.
    #[must_use]
    pub fn rings(&self) -> Vec<u64> {
        self.pages(2).map(|page| page * PAGE).collect()
    }

    /// Offsets of the pages of waiters.
    #[must_use]
    pub fn waiters(&self) -> Vec<u64> {
        self.pages(3).map(|page| page * PAGE).collect()
    }

    /// Takes all pages but the last `left`: what is claimed from now on lies at the very end of the
    /// segment.
    pub fn take_all_but(&self, left: u64) {
        let first = (OWNERS + self.size / PAGE * 8).div_ceil(PAGE);
        for page in first..self.size / PAGE - left {
            self.put(OWNERS + page * 8, USED | 2 << 57 | 0x3fff << 28 | page);
        }
    }
}
