//! The shipped unit under a real systemd: its command lines and its sandbox. A user manager of its
//! own, in a mount and pid namespace, so that nothing of the host's is touched. Needs root.

use crate::common::{PATIENCE, frame, mac, next};
use ginnel_switch::front_end::{FrontEnd, Options};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What runs in the namespaces: a manager, and then one line of shell after another, each answered
/// by its output and `done`. The unit is as shipped, but that program and configuration lie
/// elsewhere, as a user manager's runtime directories do: hence the link.
const SHELL: &str = r#"
    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/x && chmod 700 /run/x || exit 1
    # What ProtectKernelLogs= and others put over files; PID 1 makes it, a user manager as root looks for it too.
    (mkdir /run/systemd/inaccessible && cd /run/systemd/inaccessible && mkdir -m 0 dir && install -m 0 /dev/null reg && mknod -m 0 chr c 0 0) || exit 1
    ln -s "$PLACE" /run/ginnel-switch || exit 1
    export XDG_RUNTIME_DIR=/run/x HOME=/run/x
    units=/run/x/systemd/user.control
    mkdir -p "$units/ginnel-switch.service.d"
    sed -e "s|/usr/bin/ginnel-switch|$PLACE/ginnel-switch|" -e "s|/etc/ginnel/|$PLACE/|" "$UNIT" >"$units/ginnel-switch.service"
    # The user that the manager has.
    printf '[Service]\nUser=\nGroup=\nSupplementaryGroups=\nPrivateTmp=no\nReadWritePaths=%s\nStandardError=append:%s\n' \
        "$PLACE" "$PLACE/log" >"$units/ginnel-switch.service.d/test.conf"
    /lib/systemd/systemd --user </dev/null >/dev/null 2>&1 &
    while read -r line; do eval "$line" 2>&1; echo "done $?"; done
"#;

struct Manager {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    place: tempfile::TempDir,
}

impl Manager {
    /// `None` where this cannot be had here.
    fn start(config: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/lib/systemd/systemd").exists() {
            println!("skipped: needs root and systemd");
            return None;
        }
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let program = place.path().join("ginnel-switch");
        fs::copy(env!("CARGO_BIN_EXE_ginnel-switch"), program).expect("copied");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]);
        command.arg(SHELL).env("PLACE", place.path()).env(
            "UNIT",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/ginnel-switch.service"),
        );
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: one system call, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command.spawn().expect("unshare starts");
        let (send, answers) = channel();
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let commands = child.stdin.take().expect("piped");
        let mut manager = Self { child, commands, answers, place };
        manager.configure(config);
        manager.is_up().then_some(manager)
    }

    fn is_up(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        let up = "systemctl --user is-system-running || \
                  test $? = 1 -a -S $XDG_RUNTIME_DIR/systemd/private";
        while self.sh(up).1 != 0 {
            if Instant::now() > until || self.child.try_wait().expect("our child").is_some() {
                println!("skipped: no systemd user manager can be run here");
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    fn configure(&self, config: &str) {
        let file = self.place.path().join("switch.toml");
        fs::write(file, format!("metrics = \"off\"\n{config}")).expect("written");
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
            let unit = self.sh("systemctl --user status ginnel-switch").0;
            panic!("{line}: {said}\n{unit}\n{}", self.log());
        }
        said.trim().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    fn socket(&self, port: &str) -> PathBuf {
        self.place.path().join(format!("{port}.sock"))
    }

    fn show(&mut self, property: &str) -> String {
        self.must(&format!("systemctl --user show --value -p {property} ginnel-switch"))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    let Some(mut manager) = Manager::start(BEFORE) else { return };
    manager.must("systemctl --user start ginnel-switch");
    let status = manager.sh("systemctl --user status ginnel-switch").0;
    assert_eq!(manager.show("ActiveState"), "active", "{status}\n{}", manager.log());
    let pid = manager.show("MainPID");
    let connect = |manager: &Manager, port: &str| {
        wait("its socket", || manager.socket(port).exists());
        FrontEnd::connect(&manager.socket(port), Options::default()).expect("a front end")
    };
    let [mut a, mut b] = ["a", "b"].map(|port| connect(&manager, port));
    wait("both up", || manager.sh("$PLACE/ginnel-switch status").0.contains("2 of them up"));
    assert!(reaches(&mut a, &mut b, 1));
    // Another port comes, and takes part.
    manager.configure("[port.a]\n[port.b]\n[port.c]\n");
    manager.must("systemctl --user reload ginnel-switch");
    let mut c = connect(&manager, "c");
    wait("it is up", || manager.sh("$PLACE/ginnel-switch status").0.contains("3 of them up"));
    assert!(c.send(1, &frame(mac(1), mac(3), 100, 2)));
    assert!(next(&mut a).is_some(), "it is no part of the segment");
    assert!(reaches(&mut a, &mut b, 3));
    // What is wrong is refused: systemd says so, the service goes on as it was.
    manager.configure("[port.a]\n[port.b]\nkye = 7\n");
    let (_, status) = manager.sh("systemctl --user reload ginnel-switch");
    assert_ne!(status, 0, "a wrong key was taken");
    let result = manager.show("ReloadResult");
    assert_eq!((result.as_str(), manager.show("ActiveState").as_str()), ("exit-code", "active"));
    assert!(reaches(&mut a, &mut b, 4));
    // A port goes, with whoever is there.
    manager.configure(BEFORE);
    manager.must("systemctl --user reload ginnel-switch");
    wait("its socket is gone", || !manager.socket("c").exists());
    assert!(reaches(&mut a, &mut b, 5));
    assert_eq!(manager.show("MainPID"), pid, "the same process all along");
    assert_eq!(manager.show("NRestarts"), "0");
}
