//! `ginnel vm args` against a configuration of ginneld. That QEMU takes the options is shown in
//! `crates/host/tests/qemu.rs`.

use crate::common::Place;
use std::fs;

const CONFIG: &str = "[segment.web]\nsize = \"64M\"\nslots = 2\nvectors = 3\n";

fn place() -> (Place, String) {
    let place = Place::new();
    let file = place.path("ginneld.toml");
    fs::write(&file, format!("run_dir = {:?}\n{CONFIG}", place.path("run"))).expect("written");
    let file = file.to_string_lossy().into_owned();
    (place, file)
}

#[test]
fn the_options_can_be_put_into_qemus_command_line() {
    let (place, file) = place();
    let socket = place.path("run/web/2.sock");
    let said = place.run(&["vm", "args", "--segment", "web", "--slot", "2", "--config", &file]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let expected = format!(
        "-chardev socket,id=ginnel-web,path={}\n\
         -device pcie-root-port,id=ginnel-web-port,bus=pcie.0,chassis=200,pref64-reserve=4096M\n\
         -device ivshmem-doorbell,id=ginnel-web-device,bus=ginnel-web-port,chardev=ginnel-web,vectors=3\n",
        socket.display()
    );
    assert_eq!(said.out, expected);
    assert!(said.err.contains("is not there yet: start ginneld"), "{said:?}");
    fs::create_dir_all(place.path("run/web")).expect("made");
    fs::write(socket, "").expect("made");
    let said = place.run(&[
        "vm",
        "args",
        "--segment",
        "web",
        "--slot",
        "2",
        "--bus",
        "pci.0",
        "--config",
        &file,
    ]);
    assert_eq!((said.out.lines().count(), said.err.as_str()), (2, ""));
}

#[test]
fn what_is_wrong_is_said() {
    let (place, file) = place();
    let run = |segment: &str, slot: &str| {
        place.run(&["vm", "args", "--segment", segment, "--slot", slot, "--config", &file])
    };
    assert_eq!(
        run("other", "1").err,
        "ginnel: there is no segment other; the configuration has: web\n"
    );
    assert_eq!(
        run("web", "3").err,
        "ginnel: there is no slot 3: choose 1 to 2, or raise `slots` in the configuration\n"
    );
    fs::write(place.path("ginneld.toml"), "[segment.web]\nsize = 5\n").expect("written");
    let said = run("web", "1");
    assert!(
        said.code == Some(1)
            && said.err.contains("ginneld.toml:2: segment.web.size: must be a power of two"),
        "{said:?}"
    );
}

#[test]
fn a_card_at_a_port_of_the_switch() {
    let place = Place::new();
    let socket = place.path("vm1.sock");
    let socket = socket.to_string_lossy();
    let said = place.run(&[
        "vm",
        "args",
        "--net",
        &socket,
        "--memory",
        "1G",
        "--mac",
        "52:54:00:00:00:01",
    ]);
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 5), "{said:?}");
    assert!(said.out.contains(&format!("path={socket},reconnect=1\n")), "{said:?}");
    assert!(said.err.contains("is not there yet: start ginnel-switch"), "{said:?}");
    let said = place.run(&["vm", "args", "--net", &socket]);
    assert!(said.err.contains("--memory prints its options too"), "{said:?}");
    // With sockets, or sockets alone.
    let both = place.run(&[
        "vm",
        "args",
        "--net",
        &socket,
        "--vsock",
        &socket,
        "--memory",
        "1G",
        "--vectors",
        "0",
    ]);
    assert_eq!((both.code, both.out.lines().count()), (Some(0), 7), "{both:?}");
    let alone = place.run(&["vm", "args", "--vsock", &socket, "--memory", "1G"]);
    assert!(
        alone.out.ends_with("-device vhost-user-vsock-pci,chardev=ginnel-vsock\n"),
        "{alone:?}"
    );
    for wrong in [
        &["--vsock", &*socket, "--segment", "x"][..],
        &["--vsock", &socket, "--mac", "52:54:00:00:00:01"],
    ] {
        let said = place.run(&[&["vm", "args"], wrong].concat());
        assert_eq!(said.code, Some(2), "{wrong:?}: {said:?}");
    }
    for wrong in [
        &["--net", &*socket, "--slot", "1"][..],
        &["--net", &socket, "--queues", "17"],
        &["--mac", "x"],
        &[],
    ] {
        let said = place.run(&[&["vm", "args"], wrong].concat());
        assert_eq!(said.code, Some(2), "{wrong:?}: {said:?}");
    }
}
