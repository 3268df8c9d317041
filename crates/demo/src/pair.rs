//! One server and its loads: the two servers run side by side, and the loads take turns.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::args::Args;
use crate::child::{Child, End};
use crate::cpus::Cpus;
use crate::place::{Place, Side};
use crate::programs::{Listen, Load, Program, Setting};
use crate::progress::Progress;
use crate::report::Row;
use crate::tools::Ginnel;
use crate::workdir::WorkDir;
use crate::{diagnose, interrupt, share};

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(10);

/// What every measurement needs.
#[derive(Debug, Clone, Copy)]
pub struct Bench<'a> {
    /// The command line.
    pub args: &'a Args,
    /// The `ginnel` command, where it is measured.
    pub ginnel: Option<&'a Ginnel>,
    /// What is measured, in this order.
    pub carriers: &'a [Carrier],
    /// Where.
    pub place: &'a Place,
    /// On which processors.
    pub cpus: &'a Cpus,
    /// Where files go.
    pub workdir: &'a WorkDir,
    /// Who hears of it.
    pub progress: &'a Progress,
}

/// How a pair runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// As it is.
    Plain,
    /// Both ends under `ginnel run`.
    Ginnel,
}

impl Carrier {
    /// Those that are measured.
    pub fn all(ginnel: bool) -> &'static [Self] {
        if ginnel { &[Self::Plain, Self::Ginnel] } else { &[Self::Plain] }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Ginnel => "ginnel",
        }
    }
}

/// A pair's two programs, found.
struct Found<'a> {
    program: &'a dyn Program,
    server: String,
    client: String,
}

/// A server that listens.
struct Server {
    child: Child,
    port: u16,
}

/// One carrier's part of one row.
struct Track {
    carrier: Carrier,
    values: Vec<f64>,
    failure: Option<String>,
    report: PathBuf,
}

/// Measures all settings of a program. What goes wrong stands in the rows; an error means that it is time to go home.
pub fn run(bench: &Bench, program: &dyn Program) -> Result<Vec<Row>> {
    let tools = program.server_tool().find().and_then(|server| Ok((server, program.client_tool().find()?)));
    let (server, client) = match tools {
        Ok(tools) => tools,
        Err(error) => {
            bench.progress.note(&format!("{}: {error:#}", program.name()));
            bench.progress.skip(program.settings().len() * bench.args.rounds() * bench.carriers.len());
            let failed = |setting| row(bench, program, setting, &[], Some(format!("{error:#}")));
            return Ok(program.settings().iter().map(failed).collect());
        }
    };
    let found = Found { program, server, client };
    let mut servers: Vec<Option<Server>> = bench.carriers.iter().map(|_| None).collect();
    program.settings().iter().map(|setting| measure(bench, &found, setting, &mut servers)).collect()
}

/// Measures one setting: every carrier in every round, in changing order.
fn measure(bench: &Bench, found: &Found, setting: &'static Setting, servers: &mut [Option<Server>]) -> Result<Row> {
    let label = label(found.program, setting);
    let mut tracks: Vec<Track> = Vec::new();
    for (carrier, server) in bench.carriers.iter().zip(servers.iter_mut()) {
        let report = bench.workdir.file(&format!("report-{}", label.replace(|c: char| !c.is_ascii_alphanumeric(), "-")));
        let mut track = Track { carrier: *carrier, values: Vec::new(), failure: None, report };
        bench.progress.now(&format!("{label}, {}: starting", carrier.word()));
        if server.is_none() {
            track.note(bench, &label, Server::start(bench, found, *carrier).map(|started| *server = Some(started)))?;
        }
        if let Some(running) = server.as_ref().filter(|_| found.program.counts_requests()) {
            let first = load(bench, found, setting, &track, running, None);
            if let Some(rate) = track.note(bench, &label, first)? {
                track.values.push(rate);
            }
        }
        tracks.push(track);
    }
    // The first figure served to size the load; it is none of the measurements.
    let mut before: Vec<Option<f64>> = tracks.iter_mut().map(|track| track.values.pop()).collect();
    for round in 0..bench.args.rounds() {
        let mut order: Vec<usize> = (0..tracks.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let track = &mut tracks[index];
            let Some(server) = servers[index].as_ref().filter(|_| track.failure.is_none()) else {
                bench.progress.skip(1);
                continue;
            };
            let what = format!("{label}, {}, round {}", track.carrier.word(), round + 1);
            bench.progress.now(&what);
            let result = load(bench, found, setting, track, server, before[index]);
            match track.note(bench, &label, result)? {
                Some(value) => {
                    bench.progress.step(&format!("{what}: {value:.1} {}", found.program.unit()));
                    before[index] = Some(value);
                    track.values.push(value);
                }
                None => bench.progress.skip(1),
            }
        }
    }
    // A server whose load failed may be in any state: the next setting gets a new one.
    for (track, server) in tracks.iter().zip(servers) {
        if track.failure.is_some() {
            *server = None;
        }
    }
    Ok(row(bench, found.program, setting, &tracks, None))
}

