//! One file as it is written: apart from what was there before, which it replaces when it is whole.
//!
//! | where | when | left behind by kill -9 |
//! |---|---|---|
//! | a file without a name (O_TMPFILE), which is linked when it is whole | where the file system has those | nothing; in the instant of replacing another, `.NAME.RANDOM.ginnel-tmp`, which is whole |
//! | `.NAME.RANDOM.ginnel-tmp` in the same directory | elsewhere | that file |
//! | `.NAME.ginnel-partial` | `--partial` | that file, from which the next copy goes on |
//! | the file itself | `--inplace` | a mixture |

mod open;

use crate::names;
use crate::raw::{self, Bytes};
use crate::recv::place::replace;
use crate::tree::{self, Directory, Seen};
use crate::wire::Meta;
pub use open::find_partial;
use open::{open_nowhere, open_partial, open_regular, open_temporary, take_bits};
use rustix::fs::{AtFlags, FallocateFlags};
use rustix::io::Errno;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name under which an unfinished file waits.
#[must_use]
pub fn partial_name(name: &[u8]) -> Vec<u8> {
    beside(name, names::PARTIAL)
}

/// A name that nobody else uses, for a moment.
#[must_use]
pub fn temporary_name(name: &[u8]) -> Vec<u8> {
    beside(name, format!(".{:08x}.ginnel-tmp", names::random() as u32).as_bytes())
}

/// A hidden name beside another one. Long ones are cut, and told apart by their hash.
fn beside(name: &[u8], end: &[u8]) -> Vec<u8> {
    if name.len() + end.len() < names::MOST_NAME {
        return [b".", name, end].concat();
    }
    let hash = blake3::hash(name).to_hex();
    [b".", &name[..name.len().min(200)], &hash.as_bytes()[..16], end].concat()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Without a name.
    Nowhere,
    /// Under a name that is removed if it is not finished.
    Temporary(Vec<u8>),
    /// Under a name that stays.
    Partial(Vec<u8>),
    /// Where it is to be.
    Itself,
}

/// A file that is being written.
pub struct Writing {
    file: OwnedFd,
    dir: Arc<Directory>,
    name: Vec<u8>,
    place: Place,
    /// What was there of it when it began.
    from: u64,
    size: u64,
    /// Everything before it was written, or is a hole.
    at: u64,
    /// It may hold something else from there on, which holes have to go over.
    old: u64,
    done: bool,
}

/// How a file is to be written.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Keep what is unfinished.
    pub partial: bool,
    /// Write over what is there.
    pub inplace: bool,
    /// Permissions of what is made.
    pub mode: u32,
}

impl Writing {
    /// Opens what is to be written. `seen`: what is there of it, where it goes on.
    ///
    /// # Errors
    /// The system's; and where what was there is not there as it was.
    pub fn begin(
        dir: Arc<Directory>,
        name: &[u8],
        how: How,
        seen: Option<Seen>,
        size: u64,
    ) -> Result<Self> {
        let (file, place) = if how.inplace {
            (open_regular(&dir, name, how.mode)?, Place::Itself)
        } else if how.partial {
            let partial = partial_name(name);
            (open_partial(&dir, &partial)?, Place::Partial(partial))
        } else {
            match open_nowhere(&dir, how.mode) {
                Some(file) => (file, Place::Nowhere),
                None => open_temporary(&dir, name)?,
            }
        };
        // Its first bytes were compared by name, and some time ago: another may have its name now.
        if seen.is_some_and(|seen| rustix::fs::fstat(&file).map(|is| Seen::of(&is)) != Ok(seen)) {
            return Err(Error::other("what there was of it has changed meanwhile; copy it again"));
        }
        let from = seen.map_or(0, |seen| seen.len);
        let name = name.to_vec();
        let is_new = matches!(place, Place::Nowhere | Place::Temporary(_));
        let mut new = Self { file, dir, name, place, from, size, at: from, old: 0, done: false };
        if !is_new {
            new.restart(from, size)?;
        }
        Ok(new)
    }

    /// It begins anew in the same file: behind what was there at first, or from nothing.
    ///
    /// # Errors
    /// The system's; and where `from` is neither.
    pub fn restart(&mut self, from: u64, size: u64) -> Result<()> {
        if from != 0 && from != self.from {
            return Err(Error::other("what there was of it is not there any more; copy it again"));
        }
        match self.place {
            Place::Itself => {
                take_bits(&self.file)?;
                self.old = tree::size(&rustix::fs::fstat(&self.file)?);
            }
            _ => rustix::fs::ftruncate(&self.file, from)?,
        }
        (self.from, self.at, self.size) = (from, from, size);
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Writes bytes of a message. False: they are not where they may be.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&mut self, bytes: Bytes<'_>, at: u64, part: (u32, u32)) -> Result<bool> {
        let end = at.checked_add(part.1.into()).filter(|&end| at >= self.at && end <= self.size);
        let Some(end) = end else { return Ok(false) };
        self.make_hole(at)?;
        raw::write_from(&self.file, at, bytes, part)?;
        self.at = end;
        Ok(true)
    }

