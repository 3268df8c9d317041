//! A third machine of the segment does not take the place of the other end of another machine's
//! connection, whose real other end is a plain server that never heard of the segment; and what the
//! driver proves, and refuses to prove.

use crate::common::{Lab, PATIENCE, reported};
use ginnel_guest::machine::{self, Guest};
use serde_json::Value;

const PORT: u16 = 6000;

/// A client in the first machine, under `ginnel run` with these rules, asks a plain server in the
/// second one, while the third one's root attacks. What the stranger said last, and whether the
/// client ended well.
fn attacked(lab: &Lab, rules: &str, count: u32) -> (Value, bool) {
    let (victim, server, stranger) = (&lab.guests[0], &lab.guests[1], &lab.guests[2]);
    victim.sh("rm -f /root/report");
    let serving = server.start(&format!("./pingpong serve {PORT}"), PATIENCE * 3).expect("started");
    let attack =
        format!("./hijack /dev/ginnel0 {PORT} 150 >loot 2>stolen & echo $! >attacker; wait");
    let attack = stranger.start(&attack, PATIENCE * 3).expect("started");
    let policy = format!("GINNEL_AFTER=0 GINNEL_POLICY='{rules}' GINNEL_REPORT=/root/report");
    // One that believes the stranger waits for answers that never come.
    let ask =
        format!("{policy} timeout 40 ginnel run -- ./pingpong ask 10.77.0.2 {PORT} {count} 5");
    let done = victim.run(&ask, PATIENCE * 2).expect("an answer").good();
    stranger.sh("kill -9 $(cat attacker)");
    let _ = (attack.finish(), serving.finish());
    (serde_json::from_str(&last_line(stranger)).expect("JSON"), done.is_ok())
}

fn last_line(guest: &Guest) -> String {
    guest.sh("tail -n 1 loot")
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn another_machine_takes_no_end_of_a_connection() {
    let _alone = machine::alone();
    let lab = Lab::boot(3, true, &[]);
    for (at, name) in [(0, "proofs"), (2, "hijack")] {
        let program = std::fs::read(ginnel_guest::built(name).expect("built")).expect("readable");
        lab.guests[at].put(&format!("/root/{name}"), 0o755, &program).expect("written");
    }
    // The driver: what it refuses, and that it proves what the process itself does.
    assert_eq!(lab.guests[0].sh("ip link set lo up; ./device rules /dev/ginnel0"), "good\n");
    assert_eq!(lab.guests[0].sh("./proofs /dev/ginnel0"), "the same\n");

    let (loot, well) = attacked(&lab, "", 600);
    assert!(well, "the client's exchange goes on over TCP: {loot}");
    // It was at it, and the driver proved.
    assert!(loot["met"].as_u64() > Some(0) && loot["proofs"].as_u64() > Some(0), "{loot}");
    for gain in ["counts", "agreed", "stolen", "forged"] {
        assert_eq!(loot[gain], 0, "{gain}: {loot}");
    }
    assert_eq!(reported(&lab.guests[0], "ring_out") + reported(&lab.guests[0], "ring_in"), 0);

    // The same program succeeds where the victim trusts the address: it can.
    let (loot, well) = attacked(&lab, "trust address 10.77.0.0/16", 600);
    for gain in ["met", "counts", "agreed", "stolen"] {
        assert!(loot[gain].as_u64() > Some(0), "{gain}: {loot}");
    }
    assert!(!well, "its requests went to the stranger: {loot}");
    lab.assert_healthy();
}
