//! What the programs of this crate have in common: a configuration, and how they end.

use crate::config::Config;
use ginnel_daemon::log;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::process::ExitCode;

/// Reads the configuration and does the program's work: 2 where the configuration is wrong, 1 where
/// the work fails, and a line in the log that says why.
pub fn run(
    config: Option<&Path>,
    work: impl FnOnce(Config) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let config = match Config::load(config) {
        Ok(config) => config,
        Err(error) => {
            log!(Error, "bad_configuration", why = error);
            return ExitCode::from(2);
        }
    };
    work(config).unwrap_or_else(|error| {
        log!(Error, "failed", why = format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// As many descriptors as the system allows: also those on their way to others count, by this
/// limit.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised is used as it is, and running out is handled.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
