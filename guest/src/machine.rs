//! A running guest: machine q35, one processor, a network card, any further devices, and an agent
//! that runs commands in it.

mod command;
mod qmp;

use crate::PATIENCE;
use crate::agent::{Agent, Output, Pending};
use crate::child::spawn;
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::qemu::Qemu;
use anyhow::{Context, Result, bail};
use command::{Files, qemu_command};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is tried: where the host takes the processor away at the wrong moment, an emulated
/// kernel finds no timer and boots no further.
const ATTEMPTS: u32 = 3;
/// What a kernel says on its console when it is ill.
const ILL: [&str; 6] =
    ["Kernel panic", "Oops", "BUG:", "WARNING:", "Call Trace", "general protection"];

/// Held by a test that boots guests: two or three at once are as many as a small machine bears, and
/// the tests of one program run side by side.
///
/// # Panics
/// Never: a test that failed with it held is of no concern to the next.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a guest is to be.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// Its name: of its files, and its host name.
    pub name: String,
    /// Programs of the host that it is to have: names, or whole paths.
    pub programs: Vec<String>,
    /// Folders of the host that it is to have at the same places.
    pub folders: Vec<PathBuf>,
    /// Further files: (place, mode, content).
    pub files: Vec<(String, u32, Vec<u8>)>,
    /// Its network: QEMU's `-netdev`, without its id.
    pub netdev: Option<String>,
    /// Its IPv4 address in that network, with the prefix's length.
    pub address: Option<String>,
    /// Further options of QEMU.
    pub options: Vec<String>,
    /// Has the driver, loaded.
    pub driver: bool,
    /// Further modules of its kernel that are loaded, by name, behind those that they need.
    pub modules: Vec<String>,
    /// Its QEMU; without one that which [`Qemu::chosen`] gives.
    pub qemu: Option<Qemu>,
    /// Its memory, MiB; 0: as much as what it boots from needs, 256 at least.
    pub memory: u32,
}

