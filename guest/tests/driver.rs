//! The driver in real guests: binding, files, memory type, interrupts, unplugging.

use crate::common::program;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const SEGMENTS: &str = "[segment.t]\nsize = \"16M\"\nslots = 3\nvectors = 3\n[segment.u]\nsize = \"32M\"\nslots = 2\nvectors = 1\n";

/// What every test begins with; the daemon ends before its directory does.
fn host(config: &str) -> (Kernel, TempDir, Daemon) {
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(directory.path(), config, false).expect("ginneld");
    (kernel, directory, daemon)
}

fn spec(daemon: &Daemon, directory: &Path, slot: u16, segments: &[&str]) -> Spec {
    let args = |segment: &&str| daemon.vm_args(segment, slot).expect("options");
    Spec {
        options: segments.iter().flat_map(args).collect(),
        files: vec![("/root/device".into(), 0o755, program(directory, "device"))],
        driver: true,
        ..Spec::new(&format!("guest{slot}"))
    }
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn devices_are_found_and_their_memory_is_write_back() {
    let _alone = machine::alone();
    let (kernel, directory, daemon) = host(SEGMENTS);
    let mut guest =
        Guest::boot(&kernel, directory.path(), &spec(&daemon, directory.path(), 2, &["t", "u"]))
            .expect("it boots");
    assert_eq!(
        guest.sh("cat /sys/class/ginnel/ginnel*/size | sort -n | tr '\\n' ' '"),
        "16777216 33554432 "
    );
    assert_eq!(guest.sh("cat /sys/class/ginnel/ginnel*/peer"), "2\n2\n");
    assert_eq!(guest.sh("cat /sys/class/ginnel/ginnel*/vectors | sort | tr '\\n' ' '"), "1 3 ");
    assert_eq!(
        guest.sh("stat -c %a /dev/ginnel0 /dev/ginnel1"),
        "600\n600\n",
        "nobody but root, until a rule says otherwise"
    );
    // Every rule of the interface, by a program that tries each.
    assert_eq!(guest.sh("for n in 0 1; do /root/device rules /dev/ginnel$n; done"), "good\ngood\n");
    assert_eq!(guest.sh("mmap=$(readlink -f /sys/class/ginnel/ginnel0/device); /root/device sysfs $mmap/resource2"), "EINVAL\n");

    // The page tables, as QEMU sees them from outside, while a program that has mapped and touched
    // everything is the one that runs.
    let spinning = guest
        .start("/root/device spin /dev/ginnel0 0x600000000000", Duration::from_secs(120))
        .expect("started");
    let entries = loop {
        let all = guest.monitor("info tlb").expect("page tables");
        let entries: Vec<String> =
            all.lines().filter(|line| line.starts_with("00006000")).map(str::to_owned).collect();
        if entries.len() >= 8192 / 2 {
            break entries;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    for entry in &entries {
        // "virtual: physical XGPDACTUW": C and T are PCD and PWT; P is the page-size bit, which in
        // a last-level entry of 4 KiB is the PAT bit.
        let flags = entry.rsplit(' ').next().expect("flags");
        assert!(
            !flags.contains(['C', 'T', 'P']) && flags.ends_with("UW"),
            "not write-back: {entry}"
        );
    }
    guest.sh("killall device");
    let _ = spinning.finish();
    guest.assert_healthy();
}

#[test]
fn doorbells_wake_those_who_are_meant() {
    let _alone = machine::alone();
    let (kernel, directory, daemon) = host(SEGMENTS);
    let specs = [1, 2].map(|slot| spec(&daemon, directory.path(), slot, &["t"]));
    let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
    let [one, two] = guests.as_slice() else { panic!("two") };
    // Two wait on one vector, each for a word of its own, and one for whatever comes.
    let limit = Duration::from_secs(60);
    let wait = |offset: &str, to: &str| {
        one.sh(&format!("/root/device wait /dev/ginnel0 1 {offset} >{to} & until grep -q waiting {to}; do sleep 0.05; done"))
    };
    wait("0xfff000", "meant");
    wait("0xfff008", "other");
    wait("any", "any");
    two.sh("/root/device put /dev/ginnel0 0xfff000 1");
    assert_eq!(one.sh("cat meant other any"), "waiting\n".repeat(3), "memory alone wakes nobody");
    two.sh("/root/device ring /dev/ginnel0 1 0; sleep 0.5");
    assert_eq!(one.sh("cat meant other any"), "waiting\n".repeat(3), "another vector");
    two.sh("/root/device ring /dev/ginnel0 1 1");
    one.sh("until grep -q ready meant && grep -q ready any; do sleep 0.05; done");
    assert_eq!(one.sh("cat other"), "waiting\n", "its word is zero");
    two.sh("/root/device put /dev/ginnel0 0xfff008 1; /root/device ring /dev/ginnel0 1 1");
    one.sh("until grep -q ready other; do sleep 0.05; done");
    // The interrupt that was counted is the one that was rung: no polling anywhere.
    let interrupts = one
        .run("grep ginnel0-1 /proc/interrupts", limit)
        .expect("an answer")
        .good()
        .expect("there");
    assert_eq!(interrupts.split_whitespace().nth(1), Some("2"), "{interrupts}");
    guests.iter().for_each(Guest::assert_healthy);
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn unplugged_under_use_it_gives_errors_and_zeroes_thirty_times() {
    let _alone = machine::alone();
    let (kernel, directory, daemon) = host(SEGMENTS);
    let mut guest =
        Guest::boot(&kernel, directory.path(), &spec(&daemon, directory.path(), 1, &["t"]))
            .expect("it boots");
    for round in 1..=30 {
        let users = guest.start(
            "/root/device unplug /dev/ginnel0 >a & /root/device unplug /dev/ginnel0 >b & wait; cat a b",
            Duration::from_secs(60),
        );
        guest.sh("until grep -q mapped a && grep -q mapped b; do sleep 0.05; done");
        guest.unplug("ginnel-t-device").expect("unplugged");
        let said = users
            .and_then(|users| users.finish())
            .expect("an answer")
            .good()
            .expect("no complaint");
        assert_eq!(said, "mapped\ngood\nmapped\ngood\n", "round {round}");
        guest.sh("until ! test -e /dev/ginnel0; do sleep 0.05; done; rm a b");
        guest.plug(&daemon.vm_args("t", 1).expect("options")).expect("plugged in");
        guest.sh("until test -e /dev/ginnel0; do sleep 0.05; done");
    }
    assert_eq!(guest.sh("/root/device rules /dev/ginnel0"), "good\n");
    // And the module goes, and comes again.
    guest.sh("rmmod ginnel && test ! -e /dev/ginnel0 && insmod /root/ginnel.ko && /root/device rules /dev/ginnel0");
    guest.assert_healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_refused_machine_and_a_foreign_device_are_left_alone() {
    let _alone = machine::alone();
    let (kernel, directory, daemon) =
        host(&format!("{SEGMENTS}[segment.t.slot.1]\nusers = [4242]\n"));
    let mut spec = spec(&daemon, directory.path(), 1, &["t"]);
    let foreign = directory.path().join("foreign");
    std::fs::File::create(&foreign).and_then(|file| file.set_len(4 << 20)).expect("a file");
    let memory =
        format!("memory-backend-file,id=foreign,share=on,size=4M,mem-path={}", foreign.display());
    spec.options
        .extend(["-object", &memory, "-device", "ivshmem-plain,memdev=foreign"].map(str::to_owned));
    let guest = Guest::boot(&kernel, directory.path(), &spec).expect("it boots");
    assert_eq!(guest.sh("ls /sys/class/ginnel"), "");
    let said = guest.sh("dmesg");
    assert!(
        said.contains("the host refuses this machine")
            && said.contains("without a Ginnel segment: left alone"),
        "{said}"
    );
    guest.assert_healthy();
}
