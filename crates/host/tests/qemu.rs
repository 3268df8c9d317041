//! Real QEMUs, without guests, and what they do to servers that take the protocol at its word: one test for each trap.

mod common;

use common::daemon::{Daemon, SMALL};
use common::qemu::{Qemu, device, is_installed};
use common::wait;
use ginnel_host::config::Config;
use ginnel_region::TABLE;
use serde_json::json;
use std::path::Path;

/// A daemon with a keeper, and a directory for QEMU's sockets.
fn daemon() -> (Daemon, tempfile::TempDir) {
    (Daemon::kept(SMALL), tempfile::tempdir().expect("a directory"))
}

/// A QEMU in a slot, its device set up as a driver would.
fn machine(directory: &Path, daemon: &Daemon, slot: u16) -> Qemu {
    let mut qemu = Qemu::joined(directory, &daemon.socket(slot));
    qemu.set_up_device();
    qemu
}

/// What the table in the segment says of a peer: attached, and how often joined.
fn presence(qemu: &mut Qemu, peer: u64) -> (bool, u64) {
    let word = qemu.word(TABLE + 8 * (1 + peer));
    (word & 1 == 1, word >> 1)
}

fn drain(qemu: &mut Qemu) {
    for vector in 0..2 {
        qemu.interrupted(vector);
    }
}

#[test]
fn the_device_is_there_with_the_segments_size_and_the_slots_id() {
    if !is_installed("the_device_is_there_with_the_segments_size_and_the_slots_id") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut qemu = machine(directory.path(), &daemon, 2);
    assert_eq!(qemu.memory_size(), Some(16 << 20));
    assert_eq!(qemu.position(), 2);
    assert_eq!(qemu.word(0), ginnel_region::MAGIC, "a guest sees a Ginnel segment");
    assert_eq!(qemu.word(TABLE), 3 | 2 << 16, "and how many slots and vectors there are");
    assert_eq!(daemon.status()["machines"][0]["pid"], qemu.pid());
    assert_eq!(qemu.said(), "", "QEMU has nothing to complain about");
}

/// The options as `ginnel vm args` prints them, and real firmware: it gives the memory an address above 4 GiB behind its root port.
#[test]
fn q35_with_the_printed_options_has_room_for_the_memory() {
    if !is_installed("q35_with_the_printed_options_has_room_for_the_memory") {
        return;
    }
    let (daemon, directory) = daemon();
    let config = Config::load(Some(&daemon.path("ginneld.toml"))).expect("good");
    let options: Vec<String> = ginnel_host::qemu::options(&config, "t", 1, None).expect("good").concat();
    let mut qemu = Qemu::begin(directory.path(), "q35", &options).finish();
    assert_eq!(daemon.slots(), [1]);
    qemu.qmp(json!({"execute": "cont"}));
    let address =
        wait("the firmware", || qemu.memory_region().and_then(|region| region["address"].as_u64()).filter(|at| *at < 1 << 60));
    assert_eq!(qemu.memory_region().expect("there")["size"], 16 << 20);
    assert!(address >= 1 << 32 && address % (16 << 20) == 0, "{address:#x}");
    assert_eq!(qemu.read(address), u32::from_le_bytes(*b"GINN"), "the segment, where the firmware put it");
    assert_eq!(qemu.said(), "");
}

#[test]
fn two_machines_share_memory_and_ring_each_other() {
    if !is_installed("two_machines_share_memory_and_ring_each_other") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let mut two = machine(directory.path(), &daemon, 3);
    one.wait_interrupt(0); // somebody came …
    assert_eq!((presence(&mut one, 3), presence(&mut two, 1)), ((true, 1), (true, 1)), "… and it is said who");
    one.write(common::qemu::MEMORY + (8 << 20), 0xabcd);
    assert_eq!(two.read(common::qemu::MEMORY + (8 << 20)), 0xabcd);
    drain(&mut two);
    one.ring(3, 1);
    two.wait_interrupt(1);
    assert!(!two.interrupted(0) && !one.interrupted(1));
    two.ring(1, 0);
    one.wait_interrupt(0);
    // Nobody is in slot 2, there is no slot 4 and no vector 2: nothing happens.
    for (peer, vector) in [(2, 0), (4, 0), (1, 2), (0xffff, 0xffff)] {
        two.ring(peer, vector);
    }
    two.assert_alive();
    one.assert_alive();
}

