//! `ginnel cp` between two machines, through their device.

use crate::common::{Lab, PATIENCE};
use ginnel_guest::machine;

/// A tree with a file of some megabytes, many small ones, a link, an empty directory, and a hole.
const TREE: &str = "mkdir -p t/d t/empty && head -c 9000000 /dev/urandom >t/big && ln -s ../big t/d/link && \
    i=0; while [ $i -lt 200 ]; do head -c 4096 /dev/urandom >t/d/f$i; i=$((i+1)); done; truncate -s 30M t/hole";

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_tree_goes_from_machine_to_machine_and_back() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &[]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    one.sh("mkdir root");
    // It ends with its signal, well.
    let serve = "ginnel cp serve --root root --name one --writable & echo $! >pid; wait $!";
    let server = one.start(serve, PATIENCE).expect("started");
    two.sh(TREE);
    two.sh("for i in 1 2 3 4 5 6 7 8 9 10; do ginnel ls 2>/dev/null | grep -q cp.one && break; sleep 1; done");
    let there = two.sh("ginnel cp -a --json t one:");
    assert!(there.contains("\"copied\":206"), "{there}");
    two.sh("ginnel cp -a one:t back");
    two.sh("diff -r t back/t");
    let again = two.sh("ginnel cp -a --json one:t back");
    assert!(again.contains("\"copied\":0") && again.contains("\"sent\":0"), "{again}");

    // The server is killed in the midst of it: what is there is whole, and nothing is beside it.
    // Who dies alone in its machine is told by silence (docs/sdk.md).
    let client = two
        .start("ginnel cp --timeout 5 --bwlimit 1M t/big one:new; echo $?", PATIENCE)
        .expect("started");
    one.sh("sleep 3; kill -9 $(cat pid); sleep 1");
    let said = client.finish().expect("ended");
    assert!(["12", "30"].contains(&said.out.trim()), "{}{}", said.out, said.err);
    assert_eq!(one.sh("ls -A root").trim(), "t");
    drop(server);
    lab.assert_healthy();
}
