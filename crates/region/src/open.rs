//! Opening what a segment's path names, and nothing else.
//!
//! Somebody else may own the path, or the directory that it lies in, and put a link to anything
//! there. To open a terminal, a tape or a watchdog does something already. So the file is looked at
//! first, through a descriptor that only names it (O_PATH), and then that same file is opened.

use crate::sys::{self, Fd};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use syscalls::Sysno;

/// Opens a segment's file, or the guest driver's device, without waiting.
///
/// # Errors
/// The `errno`; EINVAL for a file of any other kind.
pub fn open(path: &Path) -> sys::Result<(Fd, libc::stat)> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let named = Fd(sys::openat(libc::AT_FDCWD, &name, libc::O_PATH, 0)?);
    let seen = sys::fstat(named.0)?;
    let fits = match seen.st_mode & libc::S_IFMT {
        libc::S_IFREG => true,
        libc::S_IFCHR => is_driver(path, seen.st_rdev),
        _ => false,
    };
    if !fits {
        return Err(libc::EINVAL);
    }
    let flags = libc::O_RDWR | libc::O_NONBLOCK;
    let again = CString::new(format!("/proc/self/fd/{}", named.0)).map_err(|_| libc::EINVAL)?;
    // Without /proc (chroot) by its name once more.
    let by_name = |_| sys::openat(libc::AT_FDCWD, &name, flags, 0);
    let opened = Fd(sys::openat(libc::AT_FDCWD, &again, flags, 0).or_else(by_name)?);
    let stat = sys::fstat(opened.0)?;
    if (stat.st_dev, stat.st_ino) != (seen.st_dev, seen.st_ino) {
        return Err(libc::EINVAL);
    }
    Ok((opened, stat))
}

/// Is it the guest driver's device, which the kernel lists under its name?
fn is_driver(path: &Path, device: u64) -> bool {
    let listed = format!("/sys/dev/char/{}:{}", libc::major(device), libc::minor(device));
    let Ok(listed) = CString::new(listed) else { return false };
    match link(&listed) {
        Ok(target) => target
            .rsplit(|byte| *byte == b'/')
            .next()
            .is_some_and(|name| name.starts_with(b"ginnel")),
        // Without /sys: nobody but root gives names there.
        Err(_) => path.starts_with("/dev") && !path.starts_with("/dev/shm"),
    }
}

fn link(path: &CStr) -> sys::Result<Vec<u8>> {
    let mut target = vec![0u8; 4096];
    let arguments = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        target.as_mut_ptr() as usize,
        target.len(),
        0,
        0,
    ];
    // SAFETY: a terminated path, and a buffer that is writable for its length.
    let length = unsafe { sys::raw(Sysno::readlinkat, arguments) }?;
    target.truncate(length);
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_but_a_file_is_opened() {
        let place = std::env::temp_dir().join(format!("ginnel-open-{:x}", sys::random_u64()));
        std::fs::create_dir(&place).expect("made");
        let at = |name: &str| place.join(name);
        std::fs::write(at("file"), "a segment").expect("written");
        symlink(at("file"), at("link")).expect("made");
        for name in ["file", "link"] {
            assert_eq!(open(&at(name)).map(|(_, stat)| stat.st_size), Ok(9));
        }
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).expect("a path");
        sys::mkfifoat(libc::AT_FDCWD, &fifo, 0o600).expect("made");
        for (name, target) in
            [("terminal", "/dev/ptmx"), ("null", "/dev/null"), ("directory", "/tmp")]
        {
            symlink(target, at(name)).expect("made");
        }
        for name in ["fifo", "terminal", "null", "directory"] {
            assert_eq!(open(&at(name)).map(|_| ()), Err(libc::EINVAL), "{name}");
        }
        assert_eq!(open(&at("nothing")).map(|_| ()), Err(libc::ENOENT));
        std::fs::remove_dir_all(place).expect("removed");
    }
}
