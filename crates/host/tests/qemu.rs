//! Real QEMUs, without guests, as ginneld's machines.

use crate::common;
use crate::common::daemon::{Daemon, SMALL};
use crate::common::qemu::{Host, MEMORY, Qemu, device, drain, presence};
use crate::common::wait;
use ginnel_host::config::Config;
use ginnel_region::TABLE;
use serde_json::json;

#[test]
fn the_device_is_there_with_the_segments_size_and_the_slots_id() {
    let Some(host) = Host::start() else { return };
    let mut qemu = host.machine(2);
    assert_eq!(qemu.memory_size(), Some(16 << 20));
    assert_eq!(qemu.position(), 2);
    assert_eq!(qemu.word(0), ginnel_region::MAGIC, "a guest sees a Ginnel segment");
    assert_eq!(qemu.word(TABLE), 3 | 2 << 16, "and how many slots and vectors there are");
    assert_eq!(host.daemon.status()["machines"][0]["pid"], qemu.pid());
    assert_eq!(qemu.said(), "", "QEMU has nothing to complain about");
}

/// The options as `ginnel vm args` prints them, and real firmware: it gives the memory an address
/// above 4 GiB behind its root port.
#[test]
fn q35_with_the_printed_options_has_room_for_the_memory() {
    let Some(host) = Host::start() else { return };
    let config = Config::load(Some(&host.daemon.path("ginneld.toml"))).expect("good");
    let options: Vec<String> =
        ginnel_host::qemu::options(&config, "t", 1, None).expect("good").concat();
    let mut qemu = Qemu::begin(host.directory(), "q35", &options).finish();
    assert_eq!(host.daemon.slots(), [1]);
    qemu.qmp(json!({"execute": "cont"}));
    let address = wait("the firmware", || {
        qemu.memory_region()
            .and_then(|region| region["address"].as_u64())
            .filter(|at| *at < 1 << 60)
    });
    assert_eq!(qemu.memory_region().expect("there")["size"], 16 << 20);
    assert!(address >= 1 << 32 && address % (16 << 20) == 0, "{address:#x}");
    assert_eq!(
        qemu.read(address),
        u32::from_le_bytes(*b"GINN"),
        "the segment, where the firmware put it"
    );
    assert_eq!(qemu.said(), "");
}

#[test]
fn two_machines_share_memory_and_ring_each_other() {
    let Some(host) = Host::start() else { return };
    let mut one = host.machine(1);
    let mut two = host.machine(3);
    one.wait_interrupt(0); // somebody came …
    assert_eq!(
        (presence(&mut one, 3), presence(&mut two, 1)),
        ((true, 1), (true, 1)),
        "… and it is said who"
    );
    one.write(MEMORY + (8 << 20), 0xabcd);
    assert_eq!(two.read(MEMORY + (8 << 20)), 0xabcd);
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
    let Some(host) = Host::start() else { return };
    let (mut one, mut two) = host.pair();
    one.wait_interrupt(0);
    two.kill();
    one.wait_interrupt(0);
    assert_eq!(presence(&mut one, 2), (false, 1));
    assert_eq!(host.daemon.slots(), [1]);
    // The machine that comes back gets its slot, is another life, and works.
    let mut two = host.machine(2);
    one.wait_interrupt(0);
    assert_eq!(presence(&mut one, 2), (true, 2));
    one.ring(2, 1);
    two.wait_interrupt(1);
}

#[test]
fn thirty_replugs_work_like_the_first() {
    let Some(host) = Host::start() else { return };
    let mut two = host.machine(2);
    let mut one = Qemu::start(host.directory(), &[]);
    let before = host.daemon.descriptors();
    for round in 1..=30 {
        one.add_chardev(&host.daemon.socket(1));
        one.add_device();
        one.set_up_device();
        assert_eq!(presence(&mut one, 1), (true, round));
        drain(&mut two);
        one.ring(2, 1);
        two.wait_interrupt(1);
        one.remove_device();
        wait("slot 1 free", || (host.daemon.slots() == [2]).then_some(()));
    }
    one.assert_alive();
    two.assert_alive();
    wait("descriptors", || (host.daemon.descriptors() == before).then_some(()));
}

