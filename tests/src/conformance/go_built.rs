//! Programs in Go, built from Go's module proxy in the two ways that are reached otherwise: static,
//! as containers run them, and position-independent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::fetch;

/// How a program is built: name, flags.
const KINDS: [(&str, &[&str]); 2] = [("static", &[]), ("dynamic", &["-buildmode=pie"])];

/// What is built of one project.
pub struct Project {
    /// Its name, and that of its folder.
    pub name: &'static str,
    /// Modules and their versions.
    pub modules: &'static [&'static str],
    /// Programs: name, package.
    pub programs: &'static [(&'static str, &'static str)],
    /// Tests: name, package.
    pub tests: &'static [(&'static str, &'static str)],
    /// Build tags, with commas between.
    pub tags: &'static str,
}

/// What was built of a project, in one way.
pub struct Built {
    /// In which way.
    pub kind: &'static str,
    /// Where it lies.
    pub folder: PathBuf,
}

/// Fetches and builds a project, once.
///
/// # Errors
/// When Go or what it is to fetch is not there.
pub fn build(project: &Project, base: &Path) -> Result<Vec<Built>> {
    let dir = base.join(project.name);
    fetch::once(&dir, || {
        fs::write(dir.join("go.mod"), "module programs\n\ngo 1.24.0\n")?;
        // What else the packages need the builds add. (To get a package by name would take the
        // newest release of its module.)
        fetch::said(go(&dir, &["get"]).args(project.modules))?;
        KINDS.iter().try_for_each(|(kind, flags)| {
            let built = |words: &[&str], name: &str, package: &str| {
                fetch::said(
                    go(&dir, words)
                        .args(*flags)
                        .args(["-tags", project.tags])
                        .arg("-o")
                        .arg(dir.join(kind).join(name))
                        .arg(package),
                )
                .map(drop)
            };
            project
                .programs
                .iter()
                .try_for_each(|(name, package)| built(&["build"], name, package))?;
            project
                .tests
                .iter()
                .try_for_each(|(name, package)| built(&["test", "-c"], name, package))
        })
    })?;
    Ok(KINDS.map(|(kind, _)| Built { kind, folder: dir.join(kind) }).into())
}

/// A copy of the folder of a package's source, in which its tests find their files, with its
/// module about it. Tests may write there.
///
/// # Errors
/// When it is not there.
pub fn source(project: &Project, base: &Path, package: &str) -> Result<PathBuf> {
    let dir = base.join(project.name);
    let found = fetch::said(&mut go(&dir, &["list", "-f", "{{.Module.Dir}}\n{{.Dir}}", package]))?;
    let (module, at) = found.trim().split_once('\n').context("go list names two folders")?;
    // The last part alone is that of several: v3@v3.7.3.
    let to = base.join("sources").join(project.name).join(module.replace('/', "_"));
    fetch::once(&to, || {
        let copy = ["-r", "--no-preserve=mode", &format!("{module}/."), &to.to_string_lossy()];
        fetch::said(&mut fetch::command("cp", &copy, base))?;
        fetch::said(&mut fetch::command("chmod", &["-R", "a+rwX", &to.to_string_lossy()], base))?;
        Ok(())
    })?;
    Ok(to.join(Path::new(at).strip_prefix(module)?))
}

fn go(dir: &Path, words: &[&str]) -> Command {
    let mut command = fetch::command("go", words, dir);
    command.envs([
        ("CGO_ENABLED", "0"),
        ("GOFLAGS", "-buildvcs=false -mod=mod"),
        ("GOTOOLCHAIN", "local"),
        ("GOWORK", "off"),
    ]);
    command
}
