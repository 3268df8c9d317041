//! What real QEMUs do to servers that take the protocol at its word: one test for each trap
//! (docs/ginneld.md says the rules that follow).

use crate::common;
use crate::common::qemu::{Host, MEMORY, Qemu, drain, presence};
use crate::common::wait;
use serde_json::json;

/// facts.md: "a departed peer's id is given to another: QEMU use-after-free, abort within 3–6
/// joins".
#[test]
fn fifty_joins_and_leaves_of_others_do_a_qemu_no_harm() {
    let Some(host) = Host::start() else { return };
    let mut one = host.machine(1);
    for round in 0..50 {
        let slot = 2 + round % 2;
        drop(host.daemon.join(slot));
        wait("its end", || (host.daemon.slots() == [1]).then_some(()));
        one.ring(slot, 1);
        if round % 10 == 0 {
            let mut two = host.machine(slot);
            assert_eq!(two.position(), u32::from(slot), "the slot is the id");
            drain(&mut two);
            one.ring(slot, 1);
            two.wait_interrupt(1);
            two.kill();
            wait("its end", || (host.daemon.slots() == [1]).then_some(()));
        }
    }
    one.assert_alive();
    assert_eq!(one.said(), "", "it was not told anything that it would complain about");
}

/// facts.md: "device_del after a peer was reported gone: QEMU double free, abort".
#[test]
fn unplugging_after_a_neighbour_died_does_not_abort_qemu() {
    let Some(host) = Host::start() else { return };
    let (mut one, mut two) = host.pair();
    one.wait_interrupt(0);
    two.kill();
    one.wait_interrupt(0);
    one.remove_device();
    assert!(one.device().is_none());
    one.assert_alive();
    wait("slot 1 free", || host.daemon.slots().is_empty().then_some(()));
}

/// facts.md: "server closes, or is silent, while QEMU connects: QEMU spins for ever holding its
/// lock".
#[test]
fn a_refused_qemu_starts_with_a_dummy_memory() {
    let Some(host) = Host::start() else { return };
    let mut one = host.machine(1);
    let mut second = Qemu::joined(host.directory(), &host.daemon.socket(1));
    second.assert_alive();
    assert_eq!(second.memory_size(), Some(4096));
    second.set_up_device();
    assert_eq!(second.word(0), u64::from_le_bytes(*b"GINNELNO"), "a driver can tell");
    second.ring(1, 1);
    second.ring(2, 0);
    second.assert_alive();
    assert!(!one.interrupted(1), "it has nobody's doorbell");
    assert_eq!(presence(&mut one, 1), (true, 1));
    let line = host.daemon.wait_log("event=refused", 1);
    assert!(
        line.contains(&format!("pid={}", second.pid())) && line.contains("reason=slot_taken"),
        "{line}"
    );
    // It leaves as any other does.
    second.remove_device();
    second.assert_alive();
}

/// The same trap by another way: the chardev is made long before the device, and QEMU reads the
/// setup only then.
#[test]
fn a_setup_waits_for_its_device_however_long_also_if_refused_or_the_daemon_dies() {
    let Some(host) = Host::start() else { return };
    let mut one = Qemu::start(host.directory(), &[]);
    let mut refused = Qemu::start(host.directory(), &[]);
    one.add_chardev(&host.daemon.socket(1));
    host.daemon.wait_log("event=joined", 1);
    refused.add_chardev(&host.daemon.socket(1));
    host.daemon.wait_log("event=refused", 1);
    for _ in 0..100 {
        // Others who are refused push out only those who have read everything.
        drop(std::os::unix::net::UnixStream::connect(host.daemon.socket(1)).expect("connected"));
    }
    refused.add_device();
    assert_eq!(refused.memory_size(), Some(4096));
    host.daemon.restart(libc::SIGKILL);
    one.add_device();
    assert_eq!(one.memory_size(), Some(16 << 20));
    assert_eq!(host.daemon.slots(), [1]);
    one.assert_alive();
    refused.assert_alive();
}

