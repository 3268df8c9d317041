//! The guests themselves: they boot, run commands, have a network, and end.

use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::network::Switch;
use std::time::{Duration, Instant};

#[test]
#[ignore = "test-all: boots guests of its own"]
fn two_guests_boot_and_talk_over_their_network() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let switch = Switch::new(directory.path()).expect("a switch");
    let spec = |n: u32| Spec {
        netdev: Some(switch.netdev("net")),
        address: Some(format!("10.77.0.{n}/24")),
        programs: vec!["nc".into()],
        ..Spec::new(&format!("guest{n}"))
    };
    let guests =
        Guest::boot_all(&kernel, directory.path(), &[spec(1), spec(2)]).expect("they boot");
    let [one, two] = guests.as_slice() else { panic!("two") };
    assert_eq!(one.sh("uname -r").trim(), kernel.release());
    assert_eq!(two.sh("hostname").trim(), "guest2");
    let server =
        one.start("nc -l -N 5000 </etc/passwd | wc -c", Duration::from_secs(60)).expect("started");
    let got = two.sh("for i in $(seq 40); do head -c 100000 /dev/zero | nc -N 10.77.0.1 5000 && exit 0; sleep 0.25; done; ip addr; ip neigh; exit 1");
    assert_eq!(got, one.sh("cat /etc/passwd"));
    assert_eq!(server.finish().expect("ended").good().expect("well").trim(), "100000");
    one.assert_healthy();
    two.assert_healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn what_runs_too_long_is_killed_and_a_reset_boots_again() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let mut guest = Guest::boot(&kernel, directory.path(), &Spec::new("alone")).expect("it boots");
    let begun = Instant::now();
    let output =
        guest.run("echo begun; sleep 1000; echo never", Duration::from_secs(1)).expect("an answer");
    assert_eq!((output.status, output.out.as_str()), (124, "begun\n"));
    assert!(begun.elapsed() < Duration::from_secs(60));
    guest.put("/root/file", 0o755, b"#!/bin/sh\necho $0 >&2; exit 3\n").expect("written");
    let output = guest.run("/root/file", Duration::from_secs(10)).expect("an answer");
    assert_eq!((output.status, output.err.as_str()), (3, "/root/file\n"));
    guest.reset().expect("it boots again");
    assert_eq!(guest.sh("test -e /root/file || echo gone").trim(), "gone");
    guest.kill();
    assert!(guest.run("true", Duration::from_secs(1)).is_err());
}
