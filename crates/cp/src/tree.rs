//! Files below one directory, which no path leaves.
//!
//! Directories are opened from the root on, with openat2(2): RESOLVE_BENEATH (nothing above the
//! root, whatever symbolic links say and whoever swaps them meanwhile) and RESOLVE_NO_MAGICLINKS.
//! Within what is copied no link is followed at all (RESOLVE_NO_SYMLINKS). A file is then reached
//! by its one name in its open directory, never following a link. Where the kernel has no openat2
//! (before 5.6), or a sandbox forbids it, nothing is opened.

use crate::names;
use crate::wire::Meta;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::io::{Error, Result};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Open directories that are kept.
const KEPT: usize = 4;
/// How often a path is looked up again, which others rename meanwhile.
const TRIES: u32 = 64;
/// Longer than a tick of the kernel's clock for files.
const TICK: Duration = Duration::from_millis(12);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Neither waits for a FIFO's other end, nor takes a terminal.
const CALM: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens what lies below `root`. Links are followed as long as they stay below.
///
/// # Errors
/// The system's; EXDEV where the path leads out.
pub fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    resolve(root, path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
}

fn resolve(root: impl AsFd, path: &[u8], flags: OFlags, how: ResolveFlags) -> Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            // Something was renamed on the way: the kernel could not tell whether it stayed below.
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            Err(Errno::INTR) => {}
            other => return other.map_err(Error::from),
        }
    }
}

/// What the system says of `path` being outside of what is offered.
#[must_use]
pub fn leads_out(error: &Error) -> bool {
    error.raw_os_error() == Some(libc::EXDEV)
}

/// What fstatfs(2) says of file systems whose close(2) never fails: tmpfs, ext2 to ext4, XFS and
/// btrfs have no `flush` (Linux, include/linux/fs.h).
const SILENT_AT_CLOSE: [u64; 4] = [0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e];

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// Does its file system tell at the close of a file that there was no room?
    tells_at_close: OnceLock<bool>,
}

impl Directory {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, tells_at_close: OnceLock::new() }
    }

    /// May closing one of its files fail, since that was not written before?
    #[must_use]
    pub fn tells_at_close(&self) -> bool {
        *self.tells_at_close.get_or_init(|| {
            let of = rustix::fs::fstatfs(&self.fd).ok().map(|found| found.f_type);
            of.is_none_or(|of| !u64::try_from(of).is_ok_and(|of| SILENT_AT_CLOSE.contains(&of)))
        })
    }
}

impl Deref for Directory {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A directory, and paths below it.
pub struct Tree {
    root: OwnedFd,
    kept: RefCell<Vec<(Vec<u8>, Arc<Directory>)>>,
}

impl Tree {
    /// Below this directory, which may have been opened as a path only.
    #[must_use]
    pub fn new(root: OwnedFd) -> Self {
        Self { root, kept: RefCell::default() }
    }

    /// An open directory of it; no link is followed on the way.
    ///
    /// # Errors
    /// The system's.
    pub fn dir(&self, path: &[u8]) -> Result<Arc<Directory>> {
        let mut kept = self.kept.borrow_mut();
        if let Some(at) = kept.iter().position(|(its, _)| its == path) {
            // The one that was used last comes last.
            kept[at..].rotate_left(1);
            return Ok(Arc::clone(&kept[kept.len() - 1].1));
        }
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let fd = Arc::new(Directory::new(resolve(&self.root, path, DIRECTORY, how)?));
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((path.to_vec(), Arc::clone(&fd)));
        Ok(fd)
    }

    /// The directory that something lies in, and its name there.
    ///
    /// # Errors
    /// The system's.
    pub fn parent<'p>(&self, path: &'p [u8]) -> Result<(Arc<Directory>, &'p [u8])> {
        let (directory, name) = names::split(path);
        Ok((self.dir(directory)?, name))
    }

    /// A directory was removed or replaced: what is kept may be another.
    pub fn forget(&self) {
        self.kept.borrow_mut().clear();
    }

