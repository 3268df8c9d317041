//! A host of a test's own: a root directory that takes writes and forgets them, in namespaces of
//! its own, with systemd as its first process. What is installed, started and broken there is
//! nobody else's. Needs root.
//!
//! ```no_run
//! use ginnel_tests::host::Host;
//! let Some(host) = Host::boot("my test", None, &[]) else { return };
//! host.must("systemctl start redis-server");
//! ```
//!
//! systemd finds cgroup v2 there, without controllers where the machine gives them to version 1.
//! The network is a loopback interface of the host's own.

use crate::cgroup::Cgroup;
use crate::{is_root, skip};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `$1`: the root directory below, read only; `$2`: where the rest is put together; then pairs of a
/// directory outside and one within, read only as well.
const BOOT: &str = r#"
    set -e
    lower=$1 w=$2; shift 2
    mount --make-rprivate /
    mount -t tmpfs tmpfs "$w"
    mkdir "$w/up" "$w/work" "$w/root"
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$w/up,workdir=$w/work" "$w/root"
    r=$w/root
    while [ $# -gt 1 ]; do mkdir -p "$r$2"; mount --bind "$1" "$r$2"; shift 2; done
    mount -t proc proc "$r/proc"
    mount -t sysfs sysfs "$r/sys"
    mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
    for d in run tmp var/tmp; do mkdir -p "$r/$d"; mount -t tmpfs -o mode=1777 tmpfs "$r/$d"; done
    chmod 755 "$r/run"
    mount -t tmpfs -o mode=755 tmpfs "$r/dev"
    for n in null zero full random urandom tty; do touch "$r/dev/$n"; mount --bind "/dev/$n" "$r/dev/$n"; done
    mkdir "$r/dev/pts" "$r/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$r/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$r/dev/shm"
    ln -s pts/ptmx "$r/dev/ptmx"
    ln -s /proc/self/fd "$r/dev/fd"
    for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%:*}" "$r/dev/${n#*:}"; done
    rm -f "$r/etc/machine-id" "$r/usr/sbin/policy-rc.d"
    echo 0123456789abcdef0123456789abcdef >"$r/etc/machine-id"
    cd "$r"
    mkdir -p mnt
    pivot_root . mnt
    cd /
    umount -l /mnt
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=ginnel-test \
        /lib/systemd/systemd --log-target=console --log-level=info systemd.unit=basic.target
"#;

/// Beyond this a hang is taken for one.
const PATIENCE: Duration = Duration::from_secs(120);

/// The host; all of it ends when this is dropped.
pub struct Host {
    /// `unshare`, which takes the first process with it.
    child: Child,
    /// The first process, by its number here.
    init: u32,
    _directory: tempfile::TempDir,
    /// The root of those that its systemd makes. Removed last: whoever is in it must have ended.
    _cgroup: Cgroup,
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Its exit status; 124: it did not end in time.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit status {}\n{}\n{}", self.code, self.out, self.err)
    }
}

impl Host {
    /// Boots one from `root` (`None`: this machine's own), with these directories of the machine in
    /// it: (outside, within). `None`, after saying why, where that cannot be had.
    ///
    /// # Panics
    /// When no directory can be made.
    #[must_use]
    pub fn boot(what: &str, root: Option<&Path>, shared: &[(&Path, &str)]) -> Option<Self> {
        let root = root.unwrap_or(Path::new("/"));
        if !is_root() || !root.join("lib/systemd/systemd").exists() {
            skip(what, "a host of its own takes root, and systemd");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let name = directory.path().file_name().expect("a name").to_string_lossy();
        let cgroup = Cgroup::new(&format!("ginnel-test{name}"));
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--ipc",
            "--cgroup",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            BOOT,
            "sh",
        ]);
        command.arg(root).arg(directory.path());
        for (outside, within) in shared {
            command.arg(outside).arg(within);
        }
        let log = std::fs::File::create(directory.path().with_extension("log")).expect("written");
        let _ = std::fs::remove_file(directory.path().with_extension("log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = cgroup.take(&mut command).spawn().ok()?;
        let mut host = Self { child, init: 0, _directory: directory, _cgroup: cgroup };
        if host.is_up() {
            return Some(host);
        }
        skip(what, "systemd does not start in namespaces here");
        None
    }

    /// Waits until systemd says so.
    fn is_up(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            let first = std::fs::read_to_string(&children).unwrap_or_default();
            self.init =
                first.split_whitespace().next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
            let name =
                std::fs::read_to_string(format!("/proc/{}/comm", self.init)).unwrap_or_default();
            if name.trim() == "systemd"
                && matches!(
                    self.sh("systemctl is-system-running").out.trim(),
                    "running" | "degraded"
                )
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    }

    /// A shell's command there, which has two minutes.
    ///
    /// # Panics
    /// When nothing can be started there.
    #[must_use]
    pub fn sh(&self, line: &str) -> Said {
        self.sh_within(line, PATIENCE)
    }

    /// The same with another limit.
    ///
    /// # Panics
    /// As [`Host::sh`].
    #[must_use]
    pub fn sh_within(&self, line: &str, limit: Duration) -> Said {
        let output = self.command(line, limit).output().expect("nsenter starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// The same, to be started as is wanted.
    #[must_use]
    pub fn command(&self, line: &str, limit: Duration) -> Command {
        let mut command = Command::new("timeout");
        let (init, seconds) = (self.init.to_string(), limit.as_secs().to_string());
        command.args(["--kill-after=5", &seconds, "nsenter", "--target", &init]);
        command.args([
            "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--root", "env", "-i", "-C",
            "/",
        ]);
        command.args([
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/root",
            "LC_ALL=C",
            "DEBIAN_FRONTEND=noninteractive",
        ]);
        command.args(["bash", "-c", line]).stdin(Stdio::null());
        command
    }

    /// A command that must succeed; gives what it printed.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn said(&self, line: &str) -> String {
        let said = self.sh(line);
        assert_eq!(said.code, 0, "{line}: {said}");
        said.out
    }

    /// A command that must succeed.
    ///
    /// # Panics
    /// When it does not.
    pub fn must(&self, line: &str) {
        let _ = self.said(line);
    }

    /// Where a file of the host lies, seen from outside.
    #[must_use]
    pub fn path(&self, within: &str) -> PathBuf {
        Path::new("/proc")
            .join(self.init.to_string())
            .join("root")
            .join(within.trim_start_matches('/'))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // unshare ends, and the kernel ends its child: the first process of the namespace, and so
        // all.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
