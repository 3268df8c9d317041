//! What several of the tests use.
#![allow(dead_code, reason = "not every test uses all of it")]

pub mod ports;
pub mod stream;

pub use ginnel_guest::PATIENCE;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::host::Host;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec};
use ginnel_guest::network::Switch;
use ginnel_guest::open_mpi;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// `programs/NAME.c`, compiled for the host and so for its guests.
pub fn program(directory: &Path, name: &str) -> Vec<u8> {
    compiled(
        directory,
        name,
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c")),
    )
}

/// The same for a program of the tests of System V objects.
fn program_of_sysv(directory: &Path, name: &str) -> Vec<u8> {
    compiled(
        directory,
        name,
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../crates/sysv/tests/programs/{name}.c")),
    )
}

/// The same for a program of the tests on one kernel.
pub fn program_of_one_kernel(directory: &Path, name: &str) -> Vec<u8> {
    compiled(
        directory,
        name,
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/programs/{name}/{name}.c")),
    )
}

fn compiled(directory: &Path, name: &str, source: &Path) -> Vec<u8> {
    let to = directory.join(name);
    let mut compiler = Command::new("cc");
    compiler.args([
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
    ]);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    compiler
        .arg(here.join("../driver"))
        .arg("-I")
        .arg(here.join("../tests/programs/include"))
        .arg("-o")
        .arg(&to)
        .arg(source);
    assert!(compiler.status().expect("cc").success(), "{} does not compile", source.display());
    std::fs::read(&to).expect("compiled")
}

/// The configuration of a segment.
pub const SEGMENT: &str = "[segment.t]\nsize = \"64M\"\nslots = 4\nvectors = 3\n";

/// Guests with one segment and one network.
pub struct Lab {
    pub guests: Vec<Guest>,
    pub daemon: Daemon,
    switch: Switch,
    directory: tempfile::TempDir,
    kernel: Kernel,
    specs: Vec<Spec>,
}

impl Lab {
    /// Boots guests 1 to `count`, with the driver or without, and with these programs.
    pub fn boot(count: u16, driver: bool, programs: &[&str]) -> Self {
        Self::in_segments(SEGMENT, &vec!["t"; count.into()], driver, programs)
    }

    /// The same, each in the segment that stands for it in `segments`, which `config` describes.
    pub fn in_segments(config: &str, segments: &[&str], driver: bool, programs: &[&str]) -> Self {
        Self::boot_with(config, segments, driver, programs, Vec::new(), |_| {})
    }

    /// Boots two guests with the driver, these programs, and the host's Open MPI.
    pub fn with_open_mpi(config: &str, programs: &[&str]) -> Self {
        let add = |spec: &mut Spec| open_mpi::add(spec).expect("Open MPI");
        Self::boot_with(config, &["t", "t"], true, programs, Vec::new(), add)
    }

    /// Boots guests with the driver and these files beside: (place, mode, content).
    pub fn with_files(count: u16, files: Vec<(String, u32, Vec<u8>)>) -> Self {
        Self::boot_with(SEGMENT, &vec!["t"; count.into()], true, &[], files, |_| {})
    }

    fn boot_with(
        config: &str,
        segments: &[&str],
        driver: bool,
        programs: &[&str],
        files: Vec<(String, u32, Vec<u8>)>,
        add: impl Fn(&mut Spec),
    ) -> Self {
        let kernel = Kernel::fetch().expect("a kernel");
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = Daemon::start(directory.path(), config, true).expect("ginneld");
        let switch = Switch::new(directory.path()).expect("a switch");
        let file = |name: &str, program| (format!("/root/{name}"), 0o755, program);
        let mut compiled = ["pingpong", "device", "sysv"]
            .map(|name| file(name, program(directory.path(), name)))
            .to_vec();
        compiled.push(file("lives", program_of_sysv(directory.path(), "lives")));
        compiled.extend(files);
        let spec = |slot: u16, segment: &str| Spec {
            programs: programs.iter().map(|&name| name.to_owned()).collect(),
            netdev: Some(switch.netdev("net")),
            address: Some(format!("10.77.0.{slot}/24")),
            options: daemon.vm_args(segment, slot).expect("options"),
            files: compiled.clone(),
            driver,
            ..Spec::new(&format!("guest{slot}"))
        };
        // One more than are booted now.
        let slots = segments.iter().chain(segments.last());
        let mut specs: Vec<Spec> =
            (1..).zip(slots).map(|(slot, segment)| spec(slot, segment)).collect();
        specs.iter_mut().for_each(add);
        let guests = Guest::boot_all(&kernel, directory.path(), &specs[..segments.len()])
            .expect("they boot");
        Self { guests, daemon, switch, directory, kernel, specs }
    }

