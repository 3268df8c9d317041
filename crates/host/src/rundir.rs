//! The directory of the daemon's sockets and locks: nobody but the daemon's user and root may be
//! able to change what lies there.
//!
//! Whoever can write into it could put a link in a lock's place, hold the lock, or listen at a
//! socket's path in the daemon's stead. So the directory is looked at through a descriptor
//! (fstat(2), never by its name again), and so is each directory above it: somebody who may rename
//! one of those can put another in its place.

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, mkdirat, open,
    openat, statat,
};
use rustix::io::Errno;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Write permission of others than the owner.
const OTHERS_WRITE: u32 = 0o022;
/// In a directory that everybody may write into: only a file's owner may remove it.
const STICKY: u32 = 0o1000;
const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::RDONLY).union(OFlags::CLOEXEC);
const LOCK: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// The daemon's directory, found to be its own.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    directory: OwnedFd,
}

impl RunDir {
    /// Makes the directory where it is missing, and checks that it belongs to this user or root and
    /// is writable by nobody else.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn open(path: &Path) -> Result<Self> {
        let help = || {
            format!("{}: cannot be used; choose another directory with `run_dir`", path.display())
        };
        let parent = path.parent().with_context(help)?;
        DirBuilder::new().recursive(true).mode(0o755).create(parent).with_context(help)?;
        let path = without_links(path).with_context(help)?;
        let (above, name) = above(&path)?;
        let directory = make_directory(above.as_fd(), &name, &path)?;
        Ok(Self { path, directory })
    }

    /// Its path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory of a segment's sockets, or of the broker's; the same holds for it.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn make_segment(&self, name: &str) -> Result<()> {
        make_directory(self.directory.as_fd(), Path::new(name), &self.path.join(name)).map(drop)
    }

    /// Takes a lock: two daemons would take each other's sockets away, and two keepers likewise.
    /// Whoever could open the file could hold the lock, so nobody else may.
    ///
    /// # Errors
    /// If another has it, or the file is not this user's.
    pub fn lock(&self, name: &str) -> Result<OwnedFd> {
        let path = self.path.join(name);
        let help = || {
            format!(
                "{}: cannot be used as a lock; remove it, or choose another `run_dir`",
                path.display()
            )
        };
        let lock =
            openat(&self.directory, name, LOCK, Mode::from_raw_mode(0o600)).with_context(help)?;
        let stat = fstat(&lock)?;
        ensure!(
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && is_ours(&stat),
            help()
        );
        if let Err(errno) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            let mut text = [0; 16];
            let len = rustix::io::pread(&lock, &mut text, 0).unwrap_or(0);
            let pid = String::from_utf8_lossy(&text[..len]);
            let directory = self.path.display();
            bail!(
                "another ginneld (process {}) serves {directory}: stop it, or choose another `run_dir` ({errno})",
                pid.trim()
            );
        }
        // Releases before this one let everybody read it.
        fchmod(&lock, Mode::from_raw_mode(0o600)).with_context(help)?;
        rustix::fs::ftruncate(&lock, 0)?;
        rustix::io::pwrite(&lock, format!("{}\n", std::process::id()).as_bytes(), 0)?;
        Ok(lock)
    }
}

/// May a program of this user look for a daemon there? The directory belongs to this user or root,
/// or to one whom root gave a place where nobody else could have made one; and nobody else can
/// write into it.
#[must_use]
pub fn is_trusted(path: &Path) -> bool {
    let look = || -> Result<(Stat, Stat)> {
        let (above, name) = above(&without_links(path)?)?;
        Ok((fstat(&above)?, statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?))
    };
    look().is_ok_and(|(above, own)| {
        let directory = FileType::from_raw_mode(own.st_mode) == FileType::Directory;
        directory
            && own.st_mode & OTHERS_WRITE == 0
            && (is_ours(&own) || above.st_mode & OTHERS_WRITE == 0)
    })
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Follows the links in a path, once: those above it, which lie where nobody else can change them,
/// and a last one of this user's or root's.
fn without_links(path: &Path) -> Result<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("it is no directory for sockets")
    };
    let plain = parent.canonicalize()?.join(name);
    check_above(parent)?;
    let link = rustix::fs::lstat(&plain).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Symlink && is_ours(&stat)
    });
    Ok(if link { plain.canonicalize()? } else { plain })
}

/// The directory in which one without links lies, found to be safe, and the name there.
fn above(path: &Path) -> Result<(OwnedFd, PathBuf)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{}: no directory for sockets", path.display())
    };
    check_above(parent)?;
    let help =
        || format!("{}: cannot be used; choose another directory with `run_dir`", path.display());
    let above = open(parent, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .with_context(help)?;
    Ok((above, name.into()))
}

