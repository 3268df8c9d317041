//! A network namespace of the test's own, and tap devices in it.

use crate::call;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespace. Removed when it is dropped.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes it.
    ///
    /// # Errors
    /// Where it cannot be made: who is not root cannot.
    pub fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("ginnel-guest-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        call(Command::new("ip").args(["netns", "add", &name]))?;
        Ok(Self { name })
    }

    /// A command that runs in it: a shell script.
    #[must_use]
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "sh", "-c", script]);
        command
    }

    /// A tap device in it, of this name; its other end is the file (Linux,
    /// Documentation/networking/tuntap). `flags`: beside `IFF_TAP` and `IFF_NO_PI`.
    ///
    /// # Errors
    /// Where there is no `/dev/net/tun`, or it does not let us.
    pub fn tap(&self, interface: &str, flags: libc::c_int) -> Result<File> {
        let place = Path::new("/run/netns").join(&self.name);
        let interface = interface.to_owned();
        // A thread of its own goes in, and ends there: the interface is made where its maker is.
        std::thread::spawn(move || tap(&place, &interface, flags))
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = call(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

fn tap(namespace: &Path, interface: &str, flags: libc::c_int) -> Result<File> {
    let namespace = File::open(namespace).context("the namespace")?;
    ensure!(
        // SAFETY: touches no memory; this thread alone changes its namespace.
        unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0,
        "setns: {}",
        std::io::Error::last_os_error()
    );
    let tap =
        File::options().read(true).write(true).open("/dev/net/tun").context("/dev/net/tun")?;
    // SAFETY: all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    ensure!(interface.len() < request.ifr_name.len(), "{interface}: too long for an interface");
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI | flags)?;
    // SAFETY: the request has the shape that the kernel reads.
    let made = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    ensure!(made == 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    Ok(tap)
}
