//! A machine that means harm to another one of its segment: garbage over all of the memory, and
//! doorbells without end.

use crate::common::{
    Lab, PATIENCE, interrupts, program, program_of_one_kernel, reported, status, wait,
};
use ginnel_guest::host::Host;
use ginnel_guest::machine::{self, Guest};
use std::fmt;
use std::time::{Duration, Instant};

/// Puts a program into a guest.
fn bring(guest: &Guest, name: &str, content: &[u8]) {
    guest.put(&format!("/root/{name}"), 0o755, content).expect("written");
}

/// One machine's programs lose connections, and nothing else, while another spoils the memory that
/// they use; and both work when it has stopped.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn garbage_from_another_machine() {
    const SECONDS: u32 = 15;
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &[]);
    let (victim, hostile) = (&lab.guests[0], &lab.guests[1]);
    let directory = tempfile::tempdir().expect("a directory");
    bring(victim, "victims", &program_of_one_kernel(directory.path(), "victims"));
    bring(hostile, "hostile", &program_of_one_kernel(directory.path(), "hostile"));
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |time| time.as_secs());
    let command = format!(
        "GINNEL_AFTER=0 GINNEL_REPORT=/root/report ginnel run -- ./victims {}",
        SECONDS + 2
    );
    let working = victim.start(&command, PATIENCE * 2).expect("started");
    // A segment that is spoilt before they have it is none.
    wait("victims that are attached", || {
        status(victim)["processes"].as_array().is_some_and(|all| all.len() >= 6).then_some(())
    });
    let attack = hostile
        .start(&format!("./hostile /dev/ginnel0 {SECONDS} {seed}"), PATIENCE * 2)
        .expect("started");
    let until = Instant::now() + Duration::from_secs(SECONDS.into());
    while Instant::now() < until {
        victim.sh("ginnel status >seen && ginnel doctor >seen; true");
        std::thread::sleep(Duration::from_secs(2));
    }
    let did = attack.finish().expect("an answer").good().expect("it ends well");
    let said = working
        .finish()
        .expect("an answer")
        .good()
        .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    println!("seed {seed}: {did}{said}");
    assert!(reported(victim, "ring_in") > 100_000, "{}", victim.sh("cat report"));
    lab.assert_healthy();
}

/// What a machine is like, for some seconds: its QEMU's use of the host's processors while it has
/// nothing to do (percent of one), the interrupts of the device that it takes a second, how long a
/// fixed piece of computing takes (ms), and a round trip of two programs in it that sleep in
/// between (median, µs).
struct Life {
    host: u64,
    interrupts: u64,
    work: u64,
    trip: u64,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, interrupts, work, trip } = self;
        write!(
            f,
            "{host} % of a processor, {interrupts} interrupts a second, {work} ms of computing, {trip} µs round trip"
        )
    }
}

/// So many seconds something is watched.
const IDLE: u64 = 4;

/// The processor time that a process has used, in hundredths of a second.
fn used(pid: u32) -> u64 {
    // Fields 14 and 15; the name before them may hold anything.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .expect("a name")
        .split(' ')
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    fields[12] + fields[13]
}

fn life(guest: &Guest, port: u16) -> Life {
    let (before, rung) = (used(guest.pid()), interrupts(guest));
    std::thread::sleep(Duration::from_secs(IDLE));
    let (host, interrupts) =
        ((used(guest.pid()) - before) / IDLE, (interrupts(guest) - rung) / IDLE);

    let began = Instant::now();
    guest.sh("dd if=/dev/zero bs=1M count=40 2>/dev/null | md5sum");
    let work = u64::try_from(began.elapsed().as_millis()).expect("short");

    let no_spin = "GINNEL_SPIN=0 GINNEL_REPORT=/root/report ginnel run --";
    guest.sh("rm -f report");
    let server =
        guest.start(&format!("{no_spin} ./pingpong serve {port}"), PATIENCE * 2).expect("started");
    let trip = guest
        .run(&format!("{no_spin} ./pingpong ask 127.0.0.1 {port} 400 2"), PATIENCE * 2)
        .expect("an answer")
        .good()
        .expect("well");
    server.finish().expect("ended").good().expect("well");
    assert!(
        reported(guest, "ring_in") >= 2 * 64 * 350,
        "the ring carried little: {}",
        guest.sh("cat report")
    );
    Life { host, interrupts, work, trip: trip.trim().parse().expect("a number") }
}

