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
//!
//! [port.uplink]
//! tap = "ginnel0"                  # a device of the host's network in place of a guest
//! ```

use crate::filter::{Filter, Network};
use crate::wire;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Where the sockets are if nothing else is said.
pub const RUN_DIR: &str = "/run/ginnel-switch";
/// Ports of one switch.
pub const MAX_PORTS: usize = 1024;
/// Pairs of queues of one port.
const MAX_PAIRS: u16 = 16;
/// Addresses that are learned of one port.
const MAX_MACS: u32 = 65536;
/// What is learned of a port that says nothing else.
const MACS: u32 = 64;
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
    /// The ports.
    pub ports: Vec<PortConfig>,
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
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Of these ports.
    #[must_use]
    pub fn new(run_dir: PathBuf, ports: Vec<PortConfig>) -> Self {
        Self { run_dir, metrics: None, poll: Duration::from_micros(50), busy: false, ports }
    }

    /// From a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(|error| ConfigError {
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
        Reader { text, file }.config()
    }

    /// Where `ginnel-switch status` asks.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.run_dir.join("control.sock")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    run_dir: Option<Spanned<PathBuf>>,
    metrics: Option<Spanned<String>>,
    poll_us: Option<Spanned<u64>>,
    #[serde(default)]
    busy: bool,
    mode: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    #[serde(default)]
    port: BTreeMap<Spanned<String>, RawPort>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawPort {
    socket: Option<Spanned<PathBuf>>,
    tap: Option<Spanned<String>>,
    #[serde(default)]
    key: u32,
    queues: Option<Spanned<u16>>,
    mac: Option<Spanned<Several>>,
    address: Option<Spanned<Several>>,
    macs: Option<Spanned<u32>>,
    rate: Option<Spanned<String>>,
    broadcasts: Option<Spanned<u64>>,
}

/// One text, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a list of texts")]
enum Several {
    One(String),
    Many(Vec<String>),
}

impl Several {
    fn list(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// The text, for saying where something is wrong in it.
struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
}

/// What holds for every port's socket.
struct Sockets<'a> {
    run_dir: &'a Path,
    mode: u32,
    group: Option<u32>,
}

