//! How a segment comes to be: made whole or not at all, opened with suspicion, mapped.

use super::{Segment, system};
use crate::Error;
use crate::device::{self, Source};
use crate::header::{Config, Header, MAX_SIZE, MIN_SIZE};
use crate::layout::tables_end;
use crate::open;
use crate::sys::{self, Fd};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// First word of the memory that `ginneld` gives to those who may not join.
const REFUSAL: &[u8; 8] = b"GINNELNO";

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::System { doing: "segment path", errno: libc::EINVAL })
}

/// May this process make a file of `size` bytes? Asked before: the kernel answers with a signal.
///
/// # Errors
/// [`Error::FileLimit`].
pub fn may_make(size: u64) -> Result<(), Error> {
    let allowed = sys::file_size_limit();
    if size <= allowed { Ok(()) } else { Err(Error::FileLimit { needed: size, allowed }) }
}

impl Segment {
    /// Opens a segment, or makes it where there is none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open_or_create(path: &Path, config: &Config) -> Result<Self, Error> {
        match Self::open(path) {
            Err(Error::System { errno: libc::ENOENT, .. }) => match Self::create(path, config) {
                Err(Error::System { errno: libc::EEXIST, .. }) => Self::open(path),
                other => other,
            },
            other => other,
        }
    }

    /// Makes a new segment, whole or not at all: the file gets its name when it is complete.
    ///
    /// # Errors
    /// EEXIST (as [`Error::System`]) if the name is taken, [`Error::Size`], [`Error::NoMemory`].
    pub fn create(path: &Path, config: &Config) -> Result<Self, Error> {
        config.check()?;
        may_make(config.size)?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(OsStr::new(&format!(".{:x}.new", sys::random_u64())));
        let (draft, name) = (c_path(Path::new(&draft))?, c_path(path)?);
        let fd = sys::openat(
            libc::AT_FDCWD,
            &draft,
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
            config.mode,
        )
        .map(Fd)
        .map_err(system("create segment file"))?;
        let made = Self::fill(&fd, config)
            .and_then(|()| sys::link(&draft, &name).map_err(system("name segment file")));
        let _ = sys::unlinkat(libc::AT_FDCWD, &draft);
        made?;
        Self::open(path)
    }

    fn fill(fd: &Fd, config: &Config) -> Result<(), Error> {
        sys::ftruncate(fd.0, config.size).map_err(system("size segment file"))?;
        // Everything but the claimable pages is made real at once, so that no later touch can raise
        // SIGBUS.
        sys::fallocate(fd.0, 0, tables_end(config.size))
            .map_err(system("reserve segment tables"))?;
        let bytes = Header::new(config, 0).bytes();
        match sys::write(fd.0, &bytes) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(Error::NoMemory),
            Err(errno) => Err(system("write segment header")(errno)),
        }
    }

    /// Opens a segment that is there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (fd, stat) = open::open(path).map_err(|errno| match errno {
            libc::EINVAL => Error::Foreign,
            errno => system("open segment file")(errno),
        })?;
        if let Some((source, size)) = device::look(path, fd.0, &stat)? {
            return Self::open_memory(path, fd.0, source, size);
        }
        let mut bytes = [0u8; size_of::<Header>()];
        if sys::read(fd.0, &mut bytes).map_err(system("read segment header"))? != bytes.len() {
            return Err(Error::Foreign);
        }
        // SAFETY: `Header` is plain numbers: any bytes are a valid one.
        let header: Header = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        header.check(actual)?;
        let base = sys::map_shared(fd.0, actual as usize, true).map_err(system("map segment"))?;
        let own = stat.st_uid == sys::effective_ids().0 && stat.st_mode & 0o077 == 0;
        Ok(Self {
            own,
            file: (stat.st_dev, stat.st_ino),
            ..Self::mapped(path, base, header, Source::File)
        })
    }

    fn mapped(path: &Path, base: *mut u8, header: Header, source: Source) -> Self {
        let (len, id, features) = (header.size, header.id, header.features);
        Self { base, len, id, features, path: path.to_owned(), source, own: false, file: (0, 0) }
    }

    /// Maps memory that `ginneld` gave this process of the host: `path` is where it was asked. The
    /// descriptor is not needed afterwards.
    ///
    /// # Errors
    /// [`Error::Refused`] where it is what those get who may not join; [`Error::Unsealed`]; else as
    /// for a file.
    pub fn of_host(path: &Path, memory: i32, vectors: u16) -> Result<Self, Error> {
        let size =
            u64::try_from(sys::fstat(memory).map_err(system("look at ginneld's memory"))?.st_size)
                .unwrap_or(0);
        let mut word = [0; 8];
        if sys::pread(memory, &mut word, 0) == Ok(word.len()) && word == *REFUSAL {
            return Err(Error::Refused);
        }
        // Somebody who could cut it short would end this process with SIGBUS.
        let seals = sys::fcntl(memory, libc::F_GET_SEALS, 0).unwrap_or(0);
        if seals & libc::F_SEAL_SHRINK as usize == 0 {
            return Err(Error::Unsealed);
        }
        Self::open_memory(path, memory, Source::Host { vectors }, size)
    }

    /// Makes the memory of a pair of processes in an empty file that has no name (memfd_create(2)).
    /// The caller seals it. Nothing but the header page is taken: the rest is there once one of the
    /// pair touches it, and counts as that process's.
    ///
    /// # Errors
    /// As for [`Self::format`].
    pub fn format_pair(memory: BorrowedFd<'_>, size: u64) -> Result<(), Error> {
        let config = Config { size, tokens_only: true, ..Config::default() };
        config.check()?;
        sys::ftruncate(memory.as_raw_fd(), size).map_err(system("size a pair's memory"))?;
        let bytes = Header::new(&config, 0).bytes();
        match sys::write(memory.as_raw_fd(), &bytes) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(Error::NoMemory),
            Err(errno) => Err(system("write a pair's header")(errno)),
        }
    }

    /// Maps memory that the broker gave this process and one other. The descriptor is not needed
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Unsealed`]; else as for a file.
    pub fn of_pair(memory: i32) -> Result<Self, Error> {
        let size =
            u64::try_from(sys::fstat(memory).map_err(system("look at a pair's memory"))?.st_size)
                .unwrap_or(0);
        // Somebody who could cut it short would end this process with SIGBUS.
        let seals = sys::fcntl(memory, libc::F_GET_SEALS, 0).unwrap_or(0);
        if seals & libc::F_SEAL_SHRINK as usize == 0 {
            return Err(Error::Unsealed);
        }
        Self::open_memory(Path::new(""), memory, Source::Pair, size)
    }

    /// Opens memory that is shared with other kernels. Its header can be read only where it is
    /// mapped.
    fn open_memory(path: &Path, fd: i32, source: Source, size: u64) -> Result<Self, Error> {
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) {
            return Err(Error::Foreign);
        }
        let base = sys::map_shared(fd, size as usize, true).map_err(system("map segment"))?;
        // SAFETY: inside the map, aligned; atomics may be shared with anybody who uses the same
        // memory.
        let word = |i: usize| unsafe { &*base.cast::<AtomicU64>().add(i) }.load(Relaxed);
        let versions = word(1).to_le_bytes();
        let half = |at: usize| {
            u32::from_le_bytes([versions[at], versions[at + 1], versions[at + 2], versions[at + 3]])
        };
        let header = Header {
            magic: word(0),
            version: half(0),
            header_len: half(4),
            size: word(2),
            features: word(3),
            id: word(4),
        };
        match header.check(size) {
            Ok(()) => Ok(Self::mapped(path, base, header, source)),
            Err(error) => {
                // SAFETY: nobody has got to know the map.
                unsafe { sys::unmap(base, size as usize) };
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// A segment that an older Ginnel made, or a newer one, is refused with both numbers.
    #[test]
    fn another_layout_is_refused_with_both_versions() {
        let path = std::env::temp_dir().join(format!("ginnel-version-{:x}", sys::random_u64()));
        let config = Config { size: MIN_SIZE, ..Config::default() };
        Segment::create(&path, &config).expect("create").close();
        let file = std::fs::File::options().write(true).open(&path).expect("own file");
        for theirs in [2, 4] {
            file.write_all_at(&u32::to_le_bytes(theirs), 8).expect("memory");
            let error = Segment::open_or_create(&path, &config).err().expect("refused");
            assert_eq!(error, Error::Version { theirs, ours: 3 });
            assert!(
                error
                    .to_string()
                    .contains(&format!("layout version {theirs}, this Ginnel speaks 3"))
            );
        }
        std::fs::remove_file(path).expect("remove");
    }
}
