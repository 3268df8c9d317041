//! iceoryx2's patterns between two machines, through their device: the scenes that
//! `crates/iceoryx2` plays between two processes of one kernel, and tests of iceoryx2's authors.

use crate::common::{Lab, PATIENCE, wait};
use ginnel_guest::{machine, source_dir, target_dir};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// As long as all scenes take under emulation, on a machine that is busy with other things.
const SCENES: Duration = Duration::from_secs(300);

/// iceoryx2 claims memory whole: for as many ports as its services may have.
const SEGMENT: &str = "[segment.t]\nsize = \"256M\"\nslots = 4\nvectors = 3\n";

/// Tests of iceoryx2's authors that two machines run: how their names begin, and how many there
/// are at least. Emulated machines take their time, so only short ones are among them.
const SELECTION: [(&str, u32); 3] =
    [("concepts::monitoring_is", 10), ("concepts::named_event", 10), ("services::listener", 5)];

/// Calls cargo for the crate, which is a workspace of its own. Where it builds, and what it prints.
fn cargo(arguments: &[&str]) -> (PathBuf, String) {
    let to = target_dir().join("iceoryx2");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).args(["--locked", "--manifest-path"]);
    cargo.arg(source_dir().join("crates/iceoryx2/Cargo.toml")).arg("--target-dir").arg(&to);
    let done = cargo.stderr(Stdio::inherit()).output().expect("cargo");
    assert!(done.status.success(), "it does not compile");
    (to, String::from_utf8(done.stdout).expect("UTF-8"))
}

/// The program of two that meet in a segment.
fn between() -> PathBuf {
    cargo(&["build", "--example", "between"]).0.join("debug/examples/between")
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

    // What means something else in another machine is refused, and that is said; and whom it
    // trusts.
    let said = one.sh("between deadline 2>&1");
    for words in ["refused", "Leave the deadline out", "This layer trusts the group"] {
        assert!(said.contains(words), "{said}");
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

/// The program of the tests that iceoryx2's authors publish.
fn conformance() -> PathBuf {
    let arguments = ["test", "--no-run", "--test", "conformance", "--message-format", "json"];
    let (_, said) = cargo(&arguments);
    let path = said.rsplit_once(r#""executable":""#).and_then(|(_, rest)| rest.split_once('"'));
    path.expect("an executable").0.into()
}

/// A selection of the tests of iceoryx2's authors, in two machines at once: what each makes, sends
/// and finds is in the segment that both have.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn its_authors_tests_pass_in_two_machines_at_once() {
    let _alone = machine::alone();
    let conformance = conformance();
    let program = conformance.file_name().expect("a file").to_str().expect("UTF-8");
    let path = conformance.to_str().expect("UTF-8");
    let lab = Lab::in_segments(SEGMENT, &["t", "t"], true, &[path]);
    for (names, least) in SELECTION {
        let line =
            format!("GINNEL_CONFORMANCE=beside {program} {names} >said 2>&1; tail -n 40 said");
        let start = |which: usize| lab.guests[which].start(&line, SCENES).expect("started");
        let said = [start(0), start(1)].map(|part| part.finish().expect("ended"));
        for part in &said {
            let passed = part.out.split_once("test result: ok. ");
            let passed = passed.and_then(|(_, rest)| rest.split_once(" passed")?.0.parse().ok());
            assert!(passed.is_some_and(|count: u32| count >= least), "{said:#?}");
        }
    }
    // In the device's memory, not in each machine's own.
    let shown = lab.guests[0].sh("ginnel ls");
    assert!(shown.contains("iceoryx2") && shown.contains("conformance"), "{shown}");
    lab.assert_healthy();
}
