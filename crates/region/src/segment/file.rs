//! What of a segment is asked of its file, beside the map: whether there is memory behind it, and
//! maps of another kind.

use super::{Segment, system};
use crate::device::Source;
use crate::open;
use crate::sys::{self, Fd};
use crate::{Error, Extent, PAGE};
use std::ffi::CStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

impl Segment {
    /// Allocates pages in the file through a fresh descriptor: for kernels without
    /// `MADV_POPULATE_WRITE`.
    pub(crate) fn allocate_in_file(&self, offset: u64, len: u64) -> Result<(), Error> {
        let (fd, stat) = open::open(&self.path).map_err(system("open segment file"))?;
        if (stat.st_dev, stat.st_ino) != self.file {
            // Another stands under its name by now.
            return Err(Error::Foreign);
        }
        sys::fallocate(fd.0, offset, len).map_err(system("reserve pages"))
    }

    /// Bytes of memory behind the file, as the kernel says, whoever touched them; [`u64::MAX`]
    /// where it does not say. Takes no memory from an allocator.
    #[must_use]
    pub fn bytes_taken(&self) -> u64 {
        self.blocks().map_or(u64::MAX, |blocks| blocks.saturating_mul(512))
    }

    fn blocks(&self) -> Option<u64> {
        u64::try_from(sys::fstat(self.named()?.0).ok()?.st_blocks).ok()
    }

    /// What stands under the segment's name now, not opened (O_PATH).
    fn named(&self) -> Option<Fd> {
        let mut name = [0; 1024];
        let path = self.path.as_os_str().as_bytes();
        name.get_mut(..path.len())?.copy_from_slice(path);
        let name = CStr::from_bytes_until_nul(&name).ok()?;
        sys::openat(libc::AT_FDCWD, name, libc::O_PATH, 0).map(Fd).ok()
    }

    /// Bytes of the `len` ones at `offset` for which there is no memory yet; all of them where the
    /// kernel does not say. Takes no memory from an allocator.
    ///
    /// Asks the file (lseek(2), SEEK_DATA) and not mincore(2): a service manager's filter lets the
    /// one through and may end a program for the other (systemd's `@system-service`).
    pub(crate) fn without_memory(&self, offset: u64, len: u64) -> u64 {
        self.opened_to_look()
            .map_or(len, |file| len - sys::data_within(file.0, offset, len).min(len))
    }

    /// The segment's own file, for reading; `None` where it is no longer to be had by its name.
    fn opened_to_look(&self) -> Option<Fd> {
        let named = self.named()?;
        let stat =
            sys::fstat(named.0).ok().filter(|stat| (stat.st_dev, stat.st_ino) == self.file)?;
        debug_assert_eq!(stat.st_mode & libc::S_IFMT, libc::S_IFREG);
        let mut again = [0_u8; 32];
        write!(again.as_mut_slice(), "/proc/self/fd/{}\0", named.0).ok()?;
        let again = CStr::from_bytes_until_nul(&again).ok()?;
        sys::openat(libc::AT_FDCWD, again, libc::O_RDONLY | libc::O_NONBLOCK, 0).map(Fd).ok()
    }

    /// Maps claimed pages once more, for reading only; `None` where the segment is no file of this
    /// kernel, or no longer to be had by its name.
    #[must_use]
    pub fn map_read_only(&self, extent: Extent) -> Option<sys::ReadOnly> {
        let len = u64::from(extent.pages) * PAGE;
        let may = self.source == Source::File && len > 0 && self.holds(extent.offset(), len);
        let file = may.then(|| self.opened_to_look()).flatten()?;
        sys::ReadOnly::map(file.0, extent.offset(), len as usize).ok()
    }

    /// Maps pages anew in their places, as copies of this process's own: what it writes there
    /// from here on is seen by nobody else. For a child of fork, whose parent goes on using them;
    /// it asks for no memory of its own. False where the segment is no file of this kernel, or no
    /// longer to be had by its name: then nothing has changed.
    #[must_use]
    pub fn keep_to_oneself(&self, extents: impl Iterator<Item = Extent>) -> bool {
        let file = (self.source == Source::File).then(|| self.opened_to_look()).flatten();
        let Some(file) = file else { return false };
        let held = extents.map(|extent| (extent.offset(), u64::from(extent.pages) * PAGE));
        held.filter(|&(at, len)| len > 0 && self.holds(at, len)).fold(true, |done, (at, len)| {
            // SAFETY: pages of this map, whose content stays what it was.
            let mapped =
                unsafe { sys::map_copy(self.base.add(at as usize), len as usize, file.0, at) };
            done && mapped.is_ok()
        })
    }
}
