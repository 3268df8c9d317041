//! Stock virtio-net guests whose switch, neighbour or other host is killed while frames go: what is
//! sent arrives whole, and whoever comes back is found.

use crate::common::ports::{Lab, Transfer, ping, programs, receives};
use crate::common::wait;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::switch::VhostSwitch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
#[ignore = "test-all: boots guests of its own"]
fn nothing_is_lost_when_the_switch_is_killed_under_traffic() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(&["one", "two"]);
    for mtu in [1500, 9000] {
        for guest in &lab.guests {
            guest.sh(&format!("ip link set eth0 mtu {mtu}"));
        }
        lab.transfer(mtu, 64, |lab| {
            for _ in 0..2 {
                // Wait until the transfer is under way again.
                receives(&lab.switch, "one", 100);
                lab.switch.kill_and_restart().expect("it starts again");
            }
        });
        // With the last of them, too, large segments went through whole.
        let port = lab.switch.port("two").expect("a port");
        let number = |name: &str| port[name].as_u64().expect("a number");
        assert!(number("sent_bytes") > number("sent_frames") * (u64::from(mtu) + 14), "{port}");
    }
    assert!(ping(&lab.guests[0], "10.77.0.2"));
    lab.healthy();
}

/// Waits until nobody is at a port.
fn is_free(switch: &VhostSwitch, port: &str) {
    wait("a free port", || (switch.port(port).ok()?["state"] == "waiting").then_some(()));
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_guest_that_is_killed_or_reset_comes_back_to_its_port() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(&["one", "two"]);
    assert!(ping(&lab.guests[0], "10.77.0.2"));
    lab.guests[1].kill();
    is_free(&lab.switch, "two");
    assert!(!ping(&lab.guests[0], "10.77.0.2"));
    let Lab { kernel, directory, specs, .. } = &lab;
    lab.guests[1] = Guest::boot(kernel, directory.path(), &specs[1]).expect("it boots");
    assert!(ping(&lab.guests[0], "10.77.0.2"));
    lab.guests[1].reset().expect("it boots again");
    assert!(ping(&lab.guests[0], "10.77.0.2"));
    lab.transfer(5002, 4, |_| {});
    lab.healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_guest_that_is_killed_while_frames_go_to_it_comes_back_with_another_address() {
    const NEXT: &str = "52:54:00:00:00:44";
    let _alone = machine::alone();
    let mut lab = Lab::boot(&["one", "two"]);
    let before = lab.guests[0].sh("cat /sys/class/net/eth0/address");
    // A stream to it, and datagrams that nobody answers, which go on whatever becomes of it.
    let stream = "nc -w 20 10.77.0.1 5001 </dev/zero";
    lab.guests[0].sh("(nc -l 5001 </dev/null >/dev/null) >/dev/null 2>&1 &");
    lab.guests[1].sh(&format!(
        "(for i in $(seq 50); do {stream}; sleep 0.2; done) >/dev/null 2>&1 & echo $! >streams
         (ping -i 0.01 -s 1400 10.77.0.1) >/dev/null 2>&1 & echo $! >pings"
    ));
    receives(&lab.switch, "one", 1000);
    lab.guests[0].kill();
    is_free(&lab.switch, "one");
    let known = || lab.switch.ask("fdb").expect("a table");
    assert!(!known().contains(before.trim()), "{}", known());
    let spec = lab.switch.spec_with("one", "10.77.0.1/24", &["--mac", NEXT]).expect("options");
    let spec = Spec { programs: programs(), ..spec };
    lab.guests[0] = Guest::boot(&lab.kernel, lab.directory.path(), &spec).expect("it boots");
    // The neighbour asks for its address again, once nobody answers at the old one.
    wait("the neighbour", || ping(&lab.guests[1], "10.77.0.1").then_some(()));
    lab.guests[1].sh("kill $(cat streams pings)");
    let now = lab.switch.ask("fdb").expect("a table");
    assert!(now.contains(NEXT) && !now.contains(before.trim()), "{now}");
    lab.transfer(5002, 4, |_| {});
    lab.healthy();
}

/// What the configuration of host 1 or 2 says.
fn host(n: usize, secret: Option<&Path>) -> String {
    let name = ["one", "two"][n - 1];
    let secret = secret.map(|file| format!("secret = {file:?}\n")).unwrap_or_default();
    // Two addresses of loopback: each is a host to the other.
    format!(
        "[port.{name}]\n[fabric]\nlisten = \"127.77.1.{n}\"\n{secret}\
         [fabric.hosts]\nh1 = \"127.77.1.1\"\nh2 = \"127.77.1.2\"\n"
    )
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn guests_of_two_hosts_lose_nothing_when_a_switch_is_killed_under_traffic() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let mut switches = [1, 2].map(|n| {
        let place = directory.path().join(n.to_string());
        VhostSwitch::start(&place, &host(n, None)).expect("a switch")
    });
    let specs = [(&switches[0], "one", 1), (&switches[1], "two", 2)].map(|(switch, name, n)| {
        let spec = switch.spec(name, &format!("10.77.0.{n}/24")).expect("options");
        Spec { programs: programs(), ..spec }
    });
    let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
    assert!(ping(&guests[0], "10.77.0.2"));
    let pieces = guests[0].sh("ping -c 2 -s 4000 10.77.0.2 | tail -2");
    assert!(pieces.contains("2 packets received"), "{pieces}");
    for guest in &guests {
        guest.sh("ip link set eth0 mtu 9000");
    }
    let secret = directory.path().join("secret");
    fs::write(&secret, "a secret that both have").expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    // Frames from where they lie, and then copies, which are sealed.
    for (port, secret) in [(5001, None), (5002, Some(&*secret))] {
        for (n, switch) in (1..).zip(&switches) {
            switch.reload(&host(n, secret)).expect("it is good");
        }
        let transfer = Transfer::start(&guests, port, 64);
        // That of the machine which receives, and that of the one which sends.
        for dies in [0, 1] {
            receives(&switches[0], "one", 100);
            switches[dies].kill_and_restart().expect("it starts again");
        }
        transfer.ends_well();
        let status = switches[1].ask("status").expect("a status");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let number = |name: &str| status["hosts"][0][name].as_u64().expect("a number");
        // What the other host was given since the last of them was killed: most of it, in the way
        // that is meant.
        assert!(number("received_bytes") > 16 << 20, "{status}");
        assert_eq!(number("in_place_frames") > 0, secret.is_none(), "{status}");
    }
    assert!(ping(&guests[0], "10.77.0.2"));
    guests.iter().for_each(Guest::assert_healthy);
}
