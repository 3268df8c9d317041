//! The shipped unit under a real systemd: its sandbox, and its store of descriptors. Needs root.

use crate::common::daemon::SMALL;
use crate::common::qemu::{Qemu, is_installed};
use crate::common::{PATIENCE, wait};
use ginnel_ivshmem::client::Client;
use ginnel_tests::user_manager::UserManager;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const UNIT: &str = include_str!("../../../packaging/ginneld.service");

/// A manager that knows ginneld with one segment, `t`. `None` where this cannot be had here.
fn manager() -> Option<UserManager> {
    let directory = UserManager::directory();
    let path = |name: &str| directory.path().join(name);
    let (config, program) = (path("ginneld.toml"), path("ginneld"));
    fs::write(&config, format!("run_dir = {:?}\nstatus = \"off\"\n{SMALL}", path("run")))
        .expect("written");
    // The unit cannot see where this was built, if that is below /home.
    ginnel_tests::build::copy_program(Path::new(crate::ginneld()), &program);
    // Another place, and the user that the manager has; everything else is as shipped.
    let changes = format!(
        "[Service]\nUser=\nGroup=\nPrivateTmp=no\nExecStart=\nExecStart={} --config {}\n\
         ReadWritePaths={}\n",
        program.display(),
        config.display(),
        directory.path().display()
    );
    UserManager::start(directory, "ginneld.service", UNIT, &changes)
}

fn socket(manager: &UserManager, peer: u16) -> PathBuf {
    manager.place().join(format!("run/t/{peer}.sock"))
}

#[test]
fn under_systemd_neither_restart_nor_kill_disturbs_a_machine() {
    let Some(mut manager) = manager() else { return };
    manager.must("systemctl --user start ginneld");
    assert_eq!(manager.show("ActiveState"), "active", "READY=1 came");
    // Memory, 4 peers × 2 doorbells, 4 listening sockets.
    assert_eq!(manager.show("NFileDescriptorStore"), "13");
    let directory = tempfile::tempdir().expect("a directory");
    let mut one = is_installed().then(|| {
        let mut one = Qemu::joined(directory.path(), &socket(&manager, 1));
        one.set_up_device();
        one
    });
    let mut two = Client::connect(&socket(&manager, 2)).expect("connected");
    two.settle(2, Instant::now() + PATIENCE).expect("a setup");
    let kept = if one.is_some() { "15" } else { "14" };
    wait("the connections kept", || (manager.show("NFileDescriptorStore") == kept).then_some(()));
    for command in [
        "kill -9 $(systemctl --user show --value -p MainPID ginneld)",
        "systemctl --user restart ginneld",
    ] {
        let before = manager.show("MainPID");
        manager.must(command);
        wait("the next instance", || {
            let active = manager.show("ActiveState") == "active";
            (active && ![&before, "0"].contains(&manager.show("MainPID").as_str())).then_some(())
        });
        assert_eq!(manager.show("NFileDescriptorStore"), kept);
        assert_eq!(two.receive(), Ok(None), "its connection is open, and nothing was said on it");
        if let Some(one) = &mut one {
            two.ring(1, 1).expect("rung");
            one.wait_interrupt(1);
            one.ring(2, 1);
            wait("the doorbell", || {
                ginnel_ivshmem::doorbell::drain(&two.doorbells(2)[1])
                    .expect("an eventfd")
                    .then_some(())
            });
        }
        // The slot is still taken, and a new machine in another one meets the old ones.
        let mut second = Client::connect(&socket(&manager, 2)).expect("connected");
        second.settle(0, Instant::now() + PATIENCE).expect("a setup");
        assert_eq!(second.peers().count(), 0, "refused");
        let mut three = Client::connect(&socket(&manager, 3)).expect("connected");
        three.settle(2, Instant::now() + PATIENCE).expect("a setup");
        three.ring(2, 0).expect("rung");
        assert!(ginnel_ivshmem::doorbell::drain(&two.doorbells(2)[0]).expect("an eventfd"));
        drop(three);
        wait("only the machines kept", || {
            (manager.show("NFileDescriptorStore") == kept).then_some(())
        });
    }
    drop(two);
    wait("its connection let go", || (manager.show("NFileDescriptorStore") != kept).then_some(()));
    let log = manager.log();
    assert!(!log.contains("level=error") && !log.contains("level=warning event=no_aio"), "{log}");
}

/// A restart into a wrong configuration costs no machine its slot: it goes on when the file is
/// mended.
#[test]
fn under_systemd_a_wrong_configuration_does_not_cost_the_machines() {
    let Some(mut manager) = manager() else { return };
    manager.must("systemctl --user start ginneld");
    let mut one = Client::connect(&socket(&manager, 1)).expect("connected");
    one.settle(2, Instant::now() + PATIENCE).expect("a setup");
    let file = manager.place().join("ginneld.toml");
    let good = fs::read(&file).expect("written before");
    fs::write(&file, "[segment.t]\nslots = 0\n").expect("written");
    assert_ne!(manager.sh("systemctl --user restart ginneld").1, 0);
    wait("a second try", || {
        (manager.log().matches("segment.t.slots: must be 1 to 254").count() > 1).then_some(())
    });
    fs::write(&file, good).expect("written");
    wait("the next instance", || (manager.show("ActiveState") == "active").then_some(()));
    let mut second = Client::connect(&socket(&manager, 1)).expect("connected");
    second.settle(0, Instant::now() + PATIENCE).expect("a setup");
    assert_eq!(
        (second.peers().count(), one.receive()),
        (0, Ok(None)),
        "the slot is still the first one's"
    );
}