    /// What lies at a path; a link is looked at itself. `None`: nothing.
    ///
    /// # Errors
    /// The system's.
    pub fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        let found = if path.is_empty() {
            rustix::fs::statat(&self.root, c"", AtFlags::EMPTY_PATH).map_err(Error::from)
        } else {
            let look = |(dir, name): (Arc<Directory>, &[u8])| stat_in(&*dir, name);
            self.parent(path).and_then(look)
        };
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Does nothing lie there?
#[must_use]
pub fn is_missing(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

/// What a name in an open directory is.
///
/// # Errors
/// The system's.
pub fn stat_in(dir: impl AsFd, name: &[u8]) -> Result<Stat> {
    Ok(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Opens a name in an open directory, for what `flags` say; never a link, and never waiting.
///
/// # Errors
/// The system's.
pub fn open_in(dir: impl AsFd, name: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    Ok(rustix::fs::openat(dir, name, flags | CALM, mode)?)
}

/// All names of a directory but `.` and `..`, in order.
///
/// # Errors
/// The system's: then what was read before it.
pub fn list(dir: impl AsFd) -> (Vec<Vec<u8>>, Result<()>) {
    let mut found = Vec::new();
    let mut read = || -> Result<()> {
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found.push(name.to_vec());
            }
        }
        Ok(())
    };
    let done = read();
    found.sort_unstable();
    (found, done)
}

/// The kind of what was looked at.
#[must_use]
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Bytes of a file.
#[must_use]
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Its attributes.
#[must_use]
#[allow(clippy::unnecessary_cast, reason = "the types differ from one processor to another")]
pub fn meta(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode as u32 & 0o7777,
        mtime: stat.st_mtime as i64,
        nanos: stat.st_mtime_nsec as u32,
        uid: stat.st_uid as u32,
        gid: stat.st_gid as u32,
    }
}

/// When anything of it changed last: seconds and nanoseconds.
#[must_use]
#[allow(clippy::unnecessary_cast, reason = "the types differ from one processor to another")]
pub fn changed(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime as i64, stat.st_ctime_nsec as i64)
}

/// Which directory it is, among all of this kernel: told to a sender, which may meet it as a
/// source. `None` without /proc.
#[must_use]
#[allow(clippy::unnecessary_cast, reason = "the types differ from one processor to another")]
pub fn identity(stat: &Stat) -> Option<[u64; 3]> {
    static KERNEL: OnceLock<Option<u64>> = OnceLock::new();
    let kernel = (*KERNEL.get_or_init(|| {
        let id = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        blake3::hash(&id).as_bytes().first_chunk().map(|start| u64::from_le_bytes(*start))
    }))?;
    Some([kernel, stat.st_dev as u64, stat.st_ino as u64])
}

/// By which a file is known to be as it was: which it is, how long, and when it changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    file: (u64, u64),
    /// Bytes.
    pub len: u64,
    changed: (i64, i64),
}

impl Seen {
    /// Of what was looked at.
    #[must_use]
    #[allow(clippy::unnecessary_cast, reason = "the types differ from one processor to another")]
    pub fn of(stat: &Stat) -> Self {
        let file = (stat.st_dev as u64, stat.st_ino as u64);
        Self { file, len: size(stat), changed: changed(stat) }
    }
}

/// How long a file is left to rest that has just changed: the kernel's clock for files ticks every
/// few milliseconds, so a change in the same tick would not be seen.
#[must_use]
pub fn to_rest(stat: &Stat) -> Option<Duration> {
    let now = clock_gettime(ClockId::Realtime);
    let (seconds, nanos) = changed(stat);
    #[allow(clippy::useless_conversion, reason = "the types differ from one processor to another")]
    let ago = i128::from(now.tv_sec - seconds) * 1_000_000_000 + i128::from(now.tv_nsec)
        - i128::from(nanos);
    let tick = i128::try_from(TICK.as_nanos()).unwrap_or(0);
    (0..tick).contains(&ago).then_some(TICK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn opened(path: &std::path::Path) -> OwnedFd {
        fs::File::open(path).expect("there").into()
    }

    #[test]
    fn nothing_leads_out() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().join("root");
        fs::create_dir_all(root.join("in/deep")).expect("made");
        fs::write(place.path().join("secret"), "secret").expect("written");
        fs::write(root.join("in/file"), "file").expect("written");
        symlink("..", root.join("up")).expect("made");
        symlink("../../secret", root.join("in/climbs")).expect("made");
        symlink("/", root.join("absolute")).expect("made");
        symlink("in/deep", root.join("stays")).expect("made");
        symlink("/proc/self/root", root.join("magic")).expect("made");
        let fd = opened(&root);
        let open = |path: &str| open_beneath(&fd, path.as_bytes(), OFlags::RDONLY);
        for path in ["in/file", "stays", "stays/../file", "in/../in/file", ""] {
            assert!(open(path).is_ok(), "{path}");
        }
        let out = ["..", "../root/in/file", "up", "up/secret", "in/climbs", "absolute", "magic"];
        for path in out.into_iter().chain(["absolute/etc", "/etc", "in/../../secret"]) {
            let error = open(path).expect_err(path);
            assert!(leads_out(&error), "{path}: {error}");
        }
        let tree = Tree::new(opened(&root));
        assert!(tree.dir(b"in/deep").is_ok() && tree.dir(b"in/deep").is_ok());
        for path in ["stays", "up", "absolute", "in/file"] {
            assert!(
                tree.dir(path.as_bytes()).is_err(),
                "{path}: within a copy no link is followed"
            );
        }
        assert!(
            tree.stat(b"stays/x").is_err() && tree.stat(b"in/none").is_ok_and(|it| it.is_none())
        );
    }
}