impl Spec {
    /// A guest without a network.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A running guest. It is killed when it is dropped.
pub struct Guest {
    name: String,
    child: Child,
    agent: Agent,
    qmp: BufReader<UnixStream>,
    console: PathBuf,
    errors: PathBuf,
    setup: String,
}

impl Guest {
    /// Boots one; its files lie in `directory`.
    ///
    /// # Errors
    /// Where it does not boot: with what it and QEMU said.
    pub fn boot(kernel: &Kernel, directory: &Path, spec: &Spec) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::try_boot(kernel, directory, spec) {
                Err(error) if attempt < ATTEMPTS && crate::check().is_ok() => {
                    eprintln!("{} does not boot (attempt {attempt}): {error:#}", spec.name)
                }
                other => return other,
            }
            attempt += 1;
        }
    }

    fn try_boot(kernel: &Kernel, directory: &Path, spec: &Spec) -> Result<Self> {
        write_initramfs(kernel, spec, &directory.join(format!("{}.initrd", spec.name)))?;
        let mut guest = Self::launch(kernel, directory, spec, None)?;
        guest.wait_boot(Instant::now() + PATIENCE)?;
        Ok(guest)
    }

    /// Starts QEMU. `incoming`: for a machine that comes from another QEMU, at this socket, without
    /// what had to be unplugged for that.
    fn launch(
        kernel: &Kernel,
        directory: &Path,
        spec: &Spec,
        incoming: Option<&Path>,
    ) -> Result<Self> {
        let files = Files { directory, name: &spec.name, incoming: incoming.is_some() };
        let (console, errors) = (files.path("console"), files.here("qemu"));
        for socket in ["agent", "qmp", "host-cpu"] {
            let _ = fs::remove_file(files.here(socket));
        }
        let mut command = qemu_command(kernel, spec, &files)?;
        match incoming {
            None => command.args(&spec.options),
            Some(socket) => command
                .args(without_segment(&spec.options))
                .args(["-incoming", &format!("unix:{}", socket.display())]),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
        let here = |kind: &str| files.here(kind);
        let mut child =
            spawn(command).context("qemu-system-x86_64 (scripts/install-deps.sh test)")?;
        let until = Instant::now() + PATIENCE;
        let connected = serving(&mut child, &[here("agent"), here("qmp")], until)
            .and_then(|()| Agent::connect(&here("agent"), until))
            .and_then(|agent| Ok((agent, qmp::connect(&here("qmp"), until)?)));
        let (agent, qmp) = match connected {
            Ok(both) => both,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.context(fs::read_to_string(&errors).unwrap_or_default()));
            }
        };
        Ok(Self { name: spec.name.clone(), child, agent, qmp, console, errors, setup: setup(spec) })
    }

    /// Moves the machine, as it runs, into another QEMU, which it then is (QEMU,
    /// `docs/devel/migration`). Its devices of segments must be unplugged; no command may be under
    /// way in it.
    ///
    /// # Errors
    /// With QEMU's words.
    pub fn migrate(&mut self, kernel: &Kernel, directory: &Path, spec: &Spec) -> Result<()> {
        let socket = directory.join(format!("{}.migration", spec.name));
        let next = Self::launch(kernel, directory, spec, Some(&socket))?;
        self.qmp(json!({"execute": "migrate", "arguments": {"uri": format!("unix:{}", socket.display())}}))?;
        let until = Instant::now() + PATIENCE;
        loop {
            let info = self.qmp(json!({"execute": "query-migrate"}))?;
            match info.get("status").and_then(Value::as_str) {
                Some("completed") => break,
                Some("failed" | "cancelled") => bail!("{info}\n{}{}", self.said(), next.said()),
                _ if Instant::now() > until => bail!("it does not end: {info}"),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        // The old one, which stands still, ends here.
        *self = next;
        Ok(())
    }

    /// Boots several at once.
    ///
    /// # Errors
    /// Where one of them does not boot.
    ///
    /// # Panics
    /// Never: a thread of its own panics only where this one would.
    pub fn boot_all(kernel: &Kernel, directory: &Path, specs: &[Spec]) -> Result<Vec<Self>> {
        std::thread::scope(|scope| {
            let boots: Vec<_> = specs
                .iter()
                .map(|spec| scope.spawn(move || Self::boot(kernel, directory, spec)))
                .collect();
            boots.into_iter().map(|boot| boot.join().expect("no panic")).collect()
        })
    }

    fn wait_boot(&mut self, until: Instant) -> Result<()> {
        let setup = self.setup.clone();
        self.agent.wait_ready(until).with_context(|| self.said())?;
        self.run(&setup, PATIENCE)?.good().context("setting the guest up").map(drop)
    }

    /// Runs a shell script in it and waits for its end; past `limit` it is killed, with status 124.
    ///
    /// # Errors
    /// Where the guest does not answer.
    pub fn run(&self, script: &str, limit: Duration) -> Result<Output> {
        self.start(script, limit)?.finish().with_context(|| self.said())
    }

    /// The same, of a script that must succeed, within [`PATIENCE`]: its standard output.
    ///
    /// # Panics
    /// Where it does not.
    pub fn sh(&self, script: &str) -> String {
        match self.run(script, PATIENCE).and_then(Output::good) {
            Ok(out) => out,
            Err(error) => panic!("{}: {script}\n{error:#}\n{}", self.name, self.said()),
        }
    }

    /// Starts a shell script and does not wait.
    ///
    /// # Errors
    /// Where the guest is gone.
    pub fn start(&self, script: &str, limit: Duration) -> Result<Pending> {
        self.agent.start(script, limit)
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// Where that fails.
    pub fn put(&self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.agent.put(path, mode, content)
    }

    /// Resets it, as its reset button would, and waits until it has booted again.
    ///
    /// # Errors
    /// Where it does not boot.
    pub fn reset(&mut self) -> Result<()> {
        self.qmp(json!({"execute": "system_reset"}))?;
        self.wait_boot(Instant::now() + PATIENCE)
    }

    /// QEMU's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the machine as if its host had pulled the plug.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The end of its console, and what QEMU said.
    #[must_use]
    pub fn said(&self) -> String {
        let console = self.console();
        let tail: Vec<&str> = console.lines().rev().take(60).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        let qemu = fs::read_to_string(&self.errors).unwrap_or_default();
        format!("--- console of {}\n{}\n--- QEMU\n{qemu}", self.name, tail.join("\n"))
    }

    /// Its console since it was first booted.
    #[must_use]
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Panics if its kernel has complained of anything.
    ///
    /// # Panics
    /// So.
    pub fn assert_healthy(&self) {
        let console = self.console();
        let complaint = console.lines().find(|line| ILL.iter().any(|word| line.contains(word)));
        assert!(complaint.is_none(), "{}: {complaint:?}\n{console}", self.name);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

/// Options of QEMU without those that `ginnel vm args` gives for the device itself and its chardev:
/// of these only the root port stays.
fn without_segment(options: &[String]) -> Vec<&String> {
    // A port of a switch is not unplugged: it is part of the machine.
    let of_switch = |option: &String| option.starts_with("socket,id=ginnel-net-");
    let of_segment = |option: &String| {
        option.starts_with("ivshmem-doorbell,")
            || option.starts_with("socket,") && !of_switch(option)
    };
    let pairs = options.chunks(2).filter(|pair| !pair.iter().any(of_segment));
    pairs.flatten().collect()
}

fn write_initramfs(kernel: &Kernel, spec: &Spec, to: &Path) -> Result<()> {
    let mut archive = Initramfs::base(kernel, &spec.modules)?;
    for program in &spec.programs {
        archive.installed(program)?;
    }
    for folder in &spec.folders {
        archive.folder(folder)?;
    }
    for (place, mode, content) in &spec.files {
        archive.file(place, *mode, content);
    }
    if spec.driver {
        archive.file("/root/ginnel.ko", 0o644, &fs::read(kernel.driver()?)?);
    }
    archive.write(to)
}

/// What is done in a guest each time it has booted.
fn setup(spec: &Spec) -> String {
    let mut script = format!("set -e\nhostname {}\nip link set lo up\n", spec.name);
    if let Some(address) = &spec.address {
        script += &format!("ip link set eth0 up\nip addr add {address} dev eth0\n");
    }
    if spec.driver {
        script += "insmod /root/ginnel.ko\n";
    }
    script
}

/// Waits until QEMU serves these sockets. One that has ended never will.
fn serving(child: &mut Child, sockets: &[PathBuf], until: Instant) -> Result<()> {
    while !sockets.iter().all(|socket| socket.exists()) && Instant::now() < until {
        crate::check()?;
        if let Some(status) = child.try_wait()? {
            bail!("QEMU has ended ({status})");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// `kvm`, or `tcg` for software emulation.
#[must_use]
pub fn acceleration(kernel: &Kernel) -> &'static str {
    Qemu::chosen().map_or("tcg", |qemu| qemu.accelerator(kernel)[1])
}
