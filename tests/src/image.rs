//! A root directory with few files, as a container's image is one: a test says which programs are
//! in it, and they bring the libraries that they need, and no others.

use crate::{Stand, build, is_root, skip};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Before it is entered: `/proc`, and the stand's directory by its own name, are mounted for the
/// program alone.
const ENTER: &str = "set -e; root=$1 dir=$2; shift 2; mount -t proc proc \"$root/proc\"; \
    mkdir -p \"$root$dir\"; mount --bind \"$dir\" \"$root$dir\"; exec \"$@\"";

/// A root directory; it goes when this is dropped.
pub struct Image {
    root: tempfile::TempDir,
}

impl Image {
    /// An empty one but for `env`; `None`, after saying so, where this user may not enter it.
    ///
    /// # Panics
    /// When no file can be made.
    #[must_use]
    pub fn new(what: &str) -> Option<Self> {
        let image = Self::bare(what)?;
        image.add(Path::new("/usr/bin/env"));
        Some(image)
    }

    /// One without any file.
    ///
    /// # Panics
    /// When no directory can be made.
    #[must_use]
    pub fn bare(what: &str) -> Option<Self> {
        if !is_root() {
            skip(what, "chroot needs root");
            return None;
        }
        // Not in /dev/shm, where programs may be forbidden (noexec).
        let root = tempfile::tempdir_in(build::release_dir()).expect("a directory");
        for name in ["proc", "tmp"] {
            std::fs::DirBuilder::new()
                .mode(0o755)
                .create(root.path().join(name))
                .expect("a directory");
        }
        Some(Self { root })
    }

    /// One that has all that is in the directory `from`.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn like(what: &str, from: &Path) -> Option<Self> {
        let image = Self::bare(what)?;
        let copied = Command::new("cp")
            .arg("-a")
            .arg(from.join("."))
            .arg(image.root())
            .status()
            .expect("cp runs");
        assert!(copied.success(), "{} cannot be copied", from.display());
        Some(image)
    }

    /// Its root, as it is named outside of it.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Puts a program or library into it, by the path that it has outside, and all libraries that
    /// it is linked with.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn add(&self, program: &Path) {
        self.copy(program);
        let said =
            Command::new("ldd").arg(program).env_remove("LD_PRELOAD").output().expect("ldd runs");
        let said = String::from_utf8_lossy(&said.stdout);
        for library in said.split_whitespace().filter(|word| word.starts_with('/')) {
            self.copy(Path::new(library));
        }
    }

    /// Puts the file there alone.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn copy(&self, file: &Path) {
        let at = self.within(file);
        if at.symlink_metadata().is_ok() {
            return;
        }
        std::fs::create_dir_all(at.parent().expect("a file lies in a directory"))
            .expect("a directory");
        build::copy_program(file, &at);
    }

    /// The name, outside of it, of the file that is called `path` in it.
    #[must_use]
    pub fn within(&self, path: &Path) -> PathBuf {
        self.root().join(path.strip_prefix("/").expect("an absolute path"))
    }

    /// A command that runs `program`, which is in it, as the stand says. Nothing that only leads
    /// there has the shim: so a container runtime does it.
    pub fn command(&self, stand: &Stand, program: &Path) -> Command {
        self.command_as(stand, 0, program)
    }

    /// The same as another user.
    pub fn command_as(&self, stand: &Stand, user: u32, program: &Path) -> Command {
        let (root, dir) = (self.root().to_string_lossy(), stand.dir().to_string_lossy());
        let user = format!("--userspec={user}:{user}");
        let wrapper =
            ["unshare", "--mount", "sh", "-c", ENTER, "sh", &root, &dir, "chroot", &user, &root];
        stand.command_behind(&wrapper, program)
    }

    /// A command in which a program that has the shim (`chroot`) starts `program`, which is in it.
    pub fn command_of_accelerated(&self, stand: &Stand, program: &Path) -> Command {
        let (root, dir) = (self.root().to_string_lossy(), stand.dir().to_string_lossy());
        let mut command = stand.command_behind(
            &["unshare", "--mount", "sh", "-c", ENTER, "sh", &root, &dir],
            "chroot",
        );
        command.arg(self.root()).arg(program);
        command
    }
}
