//! `ginneld` in a directory of its own.

use crate::child::spawn;
use crate::{built, call};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running daemon. It is ended when it is dropped.
pub struct Daemon {
    child: Child,
    config: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts it with `segments`, the part of its configuration that says what it serves; `keep`:
    /// under its keeper, so that it can be restarted.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(directory: &Path, segments: &str, keep: bool) -> Result<Self> {
        let (config, log) = (directory.join("ginneld.toml"), directory.join("ginneld.log"));
        let run = directory.join("run");
        fs::write(&config, format!("run_dir = {run:?}\nstatus = \"127.0.0.1:0\"\n{segments}"))?;
        let mut command = Command::new(built("ginneld")?);
        for name in
            ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "JOURNAL_STREAM", "RUNTIME_DIRECTORY"]
        {
            command.env_remove(name);
        }
        command
            .args(keep.then_some("--keep"))
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(File::create(&log)?);
        let daemon = Self { child: spawn(command).context("ginneld")?, config, log };
        let until = Instant::now() + Duration::from_secs(20);
        while !daemon.log().contains("event=started") {
            if Instant::now() > until {
                bail!("ginneld does not start: {}", daemon.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process that serves.
    ///
    /// # Errors
    /// Where it has not started.
    pub fn pid(&self) -> Result<u32> {
        let log = self.log();
        let line = log
            .lines()
            .rfind(|line| line.contains("event=started"))
            .context("it has not started")?;
        line.split(" pid=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next()?.parse().ok())
            .context("no pid in its log")
    }

    fn kill_serving(&self) -> Result<()> {
        // SAFETY: touches no memory; its number is its own as long as its keeper, our child, waits
        // for it.
        unsafe { libc::kill(libc::pid_t::try_from(self.pid()?)?, libc::SIGKILL) };
        Ok(())
    }

    /// A sample of the serving instance's metrics, such as `ginneld_connections{segment="t"}`.
    ///
    /// # Errors
    /// Where it does not answer, or has no such sample.
    pub fn metric(&self, name: &str) -> Result<u64> {
        let log = self.log();
        let url = log
            .lines()
            .rev()
            .find_map(|line| line.split("url=http://").nth(1))
            .context("no status page")?;
        let mut stream = TcpStream::connect(url.trim_matches(['"', '/']))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.with_context(|| format!("no {name} in {text}"))
    }

    /// Kills the instance that serves, under its keeper, and waits until the next one has taken
    /// over.
    ///
    /// # Errors
    /// Where none does.
    pub fn kill_instance(&self) -> Result<()> {
        let started = |log: &str| log.matches("event=started").count();
        let log = self.log();
        self.kill_serving()?;
        let until = Instant::now() + Duration::from_secs(20);
        while started(&self.log()) == started(&log) {
            if Instant::now() > until {
                bail!("the next instance does not start: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The socket at which processes of the host join a segment.
    #[must_use]
    pub fn host_socket(&self, segment: &str) -> PathBuf {
        self.config.with_file_name("run").join(segment).join("host.sock")
    }

    /// Kills the instance that serves and its keeper, for good.
    ///
    /// # Errors
    /// Where it has not started.
    pub fn kill(&mut self) -> Result<()> {
        // SAFETY: touches no memory; the process is our child and has not been waited for. Stopped,
        // it starts no other.
        unsafe { libc::kill(libc::pid_t::try_from(self.child.id())?, libc::SIGSTOP) };
        self.kill_serving()?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The options by which QEMU joins, as `ginnel vm args` prints them.
    ///
    /// # Errors
    /// Where it prints none.
    pub fn vm_args(&self, segment: &str, slot: u16) -> Result<Vec<String>> {
        let mut command = Command::new(built("ginnel")?);
        command
            .args(["vm", "args", "--segment", segment, "--slot", &slot.to_string(), "--config"])
            .arg(&self.config);
        Ok(call(&mut command)?.split_whitespace().map(str::to_owned).collect())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: touches no memory; the process is our child and has not been waited for.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
