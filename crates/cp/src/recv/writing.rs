//! One file as it is written: apart from what was there before, which it replaces when it is whole.
//!
//! | where | when | left behind by kill -9 |
//! |---|---|---|
//! | a file without a name (O_TMPFILE), which is linked when it is whole | where the file system has those | nothing; in the instant of replacing another, `.NAME.ginnel-new`, which is whole, and which the next copy takes away |
//! | `.NAME.RANDOM.ginnel-tmp` in the same directory | elsewhere | that file |
//! | `.NAME.ginnel-partial` | `--partial` | that file, from which the next copy goes on |
//! | the file itself | `--inplace` | a mixture |

use crate::link::Incoming;
use crate::names;
use crate::tree;
use crate::wire::Meta;
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name under which an unfinished file waits.
#[must_use]
pub fn partial_name(name: &[u8]) -> Vec<u8> {
    beside(name, b".ginnel-partial")
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
    dir: Rc<OwnedFd>,
    name: Vec<u8>,
    place: Place,
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
    /// Opens what is to be written. `from`: bytes that are there, where it goes on.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(dir: Rc<OwnedFd>, name: &[u8], how: How, from: u64, size: u64) -> Result<Self> {
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
        let mut old = 0;
        match place {
            Place::Partial(_) => rustix::fs::ftruncate(&file, from)?,
            Place::Itself => old = tree::size(&rustix::fs::fstat(&file)?),
            _ => {}
        }
        Ok(Self { file, dir, name: name.to_vec(), place, size, at: from, old, done: false })
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
    pub fn write(&mut self, incoming: &Incoming<'_>, at: u64, part: (u32, u32)) -> Result<bool> {
        let end = at.checked_add(part.1.into()).filter(|&end| at >= self.at && end <= self.size);
        let Some(end) = end else { return Ok(false) };
        self.make_hole(at)?;
        incoming.write_to(&self.file, at, part)?;
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

    /// Puts it in its place, under its name.
    ///
    /// # Errors
    /// The system's: then what was there before is there still.
    pub fn commit(mut self, fsync: bool) -> Result<()> {
        if fsync {
            rustix::fs::fsync(&self.file)?;
        }
        match &self.place {
            Place::Itself => {}
            Place::Temporary(temporary) | Place::Partial(temporary) => {
                rustix::fs::renameat(&*self.dir, temporary, &*self.dir, &self.name)?;
            }
            Place::Nowhere => self.link()?,
        }
        self.done = true;
        if fsync {
            rustix::fs::fsync(&*self.dir)?;
        }
        Ok(())
    }

    /// Names a file that has no name. Where something has its name, it needs another for a moment:
    /// one that is known, so that the next copy takes away what a process leaves that is killed then.
    /// Only whole files ever have it, so it does no harm that two copies take it from each other.
    fn link(&self) -> Result<()> {
        match self.link_as(&self.name) {
            Err(Errno::EXIST) => {}
            other => return Ok(other?),
        }
        let new = beside(&self.name, b".ginnel-new");
        let remove = || rustix::fs::unlinkat(&*self.dir, &new, AtFlags::empty());
        for tries in 0..16 {
            match self.link_as(&new) {
                Err(Errno::EXIST) => {
                    let _ = remove();
                    continue;
                }
                other => other?,
            }
            match rustix::fs::renameat(&*self.dir, &new, &*self.dir, &self.name) {
                // Another copy took it away, or gave it its name.
                Err(Errno::NOENT) => {}
                Ok(()) => {
                    // One file under both names keeps both (rename(2)).
                    let _ = (tries > 0).then(remove);
                    return Ok(());
                }
                Err(errno) => {
                    let _ = remove();
                    return Err(errno.into());
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    /// By the descriptor itself, where the kernel takes that (Linux 6.10, or the right to), else by its
    /// path in /proc, which is slower.
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

/// `None` where the file system has no such files, or there is no /proc to name them by.
fn open_nowhere(dir: &OwnedFd, mode: u32) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    static NAMEABLE: OnceLock<bool> = OnceLock::new();
    let nameable = *NAMEABLE.get_or_init(|| std::path::Path::new("/proc/self/fd").exists());
    let mode = Mode::from_raw_mode(mode & 0o777);
    nameable.then(|| rustix::fs::openat(dir, c".", flags, mode).ok()).flatten()
}

fn open_temporary(dir: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Place)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let temporary = temporary_name(name);
    let file = tree::open_in(dir, &temporary, flags, 0o600)?;
    Ok((file, Place::Temporary(temporary)))
}

fn open_regular(dir: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd> {
    let file = tree::open_in(dir, name, OFlags::RDWR | OFlags::CREATE, mode)?;
    let stat = rustix::fs::fstat(&file)?;
    if tree::kind(&stat) != FileType::RegularFile {
        return Err(Error::other("it is no regular file; --inplace cannot write over it"));
    }
    Ok(file)
}

/// An unfinished file, or a new one; one that is not this user's alone is not gone on with.
fn open_partial(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    let open = |flags| tree::open_in(dir, name, OFlags::RDWR | OFlags::CREATE | flags, 0o600);
    let own = |file: &OwnedFd| {
        rustix::fs::fstat(file).is_ok_and(|stat| {
            let mine = stat.st_uid == rustix::process::geteuid().as_raw();
            tree::kind(&stat) == FileType::RegularFile && stat.st_nlink == 1 && mine
        })
    };
    let file = match open(OFlags::empty()) {
        Ok(file) if own(&file) => file,
        _ => {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
            open(OFlags::EXCL)?
        }
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Error::other("another copy of it is under way")),
        _ => Ok(file),
    }
}

/// What there is of a file that was not finished: open for reading, and its bytes.
#[must_use]
pub fn find_partial(dir: &OwnedFd, name: &[u8]) -> Option<(OwnedFd, u64)> {
    let file = tree::open_in(dir, &partial_name(name), OFlags::RDONLY, 0).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let whole = tree::kind(&stat) == FileType::RegularFile && stat.st_nlink == 1;
    whole.then(|| (file, tree::size(&stat)))
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
