//! The servers, one for each way, all started once.

use crate::Bench;
use anyhow::{Context, Result, bail};
use ginnel_bench::child::Process;
use ginnel_bench::network::Network;
use ginnel_demo::ports;
use serde::Serialize;
use std::process::Command;
use std::time::{Duration, Instant};

/// By which way clients read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// memcached over the virtual network.
    Memcached,
    /// The same, both ends under `ginnel run`.
    CarriedMemcached,
    /// ginnel-cache asked by its protocol, both ends under `ginnel run`.
    CarriedCache,
    /// ginnel-cache whose memory clients read; what they write is carried as above.
    Direct,
}

impl Way {
    /// All, the one that others are compared with first.
    pub const ALL: [Self; 4] =
        [Self::Memcached, Self::CarriedMemcached, Self::CarriedCache, Self::Direct];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Memcached => "memcached, virtual network",
            Self::CarriedMemcached => "memcached, ginnel run",
            Self::CarriedCache => "ginnel-cache, ginnel run",
            Self::Direct => "ginnel-cache, direct reads",
        }
    }

    /// Whether both ends run under `ginnel run`.
    pub fn is_carried(self) -> bool {
        self != Self::Memcached
    }

    /// The port of its server.
    pub fn port(self) -> u16 {
        11_311 + self as u16
    }
}

/// A running server.
pub struct Server {
    /// By which way it is read.
    pub way: Way,
    /// HOST:PORT, as clients name it.
    pub address: String,
    /// The server.
    pub process: Process,
}

/// Longer than any bench takes; who hangs is seen by its clients.
const ALWAYS: Duration = Duration::from_secs(24 * 3600);

/// Starts all servers, with room for far more than the records.
pub fn start(bench: &Bench<'_>) -> Result<Vec<Server>> {
    Way::ALL.into_iter().map(|way| start_one(bench, way).with_context(|| way.words())).collect()
}

fn start_one(bench: &Bench<'_>, way: Way) -> Result<Server> {
    let (port, mebibytes) =
        (way.port().to_string(), (bench.options.records / 256 + 128).to_string());
    let own = bench.options.product.join("ginnel-cache");
    let own = own.to_str().context("a path that is not UTF-8")?;
    let program = match way {
        Way::Memcached | Way::CarriedMemcached => "memcached",
        Way::CarriedCache | Way::Direct => own,
    };
    let mut line = vec![
        program,
        "-u",
        "root",
        "-l",
        Network::SERVER,
        "-p",
        &port,
        "-U",
        "0",
        "-m",
        &mebibytes,
    ];
    if way == Way::CarriedCache {
        line.push("--no-neighbours");
    }
    let command = bench.command(true, way, &line)?;
    let errors = bench.scratch.join(format!("{port}.errors"));
    let process = Process::start(program, command, &errors, Instant::now() + ALWAYS)?;
    let until = Instant::now() + Duration::from_secs(30);
    process.until(|pid| ports::is_listening(pid, way.port()) || Instant::now() > until)?;
    if Instant::now() > until {
        bail!("does not listen");
    }
    Ok(Server { way, address: format!("{}:{port}", Network::SERVER), process })
}

impl Bench<'_> {
    /// Returns a command in the servers' namespace or the clients', under `ginnel run` where the
    /// way is carried.
    pub fn command(&self, server: bool, way: Way, line: &[&str]) -> Result<Command> {
        let before = self.network.enter(server);
        let run = if way.is_carried() { self.ginnel.run(false)? } else { Vec::new() };
        let mut words = before.iter().chain(&run).chain(line);
        let mut command = Command::new(words.next().context("no program")?);
        command.args(words).envs(self.ginnel.environment());
        Ok(command)
    }
}
