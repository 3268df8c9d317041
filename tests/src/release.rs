//! A few programs of an older release, with that release's glibc, fetched by apt into the target
//! folder.

use crate::{build, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A release: where it is fetched from.
pub struct Release {
    /// Its name at the place that it is fetched from.
    pub name: &'static str,
    source: &'static str,
}

/// glibc 2.23.
pub const UBUNTU_16: Release =
    Release { name: "xenial", source: "http://archive.ubuntu.com/ubuntu" };
/// glibc 2.27.
pub const UBUNTU_18: Release =
    Release { name: "bionic", source: "http://archive.ubuntu.com/ubuntu" };
/// glibc 2.31.
pub const DEBIAN_11: Release = Release { name: "bullseye", source: "http://deb.debian.org/debian" };

/// The C library, a shell, and what `env` needs.
const PACKAGES: [&str; 5] = ["libc6", "dash", "coreutils", "libselinux1", "libpcre3"];
const BULLSEYE_TOO: [&str; 2] = ["libpcre2-8-0", "libgmp10"];

/// The release's root directory; `None`, after saying so, where it cannot be had. It is fetched
/// once.
///
/// # Panics
/// When the target folder cannot be written.
#[must_use]
pub fn root(release: &Release, what: &str) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if std::env::consts::ARCH != "x86_64" {
        skip(what, "the older releases are fetched for x86-64");
        return None;
    }
    let there = build::release_dir().with_file_name("older").join(release.name);
    if !there.exists() {
        // Under another name until all is there.
        let fresh = there.with_extension(std::process::id().to_string());
        fs::create_dir_all(&fresh).expect("the target folder can be written");
        let fetched = fetch(release, &fresh);
        let _ = fs::remove_dir_all(fresh.join("apt"));
        if let Err(why) = fetched {
            let _ = fs::remove_dir_all(&fresh);
            skip(what, &why);
            return None;
        }
        fs::rename(&fresh, &there).expect("a folder can be renamed");
    }
    Some(there)
}

fn fetch(release: &Release, root: &Path) -> Result<(), String> {
    let apt = root.join("apt");
    for part in ["lists/partial", "cache/archives/partial", "none"] {
        fs::create_dir_all(apt.join(part)).expect("the target folder can be written");
    }
    // What is fetched is run as a test's program only, and another distribution's keys are not
    // here.
    let line = format!("deb [trusted=yes arch=amd64] {} {} main\n", release.source, release.name);
    fs::write(apt.join("sources.list"), line).expect("written");
    fs::write(apt.join("status"), "").expect("written");
    let options = [
        ("Dir::State::status", "status"),
        ("Dir::Etc::sourcelist", "sources.list"),
        ("Dir::Etc::sourceparts", "none"),
        ("Dir::State::lists", "lists"),
        ("Dir::Cache", "cache"),
    ];
    let options: Vec<String> =
        options.iter().map(|(key, name)| format!("-o{key}={}", apt.join(name).display())).collect();
    let call = |words: &[&str]| {
        let limits = [
            "-oAPT::Sandbox::User=root",
            "-oAcquire::Languages=none",
            "-oAcquire::Retries=1",
            "-oAcquire::http::Timeout=20",
        ];
        said(
            Command::new("timeout")
                .args(["180", "apt-get", "-qq"])
                .args(&options)
                .args(limits)
                .args(words)
                .current_dir(&apt),
        )
    };
    call(&["update"])?;
    let more: &[&str] = if release.name == DEBIAN_11.name { &BULLSEYE_TOO } else { &[] };
    call(&[&["download"], &PACKAGES[..], more].concat())?;
    for entry in fs::read_dir(&apt).map_err(|error| error.to_string())?.flatten() {
        if entry.path().extension().is_some_and(|end| end == "deb") {
            said(Command::new("dpkg-deb").arg("--extract").arg(entry.path()).arg(root))?;
        }
    }
    Ok(())
}

fn said(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(error.lines().last().unwrap_or("it failed").to_owned())
    }
}
