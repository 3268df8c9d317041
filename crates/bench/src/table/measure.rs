//! Taking one sample: the command lines of a measure, run under a time limit, and what came out.

mod commands;

use crate::guests::Guests;
use crate::peers::{self, Held, Peers};
use crate::plan::{Carrier, Measure, Work};
use crate::programs::Programs;
use anyhow::{Context, Result, anyhow};
use ginnel_bench::child::{Process, TimedOut, Values};
use ginnel_bench::ginnel::{Ginnel, Report};
use ginnel_bench::network::Network;
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is there to measure with. A part that could not be had holds the reason.
pub struct Bench {
    /// The compiled workloads.
    pub programs: Programs,
    /// The `ginnel` command.
    pub ginnel: Result<Ginnel, String>,
    /// Why no segment forces tokens, if none does.
    pub tokens: Result<(), String>,
    /// The two network namespaces.
    pub network: Result<Network, String>,
    /// The two virtual machines.
    pub guests: Result<Guests, String>,
    /// Others' programs.
    pub peers: Peers,
    /// Folder for reports and error output.
    pub scratch: PathBuf,
    /// The two processors that the processes are pinned to.
    pub cpus: [usize; 2],
    /// Shorter samples.
    pub quick: bool,
    /// Time limit of a child.
    pub patience: Duration,
}

/// One sample as it was taken.
#[derive(Serialize)]
pub struct Sample {
    /// Nanoseconds, bytes per second or percent of a core: see [`Work`].
    pub value: f64,
    /// CPU time over elapsed time of both processes together, in percent of a core; where reported.
    pub cpu_percent: Option<f64>,
    /// What the shims reported.
    pub report: Option<Report>,
    /// Result lines of the server (first) and the client, or of the reference.
    pub raw: Vec<Values>,
}

impl Bench {
    /// The limit: one way in a shared cache line, in ns.
    pub fn limit(&self) -> Result<f64> {
        let raw = self.reference("limit", &["--seconds".into(), "0.03".into()], self.cpus)?;
        raw.get("p50_ns").copied().context("the limit was not measured")
    }

    /// CPU time of the virtual machines so far, in ticks of 10 ms.
    pub fn guest_ticks(&self) -> u64 {
        self.guests.as_ref().map_or(0, |guests| guests.ticks().unwrap_or(0))
    }

    /// Takes one sample.
    pub fn sample(&self, measure: &Measure) -> Result<Sample> {
        let options = self.options(measure);
        let cpus = measure.work.places().map(|place| self.cpus[place]);
        let _busy = measure
            .work
            .busy()
            .iter()
            .map(|&place| self.busy(self.cpus[place]))
            .collect::<Result<Vec<_>>>()?;
        let (raw, report) = match measure.carrier {
            Carrier::Shared(mode) => (vec![self.reference(mode, &options, cpus)?], None),
            Carrier::Object(mode) => (vec![self.object(mode, &options, cpus)?], None),
            Carrier::Boost => {
                let program = self.peers.boost.as_ref().map_err(|why| anyhow!("{why}"))?;
                (vec![self.by_itself(Command::new(program), "queue", &options, cpus)?], None)
            }
            Carrier::Ucx(test) => {
                self.peers.ucx.as_ref().map_err(|why| anyhow!("{why}"))?;
                (
                    vec![peers::ucx(
                        test,
                        measure.work,
                        self.quick,
                        cpus,
                        &self.scratch,
                        self.deadline(),
                    )?],
                    None,
                )
            }
            carrier if carrier.is_guests() => self.guest_pair(carrier, measure.work, &options)?,
            carrier => self.pairs(carrier, measure.work, &options, cpus)?,
        };
        Ok(Sample {
            value: value(measure.work, &raw)
                .with_context(|| format!("{} gave {raw:?}", measure.id))?,
            cpu_percent: cpu_percent(&raw),
            report,
            raw,
        })
    }