#[test]
fn a_killed_machine_is_noticed_by_the_other() {
    if !is_installed("a_killed_machine_is_noticed_by_the_other") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let mut two = machine(directory.path(), &daemon, 2);
    one.wait_interrupt(0);
    two.kill();
    one.wait_interrupt(0);
    assert_eq!(presence(&mut one, 2), (false, 1));
    assert_eq!(daemon.slots(), [1]);
    // The machine that comes back gets its slot, is another life, and works.
    let mut two = machine(directory.path(), &daemon, 2);
    one.wait_interrupt(0);
    assert_eq!(presence(&mut one, 2), (true, 2));
    one.ring(2, 1);
    two.wait_interrupt(1);
}

/// facts.md: "a departed peer's id is given to another: QEMU use-after-free, abort within 3–6 joins".
#[test]
fn fifty_joins_and_leaves_of_others_do_a_qemu_no_harm() {
    if !is_installed("fifty_joins_and_leaves_of_others_do_a_qemu_no_harm") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    for round in 0..50 {
        let slot = 2 + round % 2;
        drop(daemon.join(slot));
        wait("its end", || (daemon.slots() == [1]).then_some(()));
        one.ring(slot, 1);
        if round % 10 == 0 {
            let mut two = machine(directory.path(), &daemon, slot);
            assert_eq!(two.position(), u32::from(slot), "the slot is the id");
            drain(&mut two);
            one.ring(slot, 1);
            two.wait_interrupt(1);
            two.kill();
            wait("its end", || (daemon.slots() == [1]).then_some(()));
        }
    }
    one.assert_alive();
    assert_eq!(one.said(), "", "it was not told anything that it would complain about");
}

/// facts.md: "device_del after a peer was reported gone: QEMU double free, abort".
#[test]
fn unplugging_after_a_neighbour_died_does_not_abort_qemu() {
    if !is_installed("unplugging_after_a_neighbour_died_does_not_abort_qemu") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let mut two = machine(directory.path(), &daemon, 2);
    one.wait_interrupt(0);
    two.kill();
    one.wait_interrupt(0);
    one.remove_device();
    assert!(one.device().is_none());
    one.assert_alive();
    wait("slot 1 free", || daemon.slots().is_empty().then_some(()));
}

#[test]
fn thirty_replugs_work_like_the_first() {
    if !is_installed("thirty_replugs_work_like_the_first") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut two = machine(directory.path(), &daemon, 2);
    let mut one = Qemu::start(directory.path(), &[]);
    let before = daemon.descriptors();
    for round in 1..=30 {
        one.add_chardev(&daemon.socket(1));
        one.add_device();
        one.set_up_device();
        assert_eq!(presence(&mut one, 1), (true, round));
        drain(&mut two);
        one.ring(2, 1);
        two.wait_interrupt(1);
        one.remove_device();
        wait("slot 1 free", || (daemon.slots() == [2]).then_some(()));
    }
    one.assert_alive();
    two.assert_alive();
    wait("descriptors", || (daemon.descriptors() == before).then_some(()));
}

/// facts.md: "server closes, or is silent, while QEMU connects: QEMU spins for ever holding its lock".
#[test]
fn a_refused_qemu_starts_with_a_dummy_memory() {
    if !is_installed("a_refused_qemu_starts_with_a_dummy_memory") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let mut second = Qemu::joined(directory.path(), &daemon.socket(1));
    second.assert_alive();
    assert_eq!(second.memory_size(), Some(4096));
    second.set_up_device();
    assert_eq!(second.word(0), u64::from_le_bytes(*b"GINNELNO"), "a driver can tell");
    second.ring(1, 1);
    second.ring(2, 0);
    second.assert_alive();
    assert!(!one.interrupted(1), "it has nobody's doorbell");
    assert_eq!(presence(&mut one, 1), (true, 1));
    let line = daemon.wait_log("event=refused", 1);
    assert!(line.contains(&format!("pid={}", second.pid())) && line.contains("reason=slot_taken"), "{line}");
    // It leaves as any other does.
    second.remove_device();
    second.assert_alive();
}

