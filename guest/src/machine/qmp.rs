//! What is asked of a guest's QEMU while it runs, by its Machine Protocol (QMP).

use super::Guest;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

impl Guest {
    /// A QMP command: what it returns.
    ///
    /// # Errors
    /// With QEMU's words.
    pub fn qmp(&mut self, command: Value) -> Result<Value> {
        writeln!(self.qmp.get_mut(), "{command}")?;
        loop {
            let mut answer = line(&mut self.qmp)?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("{command}: {error}");
            }
        }
    }

    /// A command of QEMU's monitor for people.
    ///
    /// # Errors
    /// With QEMU's words.
    pub fn monitor(&mut self, text: &str) -> Result<String> {
        let said = self.qmp(
            json!({"execute": "human-monitor-command", "arguments": {"command-line": text}}),
        )?;
        Ok(said.as_str().unwrap_or_default().to_owned())
    }

    /// Unplugs a device, as `device_del` does, and waits until the guest has let it go.
    ///
    /// # Errors
    /// Where it does not.
    pub fn unplug(&mut self, id: &str) -> Result<()> {
        self.qmp(json!({"execute": "device_del", "arguments": {"id": id}}))?;
        let until = Instant::now() + Duration::from_secs(30);
        while self.qmp(json!({"execute": "qom-list", "arguments": {"path": format!("/machine/peripheral/{id}")}})).is_ok() {
            if Instant::now() > until {
                bail!("the guest keeps {id}\n{}", self.said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Plugs in again what `ginnel vm args` describes and [`Guest::unplug`] took out: its chardev,
    /// anew, and the device.
    ///
    /// # Errors
    /// With QEMU's words.
    pub fn plug(&mut self, options: &[String]) -> Result<()> {
        let value = |of: &str, key: &str| {
            let text = options.iter().find(|option| option.starts_with(of))?;
            text.split(',')
                .find_map(|part| part.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
        };
        let chardev = value("socket,", "id").context("a chardev")?;
        let path = value("socket,", "path").context("its path")?;
        let address = json!({"type": "unix", "data": {"path": path}});
        let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            // Busy until the device that had it is gone altogether, which is a little later than
            // that it is not to be seen any more.
            let _ = self.qmp(json!({"execute": "chardev-remove", "arguments": {"id": chardev}}));
            match self.qmp(
                json!({"execute": "chardev-add", "arguments": {"id": chardev, "backend": backend}}),
            ) {
                Ok(_) => break,
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        let device = |key: &str| value("ivshmem-doorbell,", key).context("the device");
        let vectors: u64 = device("vectors")?.parse()?;
        let arguments = json!({"driver": "ivshmem-doorbell", "id": device("id")?, "bus": device("bus")?, "chardev": chardev, "vectors": vectors});
        self.qmp(json!({"execute": "device_add", "arguments": arguments})).map(drop)
    }
}

/// Connects to where QEMU listens for these commands.
pub(super) fn connect(socket: &Path, until: Instant) -> Result<BufReader<UnixStream>> {
    let stream = loop {
        crate::check()?;
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(error).context("QMP"),
        }
    };
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut qmp = BufReader::new(stream);
    line(&mut qmp)?;
    writeln!(qmp.get_mut(), "{}", json!({"execute": "qmp_capabilities"}))?;
    while line(&mut qmp)?.get("return").is_none() {}
    Ok(qmp)
}

fn line(qmp: &mut BufReader<UnixStream>) -> Result<Value> {
    let mut text = String::new();
    if qmp.read_line(&mut text).context("QMP")? == 0 {
        bail!("QEMU has closed QMP");
    }
    serde_json::from_str(&text).context("QMP speaks JSON")
}
