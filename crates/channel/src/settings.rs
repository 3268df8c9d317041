//! Settings, from the environment or the command line (`ginnel run --help` describes them).

#[cfg(doc)]
use crate::Attachment;
use crate::home::{self, default_directory};
use crate::policy::{Policy, program_names};
use ginnel_region::Config;
use std::path::{Path, PathBuf};

/// Name of the segment that is used where none is named.
pub const DEFAULT_SEGMENT: &str = "default";
/// Settings of one process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the ledger and of segments given by name.
    pub directory: PathBuf,
    /// The directory was named, and is not the effective user's own.
    pub directory_is_named: bool,
    /// As the segment was named: a path, or a name in the directory.
    pub segment_name: String,
    /// The segment's file, the driver's device, or the socket at which `ginneld` lets processes of the host join.
    pub segment: PathBuf,
    /// It was found (the device that a host shares with its virtual machine), not named.
    pub found: bool,
    /// How a segment is made where there is none.
    pub config: Config,
    /// Data operations on a connection before it becomes a candidate.
    pub after: u32,
    /// Use tokens even where FIFOs could be had.
    pub tokens: bool,
    /// How long to spin before sleeping, nanoseconds; `None`: see [`Attachment::spin_ns`].
    pub spin_ns: Option<u64>,
    /// First size of a ring, bytes.
    pub ring: u64,
    /// Largest size of a ring, bytes.
    pub ring_max: u64,
    /// Testing: (seed, period) of random switches.
    pub chaos: Option<(u64, u64)>,
    /// Testing: one wake-up in so many finds its waiter out of reach; 0 none.
    pub deaf: u64,
    /// Say on standard error what happens.
    pub verbose: bool,
    /// What of it may be carried.
    pub policy: Policy,
}

impl Settings {
    /// From `GINNEL_*` (see `ginnel run --help`).
    #[must_use]
    pub fn from_environment() -> Self {
        let directory = default_directory();
        let text = |name: &str| std::env::var(name).ok();
        let number = |name: &str| text(name).and_then(|value| value.trim().parse::<u64>().ok());
        let segment_name = text("GINNEL_SEGMENT").unwrap_or_else(|| DEFAULT_SEGMENT.into());
        let segment = segment_of(&directory, &segment_name);
        let power = |value: u64| value.next_power_of_two().clamp(4096, 1 << 26);
        let ring = power(number("GINNEL_RING").unwrap_or(32 << 10));
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
            after: u32::try_from(number("GINNEL_AFTER").unwrap_or(8)).unwrap_or(u32::MAX),
            tokens: number("GINNEL_TOKENS").is_some_and(|value| value != 0),
            spin_ns: number("GINNEL_SPIN").map(|micros| micros.saturating_mul(1000)),
            ring,
            ring_max: power(number("GINNEL_RING_MAX").unwrap_or(4 << 20)).max(ring),
            chaos: text("GINNEL_CHAOS").and_then(|value| {
                let (seed, period) = value.split_once(':').unwrap_or((&value, "16"));
                Some((seed.parse().ok()?, period.parse::<u64>().ok()?.max(1)))
            }),
            deaf: number("GINNEL_DEAF").unwrap_or(0),
            verbose: number("GINNEL_VERBOSE").is_some_and(|value| value != 0),
            // `ginnel run` has checked it. What cannot be understood all the same may have meant to deny something.
            policy: std::env::var_os("GINNEL_POLICY").map_or_else(Policy::default, |rules| {
                let rules = rules.to_str().and_then(|rules| Policy::parse(rules).ok());
                rules.map_or_else(Policy::nothing, |policy| policy.of_program(&program_names()))
            }),
            directory,
        }
    }
}

impl Settings {
    /// Returns the same for the user that the process has become. The environment is not read again:
    /// programs write their titles over it.
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
        for (value, expected) in [("0", Some(0)), ("1", Some(1000)), ("30", Some(30_000)), ("", None), ("many", None)] {
            let mut again = Command::new(&own);
            again.args(["--exact", "settings::tests::every_number_of_microseconds_to_spin_is_a_setting"]);
            let ran = again.env("GINNEL_SPIN", value).env(EXPECTED, format!("{expected:?}")).output().expect("it starts");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "GINNEL_SPIN={value}: {said}");
        }
    }
}
