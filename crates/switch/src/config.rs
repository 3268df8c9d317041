//! The configuration: one TOML file, or ports on the command line. What is wrong with it is said
//! with file, line and key, and what to do.
//!
//! ```toml
//! run_dir = "/run/ginnel-switch"   # RUN_DIR/control.sock, and RUN_DIR/PORT.sock
//! metrics = "127.0.0.1:9191"       # Prometheus, loopback only; "off": none
//! poll_us = 50                     # how long a queue is looked at before a kick is awaited
//! busy = false                     # never sleep: for a processor that does nothing else
//! mode = "0660"                    # of the ports' sockets …
//! group = "kvm"                    # … and whose group they are
//! memory = "64T"                   # that all machines together may share
//!
//! [port.vm1]
//! socket = "/run/ginnel-switch/vm1.sock"
//! key = 0                          # segment: ports of one key reach each other, and no others
//! queues = 1                       # pairs of queues that QEMU may ask for
//! mac = ["52:54:00:00:00:01"]      # the only addresses it may send from, if any are given
//! address = ["10.0.0.1", "fd00::/64"]
//! macs = 64                        # addresses that are learned of it at most
//! rate = "1G"                      # bits a second that it may send
//! broadcasts = 1000                # frames a second that it may send to all
//! memory = "16G"                   # that its machine may share
//!
//! [vsock.vm1]
//! cid = 3                          # the machine's context id
//! key = 0                          # machines of one key reach each other, and no others
//! socket = "/run/ginnel-switch/vm1.vsock"
//! host = "/run/ginnel-switch/vm1.host"   # where programs of the host are; "off": none
//! memory = "16G"
//!
//! [port.uplink]
//! tap = "ginnel0"                  # a device of the host's network in place of a guest
//!
//! [fabric]
//! listen = "10.0.0.1:9192"         # this host's address, as the others have it
//! secret = "/etc/ginnel/fabric.secret"   # what all hosts have in common; only its owner reads it
//! provider = "tcp"                 # or "verbs": InfiniBand and RoCE
//! keys = [0]                       # segments that reach other hosts; without it all do
//! macs = 16384                     # addresses that are learned of one host at most
//!
//! [fabric.hosts]
//! b = "10.0.0.2"                   # the other hosts; this one may be among them
//! ```

pub use fabric::{FabricConfig, HostConfig, Provider};

use crate::filter::Filter;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the sockets are if nothing else is said.
pub const RUN_DIR: &str = "/run/ginnel-switch";
/// Ports of one switch.
pub const MAX_PORTS: usize = 1024;
/// The least context id of a machine.
const FIRST_CID: u32 = 3;
/// Pairs of queues of one port.
const MAX_PAIRS: u16 = 16;
/// Addresses that are learned of one port.
const MAX_MACS: u32 = 65536;
/// What is learned of a port that says nothing else.
const MACS: u32 = 64;
/// The memory that a machine may have of which nothing else is said, if there is enough for all.
const MEMORY: u64 = 1 << 40;
/// The longest file, bytes: a thousand ports with many addresses each are a tenth of it.
const LONGEST: u64 = 4 << 20;
/// How long a queue is looked at.
const MAX_POLL: u64 = 1_000_000;

/// What the switch is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directory of the control socket, and of ports' sockets that have no path of their own.
    pub run_dir: PathBuf,
    /// Loopback address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// How long a queue is looked at before a kick is awaited, at most.
    pub poll: Duration,
    /// Never sleep.
    pub busy: bool,
    /// Bytes of memory that all front ends together may share; `None`: half of what this process
    /// can map.
    pub memory: Option<u64>,
    /// The ports.
    pub ports: Vec<PortConfig>,
    /// Devices for sockets between machines.
    pub vsock: Vec<VsockConfig>,
    /// Other hosts.
    pub fabric: Option<FabricConfig>,
}

/// A device for sockets between machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VsockConfig {
    /// Its name.
    pub name: String,
    /// The machine's context id.
    pub cid: u32,
    /// Machines of one key reach each other.
    pub key: u32,
    /// Where front ends connect.
    pub socket: PathBuf,
    /// Where programs of the host connect; its name with `_PORT` is where the machine finds them.
    pub host: Option<PathBuf>,
    /// Bytes of memory that its front end may share; `None`: see [`Config::share`].
    pub memory: Option<u64>,
    /// Permissions of its sockets.
    pub mode: u32,
    /// Their group.
    pub group: Option<u32>,
}

impl VsockConfig {
    /// A device for front ends at `socket`, whose programs of the host are at `SOCKET.host`.
    #[must_use]
    pub fn new(name: &str, cid: u32, socket: PathBuf, key: u32) -> Self {
        let host = Some(PathBuf::from(format!("{}.host", socket.display())));
        Self { name: name.into(), cid, key, socket, host, memory: None, mode: 0o660, group: None }
    }

