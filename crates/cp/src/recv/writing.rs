//! One file as it is written: apart from what was there before, which it replaces when it is whole.
//!
//! | where | when | left behind by kill -9 |
//! |---|---|---|
//! | a file without a name (O_TMPFILE), which is linked when it is whole | where the file system has those | nothing; in the instant of replacing another, `.NAME.RANDOM.ginnel-tmp`, which is whole |
//! | `.NAME.RANDOM.ginnel-tmp` in the same directory | elsewhere | that file |
//! | `.NAME.ginnel-partial` | `--partial` | that file, from which the next copy goes on |
//! | the file itself | `--inplace` | a mixture |

use crate::names;
use crate::raw::{self, Bytes};
use crate::recv::place::replace;
use crate::tree::{self, Directory, Seen};
use crate::wire::Meta;
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
    // Opening a device may already do something to it.
    let is_file = |stat: &Stat| tree::kind(stat) == FileType::RegularFile;
    let no_file = || Error::other("it is no regular file; --inplace cannot write over it");
    if tree::stat_in(dir, name).is_ok_and(|stat| !is_file(&stat)) {
        return Err(no_file());
    }
    let file = tree::open_in(dir, name, OFlags::RDWR | OFlags::CREATE, mode & 0o777)?;
    let stat = rustix::fs::fstat(&file)?;
    if !is_file(&stat) {
        return Err(no_file());
    }
    Ok(file)
}

/// What is written over is to run as its old owner at no moment.
fn take_bits(file: &OwnedFd) -> Result<()> {
    let is = tree::meta(&rustix::fs::fstat(file)?).mode;
    if is & 0o6000 != 0 {
        rustix::fs::fchmod(file, Mode::from_raw_mode(is & 0o1777))?;
    }
    Ok(())
}

/// Is it an unfinished file of this user's alone?
fn is_own(stat: &Stat) -> bool {
    let mine = stat.st_uid == rustix::process::geteuid().as_raw();
    tree::kind(stat) == FileType::RegularFile && stat.st_nlink == 1 && mine
}

/// An unfinished file, or a new one. What is not this user's alone is neither gone on with nor
/// taken away: somebody may need it.
fn open_partial(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    let in_the_way = || {
        let shown = names::shown(name);
        Error::other(format!("{shown} is no unfinished copy of this user's; move it away"))
    };
    if tree::stat_in(dir, name).is_ok_and(|stat| !is_own(&stat)) {
        return Err(in_the_way());
    }
    let file = tree::open_in(dir, name, OFlags::RDWR | OFlags::CREATE, 0o600)?;
    if !is_own(&rustix::fs::fstat(&file)?) {
        return Err(in_the_way());
    }
    // Not every file system has locks.
    let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    if locked == Err(Errno::WOULDBLOCK) {
        return Err(Error::other("another copy of it is under way"));
    }
    // Whoever had the lock before may have finished it, and given it its name.
    let named = tree::stat_in(dir, name).ok().map(|stat| Seen::of(&stat));
    if named != Some(Seen::of(&rustix::fs::fstat(&file)?)) {
        return Err(Error::other("another copy of it has just ended; copy it again"));
    }
    Ok(file)
}

/// What there is of a file that was not finished: open for reading, and its bytes.
#[must_use]
pub fn find_partial(dir: &OwnedFd, name: &[u8]) -> Option<(OwnedFd, u64)> {
    let file = tree::open_in(dir, &partial_name(name), OFlags::RDONLY, 0).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    is_own(&stat).then(|| (file, tree::size(&stat)))
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
