//! `SEGMENT.wake`: the directory of a segment's FIFOs, and of the lock files that show which
//! members live.

use crate::join;
use ginnel_region::sys::{self, Fd};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// In the directory of wake-ups of a segment of `ginneld`: a link to the socket, by which the
/// segment is found again.
pub(crate) const SOCKET: &CStr = c"socket";

/// The sockets of `ginneld` at which processes of this user have joined.
#[must_use]
pub fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_name().as_bytes().starts_with(b".ginneld-"));
    dirs.filter_map(|entry| {
        std::fs::read_link(entry.path().join(OsStr::from_bytes(SOCKET.to_bytes()))).ok()
    })
    .collect()
}

/// Shows that this ledger's processes live: a shared lock on the member's file, gone when the last
/// of them is (on the host, where `ginneld` serves the segment, on a byte of the memory). -1 where
/// it cannot be had.
pub(crate) fn lock_member(wake_dir: i32, mode: u32, member: u16) -> i32 {
    let Ok(name) = CString::new(format!("m{member}")) else { return -1 };
    let open = |flags| sys::openat(wake_dir, &name, flags | LOCK_FILE, 0o600);
    let made = || {
        open(libc::O_CREAT | libc::O_EXCL).inspect(|&fd| {
            let _ = sys::fchmod(fd, mode);
        })
    };
    let Ok(fd) = open(0).or_else(|_| made()).or_else(|_| open(0)) else { return -1 };
    let fd = sys::move_high(fd);
    // Whoever asks whether the member lives has the file to itself for a moment.
    for _ in 0..ASKERS {
        if sys::flock(fd, libc::LOCK_SH | libc::LOCK_NB).is_ok() {
            return fd;
        }
        sys::sleep_ms(1);
    }
    sys::close(fd);
    -1
}

/// How often a lock that somebody else has is tried for.
const ASKERS: u32 = 100;

/// Does a process show that `member` lives, by a lock on its file in the directory `dir`?
///
/// # Errors
/// The `errno` of opening the file; ENOENT where the member never had one.
pub fn member_is_shown(dir: i32, member: u16) -> sys::Result<bool> {
    let name = CString::new(format!("m{member}")).map_err(|_| libc::EINVAL)?;
    let file = Fd(sys::openat(dir, &name, LOCK_FILE, 0)?);
    let shown = sys::flock(file.0, libc::LOCK_EX | libc::LOCK_NB).is_err();
    // Here: a child that another thread forks meanwhile has the open file, and would keep the lock.
    let _ = sys::flock(file.0, libc::LOCK_UN);
    Ok(shown)
}

/// `SEGMENT.wake`: beside a file, and in `directory` for a device or `ginneld`'s socket, beside
/// which nothing can lie.
#[must_use]
pub fn wake_directory(directory: &Path, segment: &Path) -> PathBuf {
    if join::is_socket(segment) {
        // One name for each path. FNV-1a: nobody gains by two paths with one name.
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = segment.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, hash);
        return directory.join(format!(".ginneld-{hash:016x}.wake"));
    }
    let device = segment.starts_with("/dev") && !segment.starts_with("/dev/shm");
    if device || segment.starts_with("/sys") {
        // The memory of a PCI device, .../0000:01:00.0/resource2, is called after the device.
        let bar = segment.ends_with("resource2");
        let named = if bar { segment.parent().unwrap_or(segment) } else { segment };
        let mut name = named.file_name().unwrap_or(segment.as_os_str()).to_owned();
        name.push(".wake");
        return directory.join(name);
    }
    let mut name = segment.as_os_str().to_owned();
    name.push(".wake");
    name.into()
}

/// How a member's lock file is opened: anything may stand under its name where several users share
/// the directory.
const LOCK_FILE: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW;

/// Makes the directory of FIFOs where it is missing. Gives it with the permissions that files in it
/// are to have.
///
/// Who may use the segment may wake its users: the directory has the segment's permissions. In a
/// directory that nobody else can enter it is open to all: who has it there inherited it, and may
/// have become another user since (a server's workers, say).
pub(crate) fn open_wake_directory(directory: &Path, segment: &Path) -> Result<(i32, u32), i32> {
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let mode_of =
        |path: &Path| std::fs::metadata(path).map_or(0o600, |meta| meta.permissions().mode());
    let private = directory.parent().is_some_and(|parent| mode_of(parent) & 0o077 == 0);
    let mode = if private { 0o666 } else { mode_of(segment) & 0o666 };
    match sys::mkdir(&path, 0o700) {
        Ok(()) | Err(libc::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let fd = find_wake_directory(directory, segment).map(sys::move_high)?;
    // Who may read may enter. One user's files are not another's to remove, but for those who
    // inherited the directory.
    let sticky = if private { 0 } else { 0o1000 };
    let wanted = sticky | mode | (mode & 0o444) >> 2;
    // SAFETY: no arguments, cannot fail.
    let me = unsafe { libc::geteuid() };
    if sys::fstat(fd).is_ok_and(|stat| stat.st_uid == me && stat.st_mode & 0o7777 != wanted) {
        let _ = sys::fchmod(fd, wanted);
    }
    Ok((fd, mode))
}

/// Opens the directory of FIFOs, if it belongs to the segment's owner, to this user or to root.
/// Beside a segment in a directory that everybody may write into, anybody could have made it first,
/// to read the wake-ups away: without it, they go over TCP.
pub(crate) fn find_wake_directory(directory: &Path, segment: &Path) -> Result<i32, i32> {
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let fd = sys::openat(
        libc::AT_FDCWD,
        &path,
        libc::O_DIRECTORY | libc::O_RDONLY | libc::O_NOFOLLOW,
        0,
    )?;
    // SAFETY: no arguments, cannot fail.
    let me = unsafe { libc::geteuid() };
    let owner = sys::fstat(fd).map(|stat| stat.st_uid);
    let trusted = owner.is_ok_and(|uid| {
        uid == 0 || uid == me || std::fs::metadata(segment).is_ok_and(|meta| meta.uid() == uid)
    });
    if trusted {
        return Ok(fd);
    }
    sys::close(fd);
    Err(libc::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Another user's process asks all the time, and this one joins.
    #[test]
    fn whoever_asks_whether_a_member_lives_does_not_keep_it_from_showing_so() {
        let place = tempfile::tempdir().expect("a directory");
        let path = CString::new(place.path().as_os_str().as_bytes()).expect("a path");
        let open = || sys::openat(libc::AT_FDCWD, &path, libc::O_DIRECTORY | libc::O_RDONLY, 0);
        let (dir, done) = (Fd(open().expect("there")), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = member_is_shown(dir.0, 7);
                }
            });
            let shown = (0..2000).filter(|_| {
                let lock = lock_member(dir.0, 0o600, 7);
                let shown = lock >= 0;
                sys::close(lock);
                shown
            });
            let shown = shown.count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(shown, 2000);
        });
    }
}