/// The same trap by another way: the chardev is made long before the device, and QEMU reads the setup only then.
#[test]
fn a_setup_waits_for_its_device_however_long_also_if_refused_or_the_daemon_dies() {
    if !is_installed("a_setup_waits_for_its_device_however_long_also_if_refused_or_the_daemon_dies") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = Qemu::start(directory.path(), &[]);
    let mut refused = Qemu::start(directory.path(), &[]);
    one.add_chardev(&daemon.socket(1));
    daemon.wait_log("event=joined", 1);
    refused.add_chardev(&daemon.socket(1));
    daemon.wait_log("event=refused", 1);
    for _ in 0..100 {
        // Others who are refused push out only those who have read everything.
        drop(std::os::unix::net::UnixStream::connect(daemon.socket(1)).expect("connected"));
    }
    refused.add_device();
    assert_eq!(refused.memory_size(), Some(4096));
    daemon.restart(libc::SIGKILL);
    one.add_device();
    assert_eq!(one.memory_size(), Some(16 << 20));
    assert_eq!(daemon.slots(), [1]);
    one.assert_alive();
    refused.assert_alive();
}

#[test]
fn a_qemu_that_starts_while_the_daemon_is_away_joins_when_it_is_back() {
    if !is_installed("a_qemu_that_starts_while_the_daemon_is_away_joins_when_it_is_back") {
        return;
    }
    let (daemon, directory) = daemon();
    common::signal(daemon.pid(), libc::SIGSTOP);
    let mut starting = Qemu::begin(directory.path(), "pc", &device(&daemon.socket(1)));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!starting.is_ready(), "it waits for its memory");
    // The daemon does not come back; the next instance does, and finds the joiner at the door.
    daemon.restart(libc::SIGKILL);
    let mut qemu = starting.finish();
    assert_eq!(qemu.memory_size(), Some(16 << 20));
    qemu.assert_alive();
}

/// facts.md: "daemon restarts: QEMU cannot rejoin, but doorbells and memory keep working".
#[test]
fn restarting_or_killing_the_daemon_disturbs_no_machine() {
    if !is_installed("restarting_or_killing_the_daemon_disturbs_no_machine") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let mut two = machine(directory.path(), &daemon, 2);
    one.wait_interrupt(0);
    one.write(common::qemu::MEMORY + (8 << 20), 77);
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGKILL] {
        let before = daemon.pid();
        if signal == libc::SIGTERM {
            // Asked for by SIGHUP to the keeper: an orderly restart.
            let starts = daemon.log().matches("event=started").count();
            common::signal(daemon.outer_pid(), libc::SIGHUP);
            daemon.wait_log("event=started", starts + 1);
        } else {
            daemon.restart(signal);
        }
        assert_ne!(daemon.pid(), before);
        assert_eq!(daemon.slots(), [1, 2], "both slots are still theirs");
        drain(&mut one);
        drain(&mut two);
        one.ring(2, 1);
        two.wait_interrupt(1);
        assert_eq!((presence(&mut one, 2), presence(&mut two, 1)), ((true, 1), (true, 1)), "nobody's life has changed");
    }
    // Who joins now meets them: the same memory, the same doorbells.
    let mut three = machine(directory.path(), &daemon, 3);
    assert_eq!(three.read(common::qemu::MEMORY + (8 << 20)), 77);
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

#[test]
fn a_machine_that_dies_while_the_daemon_is_away_is_noticed_by_the_next() {
    if !is_installed("a_machine_that_dies_while_the_daemon_is_away_is_noticed_by_the_next") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let mut two = machine(directory.path(), &daemon, 2);
    one.wait_interrupt(0);
    common::signal(daemon.pid(), libc::SIGSTOP);
    two.kill();
    drain(&mut one);
    daemon.restart(libc::SIGKILL);
    one.wait_interrupt(0);
    assert_eq!(presence(&mut one, 2), (false, 1));
    assert_eq!(daemon.slots(), [1]);
}

/// Without a keeper nothing is handed on, and still: who is attached keeps memory and doorbells.
#[test]
fn a_daemon_that_dies_without_a_keeper_leaves_machines_what_they_have() {
    if !is_installed("a_daemon_that_dies_without_a_keeper_leaves_machines_what_they_have") {
        return;
    }
    let (daemon, directory) = (Daemon::alone(SMALL), tempfile::tempdir().expect("a directory"));
    let mut one = machine(directory.path(), &daemon, 1);
    let mut two = machine(directory.path(), &daemon, 2);
    common::signal(daemon.pid(), libc::SIGKILL);
    drop(daemon);
    drain(&mut two);
    one.ring(2, 1);
    two.wait_interrupt(1);
    one.assert_alive();
    assert_eq!(one.word(0), ginnel_region::MAGIC);
    one.remove_device();
    one.assert_alive();
}

