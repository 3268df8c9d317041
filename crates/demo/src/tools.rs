//! Finding programs, and saying how to get those that are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A program that is needed, and the Debian package it comes in.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its names, the first that is found counts: some releases call it otherwise.
    pub names: &'static [&'static str],
    /// The package.
    pub package: &'static str,
}

impl Tool {
    /// The program's path; none where it is not installed.
    pub fn look(&self) -> Option<PathBuf> {
        self.names.iter().find_map(|name| search(name))
    }

    /// The same, or where to get it.
    pub fn find(&self) -> Result<String> {
        let Some(path) = self.look() else {
            bail!(
                "{} is not installed: it comes with the package {} (scripts/install-deps.sh demo installs it)",
                self.names[0],
                self.package
            );
        };
        path.into_os_string().into_string().ok().context("a path that is not UTF-8")
    }
}

/// Looks along PATH, and where servers live, which is not in everybody's PATH.
fn search(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// The `ginnel` command that was built with this program.
#[derive(Debug)]
pub struct Ginnel {
    path: PathBuf,
}

impl Ginnel {
    /// Finds it beside this program, with the library that it preloads.
    pub fn find() -> Result<Self> {
        let own = std::env::current_exe().context("cannot tell where this program is")?;
        let dir = own.parent().unwrap_or(Path::new("."));
        for name in ["ginnel", "libginnel_shim.so"] {
            if !dir.join(name).is_file() {
                bail!(
                    "{name} is not in {}: build it with `cargo build --release --workspace`",
                    dir.display()
                );
            }
        }
        Ok(Self { path: dir.join("ginnel") })
    }

    /// The command that runs a program through Ginnel, to be put before the program's own.
    pub fn run(&self) -> Vec<String> {
        vec![self.path.display().to_string(), "run".to_owned(), "--".to_owned()]
    }

    /// What `ginnel status --json` says, in a few seconds at most.
    pub fn status(&self) -> Result<String> {
        output(5, &[&self.path.display().to_string(), "status", "--json"])
    }
}

/// Runs a helper to its end, `limit` seconds at most, and returns what it printed on both streams.
pub fn output(limit: u32, command: &[&str]) -> Result<String> {
    let name = command.first().copied().unwrap_or_default();
    let done = Command::new("timeout")
        .arg("--kill-after=1")
        .arg(limit.to_string())
        .args(command)
        .stdin(Stdio::null())
        .output()
        .context("cannot run `timeout` (package coreutils)")?;
    let mut text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&done.stderr));
    let text = text.trim_end();
    match done.status.code() {
        Some(0) => Ok(text.to_owned()),
        Some(124) => bail!("{name} did not end within {limit} s {text}"),
        _ if text.is_empty() => bail!("{name}: {}", done.status),
        _ => bail!("{name}: {text}"),
    }
}
