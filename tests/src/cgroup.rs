//! A control group of a test's own. systemd names the groups of its services after the units alone,
//! below the group it was started in: two managers that start in one group take each other's
//! `app.slice/x.service`, and who ends first removes it under the other. So each starts in its own.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The group: one directory in each hierarchy that systemd keeps its services in, below where the
/// test itself is. Removed with all below it when this is dropped; whoever is in it must have been
/// killed by then.
#[derive(Debug)]
pub struct Cgroup {
    directories: Vec<PathBuf>,
}

impl Cgroup {
    /// `name` must be nobody else's. Where a hierarchy cannot be written to there is no directory
    /// in it, and whoever joins stays there where he was.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let wanted = hierarchies(&own, &mounts).into_iter().map(|own| own.join(name));
        Self { directories: wanted.filter(|directory| fs::create_dir(directory).is_ok()).collect() }
    }

    /// What the command starts is in the group from its first instruction on.
    ///
    /// # Panics
    /// When the group's files cannot be opened.
    pub fn take<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let open = |directory: &PathBuf| {
            File::options().write(true).open(directory.join("cgroup.procs")).expect("the group's")
        };
        let files: Vec<File> = self.directories.iter().map(open).collect();
        // SAFETY: system calls alone, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                files.iter().try_for_each(|mut file| std::io::Write::write_all(&mut file, b"0"))
            })
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel takes who was killed out a little later.
        let until = Instant::now() + Duration::from_secs(5);
        for directory in &self.directories {
            while !remove(directory) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The groups below it first; its files go with it.
fn remove(group: &Path) -> bool {
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}

/// Where a process with this `/proc/PID/cgroup` is, among these mounts (`/proc/PID/mountinfo`,
/// proc(5)): in version 2's hierarchy, and in the one of version 1 that is systemd's by name.
fn hierarchies(own: &str, mounts: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (prefix, kind, option) in
        [("0::", "cgroup2", ""), (":name=systemd:", "cgroup", "name=systemd")]
    {
        let Some(at) = own.lines().find_map(|line| Some(line.split_once(prefix)?.1)) else {
            continue;
        };
        found.extend(mounts.split(|&byte| byte == b'\n').find_map(|line| {
            let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
            let dash = fields.iter().position(|&field| field == b"-")?;
            let is = *fields.get(dash + 1)? == kind.as_bytes()
                && fields
                    .get(dash + 3)?
                    .split(|&byte| byte == b',')
                    .any(|has| option.is_empty() || has == option.as_bytes());
            let root = std::str::from_utf8(fields.get(3)?).ok()?;
            let within = at.strip_prefix(root.trim_end_matches('/'))?.trim_start_matches('/');
            is.then(|| PathBuf::from(OsString::from_vec(fields[4].to_vec())).join(within))
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1 with systemd's hierarchy and version 2 beside it, as on older systems.
    #[test]
    fn both_hierarchies_of_a_hybrid_host_are_found() {
        let own = "4:memory:/else\n1:name=systemd:/user.slice\n0::/user.slice/s.scope\n";
        let mounts = b"30 29 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 29 0:27 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,xattr,name=systemd\n\
            32 29 0:28 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup rw\n";
        let found = hierarchies(own, mounts);
        let at = ["/sys/fs/cgroup/unified/user.slice/s.scope", "/sys/fs/cgroup/systemd/user.slice"];
        assert_eq!(found, at.map(PathBuf::from));
    }

    /// A container sees its own part of the hierarchy as the mount's root.
    #[test]
    fn a_mount_of_a_part_begins_where_that_does() {
        let mounts = b"32 29 0:28 /pod/c /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let found = hierarchies("0::/pod/c/x\n", mounts);
        assert_eq!(found, [PathBuf::from("/sys/fs/cgroup/x")]);
        assert!(hierarchies("0::/elsewhere\n", mounts).is_empty());
    }
}
