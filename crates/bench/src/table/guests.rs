//! Two virtual machines with Debian's own kernel, for the figures from guest to guest: one has the
//! server, the other the client. Both are booted once, and all samples are taken in that boot.

use crate::plan::{Carrier, Work};
use crate::programs::Programs;
use anyhow::{Context, Result, bail, ensure};
use ginnel_bench::child::{TimedOut, Values, parse};
use ginnel_bench::ginnel::Report;
use ginnel_bench::machine::{cpu_ns, ticks};
use ginnel_guest::agent::Output;
use ginnel_guest::bridge::Bridge;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::network::Switch;
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

const SERVER: &str = "10.77.0.1";
/// The same machine by the bridge of the host's kernel.
const SERVER_BY_TAP: &str = "10.78.0.1";
const SEGMENT: &str = "[segment.bench]\nsize = \"256M\"\nslots = 2\nvectors = 3\n";
/// How long a small command may take in a machine.
const SHORT: Duration = Duration::from_secs(30);
/// Where processes in a machine report what they carried.
const REPORT: &str = "/tmp/report";
/// Where a program's number stands in its machine.
const PID: &str = "/tmp/pid";
/// Where the workload programs are in a machine.
const PLACE: &str = "/root";
/// A program of [`Work::Idle`] makes this file in its machine when its sleep begins.
const MARK: &str = "/tmp/mark";
/// So long after both have, they are watched …
const IDLE_FROM: Duration = Duration::from_secs(1);
/// … for so long: what is done every ten seconds is done once.
const IDLE_FOR: Duration = Duration::from_secs(10);
/// Seconds that they sleep: one may begin later than the other.
pub const IDLE_SECONDS: u64 = 17;

/// Two running machines. They are killed when this is dropped.
pub struct Guests {
    // The order is the one in which they end.
    machines: [Guest; 2],
    _daemon: Daemon,
    _switch: Switch,
    /// Why there is none: without root, or without tap devices.
    bridge: Result<Bridge>,
    kernel: Kernel,
    port: Cell<u16>,
}

impl Guests {
    /// Boots two machines that have the workload programs, memcached too where the host has it.
    pub fn boot(programs: &Programs, directory: &Path) -> Result<Self> {
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory)?;
        let kernel = Kernel::fetch().context("Debian's kernel for virtual machines")?;
        let daemon = Daemon::start(directory, SEGMENT, false)?;
        let switch = Switch::new(directory)?;
        let mut bridge = Bridge::new(2);
        let file = |name: &str| -> Result<_> {
            Ok((format!("{PLACE}/{name}"), 0o755, std::fs::read(programs.path(name))?))
        };
        let files: Vec<_> = ["pingpong", "stream", "idle", "getter"]
            .into_iter()
            .map(file)
            .collect::<Result<_>>()?;
        let spec = |slot: u16| -> Result<Spec> {
            let mut options = daemon.vm_args("bench", slot)?;
            if let Ok(bridge) = &bridge {
                options.extend(bridge.options(usize::from(slot) - 1));
            }
            Ok(Spec {
                programs: ginnel_guest::initramfs::find("memcached")
                    .iter()
                    .map(|_| "memcached".to_owned())
                    .collect(),
                netdev: Some(switch.netdev("net")),
                address: Some(format!("10.77.0.{slot}/24")),
                options,
                files: files.clone(),
                driver: true,
                ..Spec::new(&format!("bench{slot}"))
            })
        };
        let booted = Guest::boot_all(&kernel, directory, &[spec(1)?, spec(2)?])?;
        let machines = <[Guest; 2]>::try_from(booted).ok().context("two machines were to boot")?;
        for (machine, slot) in machines.iter().zip(1..) {
            let begin = format!("ip link set eth1 up && ip addr add 10.78.0.{slot}/24 dev eth1");
            bridge = bridge.and_then(|bridge| machine.run(&begin, SHORT)?.good().map(|_| bridge));
        }
        Ok(Self {
            machines,
            _daemon: daemon,
            _switch: switch,
            bridge,
            kernel,
            port: Cell::new(7000),
        })
    }

    /// For the reader.
    pub fn describe(&self) -> String {
        let how = match machine::acceleration(&self.kernel) {
            "kvm" => "under KVM",
            _ => {
                "under software emulation, which is not KVM: these figures compare ways within it, and say nothing of real machines"
            }
        };
        format!(
            "guests: two virtual machines of one processor with kernel {}, {how}",
            self.kernel.release()
        )
    }

    /// Runs a workload's two halves, one in each machine: the result lines of the server (first)
    /// and the client, and what was carried how.
    pub fn pair(
        &self,
        carrier: Carrier,
        work: Work,
        program: &str,
        options: &[String],
        patience: Duration,
    ) -> Result<(Vec<Values>, Option<Report>)> {
        let _driver =
            (carrier == Carrier::GinnelSysfs).then(|| Unbound::new(&self.machines)).transpose()?;
        let address = match (carrier, &self.bridge) {
            (Carrier::Tap, Err(why)) => bail!("no bridge between the machines: {why:#}"),
            (Carrier::Tap, Ok(_)) => SERVER_BY_TAP,
            _ => SERVER,
        };
        let port = self.port.replace(self.port.get() + 1);
        let before = if carrier.is_ginnel() { "ginnel run -- " } else { "" };
        let line = |role: &str| {
            let command = command_line(work, program, role, &format!("{address}:{port}"), options);
            format!(
                "rm -f {REPORT} {MARK}; export GINNEL_REPORT={REPORT}; echo $$ >{PID}; exec {before}{command}"
            )
        };
        let [server, client] = &self.machines;
        // It is gone, and has reported, before anything else is done.
        let stop = format!(
            "p=$(cat {PID}); kill $p; for i in $(seq 100); do [ -d /proc/$p ] || exit 0; sleep 0.1; done; kill -9 $p; exit 1"
        );
        let serving = server.start(&line("server"), patience)?;
        let listens = format!(
            "for i in $(seq 300); do grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp && exit 0; sleep 0.1; done; exit 1"
        );
        ensure!(
            server.run(&listens, SHORT * 2)?.status == 0,
            "{program} does not listen in its machine"
        );
        let fetching = client.start(&line("client"), patience)?;
        let idle = (work == Work::Idle).then(|| self.idle_cost());
        let theirs = fetching.finish()?;
        if work == Work::Getter || theirs.status != 0 {
            let stopped = server.run(&stop, SHORT)?;
            ensure!(
                work != Work::Getter || stopped.status == 0,
                "{program}'s server does not end: {}",
                stopped.err.trim()
            );
        }
        let own = serving.finish()?;
        let theirs = values("client", &theirs)?;
        let mut raw =
            if work == Work::Getter { vec![theirs] } else { vec![values("server", &own)?, theirs] };
        if let Some(cost) = idle {
            raw.push(cost?);
        }
        let mut report = None;
        if carrier.is_ginnel() {
            let mut text = String::new();
            for machine in &self.machines {
                text += &machine.run(&format!("cat {REPORT}"), SHORT)?.out;
            }
            report = Report::parse(&text);
        }
        Ok((raw, report))
    }

    /// What both machines cost the host while the programs in them sleep.
    fn idle_cost(&self) -> Result<Values> {
        for machine in &self.machines {
            let asleep =
                format!("for i in $(seq 300); do [ -e {MARK} ] && exit 0; sleep 0.2; done; exit 1");
            ensure!(
                machine.run(&asleep, SHORT * 3)?.status == 0,
                "the programs that are to sleep do not come to it"
            );
        }
        std::thread::sleep(IDLE_FROM);
        let spent =
            || self.machines.iter().map(|machine| cpu_ns(machine.pid())).sum::<Result<u64>>();
        let (before, begun) = (spent()?, Instant::now());
        std::thread::sleep(IDLE_FOR);
        let (spent, elapsed) = (spent()?.saturating_sub(before), begun.elapsed());
        Ok(Values::from([
            ("cpu_ns".into(), spent as f64),
            ("elapsed_ns".into(), elapsed.as_nanos() as f64),
        ]))
    }

    /// CPU time that both machines have taken of the host, in ticks of 10 ms.
    pub fn ticks(&self) -> Result<u64> {
        self.machines.iter().map(|machine| ticks(machine.pid())).sum()
    }

    /// For a program that hangs.
    pub fn status(&self) -> String {
        let look = |machine: &Guest| {
            machine
                .run("ginnel status --json; ps", SHORT)
                .map_or_else(|error| format!("{error:#}"), |said| said.out)
        };
        self.machines.iter().map(look).collect()
    }
}

