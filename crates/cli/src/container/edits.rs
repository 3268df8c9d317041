//! What a container gets: variables and mounts, as a CDI file and as options of a command.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The kind of the devices (CDI's `SPEC.md`): vendor and class.
pub const KIND: &str = "ginnel.dev/segment";

/// What is set and mounted.
#[derive(Debug, Default)]
pub struct Edits {
    pub variables: Vec<(&'static str, String)>,
    pub mounts: Vec<Mount>,
}

/// A directory of the host's in the container.
#[derive(Debug)]
pub struct Mount {
    pub host: PathBuf,
    pub container: PathBuf,
    pub writable: bool,
}

impl Mount {
    fn options(&self) -> &'static [&'static str] {
        // The library is mapped for execution; in the segment nothing is.
        if self.writable {
            &["rw", "nosuid", "nodev", "noexec", "bind"]
        } else {
            &["ro", "nosuid", "nodev", "bind"]
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl Edits {
    /// The CDI file of the device `name`. The version is the lowest that has all that is used, as
    /// the specification advises: older runtimes refuse newer ones.
    pub fn cdi(&self, name: &str) -> Value {
        let env: Vec<String> =
            self.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mount = |mount: &Mount| {
            json!({
                "hostPath": text(&mount.host),
                "containerPath": text(&mount.container),
                "options": mount.options(),
            })
        };
        let mounts: Vec<Value> = self.mounts.iter().map(mount).collect();
        json!({
            "cdiVersion": "0.5.0",
            "kind": KIND,
            "devices": [{ "name": name, "containerEdits": { "env": env, "mounts": mounts } }],
        })
    }

    /// The same as options of docker, podman and nerdctl, for a shell. Words that hold spaces are
    /// in single quotes, which a shell only takes off where it reads the line (`eval`).
    pub fn options(&self) -> String {
        let word = |word: String| {
            // What a shell divides or would take for more than text, once it reads it.
            let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-=:,$+@".contains(c));
            if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
        };
        let variables = self
            .variables
            .iter()
            .map(|(name, value)| format!("--env {}", word(format!("{name}={value}"))));
        let mounts = self.mounts.iter().map(|mount| {
            let mode = if mount.writable { "rw" } else { "ro" };
            format!(
                "--volume {}",
                word(format!("{}:{}:{mode}", mount.host.display(), mount.container.display()))
            )
        });
        variables.chain(mounts).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits() -> Edits {
        let mount =
            |path: &str, writable| Mount { host: path.into(), container: path.into(), writable };
        Edits {
            variables: vec![
                ("LD_PRELOAD", "/$LIB/../x.so".into()),
                ("GINNEL_POLICY", "trust address ::1".into()),
            ],
            mounts: vec![mount("/usr/lib/ginnel", false), mount("/dev/shm/g", true)],
        }
    }

    #[test]
    fn a_cdi_file_has_one_device() {
        let file = edits().cdi("g1");
        assert_eq!((&file["kind"], &file["devices"][0]["name"]), (&KIND.into(), &"g1".into()));
        let edits = &file["devices"][0]["containerEdits"];
        assert_eq!(edits["env"][0], "LD_PRELOAD=/$LIB/../x.so");
        assert_eq!(edits["mounts"][0]["options"][0], "ro");
        assert_eq!(edits["mounts"][1]["containerPath"], "/dev/shm/g");
    }

    #[test]
    fn options_are_words_of_a_shell() {
        assert_eq!(
            edits().options(),
            "--env LD_PRELOAD=/$LIB/../x.so --env 'GINNEL_POLICY=trust address ::1' \
             --volume /usr/lib/ginnel:/usr/lib/ginnel:ro --volume /dev/shm/g:/dev/shm/g:rw"
        );
    }
}