#[test]
fn a_qemu_that_starts_while_the_daemon_is_away_joins_when_it_is_back() {
    let Some(host) = Host::start() else { return };
    common::signal(host.daemon.pid(), libc::SIGSTOP);
    let mut starting = Qemu::begin(host.directory(), "pc", &device(&host.daemon.socket(1)));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!starting.is_ready(), "it waits for its memory");
    // The daemon does not come back; the next instance does, and finds the joiner at the door.
    host.daemon.restart(libc::SIGKILL);
    let mut qemu = starting.finish();
    assert_eq!(qemu.memory_size(), Some(16 << 20));
    qemu.assert_alive();
}

#[test]
fn a_machine_that_dies_while_the_daemon_is_away_is_noticed_by_the_next() {
    let Some(host) = Host::start() else { return };
    let (mut one, mut two) = host.pair();
    one.wait_interrupt(0);
    common::signal(host.daemon.pid(), libc::SIGSTOP);
    two.kill();
    drain(&mut one);
    host.daemon.restart(libc::SIGKILL);
    one.wait_interrupt(0);
    assert_eq!(presence(&mut one, 2), (false, 1));
    assert_eq!(host.daemon.slots(), [1]);
}

/// Without a keeper nothing is handed on, and still: who is attached keeps memory and doorbells.
#[test]
fn a_daemon_that_dies_without_a_keeper_leaves_machines_what_they_have() {
    let Some(host) = Host::with(|| Daemon::alone(SMALL)) else { return };
    let (mut one, mut two) = host.pair();
    common::signal(host.daemon.pid(), libc::SIGKILL);
    drop(host.daemon);
    drain(&mut two);
    one.ring(2, 1);
    two.wait_interrupt(1);
    one.assert_alive();
    assert_eq!(one.word(0), ginnel_region::MAGIC);
    one.remove_device();
    one.assert_alive();
}

/// A flood by the device's register: everybody goes on, and the daemon is not in its way between
/// machines.
#[test]
fn a_flood_of_doorbells_stops_nobody() {
    let Some(host) = Host::start() else { return };
    let (mut one, mut two) = host.pair();
    for round in 0..3000 {
        one.ring(round % 4, round % 2);
    }
    two.assert_alive();
    one.assert_alive();
    assert_eq!(host.daemon.slots(), [1, 2]);
    drain(&mut two);
    one.ring(2, 1);
    two.wait_interrupt(1);
}

/// Needs 8 huge pages that are free: `echo 16 > /proc/sys/vm/nr_hugepages`.
#[test]
fn huge_pages_are_reserved_at_the_start_and_a_hole_in_them_stops_nobody() {
    let free = || {
        std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
            .unwrap_or_default()
    };
    let pages = free().trim().parse::<u32>().unwrap_or(0);
    if pages < 8 {
        common::skip("fewer than 8 huge pages of 2 MiB are free");
        return;
    }
    let Some(host) = Host::with(|| Daemon::kept(&format!("{SMALL}memory = \"hugepages-2M\"\n")))
    else {
        return;
    };
    assert_eq!(free().trim(), (pages - 8).to_string(), "all at once");
    let mut one = host.machine(1);
    assert_eq!((one.memory_size(), one.word(0)), (Some(16 << 20), ginnel_region::MAGIC));
    host.daemon.restart(libc::SIGKILL);
    assert_eq!(host.daemon.slots(), [1]);
    let two = host.daemon.join(2);
    let memory = two.memory().expect("memory");
    assert_eq!(rustix::fs::ftruncate(memory, 0), Err(rustix::io::Errno::PERM));
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(memory, hole, 0, 16 << 20).expect("a hole");
    // Somebody else takes the pages: touching the memory would now raise SIGBUS.
    let thief = rustix::fs::memfd_create(
        "thief",
        rustix::fs::MemfdFlags::HUGETLB | rustix::fs::MemfdFlags::HUGE_2MB,
    )
    .expect("made");
    let all = free().trim().parse::<u64>().expect("a number") * (2 << 20);
    rustix::fs::fallocate(&thief, rustix::fs::FallocateFlags::empty(), 0, all).expect("taken");
    drop(two);
    host.daemon.wait_log("event=peer_table_unwritable", 1);
    assert_eq!(host.daemon.slots(), [1], "the daemon says so and goes on");
    one.assert_alive();
}
