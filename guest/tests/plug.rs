//! A card at a port of `ginnel-switch` that is plugged in while its machine runs, and taken out.

use crate::common::ports::{Transfer, programs, receives};
use crate::common::wait;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::switch::VhostSwitch;

/// Where it is plugged in: what a machine must have from the start.
const SLOT: [&str; 2] = ["-device", "pcie-root-port,id=slot-for-card,chassis=7"];

/// The options that make the card, in QEMU's order, and all others.
fn split(options: &[String]) -> (Vec<[String; 2]>, Vec<String>) {
    let pairs = options.chunks(2).map(|pair| [pair[0].clone(), pair[1].clone()]);
    let of_card =
        |pair: &[String; 2]| ["-chardev", "-netdev", "-device"].contains(&pair[0].as_str());
    let (card, rest): (Vec<_>, Vec<_>) = pairs.partition(of_card);
    (card, rest.concat())
}

/// Gives QEMU's monitor a command that answers nothing where it is well.
fn tell(guest: &mut Guest, command: &str) {
    let said = guest.monitor(command).expect("QEMU answers");
    assert!(said.trim().is_empty(), "{command}: {said}");
}

/// Plugs the card in, and waits until it reaches the neighbour.
fn plug(guest: &mut Guest, card: &[[String; 2]]) {
    for [kind, value] in card {
        let command = match kind.as_str() {
            "-chardev" => format!("chardev-add {value}"),
            "-netdev" => format!("netdev_add {value}"),
            _ => format!("device_add {value},bus=slot-for-card,id=card"),
        };
        tell(guest, &command);
    }
    guest.sh("for i in $(seq 600); do test -e /sys/class/net/eth0 && break; sleep 0.1; done
         ip link set eth0 up && ip addr add 10.77.0.1/24 dev eth0
         ping -c 3 -W 5 10.77.0.2");
}

/// Takes it out, in the order in which QEMU lets go: the card, then its netdev, which takes the
/// chardev with it. The port is free then.
fn unplug(guest: &mut Guest, card: &[[String; 2]], switch: &VhostSwitch) {
    guest.unplug("card").expect("unplugged");
    guest.sh("test ! -e /sys/class/net/eth0");
    let id = |kind: &str| {
        let [_, value] = card.iter().find(|pair| pair[0] == kind).expect("it is there");
        let id = value.split(',').find_map(|part| part.strip_prefix("id="));
        id.expect("an id").to_owned()
    };
    tell(guest, &format!("netdev_del {}", id("-netdev")));
    let left = guest.monitor("info chardev").expect("QEMU answers");
    assert!(!left.contains(&id("-chardev")), "{left}");
    wait("a free port", || (switch.port("one").ok()?["state"] == "waiting").then_some(()));
    // Nobody keeps its addresses.
    assert!(!switch.ask("fdb").expect("a table").contains("\"port\":\"one\""));
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_card_is_plugged_in_and_taken_out_while_its_machine_runs() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let mut switch =
        VhostSwitch::start(directory.path(), "[port.one]\n[port.two]\n").expect("a switch");
    let one = switch.spec("one", "10.77.0.1/24").expect("options");
    let (card, mut options) = split(&one.options);
    options.extend(SLOT.map(str::to_owned));
    let one = Spec { options, programs: programs(), ..Spec::new("one") };
    let two = switch.spec("two", "10.77.0.2/24").expect("options");
    let two = Spec { programs: programs(), ..two };
    let mut guests = Guest::boot_all(&kernel, directory.path(), &[one, two]).expect("they boot");
    plug(&mut guests[0], &card);
    assert!(switch.ask("fdb").expect("a table").contains("\"port\":\"one\""), "its address");
    unplug(&mut guests[0], &card, &switch);
    plug(&mut guests[0], &card);
    // What was plugged in outlives the switch, as a card does that was there from the start.
    switch.kill_and_restart().expect("another");
    guests[0].sh("for i in $(seq 100); do ping -c 1 -W 2 10.77.0.2 && exit 0; done; exit 1");
    // It goes while it is busy: the neighbour's frames are for nobody then.
    guests[1].sh("ping -i 0.01 -s 1400 10.77.0.1 >/dev/null 2>&1 & echo $! >pings");
    unplug(&mut guests[0], &card, &switch);
    plug(&mut guests[0], &card);
    guests[1].sh("kill $(cat pings)");
    // A stream to it goes on once it is there again, whole.
    let transfer = Transfer::start(&guests, 5001, 64);
    receives(&switch, "one", 200);
    unplug(&mut guests[0], &card, &switch);
    plug(&mut guests[0], &card);
    transfer.ends_well();
    guests.iter().for_each(Guest::assert_healthy);
}
