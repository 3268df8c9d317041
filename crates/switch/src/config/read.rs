//! The file as TOML has it, and how it becomes a [`Config`]: every value with its place, for saying
//! where something is wrong.

use super::fabric::RawFabric;
use super::{
    Config, ConfigError, MACS, MAX_MACS, MAX_PAIRS, MAX_POLL, MAX_PORTS, PortConfig, RUN_DIR,
    VsockConfig, check_name, is_cid,
};
use crate::filter::Network;
use crate::wire;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

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
    memory: Option<Spanned<String>>,
    #[serde(default)]
    port: BTreeMap<Spanned<String>, RawPort>,
    #[serde(default)]
    vsock: BTreeMap<Spanned<String>, RawVsock>,
    fabric: Option<RawFabric>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVsock {
    cid: Spanned<u32>,
    #[serde(default)]
    key: u32,
    socket: Option<Spanned<PathBuf>>,
    host: Option<Spanned<PathBuf>>,
    memory: Option<Spanned<String>>,
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
    memory: Option<Spanned<String>>,
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
pub(super) struct Reader<'a> {
    pub text: &'a str,
    pub file: &'a Path,
}

/// What holds for every port's socket.
struct Sockets<'a> {
    run_dir: &'a Path,
    mode: u32,
    group: Option<u32>,
}

impl Reader<'_> {
    pub(super) fn wrong(
        &self,
        at: Range<usize>,
        key: impl Into<String>,
        problem: impl Into<String>,
    ) -> ConfigError {
        let newlines = self.text.bytes().take(at.start).filter(|&byte| byte == b'\n').count();
        let (key, problem) = (key.into(), problem.into());
        ConfigError { file: self.file.to_owned(), line: Some(1 + newlines), key, problem }
    }

    /// The configuration.
    pub fn config(&self) -> Result<Config, ConfigError> {
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
        let mut vsock: Vec<VsockConfig> = Vec::new();
        for (name, one) in &raw.vsock {
            let one = self.vsock(name, one, &sockets)?;
            self.check_vsock(name, &one, &vsock, &ports)?;
            vsock.push(one);
        }
        let poll = Duration::from_micros(self.number(
            raw.poll_us.as_ref(),
            50,
            0..=MAX_POLL,
            "poll_us",
            "microseconds",
        )?);
        let metrics = self.metrics(raw.metrics.as_ref())?;
        let memory = self.size(raw.memory.as_ref(), "memory")?;
        let (run_dir, busy) = (run_dir.clone(), raw.busy);
        let fabric = raw.fabric.as_ref().map(|fabric| self.fabric(fabric)).transpose()?;
        Ok(Config { run_dir, metrics, poll, busy, memory, ports, vsock, fabric })
    }

    fn check_ports(&self, raw: &Raw, ports: &[PortConfig]) -> Result<(), ConfigError> {
        let end = self.text.len();
        let none = ports.is_empty() && raw.vsock.is_empty();
        if none || ports.len() + raw.vsock.len() > MAX_PORTS {
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
        // To chown(2) the last number means that the group stays.
        let id = id.filter(|&id| id != u32::MAX);
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

    pub(super) fn number<T: Copy + PartialOrd + fmt::Display>(
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
        if raw.get_ref().list().is_empty() {
            // No list at all allows everything, which nobody means who writes an empty one.
            let problem =
                "an empty list would allow nothing; leave it out where anything is allowed";
            return Err(self.wrong(raw.span(), key, problem));
        }
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
        port.memory = self.size(raw.memory.as_ref(), &key("memory"))?;
        port.rate = self.rate(raw.rate.as_ref(), &key("rate"))?;
        port.filter.macs = self.list(raw.mac.as_ref(), &key("mac"), mac)?;
        port.filter.addresses =
            self.list(raw.address.as_ref(), &key("address"), |text| text.parse::<Network>())?;
        Ok(port)
    }

    fn vsock(
        &self,
        name: &Spanned<String>,
        raw: &RawVsock,
        sockets: &Sockets<'_>,
    ) -> Result<VsockConfig, ConfigError> {
        let place = format!("vsock.{}", name.get_ref());
        check_name(name.get_ref()).map_err(|problem| self.wrong(name.span(), &place, problem))?;
        let path = |raw: Option<&Spanned<PathBuf>>, key: &str, end: &str| match raw {
            None => Ok(sockets.run_dir.join(format!("{}.{end}", name.get_ref()))),
            Some(path) if path.get_ref().is_absolute() => Ok(path.get_ref().clone()),
            Some(path) => {
                let key = format!("{place}.{key}");
                Err(self.wrong(path.span(), key, "must be an absolute path"))
            }
        };
        let cid = *raw.cid.get_ref();
        if !is_cid(cid) {
            let problem = "must be 3 to 4294967294: the others are not machines'";
            return Err(self.wrong(raw.cid.span(), format!("{place}.cid"), problem));
        }
        let socket = path(raw.socket.as_ref(), "socket", "vsock")?;
        let mut one = VsockConfig::new(name.get_ref(), cid, socket, raw.key);
        let off = raw.host.as_ref().is_some_and(|path| path.get_ref() == Path::new("off"));
        one.host = if off { None } else { Some(path(raw.host.as_ref(), "host", "host")?) };
        one.memory = self.size(raw.memory.as_ref(), &format!("{place}.memory"))?;
        (one.mode, one.group) = (sockets.mode, sockets.group);
        Ok(one)
    }

    fn check_vsock(
        &self,
        name: &Spanned<String>,
        one: &VsockConfig,
        before: &[VsockConfig],
        ports: &[PortConfig],
    ) -> Result<(), ConfigError> {
        let key = format!("vsock.{}", one.name);
        if let Some(other) =
            before.iter().find(|other| (other.key, other.cid) == (one.key, one.cid))
        {
            let problem = format!("vsock {} of the same key has the same cid", other.name);
            return Err(self.wrong(name.span(), key + ".cid", problem));
        }
        let ports = ports.iter().filter_map(|port| port.socket.as_ref());
        let others = before.iter().flat_map(|other| [Some(&other.socket), other.host.as_ref()]);
        let taken: Vec<_> = ports.chain(others.flatten()).collect();
        let twice = one.host.as_ref() == Some(&one.socket);
        if twice
            || taken.contains(&&one.socket)
            || one.host.as_ref().is_some_and(|path| taken.contains(&path))
        {
            let problem = "another has the same socket";
            return Err(self.wrong(name.span(), key, problem));
        }
        Ok(())
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

    /// Bytes of memory.
    fn size(&self, raw: Option<&Spanned<String>>, key: &str) -> Result<Option<u64>, ConfigError> {
        let Some(raw) = raw else { return Ok(None) };
        let bytes = ginnel_region::parse_size(raw.get_ref());
        let good = bytes.filter(|bytes| (1 << 20..=1 << 60).contains(bytes));
        let problem = "must be a size of memory, like \"512M\", \"16G\" or \"2T\"";
        good.map(Some).ok_or_else(|| self.wrong(raw.span(), key, problem))
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
