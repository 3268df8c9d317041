//! `ginnel container`.

use clap::{Args, Subcommand};

/// `ginnel container`
#[derive(Debug, Args)]
pub struct Container {
    /// What to do for containers.
    #[command(subcommand)]
    pub command: ContainerCommand,
}

/// The commands for containers.
#[derive(Debug, Subcommand)]
pub enum ContainerCommand {
    /// Make a device for container runtimes, by a CDI file: podman run --device
    /// ginnel.dev/segment=NAME IMAGE
    ///
    /// Containers that have the same device meet; image and command stay as they are. Makes the
    /// segment's directory in /dev/shm, and says so to systemd-tmpfiles, for the next boot.
    Cdi(Group),
    /// Print the same as options, for runtimes without CDI: docker run $(ginnel container env NAME)
    /// IMAGE
    Env(Group),
    /// Undo `ginnel container cdi` and `env`: the CDI file, and the directory where nobody uses it
    Remove(Remove),
}

/// `ginnel container cdi`, `ginnel container env`
#[derive(Debug, Args)]
pub struct Group {
    /// Name of the group of containers that meet
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: String,
    /// Number that the programs' user has on the host: with --userns or rootless that is not what
    /// it is within. Programs of other users stay on TCP [default: this user]
    #[arg(long, value_name = "UID", conflicts_with = "any_user")]
    pub user: Option<u32>,
    /// Programs of all users and user namespaces: every member can then read, alter and pretend
    /// everything in the segment. Needs --allow
    #[arg(long, requires = "allow")]
    pub any_user: bool,
    /// With --any-user: the network of the containers, whose connections are carried without a
    /// proof, such as 10.88.0.0/16; may be given several times
    #[arg(long, value_name = "ADDRESS", requires = "any_user")]
    pub allow: Vec<String>,
}

/// `ginnel container remove`
#[derive(Debug, Args)]
pub struct Remove {
    /// Name of the group
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// All that there are
    #[arg(long)]
    pub all: bool,
}

/// A CDI device's name (CDI's `SPEC.md`, "Kind and devices"): it is part of files' names, too.
pub fn name(text: &str) -> Result<String, String> {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let ends = text.ends_with(|c: char| c.is_ascii_alphanumeric());
    if begins && ends && text.len() <= 64 && text.chars().all(inside) {
        return Ok(text.to_owned());
    }
    Err("a name is made of letters, digits, '_' and '-', begins with a letter and does not end with a sign".into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_good_for_devices_and_files() {
        for good in ["g1", "a", "web-tier_2"] {
            assert!(super::name(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "a/b", "..", "a-", "ü", "a b"] {
            assert!(super::name(bad).is_err(), "{bad}");
        }
    }
}
