//! That something of a process lives: a lock on one byte of a file in the segment's directory of
//! wake-ups, which the kernel takes from a process that ends, however it ends. It tells across pid
//! namespaces, too.

pub mod forks;

use ginnel_region::PAGE;
use ginnel_region::sys::{self, Fd};
use std::ffi::CStr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// Opens the file `name` of locks in the directory `dir`, and makes it where it is missing. Who may
/// use the segment may ask who lives, also those whom it was opened to since.
///
/// # Errors
/// The `errno`.
pub fn open_lives(dir: i32, name: &CStr) -> sys::Result<Fd> {
    forks::heed();
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let open = |more| sys::openat(dir, name, flags | more, 0o600).map(Fd);
    let made = || open(libc::O_CREAT | libc::O_EXCL);
    let fd = open(0).or_else(|_| made()).or_else(|_| open(0))?;
    let mode = sys::fstat(dir).map_or(0o600, |stat| stat.st_mode & 0o444 | 0o600);
    let is_narrow =
        |stat: libc::stat| stat.st_uid == sys::effective_ids().0 && stat.st_mode & 0o777 != mode;
    if sys::fstat(fd.0).is_ok_and(is_narrow) {
        let _ = sys::fchmod(fd.0, mode);
    }
    Ok(fd)
}

/// A byte's lock, kept by a map of the file: a child of fork does not get it, and exec ends it.
#[derive(Debug)]
pub struct LifeLock {
    /// The map; null once it was given up.
    at: AtomicPtr<u8>,
}

impl LifeLock {
    /// Locks a byte of the file `name` in the directory `dir`, as [`open_lives`] opens it. A child
    /// that another thread forks meanwhile gets no part of it.
    ///
    /// # Errors
    /// The `errno`.
    pub fn new(dir: i32, name: &CStr, byte: u64) -> sys::Result<Self> {
        forks::without(|| {
            // Opened for this lock alone, and closed again: the map keeps what was opened.
            let fd = open_lives(dir, name)?;
            let at = sys::map_shared(fd.0, PAGE as usize, false)?;
            let lock = Self { at: AtomicPtr::new(at) };
            sys::keep_from_children(at, PAGE as usize)?;
            sys::share_byte(fd.0, byte)?;
            Ok(lock)
        })
    }

    /// Whether a child of fork gets it, too: then it lasts for as long as either.
    ///
    /// # Errors
    /// The `errno`.
    pub fn share(&self, with_children: bool) -> sys::Result<()> {
        let share = if with_children { sys::give_to_children } else { sys::keep_from_children };
        share(self.at.load(Relaxed), PAGE as usize)
    }

    /// Gives it up. In a child that got it: the child's part of it.
    pub fn give_up(&self) {
        let at = self.at.swap(std::ptr::null_mut(), Relaxed);
        if !at.is_null() {
            // SAFETY: nobody looks into the map, and nobody else has its address any more.
            unsafe { sys::unmap(at, PAGE as usize) };
        }
    }
}

impl Drop for LifeLock {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forks::tests::{beside_forks, is_alone};
    use std::os::fd::AsRawFd;

    const NAME: &CStr = c"lives";

    /// A lock that was given up is nobody's, however many children another thread has forked while
    /// it was made.
    #[test]
    fn what_is_forked_meanwhile_has_no_part_of_it() {
        if !is_alone("life::tests::what_is_forked_meanwhile_has_no_part_of_it") {
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let dir = std::fs::File::open(place.path()).expect("a directory");
        let dir = dir.as_raw_fd();
        let made = || drop(LifeLock::new(dir, NAME, 7).expect("a lock"));
        let held = beside_forks(made, || {
            let asked = open_lives(dir, NAME).expect("a file");
            sys::byte_is_shared(asked.0, 7)
        });
        assert_eq!(held, Ok(false), "a child has a part of its parent's life");
    }
}
