//! `ginneld` for tests of programs on one kernel.

use crate::{Stand, build};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `ginneld` with a segment `t`.
pub struct Daemon {
    child: Child,
    prover: Option<Child>,
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
        let daemon = Self { child: command.spawn().expect("ginneld"), prover: None, place };
        let until = Instant::now() + Duration::from_secs(20);
        while !daemon.log().contains("event=started") {
            assert!(Instant::now() < until, "it does not start: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    /// Starts its prover.
    ///
    /// # Panics
    /// Where that does not start.
    pub fn prove(&mut self) {
        let log = self.place.dir().join("prover");
        let mut command = Command::new(build::release_dir().join("ginneld"));
        command.args(["--prove", "--config"]).arg(self.place.dir().join("ginneld.toml")).stdin(Stdio::null());
        command.stderr(File::create(&log).expect("a log"));
        self.prover = Some(command.spawn().expect("ginneld --prove"));
        let said = || fs::read_to_string(&log).unwrap_or_default();
        self.place.wait_until(Duration::from_secs(20), "a prover", || said().contains("event=proving"));
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.place.dir().join("log")).unwrap_or_default()
    }

    /// Where programs of the host join.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.place.dir().join("run/t/host.sock")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for child in self.prover.iter_mut().chain([&mut self.child]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
