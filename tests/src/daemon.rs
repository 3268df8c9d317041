//! `ginneld`, and what runs beside it, for tests of programs on one kernel.

use crate::{Stand, build};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `ginneld` with a segment `t`.
pub struct Daemon {
    child: Child,
    /// Where it lies.
    pub place: Stand,
}

impl Daemon {
    /// Starts it; `more`: what else its configuration says of the segment.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(more: &str) -> Self {
        let place = Stand::plain("ginneld");
        let (config, log) = (
            place.dir().join("ginneld.toml"),
            File::create(place.dir().join("log")).expect("a log"),
        );
        let run = place.dir().join("run");
        fs::write(
            &config,
            format!("run_dir = {run:?}\nstatus = \"off\"\n[segment.t]\nsize = \"64M\"\n{more}"),
        )
        .expect("written");
        let mut command = Command::new(build::release_dir().join("ginneld"));
        command
            .env_remove("NOTIFY_SOCKET")
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stderr(log);
        let daemon = Self { child: command.spawn().expect("ginneld"), place };
        let until = Instant::now() + Duration::from_secs(20);
        while !daemon.log().contains("event=started") {
            assert!(Instant::now() < until, "it does not start: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.place.dir().join("log")).unwrap_or_default()
    }

    /// Starts `ginnel-prover` beside it, which takes root.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn prover(&self) -> Prover {
        let log = self.place.dir().join("prover.log");
        let mut command = Command::new(build::release_dir().join("ginnel-prover"));
        command.arg("--config").arg(self.place.dir().join("ginneld.toml")).stdin(Stdio::null());
        let child =
            command.stderr(File::create(&log).expect("a log")).spawn().expect("ginnel-prover");
        let prover = Prover { child, log, socket: self.place.dir().join("run/prove.sock") };
        let until = Instant::now() + Duration::from_secs(20);
        while !prover.log().contains("event=started") {
            assert!(Instant::now() < until, "it does not start: {}", prover.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        prover
    }

    /// Where programs of the host join.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.place.dir().join("run/t/host.sock")
    }
}

/// `ginnel-prover`, beside a daemon.
pub struct Prover {
    child: Child,
    log: PathBuf,
    /// Where programs ask it.
    pub socket: PathBuf,
}

impl Prover {
    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// `ginnel-broker`, at a place where every user may ask it. It takes root.
pub struct Broker {
    child: Child,
    starts: usize,
    /// What stands before it on its command line.
    within: Vec<String>,
    /// Where it lies.
    pub place: Stand,
}

impl Broker {
    /// Starts it; `config`: what its configuration says beside the directory.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(config: &str) -> Self {
        Self::start_within(&[], config)
    }

    /// Starts it by another program: as [`crate::limit::MemoryLimit::enter`] says, for instance.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start_within(within: &[String], config: &str) -> Self {
        let place = Stand::plain("broker");
        fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let run = place.dir().join("run");
        fs::write(
            place.dir().join("ginneld.toml"),
            format!("run_dir = {run:?}\nstatus = \"off\"\n{config}"),
        )
        .expect("written");
        let child = Self::spawn(within, &place);
        let broker = Self { child, starts: 1, within: within.to_vec(), place };
        broker.wait();
        broker
    }

    fn spawn(within: &[String], place: &Stand) -> Child {
        let log =
            File::options().create(true).append(true).open(place.dir().join("log")).expect("a log");
        let line = within
            .iter()
            .map(OsString::from)
            .chain([build::release_dir().join("ginnel-broker").into()]);
        let line: Vec<OsString> = line.collect();
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .arg("--config")
            .arg(place.dir().join("ginneld.toml"))
            .stdin(Stdio::null())
            .stderr(log);
        command.spawn().expect("ginnel-broker")
    }

    fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.log().matches("event=started").count() < self.starts {
            assert!(Instant::now() < until, "it does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, after [`Self::kill`].
    pub fn start_again(&mut self) {
        self.child = Self::spawn(&self.within, &self.place);
        self.starts += 1;
        self.wait();
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.place.dir().join("log")).unwrap_or_default()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where programs ask it.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.place.dir().join("run/broker/broker.sock")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Drop for Prover {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
