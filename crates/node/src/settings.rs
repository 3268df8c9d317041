//! Settings of a process's node, from the environment or the command line (`ginnel run --help`
//! describes them).

use crate::home::{self, default_directory};
use ginnel_region::Config;
use std::path::{Path, PathBuf};

/// Name of the segment that is used where none is named.
pub const DEFAULT_SEGMENT: &str = "default";

/// Settings of one process's node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the process table and of segments given by name.
    pub directory: PathBuf,
    /// The directory was named, and is not the effective user's own.
    pub directory_is_named: bool,
    /// As the segment was named: a path, or a name in the directory.
    pub segment_name: String,
    /// The segment's file, the driver's device, or the socket at which `ginneld` lets processes of
    /// the host join.
    pub segment: PathBuf,
    /// It was found (the device that a host shares with its virtual machine), not named.
    pub found: bool,
    /// How a segment is made where there is none.
    pub config: Config,
    /// Make no waiters, even where FIFOs could be had.
    pub tokens: bool,
    /// How long to spin before sleeping, nanoseconds; `None`: as `Node::spin_ns` says.
    pub spin_ns: Option<u64>,
}

impl Settings {
    /// From `GINNEL_DIR`, `GINNEL_SEGMENT`, `GINNEL_FOUND`, `GINNEL_SIZE`, `GINNEL_TOKENS` and
    /// `GINNEL_SPIN` (see `ginnel run --help`).
    #[must_use]
    pub fn from_environment() -> Self {
        let directory = default_directory();
        let segment_name = text("GINNEL_SEGMENT").unwrap_or_else(|| DEFAULT_SEGMENT.into());
        let segment = segment_of(&directory, &segment_name);
        let mut config = Config::default();
        if let Some(size) = number("GINNEL_SIZE") {
            config.size = size;
        }
        Self {
            directory_is_named: std::env::var_os("GINNEL_DIR").is_some(),
            segment_name,
            segment,
            found: text("GINNEL_FOUND").is_some(),
            config,
            tokens: number("GINNEL_TOKENS").is_some_and(|value| value != 0),
            spin_ns: number("GINNEL_SPIN").map(|micros| micros.saturating_mul(1000)),
            directory,
        }
    }

    /// Returns the same for the user that the process has become. The environment is not read
    /// again: programs write their titles over it.
    #[must_use]
    pub fn of_present_user(&self) -> Self {
        let mut settings = self.clone();
        if !settings.directory_is_named {
            settings.directory = home::own_directory();
            settings.segment = segment_of(&settings.directory, &settings.segment_name);
        }
        settings
    }
}

/// The value of a variable of the environment; `None` where it is not set, or is not UTF-8.
pub fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The same as a number; `None` where it is none.
pub fn number(name: &str) -> Option<u64> {
    text(name).and_then(|value| value.trim().parse().ok())
}

fn segment_of(directory: &Path, name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { directory.join(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// In a process of its own for each value: the environment is all threads'.
    #[test]
    fn every_number_of_microseconds_to_spin_is_a_setting() {
        const EXPECTED: &str = "GINNEL_TEST_EXPECTED";
        if let Ok(expected) = std::env::var(EXPECTED) {
            return assert_eq!(format!("{:?}", Settings::from_environment().spin_ns), expected);
        }
        let own = std::env::current_exe().expect("a test is a program");
        for (value, expected) in
            [("0", Some(0)), ("1", Some(1000)), ("30", Some(30_000)), ("", None), ("many", None)]
        {
            let mut again = Command::new(&own);
            again.args([
                "--exact",
                "settings::tests::every_number_of_microseconds_to_spin_is_a_setting",
            ]);
            let ran = again
                .env("GINNEL_SPIN", value)
                .env(EXPECTED, format!("{expected:?}"))
                .output()
                .expect("it starts");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(
                ran.status.success() && said.contains("1 passed"),
                "GINNEL_SPIN={value}: {said}"
            );
        }
    }
}