    /// The host as one more machine of the network, 10.77.0.100, with `pingpong` in its directory.
    /// `None`, and a line that says so, without root.
    pub fn host(&self) -> Option<Host> {
        match Host::plug_in(&self.switch, self.directory.path(), "10.77.0.100/24") {
            Ok(host) => {
                std::fs::copy(
                    self.directory.path().join("pingpong"),
                    host.directory().join("pingpong"),
                )
                .expect("copied");
                Some(host)
            }
            Err(error) => {
                println!(
                    "skipped: the host cannot be put into the guests' network (that takes root, ip and /dev/net/tun): {error:#}"
                );
                None
            }
        }
    }

    /// Where the host tells a machine, 0 being the first, what it spends.
    pub fn host_cpu_socket(&self, which: usize) -> std::path::PathBuf {
        self.directory.path().join(format!("{}.host-cpu", self.specs[which].name))
    }

    /// Boots one machine more.
    pub fn boot_another(&mut self) {
        let spec = &self.specs[self.guests.len()];
        self.guests.push(Guest::boot(&self.kernel, self.directory.path(), spec).expect("it boots"));
    }

    /// Boots a machine anew that was killed, 0 being the first.
    pub fn boot_again(&mut self, which: usize) {
        self.guests[which] =
            Guest::boot(&self.kernel, self.directory.path(), &self.specs[which]).expect("it boots");
    }

    /// Moves a machine into another QEMU, 0 being the first.
    pub fn migrate(&mut self, which: usize) {
        self.guests[which]
            .migrate(&self.kernel, self.directory.path(), &self.specs[which])
            .expect("it moves");
    }

    /// Takes the segment's device and its chardev out of a machine.
    pub fn unplug(&mut self, which: usize) {
        unplug(&mut self.guests[which]);
    }

    /// Puts it in again.
    pub fn plug(&mut self, which: usize) {
        let slot = u16::try_from(which).expect("few") + 1;
        plug(&mut self.guests[which], &self.daemon, slot);
    }

    /// No kernel and no daemon has complained.
    pub fn assert_healthy(&self) {
        self.guests.iter().for_each(Guest::assert_healthy);
        let log = self.daemon.log();
        assert!(!log.contains("level=error"), "{log}");
    }
}

/// Takes the device of segment `t` and its chardev out of a machine.
pub fn unplug(guest: &mut Guest) {
    guest.unplug("ginnel-t-device").expect("unplugged");
    // QEMU lets go of the device a moment later.
    let remove = json!({"execute": "chardev-remove", "arguments": {"id": "ginnel-t"}});
    let mut said = String::new();
    wait("a free slot", || {
        guest.qmp(remove.clone()).map_err(|error| said = error.to_string()).ok()
    });
}

/// Puts it in again, for this slot of this daemon's.
pub fn plug(guest: &mut Guest, daemon: &Daemon, slot: u16) {
    guest.plug(&daemon.vm_args("t", slot).expect("options")).expect("plugged in");
    guest.sh("until test -e /dev/ginnel0; do sleep 0.1; done");
}

/// `ginnel status --json` in a guest.
pub fn status(guest: &Guest) -> Value {
    serde_json::from_str(&guest.sh("ginnel status --json")).expect("JSON")
}

/// Waits until `ready` gives something.
pub fn wait<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until a connection of a guest has moved a million bytes by ring: `counter` is `in_ring` or
/// `out_ring`.
pub fn wait_for_ring(guest: &Guest, counter: &str) {
    wait("a ring that carries bytes", || {
        let seen = status(guest);
        let all = seen["connections"].as_array().expect("a list");
        all.iter().any(|one| one[counter].as_u64() > Some(1_000_000)).then_some(())
    });
}

/// Sums of the counters that the processes of a guest reported when they ended.
pub fn reported(guest: &Guest, counter: &str) -> u64 {
    let text = guest.sh("cat /root/report 2>/dev/null || true");
    text.lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")[counter].as_u64().unwrap_or(0)
        })
        .sum()
}

/// Ticks that a guest's programs have used, kernel and user time, and those that its processor was
/// not idle.
pub fn busy(guest: &Guest) -> u64 {
    let stat = guest.sh("head -1 /proc/stat");
    // "cpu user nice system idle iowait irq softirq …", hundredths of a second.
    let fields: Vec<u64> =
        stat.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    fields.iter().sum::<u64>() - fields[3] - fields[4]
}

/// Interrupts of the segment's device so far.
pub fn interrupts(guest: &Guest) -> u64 {
    let text = guest.sh("grep ginnel0 /proc/interrupts");
    text.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// A checked round trip between two guests by `pingpong`, with its bytes in a ring.
pub fn assert_works(one: &Guest, two: &Guest, address: &str, port: u16) {
    for guest in [one, two] {
        guest.sh("rm -f /root/report");
    }
    let run = "GINNEL_REPORT=/root/report ginnel run -- ./pingpong";
    let server = one.start(&format!("{run} serve {port}"), PATIENCE).expect("started");
    two.sh(&format!("{run} ask {address} {port} 200 2"));
    server.finish().expect("ended").good().expect("well");
    assert!(reported(two, "ring_in") > 64 * 20, "{}", two.sh("cat report"));
}
