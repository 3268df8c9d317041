//! The host as one more machine in the guests' network: a network namespace with one interface, which is plugged into their switch. Programs are started in it.

use crate::network::Switch;
use crate::{built, call, spawn};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The namespace. Removed when it is dropped.
pub struct Host {
    name: String,
    directory: PathBuf,
}

/// A script that was started in it.
pub struct Running {
    child: Child,
    script: String,
    said: PathBuf,
}

impl Host {
    /// Plugs a namespace with this address (and the prefix's length) into `switch`; its programs work in `directory/host`, which is Ginnel's directory too.
    ///
    /// # Errors
    /// Where namespace or interface cannot be made: who is not root cannot.
    pub fn plug_in(switch: &Switch, directory: &Path, address: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ginnel-guest-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        call(Command::new("ip").args(["netns", "add", &name]))?;
        let host = Self { name, directory: directory.join("host") };
        fs::create_dir_all(&host.directory)?;
        // A thread of its own goes in, and ends there: the interface is made where its maker is.
        let name = host.name.clone();
        let tap = std::thread::spawn(move || tap(&name)).join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        switch.plug_tap(tap)?;
        call(&mut host.command(&format!("ip link set lo up && ip link set eth0 up && ip addr add {address} dev eth0")))?;
        Ok(host)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name, "sh", "-c", script])
            .current_dir(&self.directory)
            .env("GINNEL_DIR", &self.directory);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let release = built("ginnel").ok().and_then(|file| file.parent().map(Path::to_path_buf)).unwrap_or_default();
        command.env("PATH", std::env::join_paths(std::iter::once(release).chain(std::env::split_paths(&path))).unwrap_or(path));
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

impl Drop for Host {
    fn drop(&mut self) {
        let _ = call(Command::new("ip").args(["netns", "del", &self.name]));
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
                None if Instant::now() > until => bail!("it does not end: {}\n{}", self.script, self.said()),
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

/// An interface `eth0` in the namespace of this name; its other end is the file (Linux, Documentation/networking/tuntap).
fn tap(name: &str) -> Result<File> {
    let namespace = File::open(Path::new("/run/netns").join(name)).context("the namespace")?;
    // SAFETY: touches no memory; this thread alone changes its namespace.
    ensure!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0, "setns: {}", std::io::Error::last_os_error());
    let tap = File::options().read(true).write(true).open("/dev/net/tun").context("/dev/net/tun")?;
    // SAFETY: all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"eth0") {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI)?;
    // SAFETY: the request has the shape that the kernel reads.
    let made = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    ensure!(made == 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    Ok(tap)
}
