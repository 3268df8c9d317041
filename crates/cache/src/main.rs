//! The command `ginnel-cache`.
#![forbid(unsafe_code)]

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
use clap::Parser;
#[cfg(not(loom))]
use ginnel_cache::server::{self, args::Args};
#[cfg(not(loom))]
use std::process::ExitCode;

#[cfg(not(loom))]
fn main() -> ExitCode {
    match server::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ginnel-cache: {error}");
            // As memcached: EX_USAGE and its like.
            ExitCode::from(71)
        }
    }
}
