//! Stock virtio-net guests at `ginnel-switch`: they talk within their segment, whatever
//! changes under them.

use crate::common::ports::{Lab, PORTS, ping};
use crate::common::{SEGMENT, assert_works, program, reported};
use ginnel_guest::PATIENCE;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::switch::VhostSwitch;
use std::time::{Duration, Instant};

/// Sends one datagram from the second guest to this address, until the first has it.
fn datagram(guests: &[Guest], options: &str, to: &str) {
    let family = if to.contains(':') { "-6" } else { "-4" };
    let listen = format!("nc {family} -u -l -W 1 7000 </dev/null");
    let heard = guests[0].start(&listen, PATIENCE).expect("started");
    guests[1].sh(&format!(
        "(for i in $(seq 300); do echo hello | nc {family} -u -w 1 {options} {to} 7000; sleep 0.2; done) >/dev/null 2>&1 & echo $! >sends"
    ));
    assert_eq!(heard.finish().expect("ended").good().expect("heard"), "hello\n", "to {to}");
    guests[1].sh("kill $(cat sends)");
}

#[test]
fn two_stock_guests_talk() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(&["one", "two"]);
    assert!(ping(&lab.guests[0], "10.77.0.2") && ping(&lab.guests[1], "10.77.0.1"));
    lab.transfer(5001, 4, |_| {});
    lab.healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn stock_guests_talk_within_their_segment_and_not_out_of_it() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(&["one", "two", "three"]);
    assert!(ping(&lab.guests[0], "10.77.0.2"));
    assert!(!ping(&lab.guests[0], "10.77.0.3"), "another key");
    // Frames that are longer than a buffer, in one piece and in several.
    assert!(
        lab.guests[0].sh("ping -c 2 -s 4000 10.77.0.2 | tail -2").contains("2 packets received")
    );
    let capture = lab.directory.path().join("two.pcapng");
    let mut trace = lab.switch.trace("two", 100, &capture).expect("started");
    lab.transfer(5001, 16, |_| {});
    let until = Instant::now() + PATIENCE;
    while trace.try_wait().expect("waited").is_none() {
        assert!(Instant::now() < until, "100 frames are soon there");
        std::thread::sleep(Duration::from_millis(10));
    }
    let file = std::fs::read(&capture).expect("captured");
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header of pcapng");
    assert!(file.len() > 100 * 60);
    // Offloads were agreed on, and used: large segments went through whole.
    let port = lab.switch.port("two").expect("a port");
    for name in ["csum", "tso4", "guest_tso4", "mrg_rxbuf", "event_idx", "indirect_desc"] {
        assert!(
            port["offloads"].as_array().expect("a list").iter().any(|one| one == name),
            "{port}"
        );
    }
    let (bytes, frames) = (port["sent_bytes"].as_u64(), port["sent_frames"].as_u64());
    assert!(bytes > frames.map(|frames| 2 * 1514 * frames), "{port}");
    assert_eq!(lab.switch.port("three").expect("a port")["received_frames"], 0, "nothing of it");
    lab.healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn addresses_are_found_and_frames_are_as_long_as_a_card_may_have_them() {
    let _alone = machine::alone();
    let lab = Lab::boot(&["one", "two"]);
    // By broadcast (ARP), and by multicast (neighbour discovery), with nothing known before.
    for (n, guest) in (1..).zip(&lab.guests) {
        let none = "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad";
        guest.sh(&format!("{none}; ip -6 addr add fd00::{n}/64 dev eth0; ip neigh flush dev eth0"));
    }
    for (from, n) in [(0, 2), (1, 1)] {
        let guest = &lab.guests[from];
        assert!(ping(guest, &format!("10.77.0.{n}")));
        let six = format!("ping6 -c 3 -W 2 fd00::{n} >/dev/null 2>&1 && ip neigh");
        let known = guest.sh(&six);
        assert!(known.contains("fd00::") && known.contains("10.77.0."), "{known}");
    }
    // To all, and to a group of which the switch knows nothing.
    lab.guests[0].sh("echo 0 >/proc/sys/net/ipv4/icmp_echo_ignore_broadcasts");
    datagram(&lab.guests, "-b", "10.77.0.255");
    datagram(&lab.guests, "", "ff02::1%eth0");
    // Frames of 9000 bytes are one frame each.
    for guest in &lab.guests {
        guest.sh("ip link set eth0 mtu 9000");
    }
    let sent =
        || lab.switch.port("two").expect("a port")["sent_frames"].as_u64().expect("a number");
    let before = sent();
    let said = lab.guests[1].sh("ping -c 20 -i 0.2 -s 8900 10.77.0.1 | tail -2");
    assert!(said.contains("20 packets received"), "{said}");
    // In pieces of 1500 they would be 120; some are of others.
    assert!(sent() - before < 60, "{} frames", sent() - before);
    lab.healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn ports_come_and_change_while_guests_talk() {
    const NEW: &str = "[port.one]\n[port.two]\n[port.new]\nmac = \"52:54:00:00:00:33\"\naddress = \"10.77.0.3\"\n";
    let _alone = machine::alone();
    let mut lab = Lab::boot(&["one", "two"]);
    lab.transfer(5001, 64, |lab| {
        for _ in 0..10 {
            lab.switch.reload(NEW).expect("it is good");
            lab.switch.reload(PORTS).expect("it is good");
        }
        // Another guest where nobody was, in the midst of it.
        lab.switch.reload(NEW).expect("it is good");
        let further = ["--mac", "52:54:00:00:00:33"];
        let spec = lab.switch.spec_with("new", "10.77.0.3/24", &further).expect("options");
        lab.guests.push(Guest::boot(&lab.kernel, lab.directory.path(), &spec).expect("it boots"));
        assert!(ping(&lab.guests[2], "10.77.0.1"));
    });
    // It may not speak for another.
    lab.guests[2].sh("ip addr del 10.77.0.3/24 dev eth0; ip addr add 10.77.0.9/24 dev eth0");
    assert!(!ping(&lab.guests[2], "10.77.0.1"));
    assert!(
        lab.switch.port("new").expect("a port")["dropped"]["spoofed_address"].as_u64() > Some(0)
    );
    // Nor reach the others from another segment, until it is in theirs again.
    lab.guests[2].sh("ip addr del 10.77.0.9/24 dev eth0; ip addr add 10.77.0.3/24 dev eth0");
    assert!(ping(&lab.guests[2], "10.77.0.1"));
    lab.switch.reload(&NEW.replace("[port.new]\n", "[port.new]\nkey = 7\n")).expect("it is good");
    assert!(!ping(&lab.guests[2], "10.77.0.1") && ping(&lab.guests[0], "10.77.0.2"));
    lab.switch.reload(NEW).expect("it is good");
    assert!(ping(&lab.guests[2], "10.77.0.1"));
    // Its port goes, and it stands there without one.
    lab.switch.reload(PORTS).expect("it is good");
    assert!(!ping(&lab.guests[2], "10.77.0.1") && ping(&lab.guests[0], "10.77.0.2"));
    lab.guests.truncate(2);
    lab.healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn what_begins_at_the_switch_goes_on_in_a_segment() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let switch = VhostSwitch::start(directory.path(), PORTS).expect("a switch");
    let daemon = Daemon::start(directory.path(), SEGMENT, true).expect("ginneld");
    let pingpong = ("/root/pingpong".to_owned(), 0o755, program(directory.path(), "pingpong"));
    let spec = |(slot, name): (u16, &str)| {
        let mut spec = switch.spec(name, &format!("10.77.0.{slot}/24")).expect("options");
        spec.options.extend(daemon.vm_args("t", slot).expect("options"));
        Spec { driver: true, files: vec![pingpong.clone()], programs: vec!["nc".into()], ..spec }
    };
    let specs = [(1, "one"), (2, "two")].map(spec);
    let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
    assert_works(&guests[0], &guests[1], "10.77.0.1", 6000);
    // Bytes that the segment carries are none that the switch sees. A stream without pauses begins
    // on TCP, and is moved when the reader has caught up: on a busy machine not every time.
    let bytes = || switch.port("two").expect("a port")["sent_bytes"].as_u64().expect("a number");
    let sum = guests[1].sh("head -c 15000000 /dev/urandom >data; sha256sum <data");
    let run = "rm -f report; GINNEL_REPORT=/root/report ginnel run -- nc";
    let carried = (6001..6005).any(|port| {
        let before = bytes();
        let sink = guests[0].start(&format!("{run} -d -l {port} >in"), PATIENCE).expect("started");
        guests[1].sh(&format!("for i in $(seq 60); do {run} -N 10.77.0.1 {port} <data && exit 0; sleep 0.2; done; exit 1"));
        sink.finish().expect("ended").good().expect("well");
        assert_eq!(guests[0].sh("sha256sum <in"), sum);
        let (seen, ring) = (bytes() - before, reported(&guests[0], "ring_in"));
        println!("{ring} bytes by the segment, {seen} by the switch");
        assert!(seen + ring > 15_000_000 && (ring < 2_000_000 || seen < 15_000_000));
        ring > 1_000_000
    });
    assert!(carried, "{}", guests[0].sh("cat report; ginnel status --json"));
    for guest in &guests {
        guest.assert_healthy();
    }
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_machine_is_moved_under_traffic_and_nothing_is_lost() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(&["one", "two"]);
    // The machine that receives goes to another port, as it would to another host's switch. (That
    // no page is forgotten in the log shows in the switch's own tests: here one would have to be
    // written in the last moment.)
    let mac = lab.guests[0].sh("cat /sys/class/net/eth0/address");
    let further = ["--mac", mac.trim()];
    let spec = lab.switch.spec_with("elsewhere", "10.77.0.1/24", &further).expect("options");
    let spec = Spec { name: "one".into(), ..spec };
    let sum = lab.guests[1]
        .sh("dd if=/dev/urandom of=/tmp/data bs=1M count=24 2>/dev/null; sha256sum </tmp/data");
    let server = lab.guests[0]
        .sh("(nc -l -N 5001 </dev/null | sha256sum >/tmp/sum) >/dev/null 2>&1 & echo started");
    assert_eq!(server.trim(), "started");
    let send = "for i in $(seq 100); do nc -N -w 90 10.77.0.1 5001 </tmp/data && exit 0; sleep 0.2; done; exit 1";
    let client = lab.guests[1].start(send, 3 * PATIENCE).expect("started");
    let until = Instant::now() + PATIENCE;
    while lab.switch.port("one").expect("a port")["received_frames"].as_u64() < Some(50) {
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let Lab { guests, kernel, directory, .. } = &mut lab;
    guests[0].migrate(kernel, directory.path(), &spec).expect("it moves");
    client.finish().expect("ended").good().expect("sent");
    let got = lab.guests[0]
        .sh("for i in $(seq 100); do [ -s /tmp/sum ] && break; sleep 0.2; done; cat /tmp/sum");
    assert_eq!(got, sum);
    let port = lab.switch.port("elsewhere").expect("a port");
    assert!(port["received_frames"].as_u64() > Some(0), "{port}");
    assert!(ping(&lab.guests[1], "10.77.0.1"));
    lab.guests[0].assert_healthy();
}
