//! Pairs on this kernel: child processes, in the namespaces of [`crate::place`] or over loopback.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::child::{Child, End};
use crate::cpus::Cpus;
use crate::pair::{Bench, Carrier, Found, Ground, Server, Track};
use crate::place::{Place, Side};
use crate::programs::{Listen, Load, Setting};
use crate::{diagnose, interrupt, ports, share};

/// How long a server may take until it listens and answers.
const START: Duration = Duration::from_secs(10);

/// Where, and on which processors.
#[derive(Debug)]
pub struct Local<'a> {
    /// Where.
    pub place: &'a Place,
    /// On which processors.
    pub cpus: &'a Cpus,
}

/// A server that listens.
pub struct Listening<'a> {
    local: &'a Local<'a>,
    /// The server.
    pub child: Child,
    port: u16,
}

impl Local<'_> {
    /// The whole command of a program at one end.
    fn line(
        &self,
        bench: &Bench,
        side: Side,
        carrier: Carrier,
        command: Vec<String>,
    ) -> Result<Vec<String>> {
        let (first, last) = match (carrier, bench.ginnel, bench.sockmap) {
            (Carrier::Ginnel, Some(ginnel), _) => (Vec::new(), ginnel.run()),
            (Carrier::Sockmap, _, Some(held)) => {
                held.check()?;
                (held.enter.clone(), Vec::new())
            }
            _ => Default::default(),
        };
        let pin = match side {
            Side::Server => self.cpus.server(),
            Side::Client => self.cpus.client(),
        };
        Ok([first, self.place.enter(side), pin, last, command].concat())
    }

    /// Starts a server, and returns once it listens.
    pub fn listen(&self, bench: &Bench, found: &Found, carrier: Carrier) -> Result<Listening<'_>> {
        let name = found.name(carrier, "server");
        let port = ports::free()?;
        let dir = bench.workdir.subdir(&format!("{}-{}", found.program.name(), carrier.word()))?;
        let root = rustix::process::geteuid().is_root();
        let listen = Listen { address: self.place.address(), port, dir: &dir, root };
        let command = found.program.server(&found.server, &listen)?;
        let command = self.line(bench, Side::Server, carrier, command)?;
        let environment = found.program.server_environment(&dir);
        let child = Child::spawn(&name, &command, &environment, bench.workdir)?;
        let listens = interrupt::poll(START, || {
            child.check_alive()?;
            let listens = ports::is_listening(child.pid().as_raw_nonzero().get(), port);
            Ok((listens && child.has_said(found.program.ready())).then_some(()))
        })?;
        if listens.is_none() {
            diagnose::print(bench.ginnel, &[&child]);
            return Err(anyhow!("{name} was not ready within {START:?}: {}", child.last_words()));
        }
        Ok(Listening { local: self, child, port })
    }
}

impl Ground for Local<'_> {
    fn word(&self) -> &'static str {
        self.place.word()
    }

    fn start(
        &self,
        bench: &Bench,
        found: &Found,
        carrier: Carrier,
    ) -> Result<Box<dyn Server + '_>> {
        Ok(Box::new(self.listen(bench, found, carrier)?))
    }
}

/// How a load is begun.
#[derive(Debug, Clone, Copy)]
pub struct Begin<'a> {
    /// Which server it is put on: for its name.
    pub on: Carrier,
    /// How the load itself runs.
    pub carrier: Carrier,
    /// Where it runs under `ginnel run`: the file for its report.
    pub report: Option<&'a Path>,
    /// How long it should last.
    pub seconds: u32,
    /// The figure that the same load reached before.
    pub before: Option<f64>,
}

impl Listening<'_> {
    /// Begins a load.
    pub fn begin(
        &self,
        bench: &Bench,
        found: &Found,
        setting: &'static Setting,
        begin: Begin,
    ) -> Result<Child> {
        self.child.check_alive()?;
        let dir = bench.workdir.subdir("client")?;
        let Begin { on, carrier, report, seconds, before } = begin;
        let load = Load {
            address: self.local.place.address(),
            port: self.port,
            dir: &dir,
            seconds,
            before,
            setting,
        };
        let command = [vec![found.client.clone()], found.program.client(&load)?].concat();
        let command = self.local.line(bench, Side::Client, carrier, command)?;
        let env: Vec<_> = report
            .map(|report| (share::REPORT_VARIABLE, report.display().to_string()))
            .into_iter()
            .collect();
        Child::spawn(&found.name(on, "client"), &command, &env, bench.workdir)
    }
}

impl Server for Listening<'_> {
    fn load(
        &self,
        bench: &Bench,
        found: &Found,
        setting: &'static Setting,
        track: &Track,
        before: Option<f64>,
    ) -> Result<f64> {
        let report = (track.carrier == Carrier::Ginnel).then_some(track.report.as_path());
        let begin = Begin {
            on: track.carrier,
            carrier: track.carrier,
            report,
            seconds: bench.args.seconds(),
            before,
        };
        let client = self.begin(bench, found, setting, begin)?;
        found.program.read(&finish(bench, &client, begin.seconds, &[&self.child])?)
    }
}

/// What a load of so many seconds has printed, once it has ended well. `others`: who else is looked
/// at where it does not end.
pub fn finish(bench: &Bench, load: &Child, seconds: u32, others: &[&Child]) -> Result<String> {
    let (name, limit) = (&load.name, Track::limit(seconds));
    match load.wait(limit)? {
        End::Done(printed) => Ok(printed),
        End::Failed(words) => Err(anyhow!("{name} failed: {words}")),
        End::Late => {
            bench.progress.note(&format!(
                "{name} did not end within {limit:?}; what follows shows where it stands"
            ));
            diagnose::print(bench.ginnel, &[&[load], others].concat());
            Err(anyhow!("{name} did not end within {limit:?}"))
        }
    }
}