    /// A process that keeps a processor busy, until it is dropped.
    fn busy(&self, cpu: usize) -> Result<Process> {
        let mut command = Command::new(self.programs.path("references"));
        command.args(["busy", "--cpu", &cpu.to_string()]);
        let process =
            Process::start("busy", command, &self.scratch.join("busy.err"), self.deadline())?;
        process.told("busy")?;
        Ok(process)
    }

    fn reference(&self, mode: &str, options: &[String], cpus: [usize; 2]) -> Result<Values> {
        self.by_itself(Command::new(self.programs.path("references")), mode, options, cpus)
    }

    /// By the program beside this one.
    fn object(&self, mode: &str, options: &[String], cpus: [usize; 2]) -> Result<Values> {
        let mut command =
            Command::new(std::env::current_exe()?.with_file_name("ginnel-bench-objects"));
        if mode == "python" {
            command.env("GINNEL_LIBRARY", self.programs.libginnel()?);
        }
        self.by_itself(command, mode, options, cpus)
    }

    /// A program that starts both ends itself.
    fn by_itself(
        &self,
        mut command: Command,
        mode: &str,
        options: &[String],
        cpus: [usize; 2],
    ) -> Result<Values> {
        command.arg(mode).args(options);
        command.args(["--cpu", &cpus[0].to_string(), "--peer-cpu", &cpus[1].to_string()]);
        let process =
            Process::start(mode, command, &self.scratch.join("reference.err"), self.deadline())?;
        process.result().inspect_err(|error| self.explain(error, &[&process]))
    }

    fn guest_pair(
        &self,
        carrier: Carrier,
        work: Work,
        options: &[String],
    ) -> Result<(Vec<Values>, Option<Report>)> {
        let guests = self.guests.as_ref().map_err(|why| anyhow!("{why}"))?;
        guests.pair(carrier, work, work.program(), options, self.patience * 2).inspect_err(
            |error| {
                if error.is::<TimedOut>() {
                    eprintln!("\n{error}\n{}", guests.status());
                }
            },
        )
    }

    /// Runs a workload, both ends here: its result lines, the server's before the client's, pair by
    /// pair.
    fn pairs(
        &self,
        carrier: Carrier,
        work: Work,
        options: &[String],
        cpus: [usize; 2],
    ) -> Result<(Vec<Values>, Option<Report>)> {
        let reports = self.scratch.join("report.jsonl");
        let _ = std::fs::remove_file(&reports);
        let held = (carrier == Carrier::Sockmap).then(|| self.hold()).transpose()?;
        let mut running = Vec::new();
        for pair in 0..work.pairs() {
            let start = |server: bool, port| -> Result<Process> {
                let role = if server { "server" } else { "client" };
                let mut line =
                    self.prefix(carrier, server)?.into_iter().map(String::from).collect::<Vec<_>>();
                line.extend(held.iter().flat_map(|held| held.enter.iter().cloned()));
                let cpu = (work.pairs() == 1 || matches!(work, Work::PairsApart(_)))
                    .then_some(cpus[usize::from(!server)]);
                line.extend(self.line(carrier, work, options, server, (port, pair), cpu)?);
                let mut command = Command::new(&line[0]);
                command.args(&line[1..]).env_remove("LD_PRELOAD");
                if carrier.is_ginnel() {
                    command.env("GINNEL_REPORT", &reports).env("GINNEL_GO", "1");
                    command.envs(self.ginnel.as_ref().ok().and_then(Ginnel::environment));
                }
                Process::start(
                    role,
                    command,
                    &self.scratch.join(format!("{role}-{pair}.err")),
                    self.deadline(),
                )
            };
            let server = start(true, 0)?;
            let port = server.port().inspect_err(|error| self.explain(error, &[&server]))?;
            running.push((server, start(false, port)?));
        }
        let mut raw = Vec::new();
        for (server, client) in &running {
            let both = || Ok((client.result()?, server.result()?));
            let (theirs, own) =
                both().inspect_err(|error| self.explain(error, &[server, client]))?;
            raw.extend([own, theirs]);
        }
        let report = match held {
            Some(held) => Some(held.end()?),
            None => carrier.is_ginnel().then(|| Report::read(&reports)).flatten(),
        };
        Ok((raw, report))
    }

