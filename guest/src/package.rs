//! Debian's packages, unpacked into `target/guest`. Nothing is installed.

use crate::{call, target_dir};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Holds a lock file as long as it lives: several test programs may fetch and build at once.
pub(crate) struct Lock(#[expect(dead_code, reason = "its descriptor holds the lock")] File);

impl Lock {
    pub fn take(cache: &Path) -> Result<Self> {
        let file = File::create(cache.join("lock"))?;
        // SAFETY: touches no memory.
        let taken = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        ensure!(taken == 0, "cannot lock {}: {}", cache.display(), std::io::Error::last_os_error());
        Ok(Self(file))
    }
}

/// A package of the release this host runs: the folder that it was unpacked into.
///
/// # Errors
/// Where there is none, or no network.
pub fn unpacked(package: &str) -> Result<PathBuf> {
    let cache = target_dir().join("guest");
    fs::create_dir_all(&cache)?;
    let _held = Lock::take(&cache)?;
    let root = cache.join(format!("package-{package}"));
    if !root.join("complete").exists() {
        with_lists(&cache, |options| unpack(&[package.to_owned()], &root, options))?;
        fs::write(root.join("complete"), "")?;
    }
    Ok(root)
}

/// Does something with the host's own package lists. They may be old, or missing: a second attempt
/// fetches lists of our own, which needs no root.
pub(crate) fn with_lists<T>(cache: &Path, work: impl Fn(&[String]) -> Result<T>) -> Result<T> {
    match work(&[]) {
        Ok(done) => Ok(done),
        Err(first) => {
            let lists = cache.join("lists");
            fs::create_dir_all(lists.join("partial"))?;
            let own = [format!("Dir::State::Lists={}", lists.display())];
            call(apt("apt-get", &own).args(["-qq", "update"])).with_context(|| format!("{first:#}"))?;
            work(&own).with_context(|| format!("before with the host's own lists: {first:#}"))
        }
    }
}

/// Fetches packages, `NAME` or `NAME=VERSION`, and unpacks them into a folder of their own.
pub(crate) fn unpack(packages: &[String], root: &Path, options: &[String]) -> Result<()> {
    let archives = root.with_file_name("archives");
    for directory in [root, &archives] {
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory)?;
    }
    call(apt("apt-get", options).args(["-qq", "download"]).args(packages).current_dir(&archives))?;
    for archive in fs::read_dir(&archives)?.flatten() {
        call(Command::new("dpkg-deb").arg("-x").arg(archive.path()).arg(root))?;
    }
    Ok(fs::remove_dir_all(&archives)?)
}

pub(crate) fn apt(program: &str, options: &[String]) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").args(options.iter().flat_map(|option| ["-o", option]));
    // Downloads go into a folder that apt's own user may not enter.
    command.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3"]);
    command
}
