//! The shipped unit under a real systemd: its sandbox, and its store of descriptors. A user manager
//! of its own, in a mount and pid namespace, so that nothing of the host's is touched. Needs root.

use crate::common::daemon::SMALL;
use crate::common::qemu::{Qemu, is_installed};
use crate::common::{PATIENCE, dies_with_us, skip, wait};
use ginnel_ivshmem::client::Client;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// What runs in the namespaces: a manager, and then one line of shell after another, each answered
/// by its output and `done`.
const SHELL: &str = r#"
    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/x && chmod 700 /run/x || exit 1
    # What ProtectHome= and others put over directories; PID 1 makes it, a user manager as root looks for it too.
    (mkdir /run/systemd/inaccessible && cd /run/systemd/inaccessible && mkdir -m 0 dir && install -m 0 /dev/null reg) || exit 1
    export XDG_RUNTIME_DIR=/run/x HOME=/run/x
    mkdir -p /run/x/systemd/user.control/ginneld.service.d
    cp "$UNIT" /run/x/systemd/user.control/ginneld.service
    cp "$DROPIN" /run/x/systemd/user.control/ginneld.service.d/test.conf
    /lib/systemd/systemd --user </dev/null >/dev/null 2>&1 &
    while read -r line; do eval "$line" 2>&1; echo "done $?"; done
"#;

struct Manager {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    directory: tempfile::TempDir,
}

impl Manager {
    /// `None` where this cannot be had here.
    fn start() -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        if !root || !Path::new("/lib/systemd/systemd").exists() {
            skip("needs root and systemd");
            return None;
        }
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let (config, dropin) = (path("ginneld.toml"), path("dropin"));
        fs::write(&config, format!("run_dir = {:?}\nstatus = \"off\"\n{SMALL}", path("run")))
            .expect("written");
        // The unit cannot see where this was built, if that is below /home.
        ginnel_tests::build::copy_program(Path::new(crate::ginneld()), &path("ginneld"));
        // Another place, and the user that the manager has; everything else is as shipped.
        let changed = format!(
            "[Service]\nUser=\nGroup=\nPrivateTmp=no\nExecStart=\nExecStart={} --config {}\nReadWritePaths={}\nStandardError=append:{}\n",
            path("ginneld").display(),
            config.display(),
            directory.path().display(),
            path("log").display()
        );
        fs::write(dropin, changed).expect("written");
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "bash",
                "-c",
                SHELL,
            ])
            .env("UNIT", concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/ginneld.service"))
            .env("DROPIN", path("dropin"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = dies_with_us(&mut command).spawn().expect("unshare starts");
        let (send, answers) = channel();
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let mut manager =
            Self { commands: child.stdin.take().expect("piped"), child, answers, directory };
        let until = Instant::now() + PATIENCE;
        while manager
            .sh("systemctl --user is-system-running || test $? = 1 -a -S /run/x/systemd/private")
            .1
            != 0
        {
            if Instant::now() > until || manager.child.try_wait().expect("our child").is_some() {
                skip("no systemd user manager can be run here");
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Some(manager)
    }

    /// One line of shell, inside: what it says, and its exit status.
    fn sh(&mut self, line: &str) -> (String, i32) {
        let mut said = String::new();
        if writeln!(self.commands, "{line}").is_err() {
            return (said, -1);
        }
        loop {
            match self.answers.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with("done ") => {
                    return (said, line[5..].parse().unwrap_or(-1));
                }
                Ok(line) => said += &(line + "\n"),
                Err(_) => return (said, -1),
            }
        }
    }

    /// The same; it must succeed.
    fn must(&mut self, line: &str) -> String {
        let (said, status) = self.sh(line);
        if status != 0 {
            panic!(
                "{line}: {said}\n{}\n{}",
                self.sh("systemctl --user status ginneld").0,
                self.log()
            );
        }
        said.trim().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn socket(&self, peer: u16) -> std::path::PathBuf {
        self.directory.path().join(format!("run/t/{peer}.sock"))
    }

    fn show(&mut self, property: &str) -> String {
        self.must(&format!("systemctl --user show --value -p {property} ginneld"))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn under_systemd_neither_restart_nor_kill_disturbs_a_machine() {
    let Some(mut manager) = Manager::start() else { return };
    manager.must("systemctl --user start ginneld");
    assert_eq!(manager.show("ActiveState"), "active", "READY=1 came");
    // Memory, 4 peers × 2 doorbells, 4 listening sockets.
    assert_eq!(manager.show("NFileDescriptorStore"), "13");
    let directory = tempfile::tempdir().expect("a directory");
    let mut one = is_installed().then(|| {
        let mut one = Qemu::joined(directory.path(), &manager.socket(1));
        one.set_up_device();
        one
    });
    let mut two = Client::connect(&manager.socket(2)).expect("connected");
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
        let mut second = Client::connect(&manager.socket(2)).expect("connected");
        second.settle(0, Instant::now() + PATIENCE).expect("a setup");
        assert_eq!(second.peers().count(), 0, "refused");
        let mut three = Client::connect(&manager.socket(3)).expect("connected");
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
    let Some(mut manager) = Manager::start() else { return };
    manager.must("systemctl --user start ginneld");
    let mut one = Client::connect(&manager.socket(1)).expect("connected");
    one.settle(2, Instant::now() + PATIENCE).expect("a setup");
    let file = manager.directory.path().join("ginneld.toml");
    let good = fs::read(&file).expect("written before");
    fs::write(&file, "[segment.t]\nslots = 0\n").expect("written");
    assert_ne!(manager.sh("systemctl --user restart ginneld").1, 0);
    wait("a second try", || {
        (manager.log().matches("segment.t.slots: must be 1 to 254").count() > 1).then_some(())
    });
    fs::write(&file, good).expect("written");
    wait("the next instance", || (manager.show("ActiveState") == "active").then_some(()));
    let mut second = Client::connect(&manager.socket(1)).expect("connected");
    second.settle(0, Instant::now() + PATIENCE).expect("a setup");
    assert_eq!(
        (second.peers().count(), one.receive()),
        (0, Ok(None)),
        "the slot is still the first one's"
    );
}