    /// A cgroup with a sockmap, for one sample.
    fn hold(&self) -> Result<Held> {
        let program = self.peers.sockmap.as_ref().map_err(|why| anyhow!("{why}"))?;
        Held::new(program, &self.scratch.join("sockmap.err"), self.deadline())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Says where the processes hang, before they are killed.
    fn explain(&self, error: &anyhow::Error, processes: &[&Process]) {
        if !error.is::<TimedOut>() {
            return;
        }
        eprintln!("\n{error}");
        if let Ok(ginnel) = &self.ginnel {
            eprintln!("{}", ginnel.status());
        }
        for process in processes {
            eprintln!("{}", process.stacks());
        }
    }
}

/// The value of a sample, from the server's and the client's result lines.
fn value(work: Work, raw: &[Values]) -> Option<f64> {
    let all = |key| raw.iter().filter_map(move |values| values.get(key).copied());
    match work {
        Work::PingPong(_)
        | Work::OneCore
        | Work::Large(_)
        | Work::Tail
        | Work::GoCall
        | Work::Lock => all("p50_ns").next(),
        Work::Paused(_) => Some(all("p50_ns").sum::<f64>() / all("p50_ns").count() as f64)
            .filter(|v| v.is_finite()),
        Work::Stream(_) | Work::Memcpy | Work::GoStream(_) => all("bytes_per_s").next(),
        Work::Both => {
            all("bytes_per_s").next().or_else(|| raw.iter().map(|end| rate(end, "bytes")).sum())
        }
        Work::Crowd(_) | Work::Go(_) | Work::GoBeside(_) | Work::Contended => all("per_s").next(),
        // Of those who asked.
        Work::Pairs(_) | Work::PairsApart(_) | Work::Connect => {
            raw.iter().skip(1).step_by(2).map(|end| rate(end, "count")).sum()
        }
        Work::Beside | Work::BesideOneCore | Work::Changes(_) => raw
            .last()
            .and_then(|client| Some(client.get("messages")? * 1e9 / client.get("elapsed_ns")?)),
        Work::Idle => cpu_percent(raw.get(2..).filter(|host| !host.is_empty()).unwrap_or(raw)),
        Work::Getter => all("p50_ns").next(),
    }
}

/// So many a second, by a task's result line.
fn rate(values: &Values, key: &str) -> Option<f64> {
    Some(values.get(key)? / values.get("seconds").filter(|&&seconds| seconds > 0.0)?)
}

fn cpu_percent(raw: &[Values]) -> Option<f64> {
    raw.iter().map(|values| Some(values.get("cpu_ns")? * 100.0 / values.get("elapsed_ns")?)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, f64)]) -> Values {
        pairs.iter().map(|&(key, value)| (key.into(), value)).collect()
    }

    #[test]
    fn the_two_directions_of_paused_messages_count_alike() {
        let raw = [values(&[("p50_ns", 10.0)]), values(&[("p50_ns", 20.0)])];
        assert_eq!(value(Work::Paused(""), &raw), Some(15.0));
        assert_eq!(value(Work::Paused(""), &[]), None);
    }

    #[test]
    fn idle_cpu_is_of_both_processes() {
        let raw = [
            values(&[("cpu_ns", 1.0), ("elapsed_ns", 100.0)]),
            values(&[("cpu_ns", 3.0), ("elapsed_ns", 100.0)]),
        ];
        assert_eq!(value(Work::Idle, &raw), Some(4.0));
    }
}
