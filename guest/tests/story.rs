//! The whole story of two machines that are neighbours, are not, and are again. Two hosts, each
//! with a `ginneld` and a `ginnel-switch`, whose switches are of one fabric; stock virtio-net in
//! the machines, programs under `ginnel run`.

use crate::common::stream::{Stream, are_carried, ends};
use crate::common::{SEGMENT, plug, program_of_one_kernel, unplug, wait};
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::switch::VhostSwitch;
use serde_json::Value;
use std::path::Path;

const MACS: [&str; 2] = ["52:54:00:77:00:01", "52:54:00:77:00:02"];
/// What goes over a wire by itself in the time that is looked at: names that are asked for,
/// acknowledgements, keepalives.
const QUIET: u64 = 200_000;

struct Host {
    switch: VhostSwitch,
    daemon: Daemon,
}

impl Host {
    fn start(directory: &Path, n: u8) -> Self {
        let directory = directory.join(n.to_string());
        std::fs::create_dir_all(&directory).expect("made");
        // Each may have either machine.
        let text = format!(
            "[port.one]\n[port.two]\n[fabric]\nlisten = \"127.78.0.{n}\"\n\
             [fabric.hosts]\nh1 = \"127.78.0.1\"\nh2 = \"127.78.0.2\"\n"
        );
        let switch = VhostSwitch::start(&directory, &text).expect("a switch");
        Self { switch, daemon: Daemon::start(&directory, SEGMENT, true).expect("ginneld") }
    }

    /// Machine 1 or 2 on this host.
    fn spec(&self, which: u16, path: &[u8]) -> Spec {
        let (n, name) = (usize::from(which) - 1, ["one", "two"][usize::from(which) - 1]);
        let address = format!("10.77.0.{which}/24");
        let mut spec = self.switch.spec_with(name, &address, &["--mac", MACS[n]]).expect("options");
        spec.options.extend(self.daemon.vm_args("t", which).expect("options"));
        let programs = ["nc", "setsid", "pkill"].map(str::to_owned).into();
        let files = vec![("/root/path".to_owned(), 0o755, path.to_owned())];
        Spec { driver: true, programs, files, ..spec }
    }

    /// Bytes of machines that went to the other host and came from it so far.
    fn by_fabric(&self) -> u64 {
        let status: Value =
            serde_json::from_str(&self.switch.ask("status").expect("a status")).expect("JSON");
        let host = &status["hosts"][0];
        ["sent_bytes", "received_bytes"].iter().filter_map(|name| host[name].as_u64()).sum()
    }

    /// Bytes that a machine here has sent by the switch.
    fn by_switch(&self, port: &str) -> u64 {
        self.switch.port(port).expect("a port")["sent_bytes"].as_u64().expect("a number")
    }
}

/// None of the guests' connections is in a ring, and all are there.
fn are_on_tcp(guests: &[Guest], least: usize) {
    for guest in guests {
        wait("ends on TCP", || {
            Some(ends(guest)).filter(|(carried, all, _)| *carried == 0 && *all >= least)
        });
    }
}

/// Both streams get on, and it is by the segment: switch and fabric see next to nothing of it.
fn go_by_the_segment(guests: &[Guest], streams: &[Stream], home: &Host) {
    are_carried(guests, streams.len());
    // What was on its way by TCP is there.
    streams.iter().for_each(|stream| stream.moves_on(guests));
    let before = [home.by_switch("one"), home.by_switch("two"), home.by_fabric()];
    (0..10).for_each(|_| streams.iter().for_each(|stream| stream.moves_on(guests)));
    let after = [home.by_switch("one"), home.by_switch("two"), home.by_fabric()];
    let seen: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    assert!(seen.iter().all(|&bytes| bytes < QUIET), "by ports and fabric: {seen:?}");
}

/// Both streams get on by TCP between the hosts.
fn go_by_the_fabric(guests: &[Guest], streams: &[Stream], hosts: &[Host]) {
    let before: Vec<u64> = hosts.iter().map(Host::by_fabric).collect();
    (0..10).for_each(|_| streams.iter().for_each(|stream| stream.moves_on(guests)));
    for (host, before) in hosts.iter().zip(before) {
        let bytes = host.by_fabric() - before;
        assert!(bytes > 10 * 2 * 50_000, "{bytes}");
    }
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn neighbours_part_and_meet_again_and_nothing_is_lost() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let path = program_of_one_kernel(directory.path(), "path");
    let hosts = [1, 2].map(|n| Host::start(directory.path(), n));
    let [home, other] = &hosts;
    let specs = [home.spec(1, &path), home.spec(2, &path)];
    let mut guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");

    // Connections are set up through the switch, and move into the segment.
    let streams = [Stream::start(&guests, 0, 1, 5000), Stream::start(&guests, 1, 0, 5001)];
    go_by_the_segment(&guests, &streams, home);

    // One machine goes to the other host, while they are used.
    guests[1].sh("ginnel detach");
    are_on_tcp(&guests, streams.len());
    unplug(&mut guests[1]);
    let spec = other.spec(2, &path);
    guests[1].migrate(&kernel, directory.path(), &spec).expect("it moves");
    wait("an empty port", || (home.switch.port("two").ok()?["state"] == "waiting").then_some(()));
    go_by_the_fabric(&guests, &streams, &hosts);

    // There it has a segment, of the same name and with the same slots, in which the first machine
    // is not. They stay on TCP, and one that begins now does.
    plug(&mut guests[1], &other.daemon, 2);
    guests[1].sh("ginnel attach");
    let later = Stream::start(&guests, 0, 1, 5002);
    later.moves_on(&guests);
    go_by_the_fabric(&guests, &streams, &hosts);
    are_on_tcp(&guests, streams.len() + 1);

    // It comes home, and they are in the segment again: all of them.
    guests[1].sh("ginnel detach");
    unplug(&mut guests[1]);
    guests[1].migrate(&kernel, directory.path(), &specs[1]).expect("it moves");
    let streams: Vec<Stream> = streams.into_iter().chain([later]).collect();
    are_on_tcp(&guests, streams.len());
    streams.iter().for_each(|stream| stream.moves_on(&guests));
    plug(&mut guests[1], &home.daemon, 2);
    guests[1].sh("ginnel attach");
    go_by_the_segment(&guests, &streams, home);

    // Every byte was compared as it came, and both ends have all.
    streams.iter().for_each(|stream| stream.end(&guests));
    guests.iter().for_each(Guest::assert_healthy);
    for host in &hosts {
        let log = host.daemon.log();
        assert!(!log.contains("level=error"), "{log}");
    }
}
