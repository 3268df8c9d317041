//! The table of peers: which virtual machines are attached to a segment, in the words of the daemon
//! that serves it.
//!
//! It lies in the header page, from [`TABLE`] on, and is there where a daemon made the segment. All
//! of it is a hint: every peer can write there. Whoever believes a wrong word looks in vain, or
//! later than it could have, and nothing worse.
//!
//! | word | content |
//! |---|---|
//! | 0 | bits 0–15: ids of virtual machines (1 … so many; 0 is the host); bits 16–31: vectors of each peer |
//! | 1 + id | bit 0: attached; bits 1–63: how often a peer with this id has joined |

use crate::header::{FEATURE_PEERS, Header};
use crate::layout::{TABLE, tables_end};
use crate::segment::system;
use crate::{Config, Error, PAGE, Segment, sys};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;

/// The largest peer id that has a word.
pub const MAX_PEER: u16 = 254;

const _: () = assert!(TABLE + 8 * (2 + MAX_PEER as u64) <= PAGE);

/// What is said of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Presence {
    /// Attached now?
    pub attached: bool,
    /// How often a peer with this id has joined: another number means another life. 63 bits.
    pub generation: u64,
}

impl Presence {
    fn word(self) -> u64 {
        self.generation << 1 | u64::from(self.attached)
    }

    fn of(word: u64) -> Self {
        Self { attached: word & 1 != 0, generation: word >> 1 }
    }
}

/// How many peers and vectors there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Virtual machines have the ids 1 … `machines`; 0 is the host.
    pub machines: u16,
    /// Vectors of each peer.
    pub vectors: u16,
}

/// The table as the daemon sees it, which maps nothing else of the segment.
///
/// Its memory is touched only by system calls that fail where a plain access would raise SIGBUS:
/// whoever has the descriptor can punch a hole into memory of huge pages when no others are left.
pub struct PeerTable {
    base: *mut u8,
    len: usize,
}

// SAFETY: shared memory that is only copied from and to, by the kernel.
unsafe impl Send for PeerTable {}

impl PeerTable {
    /// Maps the header page of a segment's memory.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn map(memory: BorrowedFd<'_>) -> Result<Self, Error> {
        let failed = |errno| Error::System { doing: "map the table of peers", errno };
        let block = sys::fstat(memory.as_raw_fd()).map_err(failed)?.st_blksize;
        // A map of huge pages has whole ones: their size is the file's block size.
        let len = usize::try_from(block).unwrap_or(0).max(PAGE as usize);
        Ok(Self { base: sys::map_shared(memory.as_raw_fd(), len, true).map_err(failed)?, len })
    }

    /// Copies bytes to `offset`.
    ///
    /// # Errors
    /// [`Error::NoMemory`] where there is no page behind it.
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        assert!(offset as usize + bytes.len() <= self.len, "inside the header page");
        // SAFETY: inside the map, as was just checked.
        unsafe { sys::copy_in(self.base.add(offset as usize), bytes) }.map_err(|_| Error::NoMemory)
    }

    fn get(&self, offset: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        // SAFETY: `TABLE` and `MAX_PEER` keep every offset used here inside the page.
        unsafe { sys::copy_out(self.base.add(offset as usize), &mut bytes) }.ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Says how many peers and vectors there are.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn set_geometry(&self, geometry: Geometry) -> Result<(), Error> {
        self.put(
            TABLE,
            &(u64::from(geometry.machines) | u64::from(geometry.vectors) << 16).to_le_bytes(),
        )
    }

    /// Says that a peer is attached, or not.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Size`] for an id above [`MAX_PEER`].
    pub fn set(&self, peer: u16, presence: Presence) -> Result<(), Error> {
        if peer > MAX_PEER {
            Err(Error::Size(peer.into()))
        } else {
            self.put(place(peer), &presence.word().to_le_bytes())
        }
    }

    /// What is said of a peer: a hint.
    #[must_use]
    pub fn presence(&self, peer: u16) -> Presence {
        self.get(place(peer.min(MAX_PEER))).map(Presence::of).unwrap_or_default()
    }
}

