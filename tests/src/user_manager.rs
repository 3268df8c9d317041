//! A shipped unit under a real systemd, without a host of its own ([`crate::host`]): a user manager
//! in a mount and pid namespace and a control group, so that nothing of the host's is touched.
//! Needs root.

use crate::cgroup::Cgroup;
use crate::{dies_with_us, is_root, skip};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What runs in the namespaces: a manager, and then one line of shell after another, each answered
/// by its output and `done`.
const SHELL: &str = r#"
    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/x && chmod 700 /run/x || exit 1
    # What ProtectHome= and others put over directories and files; PID 1 makes it, a user manager
    # as root looks for it too.
    (mkdir /run/systemd/inaccessible && cd /run/systemd/inaccessible && mkdir -m 0 dir &&
        install -m 0 /dev/null reg && mknod -m 0 chr c 0 0) || exit 1
    export XDG_RUNTIME_DIR=/run/x HOME=/run/x
    units=/run/x/systemd/user.control
    mkdir -p "$units/$UNIT.d"
    cp "$PLACE/unit" "$units/$UNIT"
    cp "$PLACE/dropin" "$units/$UNIT.d/test.conf"
    /lib/systemd/systemd --user </dev/null >/dev/null 2>&1 &
    while read -r line; do eval "$line" 2>&1; echo "done $?"; done
"#;

/// Beyond this a hang is taken for one.
const PATIENCE: Duration = Duration::from_secs(60);

/// The manager, which knows one unit; both end when this is dropped.
#[derive(Debug)]
pub struct UserManager {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    unit: String,
    directory: tempfile::TempDir,
    /// Removed last: whoever is in it must have ended.
    _cgroup: Cgroup,
}

impl UserManager {
    /// A directory that the unit sees, however its sandbox hides homes and `/tmp`.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn directory() -> tempfile::TempDir {
        tempfile::tempdir_in("/var/tmp").expect("a directory")
    }

    /// Starts a manager that knows `unit`, e.g. `ginneld.service`, by this text and these changes
    /// to it (a drop-in). Its standard error goes to `log` in the directory, which is `$PLACE` in
    /// the shell. `None`, and a word about it, where this cannot be had.
    ///
    /// # Panics
    /// When nothing can be started or written.
    #[must_use]
    pub fn start(
        directory: tempfile::TempDir,
        unit: &str,
        text: &str,
        changes: &str,
    ) -> Option<Self> {
        if !is_root() || !Path::new("/lib/systemd/systemd").exists() {
            skip(unit, "needs root and systemd");
            return None;
        }
        let place = directory.path();
        let log = place.join("log");
        let changes = format!("{changes}\n[Service]\nStandardError=append:{}\n", log.display());
        fs::write(place.join("unit"), text).expect("written");
        fs::write(place.join("dropin"), changes).expect("written");
        let name = place.file_name().expect("a name").to_string_lossy();
        let cgroup = Cgroup::new(&format!("ginnel-test{name}"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]);
        command.arg(SHELL).env("PLACE", place).env("UNIT", unit);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = cgroup.take(dies_with_us(&mut command)).spawn().expect("unshare starts");
        let (send, answers) = channel();
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let commands = child.stdin.take().expect("piped");
        let unit = unit.to_owned();
        let mut manager = Self { child, commands, answers, unit, directory, _cgroup: cgroup };
        manager.is_up().then_some(manager)
    }

    fn is_up(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        let up = "systemctl --user is-system-running || \
                  test $? = 1 -a -S $XDG_RUNTIME_DIR/systemd/private";
        while self.sh(up).1 != 0 {
            if Instant::now() > until || self.child.try_wait().expect("our child").is_some() {
                skip(&self.unit, "no systemd user manager can be run here");
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    /// Where the unit and its log lie.
    #[must_use]
    pub fn place(&self) -> &Path {
        self.directory.path()
    }

    /// One line of shell, inside: what it says, and its exit status; -1 when it did not end.
    pub fn sh(&mut self, line: &str) -> (String, i32) {
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
    ///
    /// # Panics
    /// When it does not; says how the unit is.
    pub fn must(&mut self, line: &str) -> String {
        let (said, status) = self.sh(line);
        if status != 0 {
            let unit = self.sh(&format!("systemctl --user status {}", self.unit)).0;
            panic!("{line}: {said}\n{unit}\n{}", self.log());
        }
        said.trim().to_owned()
    }

    /// What the unit wrote.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.place().join("log")).unwrap_or_default()
    }

    /// One of the unit's properties, e.g. `MainPID`.
    ///
    /// # Panics
    /// As [`UserManager::must`].
    pub fn show(&mut self, property: &str) -> String {
        self.must(&format!("systemctl --user show --value -p {property} {}", self.unit))
    }
}

impl Drop for UserManager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
