//! A cgroup with a limit on memory, as a container has one.

use crate::{is_root, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The cgroup; it is removed when this is dropped, after the programs in it have ended.
pub struct MemoryLimit {
    dir: PathBuf,
}

impl MemoryLimit {
    /// One of so many bytes, by whichever version of cgroups has the memory controller here;
    /// `None`, after saying so, where none can be made.
    #[must_use]
    pub fn new(what: &str, bytes: u64) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mounted = is_root().then(hierarchy).flatten();
        let Some((parent, file)) = mounted else {
            skip(what, "no cgroup with a limit on memory can be made here");
            return None;
        };
        let dir = parent.join(format!(
            "ginnel-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        if let Err(error) =
            fs::create_dir(&dir).and_then(|()| fs::write(dir.join(file), bytes.to_string()))
        {
            let _ = fs::remove_dir(&dir);
            skip(what, &format!("{}: {error}", dir.display()));
            return None;
        }
        Some(Self { dir })
    }

    /// What to put before a program to run it in there.
    #[must_use]
    pub fn enter(&self) -> [String; 4] {
        let procs = self.dir.join("cgroup.procs").display().to_string();
        ["sh", "-c", "echo $$ > \"$0\" && exec \"$@\"", &procs].map(str::to_owned)
    }
}

/// Where a cgroup can be made, and which file of it has the limit.
fn hierarchy() -> Option<(PathBuf, &'static str)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = || mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let one = mounts().find(|fields| {
        fields[2] == "cgroup" && fields[3].split(',').any(|option| option == "memory")
    });
    if let Some(fields) = one {
        return Some((fields[1].into(), "memory.limit_in_bytes"));
    }
    let two = mounts().find(|fields| fields[2] == "cgroup2")?;
    let root = Path::new(two[1]);
    let given = || {
        fs::read_to_string(root.join("cgroup.subtree_control"))
            .is_ok_and(|names| names.contains("memory"))
    };
    if !given() {
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
    }
    given().then(|| (root.to_path_buf(), "memory.max"))
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The kernel may take a while to see that it is empty.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
