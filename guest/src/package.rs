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

/// The newest version of a package that Debian's backports have for the release this host runs,
/// with all that it needs and the host does not have: the folder that it was unpacked into. Takes
/// lists of our own, and no root.
///
/// # Errors
/// Where there is none, or no network.
pub fn of_backports(package: &str) -> Result<PathBuf> {
    let cache = target_dir().join("guest");
    let root = cache.join(format!("backports-{package}"));
    fs::create_dir_all(&cache)?;
    let _held = Lock::take(&cache)?;
    if !root.join("complete").exists() {
        let own = cache.join("backports");
        fs::create_dir_all(own.join("lists/partial"))?;
        let release = backports(&own.join("sources.list"))?;
        let options = ["Dir::Etc::SourceList=sources.list", "Dir::State::Lists=lists"];
        let options = options.map(|option| option.replace('=', &format!("={}/", own.display())));
        let plain = [
            "Dir::Etc::SourceParts=/dev/null",
            "Dir::Cache::pkgcache=",
            "Dir::Cache::srcpkgcache=",
        ];
        let options: Vec<String> = options.into_iter().chain(plain.map(str::to_owned)).collect();
        call(apt("apt-get", &options).args(["-qq", "update"]))?;
        fetch(&["-t", &release, package], &own.join("archives"), &root, &options)
            .with_context(|| format!("{package} of {release}"))?;
        fs::remove_dir_all(&own)?;
        fs::write(root.join("complete"), "")?;
    }
    Ok(root)
}

/// A package of the release this host runs, with all that it needs and the host does not have: the
/// folder that it was unpacked into.
///
/// # Errors
/// Where there is none, or no network.
pub fn with_needs(package: &str) -> Result<PathBuf> {
    let cache = target_dir().join("guest");
    fs::create_dir_all(&cache)?;
    let _held = Lock::take(&cache)?;
    let root = cache.join(format!("needs-{package}"));
    if !root.join("complete").exists() {
        let archives = cache.join("archives");
        with_lists(&cache, |options| fetch(&[package], &archives, &root, options))?;
        fs::remove_dir_all(&archives)?;
        fs::write(root.join("complete"), "")?;
    }
    Ok(root)
}

/// Fetches what `apt-get install` would, and unpacks it into a folder of its own. Takes no root.
fn fetch(install: &[&str], archives: &Path, root: &Path, options: &[String]) -> Result<()> {
    for directory in [root, archives] {
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory)?;
    }
    fs::create_dir_all(archives.join("partial"))?;
    let own = [format!("Dir::Cache::archives={}", archives.display())];
    let own = own.into_iter().chain(["Debug::NoLocking=1".to_owned()]);
    let options: Vec<String> = options.iter().cloned().chain(own).collect();
    let mut fetch = apt("apt-get", &options);
    fetch.args(["-qq", "--yes", "--download-only", "--no-install-recommends", "install"]);
    call(fetch.args(install))?;
    unpack_all(archives, root)
}

/// Writes a list of sources that names the host's mirror of Debian, with the backports: their name.
fn backports(to: &Path) -> Result<String> {
    let ask =
        ["indextargets", "--format", "$(REPO_URI) $(CODENAME) $(ORIGIN)", "Created-By: Packages"];
    let known = call(apt("apt-get", &[]).args(ask))?;
    let of_debian = known.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [mirror, release, "Debian"] if !release.contains('-') => Some((mirror, release)),
        _ => None,
    });
    let (mirror, release) =
        of_debian.context("apt knows no mirror of Debian: the backports are Debian's")?;
    let key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
    let line = |suite: &str| format!("deb [{key}] {mirror} {suite} main\n");
    let name = format!("{release}-backports");
    fs::write(to, line(release) + &line(&name))?;
    Ok(name)
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
            call(apt("apt-get", &own).args(["-qq", "update"]))
                .with_context(|| format!("{first:#}"))?;
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
    unpack_all(&archives, root)?;
    Ok(fs::remove_dir_all(&archives)?)
}

fn unpack_all(archives: &Path, root: &Path) -> Result<()> {
    for archive in fs::read_dir(archives)?.flatten().map(|entry| entry.path()) {
        if archive.extension().is_some_and(|end| end == "deb") {
            call(Command::new("dpkg-deb").arg("-x").arg(archive).arg(root))?;
        }
    }
    Ok(())
}

pub(crate) fn apt(program: &str, options: &[String]) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").args(options.iter().flat_map(|option| ["-o", option]));
    // Downloads go into a folder that apt's own user may not enter.
    command.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3"]);
    command
}
