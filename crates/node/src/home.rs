//! The directory of a user's tables and segments: which it is, and whether it is that user's alone.
//!
//! A table ([`crate::table`]) is trusted, so nobody else may be able to write it, or to put another
//! in its place. Directory and tables belong to the effective user and give no rights to anybody
//! else, whatever `GINNEL_DIR` says; links are not followed. Root is no exception: a table of
//! another user's is that user's to write, and a process of root's must not believe it.

use ginnel_region::{Error, sys};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the directory for the effective user's files: `GINNEL_DIR`, else in `/dev/shm`, else in
/// `XDG_RUNTIME_DIR`, else in `/tmp`.
#[must_use]
pub fn default_directory() -> PathBuf {
    std::env::var_os("GINNEL_DIR").map_or_else(own_directory, PathBuf::from)
}

/// Returns the effective user's directory where none is named.
#[must_use]
pub fn own_directory() -> PathBuf {
    let name = format!("ginnel-{}", sys::effective_ids().0);
    if Path::new("/dev/shm").is_dir() {
        return Path::new("/dev/shm").join(name);
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from).join(name)
}

/// Makes the directory where it is missing, and looks whether it is the effective user's alone.
///
/// # Errors
/// What is wrong with it, in words, and what to do.
pub fn make_directory(directory: &Path) -> Result<(), String> {
    match sys::mkdir(&c_path(directory)?, 0o700) {
        Ok(()) | Err(libc::EEXIST) => check_directory(directory),
        Err(errno) => Err(failed(directory, "make directory", errno)),
    }
}

/// Is the directory, which is there, the effective user's alone?
///
/// # Errors
/// As for [`make_directory`].
pub fn check_directory(directory: &Path) -> Result<(), String> {
    let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_NOFOLLOW;
    let fd = sys::openat(libc::AT_FDCWD, &c_path(directory)?, flags, 0);
    let fd = fd.map_err(|errno| failed(directory, "open directory", errno))?;
    let stat = sys::fstat(fd);
    sys::close(fd);
    let stat = stat.map_err(|errno| failed(directory, "look at directory", errno))?;
    let (me, shown, mode) = (sys::effective_ids().0, directory.display(), stat.st_mode & 0o7777);
    if stat.st_uid != me {
        let owner = stat.st_uid;
        return Err(format!(
            "{shown} belongs to user {owner}: set GINNEL_DIR to a directory of this user's ({me})"
        ));
    }
    if mode & 0o077 != 0 {
        return Err(format!(
            "{shown} has mode {mode:o} and must have none but its owner's rights: chmod 700 {shown}"
        ));
    }
    Ok(())
}

/// Is an open table a file of the effective user's that nobody else can write or read?
///
/// # Errors
/// [`Error::System`] with EPERM where it is not.
pub(crate) fn check_table(stat: &libc::stat) -> Result<(), Error> {
    let file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    if file && stat.st_uid == sys::effective_ids().0 && stat.st_mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::System {
        doing: "use a table that is not this user's alone (mode 600)",
        errno: libc::EPERM,
    })
}

fn c_path(directory: &Path) -> Result<CString, String> {
    CString::new(directory.as_os_str().as_bytes())
        .map_err(|_| failed(directory, "make directory", libc::EINVAL))
}

fn failed(directory: &Path, doing: &'static str, errno: i32) -> String {
    format!("{}: {}", directory.display(), Error::System { doing, errno })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::{PROCESS_TABLE, Processes};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("own");
        make_directory(&directory).expect("made");
        for mode in [0o710, 0o701, 0o750, 0o777, 0o702] {
            chmod(&directory, mode);
            let said = make_directory(&directory).expect_err("others have rights");
            assert!(said.contains("chmod 700"), "{said}");
        }
        chmod(&directory, 0o700);
        make_directory(&directory).expect("as it was");
        let link = place.path().join("link");
        symlink(&directory, &link).expect("made");
        assert!(make_directory(&link).expect_err("a link").contains("open directory"));
    }

    #[test]
    fn a_table_that_others_may_write_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join(PROCESS_TABLE);
        Processes::open_or_create(place.path()).expect("made");
        for mode in [0o660, 0o606, 0o644] {
            chmod(&path, mode);
            assert!(matches!(
                Processes::open_or_create(place.path()),
                Err(Error::System { errno: libc::EPERM, .. })
            ));
        }
        chmod(&path, 0o600);
        Processes::open_or_create(place.path()).expect("as it was");
        let link = tempfile::tempdir().expect("a directory");
        symlink(&path, link.path().join(PROCESS_TABLE)).expect("made");
        assert!(matches!(
            Processes::open_or_create(link.path()),
            Err(Error::System { errno: libc::ELOOP, .. })
        ));
    }
}
