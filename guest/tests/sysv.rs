//! System V objects of unmodified programs in two machines, through their device.

use crate::common::{Lab, PATIENCE};
use ginnel_guest::machine;

#[test]
#[ignore = "test-all: boots guests of its own"]
fn programs_meet_by_a_key_from_machine_to_machine() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &[]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);

    // Attached, forked, killed, removed: in memory of a device.
    one.sh("ginnel run --sysv -- ./lives");

    for _ in 0..2 {
        let first =
            one.start("ginnel run --sysv -- ./sysv first 0x1234 200", PATIENCE).expect("started");
        let said = two.sh("ginnel run --sysv -- ./sysv second 0x1234 200");
        assert!(said.contains("200 rounds, 100000 bytes"), "{said}");
        first.finish().expect("ended").good().expect("well");
    }
    let shown = two.sh("ginnel ls");
    assert!(
        shown.contains("sysv.shm.0x00001234") && shown.contains("sysv.sem.0x00001234"),
        "{shown}"
    );
    two.sh("ginnel rm sysv.shm.0x00001234 sysv.sem.0x00001234");
    let left = one.sh("ginnel ls");
    assert!(!left.contains("sysv."), "{left}");
    lab.assert_healthy();
}
