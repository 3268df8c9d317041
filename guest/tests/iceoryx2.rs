//! iceoryx2's patterns between two machines, through their device: the scenes that
//! `crates/iceoryx2` plays between two processes of one kernel.

use crate::common::{Lab, PATIENCE, wait};
use ginnel_guest::{machine, source_dir, target_dir};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// As long as all scenes take under emulation, on a machine that is busy with other things.
const SCENES: Duration = Duration::from_secs(300);

/// iceoryx2 claims memory whole: for as many ports as its services may have.
const SEGMENT: &str = "[segment.t]\nsize = \"256M\"\nslots = 4\nvectors = 3\n";

/// The program of two that meet in a segment; its crate is a workspace of its own.
fn between() -> PathBuf {
    let to = target_dir().join("iceoryx2");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--example", "between", "--manifest-path"]);
    cargo.arg(source_dir().join("crates/iceoryx2/Cargo.toml")).arg("--target-dir").arg(&to);
    assert!(cargo.status().expect("cargo").success(), "it does not compile");
    to.join("debug/examples/between")
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn services_join_two_machines_and_outlive_one() {
    let _alone = machine::alone();
    let between = between();
    let between = between.to_str().expect("UTF-8");
    let mut lab = Lab::in_segments(SEGMENT, &["t", "t"], true, &[between]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let first = one.start("between first", SCENES).expect("started");
    let second = two.start("between second", SCENES).expect("started");
    // Where one fails, the other waits in vain: both are heard.
    let said = [first, second].map(|part| part.finish().expect("ended"));
    for part in &said {
        assert!(part.status == 0 && part.out.contains("21 scenes"), "{said:#?}");
    }

    // One dies alone in its machine, where another process sees it; then the machine dies.
    let survivor = one.start("between outlives 2 >said 2>&1", SCENES).expect("started");
    let says = |lab: &Lab, what: &str| {
        wait(what, || lab.guests[0].sh("cat said").contains(what).then_some(()));
    };
    let dies = "between dies >said 2>&1 & echo $! >pid; wait $!";
    let _killed = two.start(dies, PATIENCE).expect("started");
    says(&lab, "met 1");
    let two = &lab.guests[1];
    two.sh("kill -9 $(cat pid); ginnel ls >/dev/null");
    says(&lab, "gone 1");
    let _killed = two.start(dies, PATIENCE).expect("started");
    says(&lab, "met 2");
    lab.guests[1].kill();
    says(&lab, "gone 2");
    survivor.finish().expect("ended").good().expect("well");
    lab.guests[0].assert_healthy();
}
