//! Pairs between two virtual machines that boot Debian's own kernel: the server in one, its load in
//! the other. Plainly they use the machines' network (virtio-net, with a switch in this process
//! between them); under Ginnel, the segment that `ginneld` shares with both.

use std::cell::Cell;
use std::fmt::{self, Debug, Formatter, Write as _};
use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::network::Switch;

use crate::interrupt;
use crate::pair::{Bench, Carrier, Found, Ground, Server, Track};
use crate::programs::{Listen, Load, Program, Setting};
use crate::share;
use crate::workdir::WorkDir;

/// The word that stands in the results.
pub const WORD: &str = "guests";

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SEGMENT: &str = "[segment.demo]\nsize = \"256M\"\nslots = 2\nvectors = 3\n";
/// Where the load's report is written in its machine.
const REPORT: &str = "/tmp/report";
/// A machine's memory, MiB: what it boots from holds all programs, Prometheus with 90, and is twice
/// in memory for a moment.
const MEMORY: u32 = 1024;
/// How long a small command may take in a machine.
const SHORT: Duration = Duration::from_secs(30);

/// Two running machines. They are killed when this is dropped.
pub struct Guests {
    // The order is the one in which they end.
    server: Guest,
    client: Guest,
    _daemon: Daemon,
    _switch: Switch,
    kernel: Kernel,
    port: Cell<u16>,
}

impl Debug for Guests {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        write!(to, "Guests({})", self.kernel.release())
    }
}

impl Guests {
    /// Boots two machines that have these programs.
    pub fn boot(programs: &[Box<dyn Program>], workdir: &WorkDir) -> Result<Self> {
        ginnel_guest::wait_only_until(|| interrupt::exit_code().is_some());
        let directory = workdir.subdir("guests")?;
        let kernel = Kernel::fetch().context("Debian's kernel for virtual machines")?;
        let daemon = Daemon::start(&directory, SEGMENT, false)?;
        let switch = Switch::new(&directory)?;
        // What is not installed is said of each pair.
        let tools =
            programs.iter().flat_map(|program| [program.server_tool(), program.client_tool()]);
        let tools: Vec<String> =
            tools.filter_map(|tool| tool.find().ok()).map(|path| in_guest(&path)).collect();
        let spec = |slot: u16| -> Result<Spec> {
            Ok(Spec {
                programs: tools.clone(),
                netdev: Some(switch.netdev("net")),
                address: Some(format!("10.77.0.{slot}/24")),
                options: daemon.vm_args("demo", slot)?,
                driver: true,
                memory: MEMORY,
                ..Spec::new(&format!("demo{slot}"))
            })
        };
        let booted = Guest::boot_all(&kernel, &directory, &[spec(1)?, spec(2)?])?;
        let Ok([server, client]) = <[Guest; 2]>::try_from(booted) else {
            bail!("two machines were to boot")
        };
        // As the udev rule does for a group: servers become another user.
        server.run("chmod 666 /dev/ginnel*", SHORT)?.good()?;
        Ok(Self { server, client, _daemon: daemon, _switch: switch, kernel, port: Cell::new(7000) })
    }

    /// For the reader.
    pub fn describe(&self) -> String {
        let how = match machine::acceleration(&self.kernel) {
            "kvm" => "under KVM",
            _ => {
                "under software emulation: these figures compare the two ways with each other, and say nothing of real machines. \
                 There a connection takes milliseconds to be proved, in place of 0.1: where there are many, measure \
                 for longer (--seconds 15)"
            }
        };
        format!("guests: two virtual machines with kernel {}, {how}", self.kernel.release())
    }
}

/// A server that listens.
struct Listening<'a> {
    guests: &'a Guests,
    pid: u32,
    port: u16,
}