impl Track {
    /// Keeps a failure for the row, and says it at once; only an interruption goes on up.
    fn note<T>(&mut self, bench: &Bench, label: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                interrupt::check()?;
                let failure = format!("{}: {error:#}", self.carrier.word());
                bench.progress.note(&format!("{label}, {failure}"));
                self.failure = Some(failure);
                Ok(None)
            }
        }
    }
}

impl Server {
    fn start(bench: &Bench, found: &Found, carrier: Carrier) -> Result<Self> {
        let name = format!("{} ({} server)", found.program.name(), carrier.word());
        let port = free_port()?;
        let dir = bench.workdir.subdir(&format!("{}-{}", found.program.name(), carrier.word()))?;
        let root = rustix::process::geteuid().is_root();
        let listen = Listen { address: bench.place.address(), port, dir: &dir, root };
        let command = found.program.server(&found.server, &listen)?;
        let command = [bench.place.enter(Side::Server), bench.cpus.server(), through(bench, carrier), command].concat();
        let child = Child::spawn(&name, &command, &[], bench.workdir)?;
        let listens = interrupt::poll(START, || {
            child.check_alive()?;
            Ok(listening(child.pid().as_raw_nonzero().get(), port).then_some(()))
        })?;
        if listens.is_none() {
            diagnose::print(bench.ginnel, &[&child]);
            return Err(anyhow!("{name} did not listen within {START:?}: {}", child.last_words()));
        }
        Ok(Self { child, port })
    }
}

/// Runs one load to its end and reads its figure.
fn load(
    bench: &Bench,
    found: &Found,
    setting: &'static Setting,
    track: &Track,
    server: &Server,
    before: Option<f64>,
) -> Result<f64> {
    server.child.check_alive()?;
    let dir = bench.workdir.subdir("client")?;
    let seconds = bench.args.seconds();
    let load = Load { address: bench.place.address(), port: server.port, dir: &dir, seconds, before, setting };
    let mut command = [bench.place.enter(Side::Client), bench.cpus.client(), through(bench, track.carrier)].concat();
    command.push(found.client.clone());
    command.extend(found.program.client(&load)?);
    let env = match track.carrier {
        Carrier::Plain => Vec::new(),
        Carrier::Ginnel => vec![(share::REPORT_VARIABLE, track.report.display().to_string())],
    };
    let name = format!("{} ({} client)", found.program.name(), track.carrier.word());
    let client = Child::spawn(&name, &command, &env, bench.workdir)?;
    // Generous: the machine may be busy, and a number of requests is only an estimate of a time.
    let limit = Duration::from_secs(u64::from(seconds) * 5 + 15);
    match client.wait(limit)? {
        End::Done(printed) => found.program.read(&printed),
        End::Failed(words) => Err(anyhow!("{name} failed: {words}")),
        End::Late => {
            bench.progress.note(&format!("{name} did not end within {limit:?}; what follows shows where it stands"));
            diagnose::print(bench.ginnel, &[&client, &server.child]);
            Err(anyhow!("{name} did not end within {limit:?}"))
        }
    }
}

/// What is put before a program's own command.
fn through(bench: &Bench, carrier: Carrier) -> Vec<String> {
    match (carrier, bench.ginnel) {
        (Carrier::Ginnel, Some(ginnel)) => ginnel.run(),
        _ => Vec::new(),
    }
}

/// A port that nobody uses at the moment.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).context("no free port")?.port())
}

/// Whether somebody listens on a port where this process is, seen without connecting.
fn listening(pid: i32, port: u16) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    listens_in(&table, port)
}

/// The table's fields: number, local address and port, remote address and port, state (0A is LISTEN).
fn listens_in(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&port))
    })
}

fn label(program: &dyn Program, setting: &Setting) -> String {
    format!("{}, {}", program.name(), setting.label)
}

fn row(bench: &Bench, program: &dyn Program, setting: &Setting, tracks: &[Track], failure: Option<String>) -> Row {
    let of = |carrier| tracks.iter().find(|track| track.carrier == carrier && track.failure.is_none());
    let median_of = |carrier| of(carrier).and_then(|track| median(&track.values));
    let (plain, ginnel) = (median_of(Carrier::Plain), median_of(Carrier::Ginnel));
    let failures: Vec<String> = failure.into_iter().chain(tracks.iter().filter_map(|track| track.failure.clone())).collect();
    Row {
        program: label(program, setting),
        place: bench.place.word(),
        plain,
        ginnel,
        unit: program.unit(),
        ratio: plain.zip(ginnel).map(|(plain, ginnel)| ginnel / plain),
        share: of(Carrier::Ginnel).and_then(|track| share::read(&track.report)),
        failure: (!failures.is_empty()).then(|| failures.join("; ")),
    }
}

/// The middle value, or the mean of the two middle ones.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(low.midpoint(*high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn only_a_listener_on_that_port_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
                     1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000\n";
        assert!(listens_in(table, 8080));
        assert!(!listens_in(table, 8081));
        assert!(!listens_in(table, 80));
    }
}