/// Can nobody else rename what lies below these directories?
fn check_above(path: &Path) -> Result<()> {
    for directory in path.ancestors() {
        let stat = rustix::fs::stat(directory).with_context(|| directory.display().to_string())?;
        let safe = stat.st_mode & OTHERS_WRITE == 0 || stat.st_mode & STICKY != 0;
        // Whose / is decides about everything anyhow; in a user namespace it may be nobody's.
        let safe = safe && (is_ours(&stat) || directory.parent().is_none());
        ensure!(
            safe,
            "{}: belongs to user {} and has mode {:o}, so others could put a directory of theirs in its place; choose another `run_dir`",
            directory.display(),
            stat.st_uid,
            stat.st_mode & 0o7777
        );
    }
    Ok(())
}

fn make_directory(above: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd> {
    let help =
        || format!("{}: cannot be used; choose another directory with `run_dir`", path.display());
    match mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno).with_context(help),
    }
    let directory = openat(&above, name, DIRECTORY, Mode::empty()).with_context(help)?;
    let stat = fstat(&directory)?;
    ensure!(
        is_ours(&stat) && stat.st_mode & OTHERS_WRITE == 0,
        "{}: belongs to user {} and has mode {:o}, but must be of ginneld's own user ({}) or root, and writable by nobody else; \
         correct that, or choose another directory with `run_dir`",
        path.display(),
        stat.st_uid,
        stat.st_mode & 0o7777,
        rustix::process::geteuid().as_raw()
    );
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("run");
        (directory, path)
    }

    #[test]
    fn a_directory_has_one_daemon() {
        let (_directory, path) = place();
        let first = RunDir::open(&path).expect("made");
        let held = first.lock("lock").expect("free");
        assert_eq!(
            fs::metadata(path.join("lock")).expect("there").mode() & 0o777,
            0o600,
            "nobody else can hold it"
        );
        let again = RunDir::open(&path).expect("there");
        let error = again.lock("lock").expect_err("taken").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        again.lock("lock").expect("free again");
    }

    #[test]
    fn a_directory_that_others_can_write_into_is_refused() {
        let (_directory, path) = place();
        fs::create_dir(&path).expect("made");
        for mode in [0o777, 0o775, 0o757, 0o1777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            let error = RunDir::open(&path).expect_err("refused").to_string();
            assert!(
                error.contains(&format!("mode {mode:o}")) && error.contains("run_dir"),
                "{error}"
            );
            assert!(!is_trusted(&path));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("set");
        RunDir::open(&path).expect("good");
        assert!(is_trusted(&path));
        fs::create_dir(path.join("t")).expect("made");
        fs::set_permissions(path.join("t"), Permissions::from_mode(0o777)).expect("set");
        RunDir::open(&path).expect("good").make_segment("t").expect_err("nor may a segment's be");
    }

    #[test]
    fn a_place_that_others_can_take_away_is_refused() {
        let (directory, path) = place();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).expect("set");
        let error = format!("{:#}", RunDir::open(&path).expect_err("refused"));
        assert!(error.contains("mode 777"), "{error}");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).expect("set");
        RunDir::open(&path).expect("as in /tmp: what is ours is nobody else's to remove");
    }

    #[test]
    fn another_users_directory_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (directory, path) = place();
        fs::create_dir(&path).expect("made");
        std::os::unix::fs::chown(&path, Some(65534), None).expect("given away");
        let error = RunDir::open(&path).expect_err("refused").to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
        assert!(
            is_trusted(&path),
            "root gave the daemon's user a place where nobody else could have made one"
        );
        fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).expect("set");
        assert!(!is_trusted(&path), "anybody may have made it there");
    }

    #[test]
    fn links_of_others_are_not_followed_and_none_to_a_lock() {
        let (directory, path) = place();
        let victim = directory.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        let run = RunDir::open(&path).expect("made");
        symlink(&victim, path.join("lock")).expect("made");
        run.lock("lock").expect_err("a link");
        assert_eq!(fs::read_to_string(&victim).expect("there"), "precious");
        let link = directory.path().join("link");
        symlink(&path, &link).expect("made");
        assert_eq!(
            RunDir::open(&link).expect("our own").path(),
            path.canonicalize().expect("there")
        );
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65534), None).expect("given away");
            RunDir::open(&link).expect_err("another's link");
            assert!(!is_trusted(&link));
        }
    }
}