/// Rung without end, a machine goes on working, if slower; and nothing is left of it afterwards.
/// What it costs is printed; docs/threat-model.md has it.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn doorbells_without_end() {
    const SECONDS: u64 = 30;
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &[]);
    let (victim, hostile) = (&lab.guests[0], &lab.guests[1]);
    let directory = tempfile::tempdir().expect("a directory");
    bring(hostile, "device", &program(directory.path(), "device"));
    let before = life(victim, 6000);

    let flood = hostile
        .start(&format!("./device flood /dev/ginnel0 1 {SECONDS}"), PATIENCE * 2)
        .expect("started");
    std::thread::sleep(Duration::from_secs(1));
    let during = life(victim, 6001);
    let rung: u64 =
        flood.finish().expect("an answer").good().expect("well").trim().parse().expect("a number");

    std::thread::sleep(Duration::from_secs(1));
    let after = life(victim, 6002);
    println!(
        "doorbells rung: {} a second\nbefore: {before}\nduring: {during}\nafter: {after}",
        rung / SECONDS
    );
    // It arrived; and nothing of it was queued up for later.
    assert!(
        during.interrupts > before.interrupts + 500 && after.interrupts < 100,
        "{before}; {during}; {after}"
    );
    lab.assert_healthy();
}

/// What the host is like, for some seconds: what `ginneld` and a program of the segment take of a
/// processor (percent of one), how many doorbells are passed on to the host's programs a second,
/// and a round trip of two of them that sleep in between (median, µs).
struct HostLife {
    daemon: u64,
    program: u64,
    relayed: u64,
    trip: u64,
}

impl fmt::Display for HostLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { daemon, program, relayed, trip } = self;
        write!(
            f,
            "ginneld {daemon} %, a program {program} % of a processor, {relayed} relayed a second, {trip} µs round trip"
        )
    }
}

fn host_life(lab: &Lab, host: &Host, port: u16) -> HostLife {
    let relayed = || {
        lab.daemon
            .metric("ginneld_relayed_wakeups_total{segment=\"t\",kind=\"to_host\"}")
            .unwrap_or(0)
    };
    let run = format!(
        "GINNEL_SPIN=0 exec ginnel run --segment {} -- ./pingpong",
        lab.daemon.host_socket("t").display()
    );
    let serving = host.start(&format!("{run} serve {port}")).expect("started");
    let asking = host.start(&format!("{run} ask 10.77.0.100 {port} 600 10")).expect("started");
    std::thread::sleep(Duration::from_secs(1));
    let daemon = lab.daemon.pid().expect("it serves");
    let before = (used(daemon), used(serving.pid()), relayed());
    std::thread::sleep(Duration::from_secs(IDLE));
    let now = (used(daemon), used(serving.pid()), relayed());
    let trip = asking.finish(PATIENCE).expect("well").trim().parse().expect("a number");
    serving.finish(PATIENCE).expect("well");
    HostLife {
        daemon: (now.0 - before.0) / IDLE,
        program: (now.1 - before.1) / IDLE,
        relayed: (now.2 - before.2) / IDLE,
        trip,
    }
}

/// The same towards the host: the daemon passes on what it takes, and everything goes on working.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn doorbells_of_the_host_without_end() {
    const SECONDS: u64 = 20;
    let _alone = machine::alone();
    let lab = Lab::boot(1, true, &[]);
    let Some(host) = lab.host() else { return };
    let before = host_life(&lab, &host, 6000);

    let flood = lab.guests[0]
        .start(&format!("./device flood /dev/ginnel0 0 {SECONDS}"), PATIENCE * 2)
        .expect("started");
    std::thread::sleep(Duration::from_secs(1));
    let during = host_life(&lab, &host, 6001);
    let rung: u64 =
        flood.finish().expect("an answer").good().expect("well").trim().parse().expect("a number");

    std::thread::sleep(Duration::from_secs(1));
    let after = host_life(&lab, &host, 6002);
    println!(
        "doorbells rung: {} a second\nbefore: {before}\nduring: {during}\nafter: {after}",
        rung / SECONDS
    );
    // It arrived; and nothing of it was queued up for later.
    assert!(
        during.relayed > before.relayed + 50 && after.relayed < 50,
        "{before}; {during}; {after}"
    );
    lab.assert_healthy();
}
