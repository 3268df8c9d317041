//! Doorbells of who is here, of who was, and of who comes next.

use super::{rung, wait_rung};
use crate::common;
use crate::common::daemon::{Daemon, SMALL};
use crate::common::wait;
use ginnel_ivshmem::doorbell;
use rustix::fs::{OFlags, fcntl_setfl};

/// What was rung while nobody was there, or for the last one, does not reach the next.
#[test]
fn a_slots_next_machine_finds_its_doorbells_silent() {
    let daemon = Daemon::alone(SMALL);
    let (one, two) = (daemon.join(1), daemon.join(2));
    drop(one);
    wait("slot 1 free", || (daemon.slots() == [2]).then_some(()));
    two.ring(1, 1).expect("rung");
    let one = daemon.join(1);
    assert!(!rung(&one, 1, 1));
    two.ring(1, 1).expect("rung");
    assert!(rung(&one, 1, 1), "they are the same, which the other has had all the time");
}

/// One who has left may have kept what it was given.
#[test]
fn the_last_machine_of_a_slot_hears_nothing_of_the_next() {
    let daemon = Daemon::kept(SMALL);
    let one = daemon.join(1);
    let old = one.doorbells(1)[1].try_clone().expect("a copy");
    drop(one);
    wait("slot 1 free", || daemon.slots().is_empty().then_some(()));
    let (one, two) = (daemon.join(1), daemon.join(2));
    two.ring(1, 1).expect("rung");
    assert!(!doorbell::drain(&old).expect("an eventfd") && rung(&one, 1, 1));
    daemon.restart(libc::SIGKILL);
    let three = daemon.join(3);
    three.ring(1, 1).expect("rung");
    assert!(rung(&one, 1, 1), "the new ones are what is kept");
}

/// facts.md: "a host process holds a guest's eventfd: it can clear O_NONBLOCK, fill it, and freeze
/// the next guest's QEMU".
#[test]
fn a_host_process_never_holds_a_machines_eventfd() {
    // It looks at the eventfds of the whole process.
    let _permit = ginnel_tests::permit::machine();
    let daemon = Daemon::alone(SMALL);
    let machine = daemon.join(1);
    // Both ends are in this process here, so what the machine has is told apart by when it is
    // closed.
    let ids = || common::eventfds(std::process::id());
    let of_machine = ids();
    let process = daemon.join(0);
    let of_process: Vec<u64> = ids().into_iter().filter(|id| !of_machine.contains(id)).collect();
    assert_eq!(process.peers().collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(of_process.len(), 4 * 2, "all its eventfds are others than the machine's");
    drop(machine);
    daemon.wait_log("event=left", 1);
    let machine = daemon.join(1);
    // (That the slot's own two are new now is another test's: the kernel uses an eventfd's number
    // again.)
    assert_eq!(ids().iter().filter(|id| of_process.contains(id)).count(), 8);
    // Now it does its worst with what it has.
    for peer in process.peers() {
        for bell in process.doorbells(peer) {
            fcntl_setfl(bell, OFlags::empty()).expect("blocking");
            let _ = doorbell::drain(bell);
            rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes()).expect("filled");
        }
    }
    for vector in 0..2 {
        wait_rung(&machine, 1, vector);
        machine.ring(0, 1).expect("the machine's way to the host does not freeze");
    }
    let second = daemon.join(2);
    second.ring(1, 1).expect("rung");
    wait_rung(&machine, 1, 1);
    assert_eq!(daemon.slots(), [1, 2], "and the daemon still answers");
}

#[test]
fn wake_ups_between_the_host_and_machines_are_relayed() {
    let daemon = Daemon::alone(SMALL);
    let (machine, first, second) = (daemon.join(2), daemon.join(0), daemon.join(0));
    assert_eq!(first.id(), Some(0));
    // On joining, its own doorbells are rung once, for what it may have missed.
    for (client, vector) in [(&first, 0), (&first, 1), (&second, 0), (&second, 1)] {
        wait_rung(client, 0, vector);
    }
    // The loop is one: once it has answered, it is done with what came before.
    daemon.status();
    rung(&machine, 2, 0);
    first.ring(2, 1).expect("rung");
    wait_rung(&machine, 2, 1);
    machine.ring(0, 1).expect("rung");
    wait_rung(&first, 0, 1);
    wait_rung(&second, 0, 1);
    assert!(!rung(&machine, 2, 0), "other vectors are not rung");
    let metrics = daemon.get("/metrics").1;
    assert!(
        metrics.contains("relayed_wakeups_total{segment=\"t\",kind=\"to_machine\"} 1"),
        "{metrics}"
    );
    assert_eq!(daemon.status()["processes"].as_array().map(Vec::len), Some(2));
}
