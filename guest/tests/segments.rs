//! What `ginneld` serves: segments that cannot see each other, and its own death in the middle of
//! traffic.

use crate::common::{Lab, PATIENCE, SEGMENT, assert_works, interrupts, reported, status, wait};
use ginnel_guest::machine::{self, Guest};
use serde_json::Value;

/// The connections of a guest, as its status shows them.
fn connections(guest: &Guest) -> Vec<Value> {
    status(guest)["connections"].as_array().expect("a list").clone()
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn two_segments_cannot_see_each_other() {
    let _alone = machine::alone();
    let lab = Lab::in_segments(
        &format!("{SEGMENT}{}", SEGMENT.replace(".t]", ".u]")),
        &["t", "u"],
        true,
        &[],
    );
    let (one, two) = (&lab.guests[0], &lab.guests[1]);

    // What one writes into its last page, the other does not find in its own; whatever one rings,
    // nobody else hears.
    let (last, rung) = ("/dev/ginnel0 0x3fff000", interrupts(two));
    one.sh(&format!("./device put {last} 4711"));
    one.sh("for peer in 0 1 2 3; do for vector in 0 1 2; do ./device ring /dev/ginnel0 $peer $vector; done; done");
    assert_eq!(one.sh(&format!("./device get {last}")).trim(), "4711");
    assert_eq!(two.sh(&format!("./device get {last}")).trim(), "0");
    assert_eq!(interrupts(two), rung);

    // Their connections stay on TCP, and both say why.
    let run = "GINNEL_REPORT=/root/report ginnel run -- ./pingpong";
    let server = one.start(&format!("{run} serve 6000"), PATIENCE).expect("started");
    let client = two.start(&format!("{run} ask 10.77.0.1 6000 300 30"), PATIENCE).expect("started");
    for guest in [one, two] {
        wait("the reason", || {
            let all = connections(guest);
            all.iter()
                .any(|one| {
                    one["reason"] == "no_peer"
                        && one["in_carrier"] == "tcp"
                        && one["out_carrier"] == "tcp"
                })
                .then_some(())
        });
    }
    client.finish().expect("ended").good().expect("well");
    server.finish().expect("ended").good().expect("well");
    for guest in [one, two] {
        let (tcp, ring) = (reported(guest, "tcp_in"), reported(guest, "ring_in"));
        assert_eq!((tcp, ring), (64 * 300, 0), "{}", guest.sh("cat report"));
    }
    lab.assert_healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn the_daemon_is_killed_in_the_middle_of_traffic() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(2, true, &["nc"]);
    {
        let (one, two) = (&lab.guests[0], &lab.guests[1]);
        // Checked round trips, both ends asleep between them: every answer takes two doorbells. And
        // a checked stream.
        let run = "GINNEL_SPIN=0 GINNEL_REPORT=/root/report ginnel run -- ./pingpong";
        let server = one.start(&format!("{run} serve 6000"), PATIENCE).expect("started");
        let client =
            two.start(&format!("{run} ask 10.77.0.1 6000 400 10"), PATIENCE).expect("started");
        wait("round trips by ring", || {
            connections(one).iter().any(|one| one["in_ring"].as_u64() > Some(64 * 5)).then_some(())
        });
        one.sh("head -c 20000000 /dev/urandom >out");
        let source = one.start("ginnel run -- nc -N -l 5000 <out", PATIENCE).expect("started");
        let sink = two
            .start("sleep 0.5; ginnel run -- nc -d 10.77.0.1 5000 >in", PATIENCE)
            .expect("started");
        // The daemon carries nothing, and yet sees what is carried.
        let metric = |name: &str| {
            lab.daemon.metric(&format!("ginneld_{name}{{segment=\"t\"}}")).expect("a number")
        };
        wait("a connection", || (metric("connections") > 0).then_some(()));
        for round in 1..=3 {
            lab.daemon.kill_instance().expect("killed, and started again");
            let log = lab.daemon.log();
            assert_eq!(log.matches("event=started").count(), 1 + round, "{log}");
        }
        for (what, pending) in
            [("source", source), ("sink", sink), ("client", client), ("server", server)]
        {
            pending.finish().expect("ended").good().expect(what);
        }
        // Looking at them frees what ended programs left.
        wait("their end", || {
            let _ = (status(one), status(two));
            (metric("connections") == 0).then_some(())
        });
        let (carried, least) =
            (metric("carried_bytes_total"), reported(one, "ring_in") + reported(two, "ring_in"));
        assert!(
            (least..21_000_000).contains(&carried),
            "{carried}, {least}: also what was carried before this instance started"
        );
        assert_eq!(two.sh("md5sum <in"), one.sh("md5sum <out"));
        let (ring, tokens) = (reported(two, "ring_in"), reported(two, "tokens_sent"));
        assert!(
            ring > 64 * 300 && tokens <= 20,
            "doorbells no longer do: {}",
            two.sh("cat report")
        );
    }
    // The next instance has them both, and takes in a third.
    lab.boot_another();
    let [one, two, three] = lab.guests.as_slice() else { panic!("three") };
    assert_works(one, three, "10.77.0.1", 6001);
    assert_works(three, two, "10.77.0.3", 6002);
    lab.guests.iter().for_each(Guest::assert_healthy);
}
