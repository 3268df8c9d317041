//! The programs: for each, how its server and its load are started, at which settings, and how its
//! figure is read.

pub mod caddy;
pub mod iperf3;
pub mod memcached;
pub mod nginx;
pub mod prometheus;
pub mod redis;
pub mod wrk;

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::tools::Tool;

/// The programs that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nginx, with wrk
    Nginx,
    /// redis, with redis-benchmark
    Redis,
    /// memcached, with memcaslap
    Memcached,
    /// iperf3, with itself
    Iperf3,
    /// Caddy, in Go, with wrk
    Caddy,
    /// Prometheus, in Go, with wrk
    Prometheus,
}

/// A server and the load that is put on it.
pub trait Program {
    /// The server's name.
    fn name(&self) -> &'static str;
    /// What is counted, per second; more is better.
    fn unit(&self) -> &'static str;
    /// The server's program.
    fn server_tool(&self) -> Tool;
    /// The load's program.
    fn client_tool(&self) -> Tool;
    /// The loads.
    fn settings(&self) -> &'static [Setting];
    /// More loads, where the whole curve is asked for.
    fn further_settings(&self) -> &'static [Setting] {
        &[]
    }
    /// More loads, where only the server runs under Ginnel.
    fn settings_of_server_only(&self) -> &'static [Setting] {
        &[]
    }
    /// Writes what the server needs into its directory, and returns the arguments it is started
    /// with.
    fn server(&self, program: &str, listen: &Listen) -> Result<Vec<String>>;
    /// What is to stand in the server's environment, given its directory.
    fn server_environment(&self, _dir: &Path) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// What stands in the server's log once it answers; `None`: it does as soon as it listens.
    fn ready(&self) -> Option<&'static str> {
        None
    }
    /// Writes what the load needs, and returns the arguments it is started with.
    fn client(&self, load: &Load) -> Result<Vec<String>>;
    /// The figure, in [`Program::unit`], in what the load printed.
    fn read(&self, printed: &str) -> Result<f64>;
    /// Whether the load is a number of requests and not a time, so that its speed must be known
    /// beforehand.
    fn counts_requests(&self) -> bool {
        false
    }
}

impl dyn Program + '_ {
    /// The loads that are wanted.
    pub fn settings_of(
        &self,
        further: bool,
        server_only: bool,
    ) -> impl Iterator<Item = &'static Setting> {
        let further = if further { self.further_settings() } else { &[] };
        let server_only = if server_only { self.settings_of_server_only() } else { &[] };
        self.settings().iter().chain(further).chain(server_only)
    }
}

/// One load.
#[derive(Debug)]
pub struct Setting {
    /// For the table.
    pub label: &'static str,
    /// The arguments that make the difference.
    pub arguments: &'static [&'static str],
}

impl Setting {
    /// The arguments, as `Command` takes them.
    fn words(&self) -> impl Iterator<Item = String> {
        self.arguments.iter().map(ToString::to_string)
    }
}

/// Where a server listens and what it may use.
#[derive(Debug)]
pub struct Listen<'a> {
    /// The address.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
    /// A directory of its own.
    pub dir: &'a Path,
    /// Whether it runs as root: some refuse that unless told that it is meant.
    pub root: bool,
}

/// A load to put on a server.
#[derive(Debug)]
pub struct Load<'a> {
    /// The server's address.
    pub address: Ipv4Addr,
    /// The server's port.
    pub port: u16,
    /// A directory of the load's own.
    pub dir: &'a Path,
    /// How long it should last.
    pub seconds: u32,
    /// The figure that the same load reached before, if it ran before.
    pub before: Option<f64>,
    /// Which load.
    pub setting: &'static Setting,
}

/// The programs of these names, or all of them.
pub fn selected(names: &[Name]) -> Vec<Box<dyn Program>> {
    Name::value_variants()
        .iter()
        .filter(|name| names.is_empty() || names.contains(name))
        .map(|name| -> Box<dyn Program> {
            match name {
                Name::Nginx => Box::new(nginx::Nginx),
                Name::Redis => Box::new(redis::Redis),
                Name::Memcached => Box::new(memcached::Memcached),
                Name::Iperf3 => Box::new(iperf3::Iperf3),
                Name::Caddy => Box::new(caddy::Caddy),
                Name::Prometheus => Box::new(prometheus::Prometheus),
            }
        })
        .collect()
}

/// Turns a command line's literals and values into what `Command` takes.
pub fn words<const N: usize>(words: [&dyn std::fmt::Display; N]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// The rate that follows `label` in the output of the load `load`; none at all is an error.
pub fn rate_after(printed: &str, label: &str, load: &str) -> Result<f64> {
    let rest = printed.split_once(label).map(|(_, rest)| rest.trim_start()).unwrap_or_default();
    let number = rest.split(|c: char| !(c.is_ascii_digit() || c == '.')).next().unwrap_or_default();
    let rate: f64 = number
        .parse()
        .with_context(|| format!("no {label:?} in its output: {}", excerpt(printed)))?;
    if rate <= 0.0 {
        bail!("{load} got no answer at all");
    }
    Ok(rate)
}

/// The end of a program's output, short enough for a message.
pub fn excerpt(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        "it printed nothing".to_owned()
    } else {
        lines[lines.len().saturating_sub(4)..].join(" / ")
    }
}