impl Drop for PeerTable {
    fn drop(&mut self) {
        // SAFETY: the map is this value's own, and whole pages.
        unsafe { sys::unmap(self.base, self.len) };
    }
}

fn place(peer: u16) -> u64 {
    TABLE + 8 * (1 + u64::from(peer))
}

impl Segment {
    /// Makes a segment in an empty file that has no name (memfd_create(2)), of small or huge pages,
    /// which nobody else has yet. The caller seals it. `mode` of the configuration is of no
    /// account.
    ///
    /// # Errors
    /// [`Error::Size`], [`Error::NoMemory`], [`Error::System`].
    pub fn format(memory: BorrowedFd<'_>, config: &Config) -> Result<(), Error> {
        config.check()?;
        sys::ftruncate(memory.as_raw_fd(), config.size).map_err(system("size segment memory"))?;
        sys::fallocate(memory.as_raw_fd(), 0, tables_end(config.size))
            .map_err(system("reserve segment tables"))?;
        PeerTable::map(memory)?.put(0, &Header::new(config, FEATURE_PEERS).bytes())
    }

    /// How many peers and vectors the daemon says there are; `None` where no daemon made this
    /// segment, or the words make no sense.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        let word = self.word(TABLE).load(Relaxed);
        let geometry =
            Geometry { machines: (word & 0xffff) as u16, vectors: (word >> 16 & 0xffff) as u16 };
        (self.kept_by_daemon()
            && geometry.machines <= MAX_PEER
            && (1..=256).contains(&geometry.vectors))
        .then_some(geometry)
    }

    /// What the daemon says of a peer: a hint.
    #[must_use]
    pub fn presence(&self, peer: u16) -> Presence {
        if peer > MAX_PEER {
            Presence::default()
        } else {
            Presence::of(self.word(place(peer)).load(Relaxed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    fn memory() -> OwnedFd {
        // SAFETY: the name is a terminated string; a new descriptor is owned by nobody else.
        unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"peers".as_ptr(), libc::MFD_CLOEXEC)) }
    }

    #[test]
    fn a_segment_in_a_memfd_says_who_is_attached() {
        let memory = memory();
        Segment::format(memory.as_fd(), &Config { size: 16 << 20, ..Config::default() })
            .expect("formatted");
        let table = PeerTable::map(memory.as_fd()).expect("mapped");
        let geometry = Geometry { machines: 8, vectors: 4 };
        table.set_geometry(geometry).expect("written");
        for peer in [0, 1, MAX_PEER] {
            table
                .set(peer, Presence { attached: true, generation: u64::from(peer) + 7 })
                .expect("written");
        }
        let segment = Segment::open(format!("/proc/self/fd/{}", memory.as_raw_fd()).as_ref())
            .expect("opened");
        assert_eq!(segment.geometry(), Some(geometry));
        assert_eq!(segment.presence(MAX_PEER), Presence { attached: true, generation: 261 });
        assert_eq!(segment.presence(2), Presence::default());
        assert_eq!(table.presence(1), segment.presence(1));
        assert_eq!(table.set(MAX_PEER + 1, Presence::default()), Err(Error::Size(255)));
        assert!(
            segment.claim(3, crate::Owner::new(0, crate::Use::Ring)).is_ok(),
            "pages can be claimed as in any other"
        );
    }

    #[test]
    fn a_segment_without_a_daemon_has_no_geometry() {
        let path = std::env::temp_dir().join(format!("ginnel-ivshmems-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() })
            .expect("created");
        assert_eq!(segment.geometry(), None);
        std::fs::remove_file(path).expect("remove");
    }

    /// What a hostile holder of the memory can do on a host that is out of huge pages, shown with a
    /// file that ends too early.
    #[test]
    fn memory_that_is_gone_is_an_error_and_no_signal() {
        let memory = memory();
        let table = PeerTable::map(memory.as_fd()).expect("mapped");
        assert_eq!(
            table.set(1, Presence::default()),
            Err(Error::NoMemory),
            "no page behind the map"
        );
        assert_eq!(table.presence(1), Presence::default());
    }
}
