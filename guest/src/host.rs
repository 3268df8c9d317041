//! The host as one more machine in the guests' network: a network namespace with one interface,
//! which is plugged into their switch. Programs are started in it.

use crate::child::spawn;
use crate::namespace::Namespace;
use crate::network::Switch;
use crate::{built, call};
use anyhow::{Result, bail, ensure};
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The host in the guests' network.
pub struct Host {
    namespace: Namespace,
    directory: PathBuf,
}

/// A script that was started in it.
pub struct Running {
    child: Child,
    script: String,
    said: PathBuf,
}

impl Host {
    /// Plugs a namespace with this address (and the prefix's length) into `switch`; its programs
    /// work in `directory/host`, which is Ginnel's directory too.
    ///
    /// # Errors
    /// Where namespace or interface cannot be made: who is not root cannot.
    pub fn plug_in(switch: &Switch, directory: &Path, address: &str) -> Result<Self> {
        let host = Self { namespace: Namespace::new()?, directory: directory.join("host") };
        // As the ledger wants it: the user's alone.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&host.directory)?;
        switch.plug_tap(host.namespace.tap("eth0", 0)?)?;
        call(&mut host.command(&format!(
            "ip link set lo up && ip link set eth0 up && ip addr add {address} dev eth0"
        )))?;
        Ok(host)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = self.namespace.command(script);
        command.current_dir(&self.directory).env("GINNEL_DIR", &self.directory);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let release = built("ginnel")
            .ok()
            .and_then(|file| file.parent().map(Path::to_path_buf))
            .unwrap_or_default();
        command.env(
            "PATH",
            std::env::join_paths(std::iter::once(release).chain(std::env::split_paths(&path)))
                .unwrap_or(path),
        );
        command
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a shell script that must succeed: its standard output.
    ///
    /// # Panics
    /// Where it does not.
    #[must_use]
    pub fn sh(&self, script: &str) -> String {
        match call(&mut self.command(script)) {
            Ok(out) => out,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Starts a shell script; `exec` in it makes its process the program's.
    ///
    /// # Errors
    /// Where that fails.
    pub fn start(&self, script: &str) -> Result<Running> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let said = self.directory.join(format!("said.{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut command = self.command(script);
        let out = File::create(&said)?;
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        Ok(Running { child: spawn(command)?, script: script.into(), said })
    }
}

impl Running {
    /// Its process: `ip` became the shell, and that what it executed.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As if it had been shot (kill -9).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end: what it said, if it succeeded.
    ///
    /// # Errors
    /// With what it said, otherwise.
    pub fn finish(mut self, limit: Duration) -> Result<String> {
        let until = Instant::now() + limit;
        let status = loop {
            crate::check()?;
            match self.child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > until => {
                    bail!("it does not end: {}\n{}", self.script, self.said())
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        ensure!(status.success(), "{status}: {}\n{}", self.script, self.said());
        Ok(self.said())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
