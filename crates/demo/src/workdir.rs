//! The directory that holds configurations, pages and logs while the demo runs.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::undo;

const PREFIX: &str = "ginnel-demo-";

/// A directory that nobody else may list, removed with all in it at the end.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    _guard: undo::Guard,
}

impl WorkDir {
    /// Makes the directory, named for this process; a leftover of a process that is no more is
    /// replaced.
    pub fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
        // Servers that become another user find their files by name.
        let make = || DirBuilder::new().mode(0o711).create(&path);
        // Our own process id: whoever made it before is dead. A symbolic link there makes this
        // fail, as it should.
        make().or_else(|_| fs::remove_dir_all(&path).and_then(|()| make())).with_context(|| {
            format!("cannot make {} (is TMPDIR a directory that you may write to?)", path.display())
        })?;
        let gone = path.clone();
        Ok(Self { _guard: undo::enter(move || remove(&gone)), path })
    }

    /// A new directory inside.
    pub fn subdir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// The path of a file inside.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

fn remove(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory) {
        eprintln!("could not remove {}: {error}", directory.display());
    }
}

/// Removes directories of an earlier demo of this user that was killed outright (`kill -9`).
pub fn sweep() {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        let dead = maker.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        // The entry's own metadata: a symbolic link is not followed, and none of ours.
        if dead && entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == own) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The last lines of a file, for messages; empty if it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