/// facts.md: "daemon restarts: QEMU cannot rejoin, but doorbells and memory keep working".
#[test]
fn restarting_or_killing_the_daemon_disturbs_no_machine() {
    let Some(host) = Host::start() else { return };
    let (mut one, mut two) = host.pair();
    one.wait_interrupt(0);
    one.write(MEMORY + (8 << 20), 77);
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGKILL] {
        let before = host.daemon.pid();
        if signal == libc::SIGTERM {
            // Asked for by SIGHUP to the keeper: an orderly restart.
            let starts = host.daemon.log().matches("event=started").count();
            common::signal(host.daemon.outer_pid(), libc::SIGHUP);
            host.daemon.wait_log("event=started", starts + 1);
        } else {
            host.daemon.restart(signal);
        }
        assert_ne!(host.daemon.pid(), before);
        assert_eq!(host.daemon.slots(), [1, 2], "both slots are still theirs");
        drain(&mut one);
        drain(&mut two);
        one.ring(2, 1);
        two.wait_interrupt(1);
        assert_eq!(
            (presence(&mut one, 2), presence(&mut two, 1)),
            ((true, 1), (true, 1)),
            "nobody's life has changed"
        );
    }
    // Who joins now meets them: the same memory, the same doorbells.
    let mut three = host.machine(3);
    assert_eq!(three.read(MEMORY + (8 << 20)), 77);
    one.wait_interrupt(0);
    three.ring(1, 1);
    one.wait_interrupt(1);
    // And the death of one that joined before the restarts is noticed.
    two.kill();
    three.wait_interrupt(0);
    assert_eq!(presence(&mut three, 2), (false, 1));
    for qemu in [&mut one, &mut three] {
        qemu.assert_alive();
        assert_eq!(qemu.said(), "");
    }
}

/// facts.md: "a host process holds a guest's eventfd", with a real QEMU's descriptors: and both
/// wake each other through the daemon.
#[test]
fn a_host_process_and_a_qemu_have_no_eventfd_in_common_and_wake_each_other() {
    let Some(host) = Host::start() else { return };
    let mut one = host.machine(1);
    let process = host.daemon.join(0);
    let (ours, theirs) = (common::eventfds(std::process::id()), common::eventfds(one.pid()));
    assert!(ours.len() >= 8 && theirs.len() >= 8);
    assert!(ours.iter().all(|id| !theirs.contains(id)), "{ours:?} {theirs:?}");
    host.daemon.status();
    drain(&mut one);
    process.ring(1, 1).expect("rung");
    one.wait_interrupt(1);
    for bell in process.doorbells(0) {
        let _ = ginnel_ivshmem::doorbell::drain(bell);
    }
    one.ring(0, 1);
    wait("the host's doorbell", || {
        ginnel_ivshmem::doorbell::drain(&process.doorbells(0)[1]).expect("an eventfd").then_some(())
    });
    assert!(!ginnel_ivshmem::doorbell::drain(&process.doorbells(0)[0]).expect("an eventfd"));
}

/// facts.md: "Migration is blocked unless the device is master=on; detach first".
#[test]
fn a_machine_migrates_only_when_its_device_is_unplugged() {
    let Some(host) = Host::start() else { return };
    let mut one = host.machine(1);
    let migrate = json!({"execute": "migrate", "arguments": {"uri": format!("exec:cat > {}", host.directory().join("state").display())}});
    let refused = one.try_qmp(&migrate).expect_err("blocked");
    assert!(refused.contains("ivshmem"), "{refused}");
    one.remove_device();
    one.qmp(migrate);
    wait("the migration", || {
        (one.qmp(json!({"execute": "query-migrate"}))["status"] == "completed").then_some(())
    });
    wait("slot 1 free", || host.daemon.slots().is_empty().then_some(()));
}