    /// From `NAME:CID:SOCKET` or `NAME:CID:SOCKET:KEY`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{what}: write NAME:CID:SOCKET[:KEY]"));
        let parts: Vec<&str> = text.split(':').collect();
        let (name, cid, socket, key) = match parts.as_slice() {
            [name, cid, socket] => (*name, *cid, *socket, "0"),
            [name, cid, socket, key] => (*name, *cid, *socket, *key),
            _ => return wrong("not as many parts as there must be"),
        };
        let Ok(key) = key.parse() else { return wrong("the key is a number below 4294967296") };
        let cid = cid.parse().ok().filter(|&cid| is_cid(cid));
        let Some(cid) = cid else { return wrong("the context id is 3 to 4294967294") };
        if socket.is_empty() {
            return wrong("the socket has no path");
        }
        check_name(name)?;
        Ok(Self::new(name, cid, socket.into(), key))
    }
}

/// May a machine have this context id? (vsock(7): the first ones, and the last, mean others.)
fn is_cid(cid: u32) -> bool {
    (FIRST_CID..u32::MAX).contains(&cid)
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// Its name.
    pub name: String,
    /// Where front ends connect …
    pub socket: Option<PathBuf>,
    /// … or the tap device that it is.
    pub tap: Option<String>,
    /// Its segment.
    pub key: u32,
    /// Pairs of queues that a front end may set up.
    pub pairs: u16,
    /// Who its guest may say that it is.
    pub filter: Filter,
    /// Addresses that are learned of it at most.
    pub macs: u32,
    /// Bits a second that it may send.
    pub rate: Option<u64>,
    /// Frames a second that it may send to all.
    pub broadcasts: Option<u64>,
    /// Bytes of memory that its front end may share; `None`: see [`Config::share`].
    pub memory: Option<u64>,
    /// Permissions of its socket.
    pub mode: u32,
    /// Group of its socket.
    pub group: Option<u32>,
}

impl PortConfig {
    /// A port for front ends, without limits.
    #[must_use]
    pub fn new(name: &str, socket: PathBuf, key: u32) -> Self {
        Self {
            name: name.into(),
            socket: Some(socket),
            tap: None,
            key,
            pairs: MAX_PAIRS,
            filter: Filter::default(),
            macs: MACS,
            rate: None,
            broadcasts: None,
            memory: None,
            mode: 0o660,
            group: None,
        }
    }

    /// From `NAME:SOCKET` or `NAME:SOCKET:KEY`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{what}: write NAME:SOCKET or NAME:SOCKET:KEY"));
        let parts: Vec<&str> = text.split(':').collect();
        let (name, socket, key) = match parts.as_slice() {
            [name, socket] => (*name, *socket, 0),
            [name, socket, key] => match key.parse() {
                Ok(key) => (*name, *socket, key),
                Err(_) => return wrong("the key is a number below 4294967296"),
            },
            _ => return wrong("not as many parts as there must be"),
        };
        if socket.is_empty() {
            return wrong("the socket has no path");
        }
        check_name(name)?;
        Ok(Self::new(name, socket.into(), key))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=32).contains(&name.len()) && name.chars().all(good) {
        return Ok(());
    }
    Err("a port's name has 1 to 32 letters, digits, '_' and '-'".into())
}

/// What is wrong with the configuration: one line, with the place and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    key: String,
    problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            // A name that is none may have anything in it, and this is one line.
            write!(f, ": {}", self.key.escape_debug())?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Of these ports.
    #[must_use]
    pub fn new(run_dir: PathBuf, ports: Vec<PortConfig>) -> Self {
        let poll = Duration::from_micros(50);
        let vsock = Vec::new();
        let (metrics, memory, fabric) = (None, None, None);
        Self { run_dir, metrics, poll, busy: false, memory, ports, vsock, fabric }
    }

    /// From a file, or from a pipe, for whose end this waits.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::of(file, File::open(file).and_then(text_of))
    }

    /// From a file once more, in a switch that runs. Waits for nobody: a pipe is refused.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load_again(file: &Path) -> Result<Self, ConfigError> {
        // Without the flag, opening a pipe waits for whoever writes into it.
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let opened = File::options().read(true).custom_flags(flags).open(file);
        let regular = opened.and_then(|opened| {
            let is_file = opened.metadata()?.is_file();
            is_file.then_some(opened).ok_or_else(|| io::Error::other("it is no regular file"))
        });
        Self::of(file, regular.and_then(text_of))
    }

    fn of(file: &Path, text: io::Result<String>) -> Result<Self, ConfigError> {
        let text = text.map_err(|error| ConfigError {
            file: file.to_owned(),
            line: None,
            key: String::new(),
            problem: format!("cannot be read: {error}; name a file, or ports with --port"),
        })?;
        Self::parse(&text, file)
    }

    /// From the text of `file`, whose name is only for messages.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        read::Reader { text, file }.config()
    }

    /// What a front end may share that has no limit of its own: an equal part of `room`, so that
    /// nobody takes another's, but no more than any machine has.
    #[must_use]
    pub fn share(&self, room: u64) -> u64 {
        let count = (self.ports.len() + self.vsock.len()).max(1);
        (room / count as u64).min(MEMORY)
    }

    /// The same without devices for sockets.
    #[must_use]
    pub fn without_machines(&self) -> Self {
        Self { vsock: Vec::new(), ..self.clone() }
    }

    /// Where `ginnel-switch status` asks.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.run_dir.join("control.sock")
    }
}

/// What a file says, if that is no more than a configuration can be.
fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    // A file may be as long as it likes, and memory is not.
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {} MiB", LONGEST >> 20)));
    }
    Ok(text)
}

pub mod fabric;
mod read;
#[cfg(test)]
mod tests;
