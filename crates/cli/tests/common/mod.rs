//! A directory for one test, and `ginnel` in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of its own, and `ginnel` with nothing of Ginnel's set but that.
pub struct Place(tempfile::TempDir);

#[allow(dead_code, reason = "not every test uses all of it")]
impl Place {
    pub fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        // As the ledger wants it: the user's alone.
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(place.path(), own).expect("it is ours");
        Self(place)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    pub fn ginnel(&self) -> Command {
        let mut command = Command::new(crate::ginnel());
        let ours = |name: &str| name.starts_with("GINNEL_") || name == "LD_PRELOAD";
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
            command.env_remove(name);
        }
        command.env("GINNEL_DIR", self.0.path()).env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        Said::of(self.ginnel().args(arguments).output().expect("ginnel starts"))
    }

    /// `ginnel status --json`
    pub fn status(&self) -> serde_json::Value {
        let said = self.run(&["status", "--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        serde_json::from_str(&said.out).expect("JSON")
    }
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}
