//! Taking one sample: both ends of a task as processes, under a time limit, and what they measured.

use crate::apps;
use crate::args::{Pattern, Transport, Way};
use crate::conn::Address;
use crate::host;
use crate::plan::Cell;
use crate::record::Sample;
use crate::serve::Link;
use crate::work::Task;
use anyhow::{Context, Result, anyhow, bail};
use ginnel_bench::child::{Process, TimedOut, Values};
use ginnel_bench::cleanup;
use ginnel_bench::ginnel::{Ginnel, Report};
use ginnel_bench::network::Network;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What is there to measure with. A part that could not be had holds the reason.
pub struct Bench {
    /// The `ginnel` command, with a segment of its own.
    pub ginnel: Result<Ginnel, String>,
    /// The two network namespaces.
    pub network: Result<Network, String>,
    /// The other machine, with --connect.
    pub link: Option<Link>,
    /// The other machine's addresses in further networks.
    pub ways: Vec<Way>,
    /// Folder for sockets, reports and error output.
    pub scratch: PathBuf,
    /// Folder in memory, where there is such a file system: for what processes share, and what
    /// programs copy.
    pub memory: PathBuf,
    /// The processors that the two ends stay on.
    pub cpus: Option<[usize; 2]>,
    /// Seconds of a sample.
    pub seconds: f64,
    /// Where the host's CPU time is told.
    pub host_cpu: Option<PathBuf>,
}

/// Share of the bytes that must have gone through rings for a sample to count as Ginnel's.
const SHARE: f64 = 0.9;

/// Descriptors that real programs may have: some look at each that they could have.
const MOST_FILES: u64 = 16_384;

/// vsock(7): VMADDR_CID_LOCAL, the loopback.
const VSOCK_LOCAL: u32 = 1;

/// Starts one end: `ginnel-bench work TASK` behind what stands before it.
pub fn start(
    name: &str,
    prefix: &[&str],
    task: &Task,
    scratch: &Path,
    ring: Option<usize>,
) -> Result<Process> {
    let program = std::env::current_exe()?;
    let mut command = match prefix {
        [] => Command::new(&program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&program);
            command
        }
    };
    command.arg("work").arg(serde_json::to_string(task)?).env_remove("LD_PRELOAD");
    command.env("GINNEL_REPORT", scratch.join("report.jsonl"));
    if let Some(bytes) = ring {
        command.env("GINNEL_RING", bytes.to_string()).env("GINNEL_RING_MAX", bytes.to_string());
    }
    let connections = u32::try_from(task.connections).unwrap_or(u32::MAX);
    Process::start(
        name,
        command,
        &scratch.join(format!("{name}.err")),
        Instant::now() + patience(task.seconds) + SET_UP * connections,
    )
}

