//! The shipped unit under a real systemd: its command lines and its sandbox. Needs root.

use crate::common::{PATIENCE, frame, mac, next};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_tests::user_manager::UserManager;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const UNIT: &str = include_str!("../../../packaging/ginnel-switch.service");

/// A manager that knows the switch with these ports. `None` where this cannot be had here. The unit
/// is as shipped, but that program, configuration and sockets lie elsewhere, as a user manager's
/// runtime directories do: hence the link.
fn manager(config: &str) -> Option<UserManager> {
    let directory = UserManager::directory();
    let place = directory.path().display().to_string();
    ginnel_tests::build::copy_program(
        Path::new(env!("CARGO_BIN_EXE_ginnel-switch")),
        &directory.path().join("ginnel-switch"),
    );
    configure(directory.path(), config);
    let unit = UNIT
        .replace("/usr/bin/ginnel-switch", &format!("{place}/ginnel-switch"))
        .replace("/etc/ginnel/", &format!("{place}/"));
    // The user that the manager has.
    let changes = format!(
        "[Service]\nUser=\nGroup=\nSupplementaryGroups=\nPrivateTmp=no\nReadWritePaths={place}\n"
    );
    let mut manager = UserManager::start(directory, "ginnel-switch.service", &unit, &changes)?;
    manager.must("ln -s \"$PLACE\" /run/ginnel-switch");
    Some(manager)
}

fn configure(place: &Path, config: &str) {
    fs::write(place.join("switch.toml"), format!("metrics = \"off\"\n{config}")).expect("written");
}

fn socket(manager: &UserManager, port: &str) -> PathBuf {
    manager.place().join(format!("{port}.sock"))
}

/// Frames go from one to the other, once the switch has both queues.
fn reaches(from: &mut FrontEnd, to: &mut FrontEnd, number: u8) -> bool {
    let sent = frame(mac(2), mac(1), 100, number);
    assert!(from.send(1, &sent));
    next(to).is_some_and(|got| got == sent)
}

fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn under_systemd_a_reload_changes_ports_and_no_machine_notices() {
    const BEFORE: &str = "[port.a]\n[port.b]\n";
    let Some(mut manager) = manager(BEFORE) else { return };
    manager.must("systemctl --user start ginnel-switch");
    let status = manager.sh("systemctl --user status ginnel-switch").0;
    assert_eq!(manager.show("ActiveState"), "active", "{status}\n{}", manager.log());
    let pid = manager.show("MainPID");
    let connect = |manager: &UserManager, port: &str| {
        wait("its socket", || socket(manager, port).exists());
        FrontEnd::connect(&socket(manager, port), Options::default()).expect("a front end")
    };
    let [mut a, mut b] = ["a", "b"].map(|port| connect(&manager, port));
    wait("both up", || manager.sh("$PLACE/ginnel-switch status").0.contains("2 of them up"));
    assert!(reaches(&mut a, &mut b, 1));
    // Another port comes, and takes part.
    configure(manager.place(), "[port.a]\n[port.b]\n[port.c]\n");
    manager.must("systemctl --user reload ginnel-switch");
    let mut c = connect(&manager, "c");
    wait("it is up", || manager.sh("$PLACE/ginnel-switch status").0.contains("3 of them up"));
    assert!(c.send(1, &frame(mac(1), mac(3), 100, 2)));
    assert!(next(&mut a).is_some(), "it is no part of the segment");
    assert!(reaches(&mut a, &mut b, 3));
    // What is wrong is refused: systemd says so, the service goes on as it was.
    configure(manager.place(), "[port.a]\n[port.b]\nkye = 7\n");
    let (_, status) = manager.sh("systemctl --user reload ginnel-switch");
    assert_ne!(status, 0, "a wrong key was taken");
    let result = manager.show("ReloadResult");
    assert_eq!((result.as_str(), manager.show("ActiveState").as_str()), ("exit-code", "active"));
    assert!(reaches(&mut a, &mut b, 4));
    // A port goes, with whoever is there.
    configure(manager.place(), BEFORE);
    manager.must("systemctl --user reload ginnel-switch");
    wait("its socket is gone", || !socket(&manager, "c").exists());
    assert!(reaches(&mut a, &mut b, 5));
    assert_eq!(manager.show("MainPID"), pid, "the same process all along");
    assert_eq!(manager.show("NRestarts"), "0");
}