impl Ground for Guests {
    fn word(&self) -> &'static str {
        WORD
    }

    fn start(
        &self,
        bench: &Bench,
        found: &Found,
        carrier: Carrier,
    ) -> Result<Box<dyn Server + '_>> {
        let port = self.port.replace(self.port.get() + 1);
        let dir =
            bench.workdir.subdir(&format!("guests-{}-{}", found.program.name(), carrier.word()))?;
        let mut command = found
            .program
            .server(&found.server, &Listen { address: SERVER, port, dir: &dir, root: true })?;
        command[0] = in_guest(&found.server);
        copy(&self.server, &dir)?;
        let log = format!("{}/log", dir.display());
        let begin = format!("{} >{log} 2>&1 & echo $!", line(carrier, &command));
        let pid =
            self.server.run(&begin, SHORT)?.good()?.trim().parse().context("no process number")?;
        let listening = Listening { guests: self, pid, port };
        let mut listens = format!("grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp");
        if let Some(text) = found.program.ready() {
            let _ = write!(listens, " && grep -q '{text}' {log}");
        }
        let wait = format!(
            "for i in $(seq 200); do kill -0 {pid} || break; {listens} && exit 0; sleep 0.1; done; tail -n 4 {log}; exit 1"
        );
        let said = self.server.run(&wait, SHORT)?;
        ensure!(
            said.status == 0,
            "{} does not listen: {}{}",
            found.name(carrier, "server"),
            said.out,
            said.err
        );
        Ok(Box::new(listening))
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        // Where the machine does not answer, it will be killed itself.
        let _ = self.guests.server.run(
            &format!("kill {0}; while kill -0 {0}; do sleep 0.02; done", self.pid),
            Duration::from_secs(5),
        );
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
        let dir = bench.workdir.subdir("guests-client")?;
        let seconds = bench.args.seconds();
        let mut command = vec![in_guest(&found.client)];
        command.extend(found.program.client(&Load {
            address: SERVER,
            port: self.port,
            dir: &dir,
            seconds,
            before,
            setting,
        })?);
        let client = &self.guests.client;
        copy(client, &dir)?;
        // An emulated machine is slow to begin, too.
        let limit = Track::limit(seconds) * 2;
        let script = format!(
            "rm -f {REPORT}; {}={REPORT} {}",
            share::REPORT_VARIABLE,
            line(track.carrier, &command)
        );
        let said = client.run(&script, limit)?;
        let name = found.name(track.carrier, "client");
        if said.status == 124 {
            bench.progress.note(&format!(
                "{name} did not end within {limit:?}; what follows shows where it stands"
            ));
            for guest in [&self.guests.server, client] {
                let seen = guest.run("ginnel status --json; ps", SHORT).map(|seen| seen.out);
                bench.progress.note(&seen.unwrap_or_else(|error| format!("{error:#}")));
            }
            bail!("{name} did not end within {limit:?}");
        }
        ensure!(said.status == 0, "{name} failed: {} {}", said.out.trim(), said.err.trim());
        if track.carrier == Carrier::Ginnel {
            let report = client.run(&format!("cat {REPORT}"), SHORT)?.good()?;
            fs::File::options()
                .create(true)
                .append(true)
                .open(&track.report)?
                .write_all(report.as_bytes())?;
        }
        found.program.read(&said.out)
    }
}

/// The name by which a machine finds a program of the host.
fn in_guest(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A command line for a machine's shell.
fn line(carrier: Carrier, command: &[String]) -> String {
    let mut line = match carrier {
        // A sockmap is of one kernel, and never asked for here (`Args::guests`).
        Carrier::Plain | Carrier::Sockmap => String::new(),
        Carrier::Ginnel => "ginnel run --".to_owned(),
    };
    for word in command {
        let _ = write!(line, " '{}'", word.replace('\'', "'\\''"));
    }
    line
}

/// Copies a directory to the same place in a machine.
fn copy(guest: &Guest, dir: &Path) -> Result<()> {
    guest.run(&format!("mkdir -p '{}'", dir.display()), SHORT)?.good()?;
    for entry in fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            copy(guest, &path)?;
        } else {
            guest.put(
                &path.display().to_string(),
                path.metadata()?.permissions().mode() & 0o777,
                &fs::read(&path)?,
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_sees_the_words_as_they_are() {
        let words = ["a b".to_owned(), "it's".to_owned(), String::new()];
        assert_eq!(line(Carrier::Ginnel, &words), r"ginnel run -- 'a b' 'it'\''s' ''");
        assert_eq!(in_guest("/usr/sbin/nginx"), "nginx");
    }
}
