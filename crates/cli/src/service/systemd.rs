//! What a systemd manager says about a unit: `systemctl show`, and its words taken apart.
//!
//! `systemctl` rather than D-Bus: it reaches a manager without a bus daemon, too.

use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is asked for.
const PROPERTIES: &str = "Id,LoadState,ActiveState,ControlGroup,User,DynamicUser,Environment,EnvironmentFiles,UnsetEnvironment,\
ExecStart,RootDirectory,RootImage,ReadOnlyPaths,ReadWritePaths,InaccessiblePaths,TemporaryFileSystem,BindPaths,NoExecPaths,\
ExecPaths,BindReadOnlyPaths,ProtectHome,PrivateTmp,SystemCallFilter,RestrictAddressFamilies,LimitNOFILE,LimitAS";

/// A manager: the system's, or the user's own.
#[derive(Debug, Clone, Copy)]
pub struct Manager {
    pub user: bool,
}

/// Whether systemd is this system's first process (sd_booted(3)).
pub fn runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

impl Manager {
    /// Where an administrator's (or this user's) drop-ins lie, until they are removed.
    pub fn directory(self) -> Result<PathBuf> {
        if !self.user {
            return Ok("/etc/systemd/system".into());
        }
        let given = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let configuration =
            given("XDG_CONFIG_HOME").or_else(|| Some(given("HOME")?.join(".config")));
        Ok(configuration.context("neither HOME nor XDG_CONFIG_HOME is set")?.join("systemd/user"))
    }

    /// # Errors
    /// systemd is not this system's first process (sd_booted(3)), as in most containers, and in a
    /// chroot, where `systemctl` ignores what it is asked: nobody reads drop-ins.
    pub fn must_run(self) -> Result<()> {
        ensure!(
            runs(),
            "systemd does not run here, so it starts no service: `ginnel run -- PROGRAM` starts a program with the library"
        );
        Ok(())
    }

