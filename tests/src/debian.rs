//! Root directories of Debian releases, made once by mmdebstrap in the target folder, for
//! [`Host::boot`](crate::host::Host::boot), which leaves them as they are.

use crate::{build, is_root, skip};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const MIRROR: &str = "http://deb.debian.org/debian";

/// The root directory `name`: of `suite`, with these packages and what they need. `None`, after
/// saying why, where it cannot be had. With a suite of backports it is of the release that these
/// are for; which packages come from there is written `PACKAGE/SUITE`.
///
/// # Panics
/// When the target folder cannot be written.
#[must_use]
pub fn root(name: &str, suite: &str, packages: &[&str], what: &str) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let there = build::release_dir().with_file_name("roots").join(name);
    if there.exists() {
        return Some(there);
    }
    if !is_root() || std::env::consts::ARCH != "x86_64" {
        skip(what, "a root directory of Debian is made by root, on x86-64");
        return None;
    }
    // Under another name until all is there.
    let fresh = there.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(there.parent().expect("the target folder"))
        .expect("the target folder can be written");
    let mut command = Command::new("timeout");
    command.args(["1200", "mmdebstrap", "--mode=root", "--variant=minbase"]);
    command
        .arg(format!("--include={}", packages.join(",")))
        .arg(suite.trim_end_matches("-backports"))
        .arg(&fresh)
        .arg(MIRROR);
    if suite.ends_with("-backports") {
        command.arg(format!("deb {MIRROR} {suite} main"));
    }
    let done = command.output();
    if done.as_ref().is_ok_and(|output| output.status.success()) {
        std::fs::rename(&fresh, &there).expect("a folder can be renamed");
        return Some(there);
    }
    let _ = std::fs::remove_dir_all(&fresh);
    let why = done.map_or_else(
        |error| error.to_string(),
        |output| String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    skip(what, &format!("mmdebstrap: {}", why.lines().last().unwrap_or("it failed")));
    None
}
