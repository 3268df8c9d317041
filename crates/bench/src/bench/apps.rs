//! Real programs, on request (`--apps`): an unmodified server and its own client, plainly and under
//! `ginnel run`, one new pair for each sample.
//!
//! How a program's two ends are started and its output is read is in a file for each; those that
//! `make demo` has too come from there. Programs that count in seconds measure at least one.

mod copy;
mod iperf3;
mod memcached;
mod netpipe;
mod nginx;
mod redis;
mod sockperf;

use crate::args::Pattern;
use crate::plan::Cell;
use anyhow::{Context, Result, anyhow};
use ginnel_bench::child::{Process, Values};
use ginnel_demo::ports;
use ginnel_demo::programs::Listen;
use ginnel_demo::tools::Tool;
use std::net::Ipv4Addr;
use std::path::Path;

/// A server and the load that is put on it.
trait App {
    /// The server's program.
    fn server_tool(&self) -> Tool;
    /// The load's; none: a workload of this program.
    fn client_tool(&self) -> Option<Tool>;
    /// Writes what the server needs into its folder, and gives its command line.
    fn server(&self, program: &str, load: &Load) -> Result<Vec<String>>;
    /// The command line of a load.
    fn client(&self, program: &str, load: &Load, stage: Stage) -> Result<Vec<String>>;
    /// What came out: "value", in bytes, requests or nanoseconds, and quantiles where the program
    /// tells some.
    fn read(&self, printed: &str, load: &Load) -> Result<Values>;
    /// Whether a first load comes before the one that counts.
    fn has_first(&self) -> bool {
        false
    }
}

/// What a load is for.
#[derive(Clone, Copy)]
enum Stage {
    /// It fills the server, or tells how fast it is.
    First,
    /// It counts; the figure of the first one, if that has one.
    Measured(Option<f64>),
}

/// What a program is started as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The server.
    Server,
    /// A load that does not count.
    First,
    /// The load that does.
    Load,
}

impl Role {
    /// For messages, and names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::First => "first client",
            Self::Load => "client",
        }
    }
}

/// What is measured, and where.
pub struct Load<'a> {
    /// Program, and what varies.
    pub cell: Cell,
    /// The server's address.
    pub address: Ipv4Addr,
    /// Its port.
    pub port: u16,
    /// A new folder, in memory where there is such a one.
    pub dir: &'a Path,
    /// How long the load should last.
    pub seconds: u32,
}

impl Load<'_> {
    fn listen(&self) -> Listen<'_> {
        Listen {
            address: self.address,
            port: self.port,
            dir: self.dir,
            root: rustix::process::geteuid().is_root(),
        }
    }
}

fn of(pattern: Pattern) -> Result<&'static dyn App> {
    Ok(match pattern {
        Pattern::Netpipe => &netpipe::Netpipe,
        Pattern::Sockperf => &sockperf::Sockperf,
        Pattern::Iperf3 => &iperf3::Iperf3,
        Pattern::Nginx => &nginx::Nginx,
        Pattern::Redis => &redis::Redis,
        Pattern::Memcached => &memcached::Memcached,
        Pattern::Copy => &copy::Copy,
        other => return Err(anyhow!("{} is no program", other.name())),
    })
}

/// What is not installed, for all of these: name and Debian package.
pub fn missing(patterns: impl Iterator<Item = Pattern>) -> Vec<(&'static str, &'static str)> {
    let tools = patterns
        .filter_map(|pattern| of(pattern).ok())
        .flat_map(|app| [Some(app.server_tool()), app.client_tool()]);
    let mut found: Vec<_> = tools
        .flatten()
        .filter(|tool| tool.look().is_none())
        .map(|tool| (tool.names[0], tool.package))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn path(tool: Tool) -> Result<String> {
    let path = tool
        .look()
        .with_context(|| format!("{} {} {}", tool.names[0], NOT_INSTALLED, tool.package))?;
    path.into_os_string().into_string().map_err(|path| anyhow!("{} is not UTF-8", path.display()))
}

/// In the reason of a sample whose program is not there.
pub const NOT_INSTALLED: &str = "is not installed: it comes with the Debian package";

/// Runs a server and its load, each started by `start`, and reads what came out.
pub fn measure(
    load: &Load,
    start: impl Fn(Role, &[String]) -> Result<Process>,
    explain: impl Fn(&anyhow::Error, &[&Process]),
) -> Result<Values> {
    let app = of(load.cell.pattern)?;
    let server = path(app.server_tool())?;
    let client = match app.client_tool() {
        Some(tool) => path(tool)?,
        None => std::env::current_exe()?
            .into_os_string()
            .into_string()
            .map_err(|path| anyhow!("{} is not UTF-8", path.display()))?,
    };
    let server = start(Role::Server, &app.server(&server, load)?)?;
    server
        .until(|pid| ports::is_listening(pid, load.port))
        .inspect_err(|error| explain(error, &[&server]))?;
    let run = |role, stage| {
        let client = start(role, &app.client(&client, load, stage)?)?;
        let printed = client.output().inspect_err(|error| explain(error, &[&client, &server]))?;
        app.read(&printed, load)
    };
    let first =
        if app.has_first() { run(Role::First, Stage::First)?.get("value").copied() } else { None };
    let values = run(Role::Load, Stage::Measured(first))?;
    server.stop();
    Ok(values)
}

/// One figure.
fn value(value: f64) -> Values {
    Values::from([("value".into(), value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_server_and_a_package() {
        for pattern in Pattern::ALL.into_iter().filter(|pattern| pattern.is_app()) {
            let app = of(pattern).unwrap();
            assert!(
                !app.server_tool().package.is_empty()
                    && app.client_tool().is_none_or(|tool| !tool.package.is_empty())
            );
        }
        assert!(of(Pattern::Stream).is_err());
        let gone = Tool { names: &["ginnel-no-such-program"], package: "some-package" };
        assert!(
            path(gone)
                .unwrap_err()
                .to_string()
                .ends_with("is not installed: it comes with the Debian package some-package")
        );
    }
}