/// A program's result line.
fn values(role: &str, said: &Output) -> Result<Values> {
    if said.status == 124 {
        return Err(TimedOut(role.to_owned()).into());
    }
    ensure!(said.status == 0, "{role}: status {}: {}", said.status, said.err.trim());
    let values: Values = said.out.lines().flat_map(parse).collect();
    ensure!(!values.is_empty(), "{role} gave no result");
    Ok(values)
}

/// The driver let go of the device in both machines, so that programs map it by sysfs; it takes it
/// back when this is dropped.
struct Unbound<'a>(&'a [Guest; 2], String);

impl<'a> Unbound<'a> {
    fn new(machines: &'a [Guest; 2]) -> Result<Self> {
        let device = machines[0]
            .run("basename $(readlink -f /sys/class/ginnel/ginnel0/device)", SHORT)?
            .good()?
            .trim()
            .to_owned();
        let this = Self(machines, device);
        this.tell("unbind")?;
        Ok(this)
    }

    fn tell(&self, what: &str) -> Result<()> {
        for machine in self.0 {
            machine
                .run(&format!("echo {} >/sys/bus/pci/drivers/ginnel/{what}", self.1), SHORT)?
                .good()?;
        }
        Ok(())
    }
}

impl Drop for Unbound<'_> {
    fn drop(&mut self) {
        // Where a machine does not answer, every later sample says so.
        let _ = self.tell("bind");
    }
}

/// The command of one end. `place`: the server's address and port.
fn command_line(work: Work, program: &str, role: &str, place: &str, options: &[String]) -> String {
    let options = options.join(" ");
    match (work, role) {
        (Work::Getter, "server") => {
            let (address, port) = place.split_once(':').unwrap_or((place, ""));
            format!("memcached -l {address} -p {port} -U 0 -t 1 -m 64 -u root")
        }
        (Work::Idle, _) => {
            format!("{PLACE}/{program} {role} --addr {place} {options} --mark {MARK}")
        }
        _ => format!("{PLACE}/{program} {role} --addr {place} {options}"),
    }
}