    /// Runs `systemctl`; gives what it said.
    ///
    /// # Errors
    /// What it complained about.
    pub fn systemctl(self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("systemctl");
        if self.user {
            command.arg("--user");
        }
        let output = command
            .args(["--no-pager", "--no-ask-password"])
            .args(words)
            .env("LC_ALL", "C")
            .output();
        let output = output.context("cannot run systemctl: services are systemd's")?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("systemctl {}: {}", words.first().unwrap_or(&""), error.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What is known of a service. The unit need not be there: see [`Unit::must_be_there`].
    pub fn show(self, name: &str) -> Result<Unit> {
        let name = full_name(name)?;
        let said = self.systemctl(&["show", "--property", PROPERTIES, "--", &name])?;
        Ok(Unit::parse(name, &said))
    }

    /// A variable of the manager's own, which every service gets.
    pub fn variable(self, name: &str) -> Option<String> {
        let said = self.systemctl(&["show-environment"]).ok()?;
        said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    }
}

/// A service's name as systemd has it.
///
/// # Errors
/// It is none of a service, or names a template.
pub fn full_name(name: &str) -> Result<String> {
    const KINDS: [&str; 10] = [
        ".socket",
        ".timer",
        ".target",
        ".mount",
        ".automount",
        ".swap",
        ".path",
        ".slice",
        ".scope",
        ".device",
    ];
    let good = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    ensure!(
        !name.is_empty() && name.len() < 256 && name.chars().all(good),
        "{name:?} is no name of a unit"
    );
    if let Some(kind) = KINDS.iter().find(|kind| name.ends_with(*kind)) {
        bail!(
            "{name}: only services can be switched on; name the service that belongs to this {}",
            &kind[1..]
        );
    }
    let full = if name.ends_with(".service") { name.to_owned() } else { format!("{name}.service") };
    ensure!(
        !full.ends_with("@.service"),
        "{full} is a template: name an instance of it, such as {}",
        full.replace('@', "@1")
    );
    Ok(full)
}

/// A service, by its properties.
#[derive(Debug, Default)]
pub struct Unit {
    /// Its name; an alias is told by [`Unit::get`] of `Id`.
    pub name: String,
    /// Those of which there may be several stand in one entry, a line each.
    properties: HashMap<String, String>,
}

impl Unit {
    pub(super) fn parse(name: String, said: &str) -> Self {
        let mut properties: HashMap<String, String> = HashMap::new();
        for (key, value) in said.lines().filter_map(|line| line.split_once('=')) {
            let entry = properties.entry(key.to_owned()).or_default();
            if !entry.is_empty() {
                entry.push('\n');
            }
            entry.push_str(value);
        }
        let id = properties.get("Id").filter(|id| !id.is_empty()).cloned();
        Self { name: id.unwrap_or(name), properties }
    }

    /// A property; empty where it is not set.
    pub fn get(&self, key: &str) -> &str {
        self.properties.get(key).map_or("", String::as_str)
    }

    /// Is this `yes`?
    pub fn is(&self, key: &str) -> bool {
        self.get(key) == "yes"
    }

    /// A list of words.
    pub fn words(&self, key: &str) -> Vec<String> {
        words(self.get(key))
    }

    /// The value of a variable among the unit's own; the last one counts.
    pub fn variable(&self, name: &str) -> Option<String> {
        let all = self.words("Environment").into_iter();
        all.rev().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    }

    /// The programs that it starts.
    pub fn programs(&self) -> Vec<PathBuf> {
        let lines = self.get("ExecStart").lines();
        lines
            .filter_map(|line| Some(line.split_once("path=")?.1.split_once(" ; ")?.0.into()))
            .collect()
    }

    /// Files with more of its environment, which count more than its own words. Each is shown with
    /// a remark in brackets.
    pub fn environment_files(&self) -> Vec<PathBuf> {
        let lines = self.get("EnvironmentFiles").lines();
        lines.map(|line| line.split(" (ignore_errors=").next().unwrap_or(line).into()).collect()
    }

    /// # Errors
    /// There is no such unit, or it cannot be started.
    pub fn must_be_there(&self) -> Result<()> {
        let name = &self.name;
        match self.get("LoadState") {
            "loaded" => Ok(()),
            "not-found" => bail!(
                "there is no unit {name}; `systemctl list-unit-files --type=service` names those that are"
            ),
            "masked" => bail!("{name} is masked: `systemctl unmask {name}` first"),
            other => bail!("{name} is not loaded ({other}); `systemctl status {name}` says why"),
        }
    }
}

/// Words as systemd shows them: divided by spaces, in double quotes with backslashes where need be
/// (systemd's `shell_maybe_quote`).
fn words(text: &str) -> Vec<String> {
    let (mut all, mut word, mut inside, mut quoted) = (Vec::new(), String::new(), false, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => (quoted, inside) = (!quoted, true),
            '\\' if quoted => word.extend(chars.next()),
            ' ' | '\n' if !quoted => {
                if inside {
                    all.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            c => {
                word.push(c);
                inside = true;
            }
        }
    }
    if inside {
        all.push(word);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_services() {
        assert_eq!(full_name("redis-server").expect("good"), "redis-server.service");
        assert_eq!(full_name("a@1.service").expect("good"), "a@1.service");
        for bad in ["", "a/b", "a b", "nginx.socket", "redis@", "redis@.service"] {
            assert!(full_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn properties_are_taken_apart() {
        let said = "Id=real.service\nEnvironment=A=1 \"LD_PRELOAD=/\\$LIB/x.so\" \"B=a \\\"b\\\"\" A=2\n\
            ExecStart={ path=/usr/bin/one ; argv[]=/usr/bin/one -x ; ignore_errors=no }\n\
            ExecStart={ path=/usr/bin/two ; argv[]=/usr/bin/two ; ignore_errors=no }\n\
            EnvironmentFiles=/etc/default/one (ignore_errors=yes)\nPrivateTmp=yes\n";
        let unit = Unit::parse("alias.service".into(), said);
        assert_eq!(unit.name, "real.service");
        assert_eq!(unit.variable("LD_PRELOAD").as_deref(), Some("/$LIB/x.so"));
        assert_eq!(
            (unit.variable("A").as_deref(), unit.variable("B").as_deref()),
            (Some("2"), Some("a \"b\""))
        );
        assert_eq!(unit.programs(), [PathBuf::from("/usr/bin/one"), "/usr/bin/two".into()]);
        assert_eq!(unit.environment_files(), [PathBuf::from("/etc/default/one")]);
        assert!(unit.is("PrivateTmp") && !unit.is("DynamicUser"));
    }
}
