//! `ginneld` for tests of programs on one kernel.

use crate::{Stand, build};
use std::fs::{self, File};
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
        let (config, log) = (place.dir().join("ginneld.toml"), File::create(place.dir().join("log")).expect("a log"));
        let run = place.dir().join("run");
        fs::write(&config, format!("run_dir = {run:?}\nstatus = \"off\"\n[segment.t]\nsize = \"64M\"\n{more}")).expect("written");
        let mut command = Command::new(build::release_dir().join("ginneld"));
        command.env_remove("NOTIFY_SOCKET").arg("--config").arg(config).stdin(Stdio::null()).stderr(log);
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
        let child = command.stderr(File::create(&log).expect("a log")).spawn().expect("ginnel-prover");
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
