//! Settings of what is carried, from the environment or the command line (`ginnel run --help`
//! describes them).

use crate::broker;
use crate::policy::{Policy, program_names};
use ginnel_node::settings::{Settings as NodeSettings, number, text};
use std::path::PathBuf;

/// Settings of one process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Those of its node.
    pub node: NodeSettings,
    /// Data operations on a connection before it becomes a candidate.
    pub after: u32,
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
    /// Where the broker is asked for ends that nobody in the segment has; `None`: nowhere.
    pub broker: Option<PathBuf>,
}

impl Settings {
    /// From `GINNEL_*` (see `ginnel run --help`).
    #[must_use]
    pub fn from_environment() -> Self {
        let power = |value: u64| value.next_power_of_two().clamp(4096, 1 << 26);
        let ring = power(number("GINNEL_RING").unwrap_or(32 << 10));
        Self {
            node: NodeSettings::from_environment(),
            after: u32::try_from(number("GINNEL_AFTER").unwrap_or(8)).unwrap_or(u32::MAX),
            ring,
            ring_max: power(number("GINNEL_RING_MAX").unwrap_or(4 << 20)).max(ring),
            chaos: text("GINNEL_CHAOS").and_then(|value| {
                let (seed, period) = value.split_once(':').unwrap_or((&value, "16"));
                Some((seed.parse().ok()?, period.parse::<u64>().ok()?.max(1)))
            }),
            deaf: number("GINNEL_DEAF").unwrap_or(0),
            verbose: number("GINNEL_VERBOSE").is_some_and(|value| value != 0),
            // `ginnel run` has checked it. What cannot be understood all the same may have meant to
            // deny something.
            policy: std::env::var_os("GINNEL_POLICY").map_or_else(Policy::default, |rules| {
                let rules = rules.to_str().and_then(|rules| Policy::parse(rules).ok());
                rules.map_or_else(Policy::nothing, |policy| policy.of_program(&program_names()))
            }),
            broker: broker::from_environment(),
        }
    }

    /// Returns the same for the user that the process has become. The environment is not read
    /// again: programs write their titles over it.
    #[must_use]
    pub fn of_present_user(&self) -> Self {
        Self { node: self.node.of_present_user(), ..self.clone() }
    }
}
