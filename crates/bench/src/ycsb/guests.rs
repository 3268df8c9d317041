//! The load from one virtual machine to another. They have no room for a JVM: the client is
//! `ginnel-bench-ycsb-client`, with YCSB's keys and the same codec.

use crate::Options;
use crate::clients::{Sample, Sum, Workload};
use crate::ways::Way;
use anyhow::{Context, Result, ensure};
use ginnel_bench::ginnel::Report;
use ginnel_guest::bridge::Bridge;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use std::path::Path;
use std::time::Duration;

const SERVER: &str = "10.78.0.1";
const SEGMENT: &str = "[segment.ycsb]\nsize = \"256M\"\nslots = 2\nvectors = 3\n";
const CLIENT: &str = "/usr/bin/ginnel-bench-ycsb-client";
/// How long anything small may take in a machine.
const SHORT: Duration = Duration::from_secs(60);

/// Two running machines, the servers in the first one.
pub struct Guests {
    machines: [Guest; 2],
    _daemon: Daemon,
    _bridge: Bridge,
    kernel: Kernel,
}

impl Guests {
    /// Boots both, starts all servers and stores the records in each.
    pub fn boot(options: &Options, directory: &Path) -> Result<Self> {
        let kernel = Kernel::fetch().context("Debian's kernel for virtual machines")?;
        let daemon = Daemon::start(directory, SEGMENT, false)?;
        let bridge = Bridge::new(2)?;
        let product = options.product.canonicalize()?;
        let program = |name: &str| product.join(name).display().to_string();
        let spec = |slot: u16| -> Result<Spec> {
            let mut more = daemon.vm_args("ycsb", slot)?;
            more.extend(bridge.options(usize::from(slot) - 1));
            let programs = vec![
                "memcached".into(),
                program("ginnel-cache"),
                program("ginnel-bench-ycsb-client"),
            ];
            Ok(Spec { programs, options: more, driver: true, ..Spec::new(&format!("ycsb{slot}")) })
        };
        let booted = Guest::boot_all(&kernel, directory, &[spec(1)?, spec(2)?])?;
        let machines = <[Guest; 2]>::try_from(booted).ok().context("two machines were to boot")?;
        for (machine, slot) in machines.iter().zip(1..) {
            machine
                .run(
                    &format!("ip link set eth0 up && ip addr add 10.78.0.{slot}/24 dev eth0"),
                    SHORT,
                )?
                .good()?;
        }
        let this = Self { machines, _daemon: daemon, _bridge: bridge, kernel };
        for way in Way::ALL {
            this.start(options, way).with_context(|| way.words())?;
        }
        Ok(this)
    }

    /// For the reader.
    pub fn describe(&self) -> String {
        let how = match machine::acceleration(&self.kernel) {
            "kvm" => "under KVM",
            _ => {
                "under software emulation, which is not KVM: ways are compared, and nothing is said of real machines"
            }
        };
        let kernel = self.kernel.release();
        format!(
            "from one virtual machine to another, of one processor and 256 MiB each, with kernel {kernel}, {how}"
        )
    }

    fn start(&self, options: &Options, way: Way) -> Result<()> {
        let (port, [server, client]) = (way.port(), &self.machines);
        let program = match way {
            Way::Memcached | Way::CarriedMemcached => "memcached",
            Way::CarriedCache => "ginnel-cache --no-neighbours",
            Way::Direct => "ginnel-cache --segment",
        };
        let mebibytes = options.records / 512 + 8;
        let line =
            format!("{}{program} -u root -l {SERVER} -p {port} -U 0 -m {mebibytes}", before(way));
        server.run(&format!("{line} >/tmp/{port}.log 2>&1 &"), SHORT)?.good()?;
        let listens = format!(
            "for i in $(seq 300); do grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp && exit 0; sleep 0.1; done; \
             cat /tmp/{port}.log >&2; exit 1"
        );
        server.run(&listens, SHORT)?.good()?;
        let load = format!(
            "{}{CLIENT} load --address {SERVER}:{port} --records {}",
            before(way),
            options.records
        );
        client.run(&load, SHORT * 5)?.good()?;
        Ok(())
    }

    /// Has all clients put a load on a server, and adds up what they saw.
    pub fn sample(
        &self,
        options: &Options,
        way: Way,
        workload: Workload,
        rate: Option<u32>,
    ) -> Result<Sample> {
        let reads = workload.reads();
        let mut command = format!(
            "{}{CLIENT} run --address {SERVER}:{} --records {} --reads {reads} --warmup {} --seconds {}",
            before(way),
            way.port(),
            options.records,
            options.warmup,
            options.seconds
        );
        if let Some(rate) = rate {
            command += &format!(" --rate {rate}");
        }
        let script = format!(
            "rm -f /tmp/report.* /tmp/carried; export GINNEL_REPORT=/tmp/carried; all=
            for i in $(seq {}); do {command} --seed $i >/tmp/report.$i & all=\"$all $!\"; done
            for one in $all; do wait $one || exit 1; done
            for i in $(seq {}); do echo client; cat /tmp/report.$i; done; [ ! -e /tmp/carried ] || (echo carried; cat /tmp/carried)",
            options.clients, options.clients
        );
        let patience = Duration::from_secs_f64(options.warmup + options.seconds) + SHORT;
        let said = self.machines[1].run(&script, patience)?.good()?;
        let (reports, carried) = said.split_once("carried\n").unwrap_or((&said, ""));
        let mut sum = Sum::new()?;
        let mut clients = 0;
        for report in reports.split("client\n").skip(1) {
            sum.add(report)?;
            clients += 1;
        }
        ensure!(clients == options.clients, "{clients} clients reported");
        Ok(sum.sample(
            way,
            workload,
            rate.map(|rate| rate * options.clients),
            Report::parse(carried),
        ))
    }
}

fn before(way: Way) -> &'static str {
    if way.is_carried() { "ginnel run -- " } else { "" }
}