/// facts.md: "a host process holds a guest's eventfd", with a real QEMU's descriptors: and both wake each other through the daemon.
#[test]
fn a_host_process_and_a_qemu_have_no_eventfd_in_common_and_wake_each_other() {
    if !is_installed("a_host_process_and_a_qemu_have_no_eventfd_in_common_and_wake_each_other") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let process = daemon.join(0);
    let (ours, theirs) = (common::eventfds(std::process::id()), common::eventfds(one.pid()));
    assert!(ours.len() >= 8 && theirs.len() >= 8);
    assert!(ours.iter().all(|id| !theirs.contains(id)), "{ours:?} {theirs:?}");
    daemon.status();
    drain(&mut one);
    process.ring(1, 1).expect("rung");
    one.wait_interrupt(1);
    for bell in process.doorbells(0) {
        let _ = ginnel_peer::doorbell::drain(bell);
    }
    one.ring(0, 1);
    wait("the host's doorbell", || ginnel_peer::doorbell::drain(&process.doorbells(0)[1]).expect("an eventfd").then_some(()));
    assert!(!ginnel_peer::doorbell::drain(&process.doorbells(0)[0]).expect("an eventfd"));
}

/// A flood by the device's register: everybody goes on, and the daemon is not in its way between machines.
#[test]
fn a_flood_of_doorbells_stops_nobody() {
    if !is_installed("a_flood_of_doorbells_stops_nobody") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let mut two = machine(directory.path(), &daemon, 2);
    for round in 0..3000 {
        one.ring(round % 4, round % 2);
    }
    two.assert_alive();
    one.assert_alive();
    assert_eq!(daemon.slots(), [1, 2]);
    drain(&mut two);
    one.ring(2, 1);
    two.wait_interrupt(1);
}

/// facts.md: "Migration is blocked unless the device is master=on; detach first".
#[test]
fn a_machine_migrates_only_when_its_device_is_unplugged() {
    if !is_installed("a_machine_migrates_only_when_its_device_is_unplugged") {
        return;
    }
    let (daemon, directory) = daemon();
    let mut one = machine(directory.path(), &daemon, 1);
    let migrate =
        json!({"execute": "migrate", "arguments": {"uri": format!("exec:cat > {}", directory.path().join("state").display())}});
    let refused = one.try_qmp(&migrate).expect_err("blocked");
    assert!(refused.contains("ivshmem"), "{refused}");
    one.remove_device();
    one.qmp(migrate);
    wait("the migration", || (one.qmp(json!({"execute": "query-migrate"}))["status"] == "completed").then_some(()));
    wait("slot 1 free", || daemon.slots().is_empty().then_some(()));
}

/// Needs 8 huge pages that are free: `echo 16 > /proc/sys/vm/nr_hugepages`.
#[test]
fn huge_pages_are_reserved_at_the_start_and_a_hole_in_them_stops_nobody() {
    let test = "huge_pages_are_reserved_at_the_start_and_a_hole_in_them_stops_nobody";
    let free = || std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    let pages = free().trim().parse::<u32>().unwrap_or(0);
    if pages < 8 {
        common::skip(test, "fewer than 8 huge pages of 2 MiB are free");
        return;
    }
    if !is_installed(test) {
        return;
    }
    let (daemon, directory) =
        (Daemon::kept(&format!("{SMALL}memory = \"hugepages-2M\"\n")), tempfile::tempdir().expect("a directory"));
    assert_eq!(free().trim(), (pages - 8).to_string(), "all at once");
    let mut one = machine(directory.path(), &daemon, 1);
    assert_eq!((one.memory_size(), one.word(0)), (Some(16 << 20), ginnel_region::MAGIC));
    daemon.restart(libc::SIGKILL);
    assert_eq!(daemon.slots(), [1]);
    let two = daemon.join(2);
    let memory = two.memory().expect("memory");
    assert_eq!(rustix::fs::ftruncate(memory, 0), Err(rustix::io::Errno::PERM));
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(memory, hole, 0, 16 << 20).expect("a hole");
    // Somebody else takes the pages: touching the memory would now raise SIGBUS.
    let thief =
        rustix::fs::memfd_create("thief", rustix::fs::MemfdFlags::HUGETLB | rustix::fs::MemfdFlags::HUGE_2MB).expect("made");
    let all = free().trim().parse::<u64>().expect("a number") * (2 << 20);
    rustix::fs::fallocate(&thief, rustix::fs::FallocateFlags::empty(), 0, all).expect("taken");
    drop(two);
    daemon.wait_log("event=peer_table_unwritable", 1);
    assert_eq!(daemon.slots(), [1], "the daemon says so and goes on");
    one.assert_alive();
}