    /// Nothing is to stand between what was written and `to`.
    fn make_hole(&self, to: u64) -> Result<()> {
        let len = to.min(self.old).saturating_sub(self.at);
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, self.at, len) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let zeros = [0; 64 << 10];
        let (mut at, end) = (self.at, self.at + len);
        while at < end {
            let part = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
            at += rustix::io::pwrite(&self.file, &zeros[..part], at)? as u64;
        }
        Ok(())
    }

    /// All was written: gives it its length.
    ///
    /// # Errors
    /// The system's.
    pub fn end(&mut self) -> Result<()> {
        self.make_hole(self.size)?;
        if self.at < self.size || self.old > self.size {
            rustix::fs::ftruncate(&self.file, self.size)?;
        }
        Ok(())
    }

    /// Its attributes now, and whether it is one that was just made.
    ///
    /// # Errors
    /// The system's.
    pub fn meta(&self) -> Result<Meta> {
        Ok(tree::meta(&rustix::fs::fstat(&self.file)?))
    }

    /// Has it no name yet?
    pub fn is_nowhere(&self) -> bool {
        self.place == Place::Nowhere
    }

    /// Gives a file without a name its own, if nothing has that. Says whether it did.
    ///
    /// # Errors
    /// The system's.
    pub fn commit_new(&mut self, fsync: bool) -> Result<bool> {
        self.settle(fsync)?;
        if let Err(errno) = self.link_as(&self.name) {
            return if errno == Errno::EXIST { Ok(false) } else { Err(errno.into()) };
        }
        self.done = true;
        if fsync {
            rustix::fs::fsync(&*self.dir)?;
        }
        Ok(true)
    }

    /// All that was written is there, as far as that is told.
    fn settle(&self, fsync: bool) -> Result<()> {
        if fsync {
            rustix::fs::fsync(&self.file)?;
        }
        // Some file systems (NFS, FUSE) tell only now that there was no room.
        if self.place == Place::Itself || self.dir.tells_at_close() {
            nix::unistd::close(self.file.try_clone()?)?;
        }
        Ok(())
    }

    /// Puts it in its place, under its name. `over`: also that of a directory; returned is the name
    /// that one has then, under which it is to be removed.
    ///
    /// # Errors
    /// The system's: then what was there before is there still.
    pub fn commit(mut self, fsync: bool, over: bool) -> Result<Option<Vec<u8>>> {
        self.settle(fsync)?;
        let mut aside = None;
        match &self.place {
            Place::Itself => {}
            Place::Temporary(own) | Place::Partial(own) => {
                aside = replace(&self.dir, own, &self.name, over)?;
            }
            Place::Nowhere => match self.link_as(&self.name) {
                // What is there can be replaced only by something that has a name.
                Err(Errno::EXIST) => {
                    let own = self.link_beside()?;
                    aside = replace(&self.dir, &own, &self.name, over).inspect_err(|_| {
                        let _ = rustix::fs::unlinkat(&*self.dir, &own, AtFlags::empty());
                    })?;
                }
                other => other?,
            },
        }
        self.done = true;
        if fsync {
            rustix::fs::fsync(&*self.dir)?;
        }
        Ok(aside)
    }

    /// Gives a file that has no name one that nobody has.
    fn link_beside(&self) -> Result<Vec<u8>> {
        for _ in 0..16 {
            let own = temporary_name(&self.name);
            match self.link_as(&own) {
                Err(Errno::EXIST) => {}
                other => return Ok(other.map(|()| own)?),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// By the descriptor itself, where the kernel takes that (Linux 6.10, or the right to), else by
    /// its path in /proc, which is slower.
    fn link_as(&self, name: &[u8]) -> rustix::io::Result<()> {
        static BY_PATH: AtomicBool = AtomicBool::new(false);
        if !BY_PATH.load(Ordering::Relaxed) {
            match rustix::fs::linkat(&self.file, c"", &*self.dir, name, AtFlags::EMPTY_PATH) {
                Err(Errno::NOENT) => BY_PATH.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, path, &*self.dir, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// It will not be finished: what was there before stays. `keep`: unless the user wants what
    /// there is of it.
    pub fn give_up(mut self, keep: bool) {
        if let (Place::Partial(name), false) = (&self.place, keep) {
            let _ = rustix::fs::unlinkat(&*self.dir, name, AtFlags::empty());
            self.done = true;
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let (Place::Temporary(name), false) = (&self.place, self.done) {
            let _ = rustix::fs::unlinkat(&*self.dir, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_others_are_short_enough_and_differ() {
        assert_eq!(partial_name(b"a"), b".a.ginnel-partial");
        for len in [230, 239, 240, 241, 255] {
            let (one, mut other) = (vec![b'x'; len], vec![b'x'; len]);
            other[len - 1] = b'y';
            let (one, other) = (partial_name(&one), partial_name(&other));
            assert!(one != other && one.len() <= names::MOST_NAME, "{len}: {}", one.len());
            assert!(temporary_name(&vec![b'x'; len]).len() <= names::MOST_NAME);
        }
    }
}
