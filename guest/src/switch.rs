//! `ginnel-switch` in a directory of its own: guests with stock virtio-net at its ports.

use crate::child::spawn;
use crate::machine::Spec;
use crate::qemu::Qemu;
use crate::{built, call};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A machine's memory, MiB: `ginnel vm args` is told the same.
const MEMORY: u32 = 256;

/// A running switch. It is killed when it is dropped.
pub struct VhostSwitch {
    child: Child,
    directory: PathBuf,
}

impl VhostSwitch {
    /// Starts it with these ports, as its configuration has them.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(directory: &Path, ports: &str) -> Result<Self> {
        let directory = directory.join("switch");
        fs::create_dir_all(&directory)?;
        configure(&directory, ports)?;
        let child = launch(&directory)?;
        Ok(Self { child, directory })
    }

    /// Kills it as the kernel would, and starts another in its place.
    ///
    /// # Errors
    /// Where that does not start.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.kill();
        self.child = launch(&self.directory)?;
        Ok(())
    }

    /// Has these ports from now on: as `ginnel-switch reload` does it.
    ///
    /// # Errors
    /// What it says is wrong with them.
    pub fn reload(&self, ports: &str) -> Result<()> {
        configure(&self.directory, ports)?;
        self.ask("reload").map(drop)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A guest with an address at a port: as `ginnel vm args --net` connects it.
    ///
    /// # Errors
    /// Where `ginnel` does not give the options.
    pub fn spec(&self, port: &str, address: &str) -> Result<Spec> {
        self.spec_with(port, address, &[])
    }

    /// The same with further options of `ginnel vm args`.
    ///
    /// # Errors
    /// As above.
    pub fn spec_with(&self, port: &str, address: &str, further: &[&str]) -> Result<Spec> {
        let socket = self.directory.join(format!("{port}.sock"));
        let mut ginnel = Command::new(built("ginnel")?);
        ginnel
            .args(["vm", "args", "--memory", &format!("{MEMORY}M")])
            .args(Qemu::chosen()?.vhost_user_vectors())
            .args(further);
        ginnel.arg("--net").arg(socket);
        let options = call(&mut ginnel)?.split_whitespace().map(str::to_owned).collect();
        Ok(Spec { options, address: Some(address.into()), memory: MEMORY, ..Spec::new(port) })
    }

    /// A guest without a network, with a device for sockets: as `ginnel vm args --vsock` connects
    /// it.
    ///
    /// # Errors
    /// Where `ginnel` does not give the options.
    pub fn vsock_spec(&self, name: &str) -> Result<Spec> {
        let mut ginnel = Command::new(built("ginnel")?);
        ginnel
            .args(["vm", "args", "--memory", &format!("{MEMORY}M")])
            .args(Qemu::chosen()?.vhost_user_vectors())
            .arg("--vsock");
        ginnel.arg(self.directory.join(format!("{name}.vsock")));
        let options = call(&mut ginnel)?.split_whitespace().map(str::to_owned).collect();
        Ok(Spec { options, memory: MEMORY, ..Spec::new(name) })
    }

    /// Where programs of the host reach a machine's sockets.
    #[must_use]
    pub fn host_socket(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.host"))
    }

    /// What it says of a port.
    ///
    /// # Errors
    /// Where it does not answer, or has no such port.
    pub fn port(&self, name: &str) -> Result<Value> {
        let status: Value = serde_json::from_str(&self.ask("status")?)?;
        let ports = status["ports"].as_array().cloned().unwrap_or_default();
        let port = ports.into_iter().find(|port| port["name"] == name);
        port.with_context(|| format!("no port {name} in {status}"))
    }

    /// The answer to one of its commands, as JSON.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn ask(&self, command: &str) -> Result<String> {
        let mut ask = Command::new(built("ginnel-switch")?);
        ask.args([command, "--json", "--control"]).arg(self.directory.join("control.sock"));
        call(&mut ask)
    }

    /// Captures so many frames of a port into a file, as pcapng.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn trace(&self, port: &str, count: u32, to: &Path) -> Result<Child> {
        let mut trace = Command::new(built("ginnel-switch")?);
        trace.args(["trace", port, "--count", &count.to_string(), "--control"]);
        trace.arg(self.directory.join("control.sock"));
        trace.stdin(Stdio::null()).stdout(File::create(to)?).stderr(Stdio::null());
        Ok(spawn(trace)?)
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("switch.log")).unwrap_or_default()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for VhostSwitch {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the switch\n{}", self.log());
        }
    }
}

fn configure(directory: &Path, ports: &str) -> Result<()> {
    let text = format!("run_dir = {directory:?}\nmetrics = \"off\"\n{ports}");
    Ok(fs::write(directory.join("switch.toml"), text)?)
}

fn launch(directory: &Path) -> Result<Child> {
    let log = directory.join("switch.log");
    let before = fs::read_to_string(&log).unwrap_or_default().matches("event=started").count();
    let mut command = Command::new(built("ginnel-switch")?);
    command.arg("--config").arg(directory.join("switch.toml")).stdin(Stdio::null());
    command.env_remove("JOURNAL_STREAM");
    command.stderr(File::options().create(true).append(true).open(&log)?);
    let mut child = spawn(command).context("ginnel-switch")?;
    let until = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(&log)?.matches("event=started").count() == before {
        ensure!(child.try_wait()?.is_none(), "it has ended: {}", fs::read_to_string(&log)?);
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            bail!("ginnel-switch does not start: {}", fs::read_to_string(&log)?);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}
