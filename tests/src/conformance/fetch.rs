//! Fetching and building, each by the tool made for it, once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::compare::NOBODY;
use crate::is_root;

/// A command for [`said`].
pub fn command(program: &str, args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

/// What it prints.
///
/// # Errors
/// When it cannot be started or fails: with its last words.
pub fn said(command: &mut Command) -> Result<String> {
    let name = format!(
        "{} {}",
        command.get_program().to_string_lossy(),
        command.get_args().next().unwrap_or_default().to_string_lossy()
    );
    let done = command.output().with_context(|| {
        format!("{name} does not run (scripts/install-deps.sh conformance installs what is needed)")
    })?;
    let (stdout, stderr) =
        (String::from_utf8_lossy(&done.stdout).into_owned(), String::from_utf8_lossy(&done.stderr));
    if !done.status.success() {
        let both = format!("{stdout}{stderr}");
        let lines: Vec<&str> = both.lines().collect();
        bail!("{name}: {}\n{}", done.status, lines[lines.len().saturating_sub(20)..].join("\n"));
    }
    Ok(stdout)
}

/// A folder that `make` fills, in full or anew the next time.
///
/// # Errors
/// Those of `make`, and of the file system.
pub fn once(dir: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let mark = dir.join(".complete");
    if mark.exists() {
        return Ok(());
    }
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    make()?;
    fs::write(&mark, "").with_context(|| mark.display().to_string())
}

/// Source and version of a Debian package: of the release that this machine has its programs from.
pub struct Source {
    /// Its unpacked source, with Debian's changes.
    pub dir: PathBuf,
    /// Debian's version.
    pub version: String,
}

/// Fetches the source of `package` into `base` and builds it with `build`, given the folder.
///
/// # Errors
/// When apt knows no such package, or what `build` says.
pub fn debian_source(
    package: &str,
    base: &Path,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<Source> {
    let dir = base.join("source");
    once(&dir, || {
        apt_source(package, &dir)?;
        build(&unpacked(&dir)?)?;
        if is_root() {
            // They write beside their programs, and run as nobody.
            said(&mut command("chown", &["-R", &format!("{NOBODY}:{NOBODY}"), "."], &dir))?;
        }
        Ok(())
    })?;
    let described = dir_entry(&dir, |name| name.ends_with(".dsc"))?;
    let name = described.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let version = name.split_once('_').context("a .dsc is named PACKAGE_VERSION")?.1.to_owned();
    Ok(Source { dir: unpacked(&dir)?, version })
}

fn unpacked(dir: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.join("debian").is_dir() {
            return Ok(path);
        }
    }
    bail!("{}: no unpacked source", dir.display())
}

fn dir_entry(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            return Ok(entry.path());
        }
    }
    bail!("{}: not all that was fetched is there", dir.display())
}

/// `apt-get source` with lists of its own: the machine's may have no sources in them, and stay as
/// they are.
fn apt_source(package: &str, dir: &Path) -> Result<()> {
    let targets = said(&mut command(
        "apt-get",
        &[
            "indextargets",
            "--format",
            "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)",
            "Created-By: Packages",
        ],
        dir,
    ))?;
    let mut lines: Vec<String> = targets
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('|');
            let (uri, release, component, key) =
                (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            let key =
                if key.starts_with('/') { format!("[signed-by={key}] ") } else { String::new() };
            Some(format!("deb-src {key}{uri} {release} {component}\n"))
        })
        .collect();
    lines.dedup();
    ensure!(!lines.is_empty(), "apt-get has no lists of packages: run apt-get update");
    let apt = dir.join("apt");
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(part))?;
    }
    fs::write(apt.join("sources.list"), lines.concat())?;
    let own = [
        ("Dir::Etc::sourcelist", "sources.list"),
        ("Dir::Etc::sourceparts", "none"),
        ("Dir::State::lists", "lists"),
        ("Dir::Cache", "cache"),
    ];
    let mut options: Vec<String> =
        own.iter().map(|(key, name)| format!("-o{key}={}", apt.join(name).display())).collect();
    // apt's own user cannot write in here.
    options.extend([
        "-oAPT::Sandbox::User=root".to_owned(),
        "-oAcquire::Retries=3".to_owned(),
        "-qq".to_owned(),
    ]);
    for words in [&["update"][..], &["source", package]] {
        said(command("apt-get", words, dir).args(&options))?;
    }
    Ok(())
}
