//! Machines that die, boot again, or lose the device, in the middle of traffic; and three of them.

use crate::common::{Lab, PATIENCE, assert_works, reported, status, wait, wait_for_ring};
use ginnel_guest::machine::{self, Guest};
use std::time::Duration;

/// Starts a stream from guest `from` to guest `to` that does not end by itself, and waits until a
/// ring carries it.
fn stream(lab: &Lab, from: usize, to: usize, port: u16) {
    let (source, sink) = (&lab.guests[from], &lab.guests[to]);
    let address = format!("10.77.0.{}", to + 1);
    sink.sh(&format!(
        "(ginnel run -- nc -d -l {port} >/dev/null; echo $? >ended.{port}) >/dev/null 2>&1 &"
    ));
    let client = format!("ginnel run -- nc {address} {port}");
    let tries = format!("for i in $(seq 30); do {client} </dev/zero && break; sleep 0.2; done");
    source.sh(&format!("({tries}; echo $? >ended.{port}) >/dev/null 2>&1 &"));
    wait_for_ring(sink, "in_ring");
}

fn pages(guest: &Guest, which: &str) -> u64 {
    status(guest)["segments"][0][which].as_u64().expect("pages")
}

/// Asks every guest, so that each finds what its own dead held, until nothing of the segment is
/// taken.
fn assert_all_free(guests: &[&Guest]) {
    wait("all pages free", || {
        let free: Vec<bool> = guests
            .iter()
            .map(|guest| pages(guest, "free_pages") == pages(guest, "pages"))
            .collect();
        free.iter().all(|&free| free).then_some(())
    });
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn three_guests_share_a_segment() {
    let _alone = machine::alone();
    let lab = Lab::boot(3, true, &["nc"]);
    let [one, two, three] = lab.guests.as_slice() else { panic!("three") };
    // All at once, each with each.
    std::thread::scope(|scope| {
        scope.spawn(|| assert_works(one, two, "10.77.0.1", 6000));
        scope.spawn(|| {
            // Its reports lie where the others look: another way to see the same.
            let server =
                three.start("ginnel run -- ./pingpong serve 6001", PATIENCE).expect("started");
            one.sh("GINNEL_REPORT=/tmp/to-three ginnel run -- ./pingpong ask 10.77.0.3 6001 200 2");
            server.finish().expect("ended").good().expect("well");
        });
    });
    // Of 200 messages of 64 bytes the first go over TCP: on a busy machine some more.
    let told: serde_json::Value = serde_json::from_str(&one.sh("cat /tmp/to-three")).expect("JSON");
    assert!(told["ring_in"].as_u64() >= Some(1600), "{told}");
    assert_works(two, three, "10.77.0.2", 6002);
    assert_all_free(&[one, two, three]);
    lab.assert_healthy();
}

#[test]
fn a_machine_is_killed_in_the_middle_of_traffic_and_comes_back() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(2, true, &["nc"]);
    stream(&lab, 1, 0, 5000);
    lab.guests[1].kill();
    // As on TCP, nothing says so until somebody sends. The daemon sees it: what the machine held is
    // given back once the survivor's end is closed.
    let survivor = &lab.guests[0];
    survivor.sh("killall nc; sleep 1");
    assert_all_free(&[survivor]);
    lab.boot_again(1);
    assert_works(&lab.guests[0], &lab.guests[1], "10.77.0.1", 6000);
    assert_all_free(&[&lab.guests[0], &lab.guests[1]]);
    lab.guests.iter().for_each(Guest::assert_healthy);
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_machine_is_reset_in_the_middle_of_traffic() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(2, true, &["nc"]);
    stream(&lab, 1, 0, 5000);
    lab.guests[1].reset().expect("it boots again");
    lab.guests[0].sh("killall nc; sleep 1");
    assert_works(&lab.guests[0], &lab.guests[1], "10.77.0.1", 6000);
    // The machine itself finds what it held before.
    assert_all_free(&[&lab.guests[1], &lab.guests[0]]);
    lab.guests.iter().for_each(Guest::assert_healthy);
}

#[test]
fn the_device_is_unplugged_in_the_middle_of_traffic() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(2, true, &["nc", "redis-server", "redis-cli"]);
    // A server that lives through it, and another that has had no connection yet.
    for port in [7000, 7001] {
        lab.guests[1].sh(&format!(
            "(ginnel run -- redis-server --bind 0.0.0.0 --protected-mode no --save '' --port {port} >log.{port} 2>&1 </dev/null &)"
        ));
    }
    let serves = |lab: &Lab, port: u16| {
        let ask = format!("redis-cli -h 10.77.0.2 -p {port} -r 500 ping");
        let script = format!(
            "rm -f report; GINNEL_REPORT=/root/report ginnel run -- {ask} | sort | uniq -c"
        );
        let answers = wait("answers", || {
            lab.guests[0]
                .run(&script, PATIENCE)
                .ok()
                .filter(|said| said.status == 0 && !said.out.is_empty())
        });
        assert_eq!(answers.out.trim(), "500 PONG");
        reported(&lab.guests[0], "ring_in")
    };
    assert!(serves(&lab, 7000) > 1000);
    stream(&lab, 1, 0, 5000);
    lab.guests[1].unplug("ginnel-t-device").expect("unplugged");
    // The connection ends, at both ends; nobody hangs, crashes or goes on computing.
    for guest in &lab.guests {
        wait("the end of nc", || {
            guest
                .run("test -e ended.5000 && cat ended.5000", Duration::from_secs(10))
                .ok()
                .filter(|said| said.status == 0)
        });
        let said = guest.sh("cat ended.5000");
        assert!(
            said.trim().parse::<u32>().is_ok_and(|status| status < 128),
            "ended by a signal: {said}"
        );
    }
    let options = lab.daemon.vm_args("t", 2).expect("options");
    lab.guests[1].plug(&options).expect("plugged in");
    lab.guests[1].sh("until test -e /dev/ginnel0; do sleep 0.1; done");
    assert_works(&lab.guests[0], &lab.guests[1], "10.77.0.1", 6000);
    // Programs that had the device before it was unplugged find it again by themselves.
    for port in [7000, 7001] {
        wait(&format!("server {port}, joined again"), || (serves(&lab, port) > 1000).then_some(()));
    }
    lab.guests.iter().for_each(Guest::assert_healthy);
}
