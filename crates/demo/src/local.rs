//! Pairs on this kernel: child processes, in the namespaces of [`crate::place`] or over loopback.

use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::child::{Child, End};
use crate::cpus::Cpus;
use crate::pair::{Bench, Carrier, Found, Ground, Server, Track};
use crate::place::{Place, Side};
use crate::programs::{Listen, Load, Setting};
use crate::{diagnose, interrupt, ports, share};

/// How long a server may take until it listens.
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
struct Listening<'a> {
    local: &'a Local<'a>,
    child: Child,
    port: u16,
}

impl Ground for Local<'_> {
    fn word(&self) -> &'static str {
        self.place.word()
    }

    fn start(&self, bench: &Bench, found: &Found, carrier: Carrier) -> Result<Box<dyn Server + '_>> {
        let name = found.name(carrier, "server");
        let port = ports::free()?;
        let dir = bench.workdir.subdir(&format!("{}-{}", found.program.name(), carrier.word()))?;
        let root = rustix::process::geteuid().is_root();
        let listen = Listen { address: self.place.address(), port, dir: &dir, root };
        let command = found.program.server(&found.server, &listen)?;
        let command = [self.place.enter(Side::Server), self.cpus.server(), through(bench, carrier), command].concat();
        let child = Child::spawn(&name, &command, &[], bench.workdir)?;
        let listens = interrupt::poll(START, || {
            child.check_alive()?;
            Ok(ports::is_listening(child.pid().as_raw_nonzero().get(), port).then_some(()))
        })?;
        if listens.is_none() {
            diagnose::print(bench.ginnel, &[&child]);
            return Err(anyhow!("{name} did not listen within {START:?}: {}", child.last_words()));
        }
        Ok(Box::new(Listening { local: self, child, port }))
    }
}

impl Server for Listening<'_> {
    fn load(&self, bench: &Bench, found: &Found, setting: &'static Setting, track: &Track, before: Option<f64>) -> Result<f64> {
        self.child.check_alive()?;
        let dir = bench.workdir.subdir("client")?;
        let seconds = bench.args.seconds();
        let load = Load { address: self.local.place.address(), port: self.port, dir: &dir, seconds, before, setting };
        let carrier = if bench.args.server_only { Carrier::Plain } else { track.carrier };
        let mut command = [self.local.place.enter(Side::Client), self.local.cpus.client(), through(bench, carrier)].concat();
        command.push(found.client.clone());
        command.extend(found.program.client(&load)?);
        let env = match carrier {
            Carrier::Plain => Vec::new(),
            Carrier::Ginnel => vec![(share::REPORT_VARIABLE, track.report.display().to_string())],
        };
        let name = found.name(track.carrier, "client");
        let client = Child::spawn(&name, &command, &env, bench.workdir)?;
        let limit = Track::limit(seconds);
        match client.wait(limit)? {
            End::Done(printed) => found.program.read(&printed),
            End::Failed(words) => Err(anyhow!("{name} failed: {words}")),
            End::Late => {
                bench.progress.note(&format!("{name} did not end within {limit:?}; what follows shows where it stands"));
                diagnose::print(bench.ginnel, &[&client, &self.child]);
                Err(anyhow!("{name} did not end within {limit:?}"))
            }
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
