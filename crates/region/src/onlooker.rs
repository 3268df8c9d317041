//! A segment as one sees it who takes no part in it: the daemon that serves it, for its status
//! page.
//!
//! Nothing is mapped. All is copied by pread(2), so that no peer can raise a signal here (see
//! [`crate::PeerTable`]), and so that looking takes no memory where nobody has written yet, as a
//! load from a map would.

use crate::layout::{CARRIED, MEMBERS, MEMBERS_BYTES, NAMES_BYTES, OWNERS, tables_end};
use crate::names::{self, NAMES};
use crate::{Error, Owner, PAGE, Untrusted, sys};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Owner words that are copied at a time.
const BATCH: u32 = 8192;

/// A segment's memory, for looking only.
pub struct Onlooker<'a> {
    memory: BorrowedFd<'a>,
    size: u64,
}

impl<'a> Onlooker<'a> {
    /// Looks on at a segment of `size` bytes.
    #[must_use]
    pub fn new(memory: BorrowedFd<'a>, size: u64) -> Self {
        Self { memory, size }
    }

    /// Copies what lies at `offset`.
    ///
    /// # Errors
    /// [`Error::Truncated`] beyond the end, [`Error::System`].
    pub fn copy(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        let done = sys::pread(self.memory.as_raw_fd(), to, offset)
            .map_err(|errno| Error::System { doing: "look at a segment", errno })?;
        if done == to.len() {
            Ok(())
        } else {
            Err(Error::Truncated { expected: self.size, actual: offset + done as u64 })
        }
    }

    /// Bytes that connections carried which have ended ([`crate::Segment::add_carried`]).
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn carried(&self) -> Result<Untrusted<u64>, Error> {
        let mut bytes = [0; 8];
        self.copy(CARRIED, &mut bytes)?;
        Ok(Untrusted::new(u64::from_le_bytes(bytes)))
    }

    /// The member table.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn members(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; MEMBERS_BYTES as usize];
        self.copy(MEMBERS, &mut bytes)?;
        Ok(bytes)
    }

    /// How many named objects there are, and the bytes that each says it has for its users.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn objects(&self) -> Result<Vec<u64>, Error> {
        let at = tables_end(self.size) - NAMES_BYTES;
        let mut words = vec![0; NAMES as usize * 8];
        self.copy(at, &mut words)?;
        let mut sizes = Vec::new();
        for (index, word) in (0..NAMES).zip(words.as_chunks().0) {
            if names::is_object(u64::from_le_bytes(*word)) {
                let mut size = [0; 8];
                self.copy(at + names::size_at(index), &mut size)?;
                sizes.push(u64::from_le_bytes(size));
            }
        }
        Ok(sizes)
    }

    /// Calls `each` with every page that somebody owns, among the first `most` of the segment.
    /// True: these were all.
    ///
    /// # Errors
    /// As [`Self::copy`]; whatever `each` returns.
    pub fn owned(
        &self,
        most: u32,
        mut each: impl FnMut(u32, Owner) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let page = |bytes: u64| u32::try_from(bytes / PAGE).unwrap_or(u32::MAX);
        let (first, all) = (page(tables_end(self.size)), page(self.size));
        let end = first.saturating_add(most).min(all);
        let mut words = vec![0; BATCH as usize * 8];
        for batch in (first..end).step_by(BATCH as usize) {
            let words = &mut words[..BATCH.min(end - batch) as usize * 8];
            self.copy(OWNERS + u64::from(batch) * 8, words)?;
            for (page, word) in (batch..).zip(words.as_chunks().0) {
                if let Some(owner) = Owner::of(u64::from_le_bytes(*word)) {
                    each(page, owner)?;
                }
            }
        }
        Ok(end == all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Segment, Use};
    use std::os::fd::AsFd;

    #[test]
    fn what_is_owned_is_seen_and_nothing_is_taken_by_looking() {
        let path = std::env::temp_dir().join(format!("ginnel-onlooker-{:x}", sys::random_u64()));
        let segment = Segment::create(&path, &Config { size: 16 << 20, ..Config::default() })
            .expect("create");
        let file = std::fs::File::open(&path).expect("there");
        let taken = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("stat"));
        let looker = Onlooker::new(file.as_fd(), segment.len());
        let look = |most| {
            let mut seen = Vec::new();
            let all = looker.owned(most, |page, owner| {
                seen.push((page, owner.kind));
                Ok(())
            });
            (seen, all)
        };
        let before = taken();
        assert_eq!(look(u32::MAX), (vec![], Ok(true)));
        assert_eq!(taken(), before);
        let head = segment.claim_head(Owner::new(3, Use::Channel)).expect("room").page();
        segment
            .claim(2, Owner { kind: Use::Ring, tag: Some(head), ..Owner::new(3, Use::Channel) })
            .expect("room");
        assert_eq!(
            look(2),
            (vec![(head, Use::Channel), (head + 1, Use::Ring)], Ok(false)),
            "as far as is asked"
        );
        assert_eq!(look(u32::MAX).0.len(), 3);
        segment.add_carried(5);
        segment.add_carried(6);
        assert_eq!(looker.carried().expect("read").at_most(11), Ok(11));
        assert!(matches!(
            Onlooker::new(file.as_fd(), 32 << 20).copy(16 << 20, &mut [0; 8]),
            Err(Error::Truncated { .. })
        ));
        std::fs::remove_file(path).expect("remove");
    }
}
