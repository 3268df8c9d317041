//! A table that the processes of one user map together: a file in the user's own directory
//! ([`crate::home`]), made whole under another name and then given its own.
//!
//! A table is trusted, unlike a segment: its readers believe each other as the threads of one
//! program do. So it is only used where nobody else can write it.

use crate::cgroup;
use crate::home::check_table;
use ginnel_region::{Error, may_make, sys};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Under a limit on memory below this no table is made: what tables and a segment begin with would
/// be a good part of it, bytes.
pub const LEAST_LIMIT: u64 = 32 << 20;

/// What a file must be to be such a table.
pub struct Kind {
    /// In words, for errors: "open process table".
    pub name: &'static str,
    /// The first eight bytes.
    pub magic: u64,
    /// The next eight. The file's name ends in it too, so that programs under another version go on
    /// beside ours.
    pub version: u32,
    /// Bytes of the file.
    pub size: usize,
    /// So many of them have memory behind them from the beginning on; the rest is claimed as it is
    /// needed ([`Table::make_real`]).
    pub at_first: usize,
}

/// A table in this process's memory. Gone from it when dropped.
pub struct Table {
    base: *mut u8,
    kind: &'static Kind,
    /// The file's path and what tells it from others: to open it anew.
    path: CString,
    identity: (u64, u64),
    writable: bool,
}

// SAFETY: whoever reads or writes the map does so by atomics; `base` never changes.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Drop for Table {
    /// Nobody has the memory any longer: a process that could not join is not to keep it.
    fn drop(&mut self) {
        // SAFETY: the map is this value's, and what borrows from it is gone.
        unsafe { sys::unmap(self.base, self.kind.size) };
    }
}

impl Table {
    /// Opens the effective user's own table at `path`, or makes it where there is none, to take
    /// part in it. One that is another's, or that others may write, is refused.
    ///
    /// # Errors
    /// As for a segment: a file of another version, foreign, no memory, or [`Error::Limited`] under
    /// a limit below [`LEAST_LIMIT`].
    pub fn open_or_create(path: &Path, kind: &'static Kind) -> Result<Self, Error> {
        let open = || Self::open_checked(path, kind, true, check_table);
        match open() {
            Err(Error::System { errno: libc::ENOENT, .. }) => {
                if cgroup::room(0).limit < LEAST_LIMIT {
                    return Err(Error::Limited);
                }
                match create(path, kind) {
                    Ok(()) | Err(Error::System { errno: libc::EEXIST, .. }) => {}
                    Err(error) => return Err(error),
                }
                open()
            }
            other => other,
        }
    }

    /// Opens a table that is there, to look on, or to ask its processes for something: root does so
    /// with other users' too.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: &Path, kind: &'static Kind, writable: bool) -> Result<Self, Error> {
        Self::open_checked(path, kind, writable, |_| Ok(()))
    }

    fn open_checked(
        path: &Path,
        kind: &'static Kind,
        writable: bool,
        check: impl FnOnce(&libc::stat) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let name = c_path(path, kind)?;
        let flags = libc::O_NONBLOCK
            | libc::O_NOFOLLOW
            | if writable { libc::O_RDWR } else { libc::O_RDONLY };
        let fd = sys::openat(libc::AT_FDCWD, &name, flags, 0)
            .map_err(|errno| system(kind.name, errno))?;
        let stat = sys::fstat(fd).map_err(|errno| system(kind.name, errno));
        let opened = stat.and_then(|stat| {
            check(&stat).and_then(|()| Self::map(fd, &stat, name, kind, writable))
        });
        sys::close(fd);
        opened
    }

    fn map(
        fd: i32,
        stat: &libc::stat,
        path: CString,
        kind: &'static Kind,
        writable: bool,
    ) -> Result<Self, Error> {
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        let mut head = [0u8; 16];
        let read = sys::read(fd, &mut head).map_err(|errno| system(kind.name, errno))?;
        if read != 16 || head[..8] != kind.magic.to_le_bytes() {
            return Err(Error::Foreign);
        }
        let theirs = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if theirs != kind.version {
            return Err(Error::Version { theirs, ours: kind.version });
        }
        if actual != kind.size as u64 {
            return Err(Error::Truncated { expected: kind.size as u64, actual });
        }
        let base =
            sys::map_shared(fd, kind.size, writable).map_err(|errno| system(kind.name, errno))?;
        Ok(Self { base, kind, path, identity: (stat.st_dev, stat.st_ino), writable })
    }

    /// Where the map begins.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// May this process write it?
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The addresses of the map.
    #[must_use]
    pub fn memory(&self) -> std::ops::Range<usize> {
        let base = self.base as usize;
        base..base + self.kind.size
    }

    /// Another open file of the table; `None` where it cannot be had, or another file stands in its
    /// place by now.
    pub fn reopen(&self, access: i32) -> Option<i32> {
        let fd = sys::openat(libc::AT_FDCWD, &self.path, access | libc::O_NONBLOCK, 0).ok()?;
        if sys::fstat(fd).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity) {
            return Some(fd);
        }
        sys::close(fd);
        None
    }

    /// Could this process open it anew, for reading and writing, under the same name?
    #[must_use]
    pub fn can_be_opened(&self) -> bool {
        self.reopen(libc::O_RDWR).inspect(|&fd| sys::close(fd)).is_some()
    }

    /// Gives the memory up: zeroes of this process's own stand in its place from here on.
    pub fn let_go(&self) {
        // SAFETY: the map is this value's. All of it are atomics, for which zeroes are valid.
        let _ = unsafe { sys::give_up(self.base, self.kind.size) };
    }

    /// Makes the page at `offset` real before anybody touches it: there may be no memory left for
    /// it.
    pub fn make_real(&self, offset: usize) -> bool {
        let page = offset & !4095;
        debug_assert!(page < self.kind.size && self.writable);
        // SAFETY: the page lies inside the map, which is writable for who claims what is in it.
        match unsafe { sys::populate(self.base.add(page), 4096) } {
            Err(libc::EINVAL) => {
                // Before Linux 5.14.
                let Some(fd) = self.reopen(libc::O_RDWR) else { return false };
                let done = sys::fallocate(fd, page as u64, 4096).is_ok();
                sys::close(fd);
                done
            }
            done => done.is_ok(),
        }
    }
}

fn create(path: &Path, kind: &Kind) -> Result<(), Error> {
    may_make(kind.size as u64)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{:x}.new", sys::random_u64()));
    let (draft, name) = (c_path(Path::new(&draft), kind)?, c_path(path, kind)?);
    let fd =
        sys::openat(libc::AT_FDCWD, &draft, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)
            .map_err(|errno| system(kind.name, errno))?;
    let made = sys::ftruncate(fd, kind.size as u64)
        .and_then(|()| sys::fallocate(fd, 0, kind.at_first as u64))
        .and_then(|()| {
            sys::write(
                fd,
                &[kind.magic.to_le_bytes(), u64::from(kind.version).to_le_bytes()].concat(),
            )
        })
        .and_then(|_| sys::link(&draft, &name));
    sys::close(fd);
    let _ = sys::unlinkat(libc::AT_FDCWD, &draft);
    made.map_err(|errno| system(kind.name, errno))
}

fn c_path(path: &Path, kind: &Kind) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| system(kind.name, libc::EINVAL))
}

fn system(doing: &'static str, errno: i32) -> Error {
    if errno == libc::ENOSPC { Error::NoMemory } else { Error::System { doing, errno } }
}