impl Reader<'_> {
    fn wrong(
        &self,
        at: Range<usize>,
        key: impl Into<String>,
        problem: impl Into<String>,
    ) -> ConfigError {
        let newlines = self.text.bytes().take(at.start).filter(|&byte| byte == b'\n').count();
        let (key, problem) = (key.into(), problem.into());
        ConfigError { file: self.file.to_owned(), line: Some(1 + newlines), key, problem }
    }

    fn config(&self) -> Result<Config, ConfigError> {
        let raw: Raw = toml::from_str(self.text).map_err(|error| {
            let problem = error.message().trim().replace('\n', ", ");
            let problem = format!("{problem}; docs/switch.md lists the keys");
            match error.span() {
                Some(span) => self.wrong(span, "", problem),
                None => {
                    ConfigError { file: self.file.into(), line: None, key: String::new(), problem }
                }
            }
        })?;
        let run_dir = match &raw.run_dir {
            None => PathBuf::from(RUN_DIR),
            Some(path) if path.get_ref().is_absolute() => path.get_ref().clone(),
            Some(path) => {
                let problem = format!("must be an absolute path, like \"{RUN_DIR}\"");
                return Err(self.wrong(path.span(), "run_dir", problem));
            }
        };
        let sockets =
            Sockets { run_dir: &run_dir, mode: self.mode(&raw)?, group: self.group(&raw)? };
        let mut ports = Vec::new();
        for (name, port) in &raw.port {
            ports.push(self.port(name, port, &sockets)?);
        }
        self.check_ports(&raw, &ports)?;
        let poll = Duration::from_micros(self.number(
            raw.poll_us.as_ref(),
            50,
            0..=MAX_POLL,
            "poll_us",
            "microseconds",
        )?);
        let metrics = self.metrics(raw.metrics.as_ref())?;
        Ok(Config { run_dir: run_dir.clone(), metrics, poll, busy: raw.busy, ports })
    }

    fn check_ports(&self, raw: &Raw, ports: &[PortConfig]) -> Result<(), ConfigError> {
        let end = self.text.len();
        if ports.is_empty() || ports.len() > MAX_PORTS {
            let problem = format!("a switch has 1 to {MAX_PORTS} ports: write [port.NAME]");
            return Err(self.wrong(end..end, "port", problem));
        }
        for (index, (name, _)) in raw.port.iter().enumerate() {
            let (one, before) = (&ports[index], &ports[..index]);
            let same = |other: &&PortConfig| {
                (one.socket.is_some() && other.socket == one.socket)
                    || (one.tap.is_some() && other.tap == one.tap)
            };
            if let Some(other) = before.iter().find(same) {
                let problem = format!("port {} has the same socket or tap device", other.name);
                return Err(self.wrong(name.span(), format!("port.{}", one.name), problem));
            }
            let taken = |other: &&PortConfig| {
                other.key == one.key
                    && other.filter.macs.iter().any(|mac| one.filter.macs.contains(mac))
            };
            if let Some(other) = before.iter().find(taken) {
                let problem = format!("port {} of the same segment has the same mac", other.name);
                return Err(self.wrong(name.span(), format!("port.{}.mac", one.name), problem));
            }
        }
        Ok(())
    }

    fn mode(&self, raw: &Raw) -> Result<u32, ConfigError> {
        let Some(text) = &raw.mode else { return Ok(0o660) };
        let mode = u32::from_str_radix(text.get_ref(), 8).ok().filter(|&mode| mode <= 0o777);
        let problem = "must be permissions in octal, like \"0660\"";
        mode.ok_or_else(|| self.wrong(text.span(), "mode", problem))
    }

    fn group(&self, raw: &Raw) -> Result<Option<u32>, ConfigError> {
        let Some(text) = &raw.group else { return Ok(None) };
        let name = text.get_ref();
        let known = nix::unistd::Group::from_name(name).ok().flatten();
        let id = known.map(|group| group.gid.as_raw()).or_else(|| name.parse().ok());
        let problem =
            format!("there is no group \"{name}\" on this host; create it, or name another");
        id.map(Some).ok_or_else(|| self.wrong(text.span(), "group", problem))
    }

    fn metrics(&self, raw: Option<&Spanned<String>>) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(raw) = raw else { return Ok(Some(SocketAddr::from(([127, 0, 0, 1], 9191)))) };
        match (raw.get_ref().as_str(), raw.get_ref().parse::<SocketAddr>()) {
            ("off", _) => Ok(None),
            (_, Ok(address)) if address.ip().is_loopback() => Ok(Some(address)),
            _ => {
                let problem = "must be a loopback address and a port, like \"127.0.0.1:9191\", or \
                               \"off\"; put a proxy before it for others";
                Err(self.wrong(raw.span(), "metrics", problem))
            }
        }
    }

    fn number<T: Copy + PartialOrd + fmt::Display>(
        &self,
        raw: Option<&Spanned<T>>,
        default: T,
        range: std::ops::RangeInclusive<T>,
        key: &str,
        what: &str,
    ) -> Result<T, ConfigError> {
        match raw {
            None => Ok(default),
            Some(raw) if range.contains(raw.get_ref()) => Ok(*raw.get_ref()),
            Some(raw) => {
                let problem = format!("must be {} to {} {what}", range.start(), range.end());
                Err(self.wrong(raw.span(), key, problem))
            }
        }
    }

    fn list<T>(
        &self,
        raw: Option<&Spanned<Several>>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(raw) = raw else { return Ok(Vec::new()) };
        let one =
            |text: &String| parse(text).map_err(|problem| self.wrong(raw.span(), key, problem));
        raw.get_ref().list().iter().map(one).collect()
    }

    fn port(
        &self,
        name: &Spanned<String>,
        raw: &RawPort,
        sockets: &Sockets<'_>,
    ) -> Result<PortConfig, ConfigError> {
        let place = format!("port.{}", name.get_ref());
        let key = |rest: &str| format!("{place}.{rest}");
        check_name(name.get_ref()).map_err(|problem| self.wrong(name.span(), &place, problem))?;
        let mut port = PortConfig::new(name.get_ref(), PathBuf::new(), raw.key);
        (port.mode, port.group) = (sockets.mode, sockets.group);
        (port.socket, port.tap) = match (&raw.socket, &raw.tap) {
            (Some(_), Some(tap)) => {
                let problem = "a port has a socket or a tap device, not both";
                return Err(self.wrong(tap.span(), key("tap"), problem));
            }
            (None, Some(tap)) => (None, Some(self.tap(tap, &key("tap"))?)),
            (Some(path), None) if path.get_ref().is_absolute() => {
                (Some(path.get_ref().clone()), None)
            }
            (Some(path), None) => {
                return Err(self.wrong(path.span(), key("socket"), "must be an absolute path"));
            }
            (None, None) => (Some(sockets.run_dir.join(format!("{}.sock", port.name))), None),
        };
        let pairs = 1..=MAX_PAIRS;
        port.pairs =
            self.number(raw.queues.as_ref(), 1, pairs, &key("queues"), "pairs of queues")?;
        let macs = 1..=MAX_MACS;
        port.macs = self.number(raw.macs.as_ref(), MACS, macs, &key("macs"), "addresses")?;
        let frames = 1..=1_000_000_000;
        let broadcasts = raw.broadcasts.as_ref();
        let asked = self.number(broadcasts, 1, frames, &key("broadcasts"), "frames a second")?;
        port.broadcasts = broadcasts.map(|_| asked);
        port.rate = self.rate(raw.rate.as_ref(), &key("rate"))?;
        port.filter.macs = self.list(raw.mac.as_ref(), &key("mac"), mac)?;
        port.filter.addresses =
            self.list(raw.address.as_ref(), &key("address"), |text| text.parse::<Network>())?;
        Ok(port)
    }

    fn tap(&self, tap: &Spanned<String>, key: &str) -> Result<String, ConfigError> {
        let name = tap.get_ref();
        let good = |c: char| !c.is_whitespace() && c != '/' && c != '%';
        if (1..16).contains(&name.len()) && name.chars().all(good) && name != "." && name != ".." {
            return Ok(name.clone());
        }
        let problem = "must be an interface's name: up to 15 bytes, without blank, '/' and '%'";
        Err(self.wrong(tap.span(), key, problem))
    }

    fn rate(&self, raw: Option<&Spanned<String>>, key: &str) -> Result<Option<u64>, ConfigError> {
        let Some(raw) = raw else { return Ok(None) };
        let text = raw.get_ref();
        let (number, unit) = match text.char_indices().next_back() {
            Some((at, 'K')) => (&text[..at], 1_000),
            Some((at, 'M')) => (&text[..at], 1_000_000),
            Some((at, 'G')) => (&text[..at], 1_000_000_000),
            _ => (text.as_str(), 1),
        };
        let bits = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        let good = bits.filter(|bits| (64_000..=1_000_000_000_000).contains(bits));
        let problem = "must be bits a second, 64K to 1000G, like \"1G\" (powers of 1000)";
        good.map(Some).ok_or_else(|| self.wrong(raw.span(), key, problem))
    }
}

fn mac(text: &str) -> Result<wire::Mac, String> {
    let mac = wire::parse(text).filter(|&mac| !wire::is_group(mac));
    mac.ok_or_else(|| format!("\"{text}\" is no guest's address, like \"52:54:00:00:00:01\""))
}

#[cfg(test)]
mod tests;