/// A folder in memory, if there is a file system for it, else in `scratch`; removed by
/// [`cleanup::all`]. Those of benches that were killed outright go now.
fn in_memory(scratch: &Path) -> Result<PathBuf> {
    let (memory, prefix) = (Path::new("/dev/shm"), "ginnel-bench-");
    for entry in std::fs::read_dir(memory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    for folder in [memory.join(format!("{prefix}{}", std::process::id())), scratch.join("memory")] {
        if std::fs::create_dir(&folder).is_ok() {
            cleanup::remove_later(&folder);
            return Ok(folder);
        }
    }
    bail!("no folder can be made in {} or {}", memory.display(), scratch.display())
}

/// A connection's part of the time limit: to prove that two ends hold it takes milliseconds where
/// the processor is emulated.
const SET_UP: Duration = Duration::from_millis(50);

/// Time limit of a process that measures for so many seconds, without that.
fn patience(seconds: f64) -> Duration {
    Duration::from_secs_f64(20.0 + 3.0 * seconds)
}

impl Bench {
    /// Takes one sample of a cell. Where both ends measured something, the one that received
    /// decides.
    pub fn sample(&self, round: u32, cell: Cell) -> Sample {
        let mut sample = Sample::of(round, cell);
        match self.measured(cell) {
            Ok((ends, report)) => {
                sample.fill(&ends);
                if let Some(report) = report {
                    sample.ring_share = Some(report.share());
                    sample.wakes = Some(report.wakes());
                }
                let moved = cell.pattern == Pattern::Connect
                    || sample.ring_share.is_none_or(|share| share >= SHARE);
                if cell.transport.is_ginnel() && !moved {
                    sample.note = Some(format!(
                        "{:.0} % of its bytes stayed on TCP",
                        100.0 * (1.0 - sample.ring_share.unwrap_or(0.0))
                    ));
                }
                if let Some(rate) = sample.rate().filter(|_| sample.is_behind()) {
                    sample.note = Some(format!("{rate:.0} a second, not {}", cell.x));
                }
                if sample.value.is_none() {
                    sample.error = Some("it measured nothing".into());
                }
            }
            Err(error) => sample.error = Some(format!("{error:#}")),
        }
        sample
    }

    /// Result lines of the server and the client of each pair, and what the shims reported.
    fn measured(&self, cell: Cell) -> Result<(Vec<[Values; 2]>, Option<Report>)> {
        let reports = self.scratch.join("report.jsonl");
        let _ = std::fs::remove_file(&reports);
        if cell.transport == Transport::Memory {
            let task = cell.task(false, "memory".into(), self.seconds, self.cpu(true));
            let process = start("memory", &[], &task, &self.scratch, None)?;
            return Ok((vec![[Values::new(), process.result()?]], None));
        }
        if cell.pattern.is_app() {
            let values = self.program(cell)?;
            return Ok((
                vec![[Values::new(), values]],
                cell.transport.is_ginnel().then(|| Report::read(&reports)).flatten(),
            ));
        }
        let mut running = Vec::new();
        for pair in 0..cell.pairs() {
            running.push(self.start_pair(cell, pair)?);
        }
        let mut ends = Vec::new();
        for (server, client) in running {
            let both: Vec<&Process> =
                [Some(&client), server.here()].into_iter().flatten().collect();
            let theirs = client.result().inspect_err(|error| self.explain(error, &both))?;
            let own = match &server {
                Server::Here(process) => {
                    process.result().inspect_err(|error| self.explain(error, &both))?
                }
                Server::There(there) => there.result()?,
            };
            ends.push([own, theirs]);
        }
        Ok((ends, cell.transport.is_ginnel().then(|| Report::read(&reports)).flatten()))
    }

    /// The processor of an end, where the ends have one each.
    fn cpu(&self, server: bool) -> Option<usize> {
        self.cpus.map(|cpus| cpus[usize::from(!server)])
    }

    /// Starts both ends of a pair.
    fn start_pair(&self, cell: Cell, pair: usize) -> Result<(Server, Process)> {
        // Several pairs find their processors themselves.
        let cpu = |server| if cell.pairs() > 1 { None } else { self.cpu(server) };
        let task = cell.task(true, self.address(cell, pair), self.seconds, cpu(true));
        let server = match &self.link {
            Some(link) => Server::There(link.start(cell.transport.is_ginnel(), task)?),
            None => {
                let name = format!("server-{pair}");
                Server::Here(start(
                    &name,
                    &self.prefix(cell.transport, true)?,
                    &task,
                    &self.scratch,
                    cell.ring(),
                )?)
            }
        };
        let address = match &server {
            Server::Here(process) => {
                let port = process.port().inspect_err(|error| self.explain(error, &[process]))?;
                self.address(cell, pair).parse::<Address>()?.with_port(port.into())
            }
            Server::There(there) => {
                there.address(self.ways.iter().find(|way| way.0 == cell.transport).map(|way| way.1))
            }
        };
        let task = Task {
            host_cpu: self.host_cpu.clone(),
            ..cell.task(false, address.to_string(), self.seconds, cpu(false))
        };
        let name = format!("client-{pair}");
        let client =
            start(&name, &self.prefix(cell.transport, false)?, &task, &self.scratch, cell.ring())?;
        Ok((server, client))
    }

    /// Runs a real program's server and load, and gives what the load told.
    fn program(&self, cell: Cell) -> Result<Values> {
        let dir = self.memory.join("program");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        let address = if cell.transport.is_veth() { Network::SERVER } else { "127.0.0.1" };
        let seconds = self.seconds.ceil().max(1.0);
        let load = apps::Load {
            cell,
            address: address.parse()?,
            port: ginnel_demo::ports::free()?,
            dir: &dir,
            seconds: seconds as u32,
        };
        let start = |role: apps::Role, program: &[String]| {
            let server = role == apps::Role::Server;
            let cpu = self.cpus.map(|cpus| cpus[usize::from(!server)].to_string());
            let mut line: Vec<&str> = self.enter(cell.transport, server)?;
            cpu.iter().for_each(|cpu| line.extend(["taskset", "-c", cpu]));
            line.extend(self.through(cell.transport)?);
            line.extend(program.iter().map(String::as_str));
            let mut command = Command::new(line[0]);
            command.args(&line[1..]).env_remove("LD_PRELOAD").env("LC_ALL", "C");
            if role == apps::Role::Load {
                command.env("GINNEL_REPORT", self.scratch.join("report.jsonl"));
            }
            let name = format!("{}-{}", cell.pattern.name(), role.name());
            let limit = Instant::now() + patience(2.0 * seconds);
            Process::start(&name, command, &self.scratch.join(format!("{name}.err")), limit)
        };
        let values = apps::measure(&load, start, |error, processes| self.explain(error, processes));
        let _ = std::fs::remove_dir_all(&dir);
        values
    }

    fn address(&self, cell: Cell, pair: usize) -> String {
        let place = |kind: &str| format!("{kind}:{}/{pair}", self.scratch.display());
        match (cell.transport, &self.link) {
            (_, Some(_)) => "tcp:0.0.0.0:0".into(),
            (Transport::Unix, _) => place("unix"),
            (Transport::Pipes, _) => place("fifo"),
            (Transport::Ring, _) => {
                format!("ring:{}:{}/{pair}", cell.bare_ring(), self.memory.display())
            }
            (Transport::Vsock, _) => format!("vsock:{VSOCK_LOCAL}:0"),
            (transport, _) if transport.is_veth() => format!("tcp:{}:0", Network::SERVER),
            _ => "tcp:127.0.0.1:0".into(),
        }
    }

    /// What stands before the program: the namespace, then `ginnel run`.
    fn prefix(&self, transport: Transport, server: bool) -> Result<Vec<&str>> {
        Ok([self.enter(transport, server)?, self.through(transport)?].concat())
    }

    fn enter(&self, transport: Transport, server: bool) -> Result<Vec<&str>> {
        match transport.is_veth() {
            true => {
                Ok(self.network.as_ref().map_err(|why| anyhow!("{why}"))?.enter(server).to_vec())
            }
            false => Ok(Vec::new()),
        }
    }

    fn through(&self, transport: Transport) -> Result<Vec<&str>> {
        match transport.is_ginnel() {
            true => self.ginnel.as_ref().map_err(|why| anyhow!("{why}"))?.run(self.link.is_none()),
            false => Ok(Vec::new()),
        }
    }

    /// Says where the processes hang, before they are killed.
    fn explain(&self, error: &anyhow::Error, processes: &[&Process]) {
        if error.is::<TimedOut>() {
            eprintln!("\n{error}");
            if let Ok(ginnel) = &self.ginnel {
                eprintln!("{}", ginnel.status());
            }
            processes.iter().for_each(|process| eprintln!("{}", process.stacks()));
        }
    }
}

/// The server of a pair.
enum Server {
    Here(Process),
    There(crate::serve::Far),
}

impl Server {
    fn here(&self) -> Option<&Process> {
        match self {
            Self::Here(process) => Some(process),
            Self::There(_) => None,
        }
    }
}

/// Prepares what the cells need; what cannot be had makes its cells fail, with the reason.
pub fn prepare(cells: &[Cell], options: &crate::args::Options, scratch: &Path) -> Result<Bench> {
    let any = |wanted: fn(Transport) -> bool| cells.iter().any(|cell| wanted(cell.transport));
    let cores = std::thread::available_parallelism()?.get();
    let cpus = match options.pin.0 {
        Some(_) if cores < 2 => None,
        Some(cpus) => {
            if let Some(cpu) = cpus
                .iter()
                .find(|&&cpu| !Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists())
            {
                bail!("there is no processor {cpu}: choose with --pin, or --pin none");
            }
            Some(cpus)
        }
        None => None,
    };
    if let Some(port) = &options.host_cpu {
        host::ask(port).context("asking for the host's CPU time")?;
    }
    let ginnel = match any(Transport::is_ginnel) {
        true => Ginnel::beside().and_then(|mut ginnel| {
            if options.connect.is_none() {
                ginnel.make_segment(&[])?;
            }
            Ok(ginnel)
        }),
        false => Err(anyhow!("not needed")),
    };
    let network = match any(Transport::is_veth) {
        true if !rustix::process::geteuid().is_root() => {
            Err(anyhow!("network namespaces need root"))
        }
        true => Network::build(),
        false => Err(anyhow!("not needed")),
    };
    if cells.iter().any(|cell| cell.pattern.is_app()) {
        // A thousand connections need more descriptors than a process has at first.
        let mut files = getrlimit(Resource::Nofile);
        files.current = files.maximum.map_or(Some(MOST_FILES), |most| Some(most.min(MOST_FILES)));
        setrlimit(Resource::Nofile, files)?;
    }
    let memory = in_memory(scratch)?;
    let said = |error: anyhow::Error| format!("{error:#}");
    Ok(Bench {
        ginnel: ginnel.map_err(said),
        network: network.map_err(said),
        link: options.connect.map(Link::to).transpose().context("reaching the other machine")?,
        ways: options.way.clone(),
        scratch: scratch.into(),
        memory,
        cpus,
        seconds: options.seconds.unwrap_or(if options.full { 0.5 } else { 0.15 }),
        host_cpu: options.host_cpu.clone(),
    })
}
