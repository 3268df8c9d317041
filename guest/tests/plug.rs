//! A card at a port of `ginnel-switch` that is plugged in while its machine runs, and taken out.

use crate::common::wait;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::switch::VhostSwitch;

/// What QEMU takes for the card itself, and what it has from the start.
fn split(options: Vec<String>) -> (Vec<[String; 2]>, Vec<String>) {
    let pairs = options.chunks(2).map(|pair| [pair[0].clone(), pair[1].clone()]);
    let of_card =
        |pair: &[String; 2]| ["-chardev", "-netdev", "-device"].contains(&pair[0].as_str());
    let (card, rest): (Vec<_>, Vec<_>) = pairs.partition(of_card);
    (card, rest.concat())
}

/// Plugs the card in, and waits until it reaches the neighbour.
fn plug(guest: &mut Guest, card: &[[String; 2]]) {
    for [kind, value] in card {
        let command = match kind.as_str() {
            "-chardev" => format!("chardev-add {value}"),
            "-netdev" => format!("netdev_add {value}"),
            _ => format!("device_add {value},bus=slot-for-card,id=card"),
        };
        let said = guest.monitor(&command).expect("QEMU answers");
        assert!(said.trim().is_empty(), "{command}: {said}");
    }
    guest.sh("for i in $(seq 200); do test -e /sys/class/net/eth0 && break; sleep 0.1; done
         ip link set eth0 up && ip addr add 10.77.0.1/24 dev eth0
         ping -c 3 -W 5 10.77.0.2");
}

/// Takes it out.
fn unplug(guest: &mut Guest, card: &[[String; 2]], switch: &VhostSwitch) {
    guest.unplug("card").expect("unplugged");
    guest.sh(
        "for i in $(seq 100); do test -e /sys/class/net/eth0 || exit 0; sleep 0.1; done; exit 1",
    );
    let id = |kind: &str| {
        let [_, value] = card.iter().find(|pair| pair[0] == kind).expect("it is there");
        let id = value.split(',').find_map(|part| part.strip_prefix("id="));
        id.expect("an id").to_owned()
    };
    let (netdev, chardev) = (id("-netdev"), id("-chardev"));
    // QEMU lets go of them a moment after the device.
    wait("a netdev that goes", || {
        guest.monitor(&format!("netdev_del {netdev}")).ok()?.trim().is_empty().then_some(())
    });
    wait("a chardev that goes", || {
        guest.monitor(&format!("chardev-remove {chardev}")).ok()?.trim().is_empty().then_some(())
    });
    wait("a free port", || (switch.port("one").ok()?["state"] == "waiting").then_some(()));
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_card_is_plugged_in_and_taken_out_while_its_machine_runs() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let switch =
        VhostSwitch::start(directory.path(), "[port.one]\n[port.two]\n").expect("a switch");
    let one = switch.spec("one", "10.77.0.1/24").expect("options");
    let (card, mut options) = split(one.options);
    options.extend(["-device", "pcie-root-port,id=slot-for-card,chassis=7"].map(str::to_owned));
    let one = Spec { options, ..Spec::new("one") };
    let two = switch.spec("two", "10.77.0.2/24").expect("options");
    let mut guests = Guest::boot_all(&kernel, directory.path(), &[one, two]).expect("they boot");
    for _ in 0..3 {
        plug(&mut guests[0], &card);
        unplug(&mut guests[0], &card, &switch);
        // Nobody keeps its address.
        assert!(!switch.ask("fdb").expect("a table").contains("\"port\":\"one\""));
    }
    plug(&mut guests[0], &card);
    guests.iter().for_each(Guest::assert_healthy);
}
