//! Opening what is written to: a file without a name, one with a name for a moment, or one that was
//! not finished and is gone on with.

use super::{Place, partial_name, temporary_name};
use crate::names;
use crate::tree::{self, Seen};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// `None` where the file system has no such files, or there is no /proc to name them by.
pub(super) fn open_nowhere(dir: &OwnedFd, mode: u32) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    static NAMEABLE: OnceLock<bool> = OnceLock::new();
    let nameable = *NAMEABLE.get_or_init(|| std::path::Path::new("/proc/self/fd").exists());
    let mode = Mode::from_raw_mode(mode & 0o777);
    nameable.then(|| rustix::fs::openat(dir, c".", flags, mode).ok()).flatten()
}

pub(super) fn open_temporary(dir: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Place)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let temporary = temporary_name(name);
    let file = tree::open_in(dir, &temporary, flags, 0o600)?;
    Ok((file, Place::Temporary(temporary)))
}

pub(super) fn open_regular(dir: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd> {
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
pub(super) fn take_bits(file: &OwnedFd) -> Result<()> {
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
pub(super) fn open_partial(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
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
