//! For this crate's own tests and examples.

use std::path::{Path, PathBuf};

/// A directory of this process's own that is `GINNEL_DIR` from here on; it goes with the value.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes the directory. For programs of one thread.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn directory() -> Directory {
    let base = ["/dev/shm", "/tmp"].into_iter().find(|base| Path::new(base).is_dir());
    let name = format!("ginnel-sdk-{}", std::process::id());
    let path = Path::new(base.unwrap_or("/tmp")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).expect("a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&path, mode).expect("its own");
    crate::raw::set_directory(&path);
    Directory(path)
}
