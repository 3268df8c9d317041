//! The drop-in: its text, writing it, and taking it away.

use super::systemd::Manager;
use anyhow::{Context, Result, ensure};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// It sorts behind what others call theirs (`override.conf` of `systemctl edit`), so that its list
/// of preloads, which has theirs in it, counts.
const NAME: &str = "zz-ginnel.conf";

/// By its first line it is known for ours.
const MARK: &str = "# Made by `ginnel service enable`";

/// Text of a drop-in: variables, and lines that open the sandbox.
pub fn text(unit: &str, variables: &[(String, String)], lines: &[String]) -> String {
    let mut text = format!("{MARK}; `ginnel service disable {unit}` takes it away.\n[Service]\n");
    for (name, value) in variables {
        text += &format!("Environment={}\n", quoted(&format!("{name}={value}")));
    }
    for line in lines {
        text += &format!("{line}\n");
    }
    text
}

/// A word in a unit file: in double quotes, with C's escapes, and `%` doubled (systemd.syntax(7),
/// systemd.unit(5), "Specifiers"). `$` means nothing in `Environment=`.
fn quoted(word: &str) -> String {
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '%' => text.push_str("%%"),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text + "\""
}

/// Where a unit's drop-in lies.
pub fn place(manager: Manager, unit: &str) -> Result<PathBuf> {
    Ok(manager.directory()?.join(format!("{unit}.d")).join(NAME))
}

/// Is there one, and is it ours?
///
/// # Errors
/// There is a file of that name that `ginnel` did not write, or one that cannot be read.
pub fn is_there(place: &Path) -> Result<bool> {
    match fs::read_to_string(place) {
        Ok(text) => {
            ensure!(
                text.starts_with(MARK),
                "{} is not from `ginnel service enable`: it is left alone",
                place.display()
            );
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| place.display().to_string()),
    }
}

/// Writes it, whole or not at all.
pub fn write(place: &Path, text: &str) -> Result<()> {
    let folder = place.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let draft = place.with_extension("conf.new");
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, place)
    };
    write().with_context(|| format!("cannot write {}", place.display())).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
        let _ = fs::remove_dir(folder);
    })
}

/// Takes it away, and its directory if nothing else is in that. `false`: it was not there.
pub fn remove(place: &Path) -> Result<bool> {
    if !is_there(place)? {
        return Ok(false);
    }
    fs::remove_file(place).with_context(|| format!("cannot remove {}", place.display()))?;
    // Others' drop-ins stay.
    let _ = place.parent().map(fs::remove_dir);
    Ok(true)
}

/// The services that have one of ours.
pub fn all(manager: Manager) -> Result<Vec<String>> {
    let entries = fs::read_dir(manager.directory()?).into_iter().flatten().flatten();
    let ours = |folder: PathBuf| is_there(&folder.join(NAME)).unwrap_or(false);
    let units = entries
        .filter(|entry| ours(entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut units: Vec<String> =
        units.filter_map(|folder| folder.strip_suffix(".d").map(str::to_owned)).collect();
    units.sort();
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_through_systemds_syntax() {
        let variables =
            [("LD_PRELOAD".into(), "/$LIB/x.so:/a.so".into()), ("A".into(), "5% \"\\".into())];
        let said = text("x.service", &variables, &["ReadWritePaths=/dev/shm".into()]);
        let lines: Vec<&str> = said.lines().skip(1).collect();
        assert_eq!(lines[..2], ["[Service]", "Environment=\"LD_PRELOAD=/$LIB/x.so:/a.so\""]);
        assert_eq!(lines[2..], ["Environment=\"A=5%% \\\"\\\\\"", "ReadWritePaths=/dev/shm"]);
    }

    #[test]
    fn nothing_stays_behind_and_others_files_are_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("x.service.d").join(NAME);
        assert!(!remove(&place).expect("none"));
        write(&place, &text("x.service", &[], &[])).expect("written");
        assert!(is_there(&place).expect("ours") && remove(&place).expect("removed"));
        assert!(!place.parent().expect("a folder").exists());
        write(&place, "[Service]\nNice=5\n").expect("written");
        assert!(is_there(&place).is_err() && remove(&place).is_err() && place.exists());
    }
}
