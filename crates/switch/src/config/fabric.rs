//! `[fabric]`: other hosts whose switches belong to the same segments.

use super::read::Reader;
use super::{ConfigError, MAX_MACS, PortConfig, check_name};
use crate::secret::Secret;
use crate::wire::{LONGEST, MESSAGE};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use toml::Spanned;

/// Where switches listen for each other if nothing else is said.
pub const PORT: u16 = 9192;
/// Other hosts of one fabric: a frame for all is sent to each of them.
pub const MAX_HOSTS: usize = 64;
/// Addresses that are learned of one host if nothing else is said.
const MACS: u32 = 16384;
/// Frames from this length on are sent from where they lie if nothing else is said: those that fill
/// more than half a message go alone anyway. Shorter ones share messages, which saves more than
/// their copies cost.
pub const IN_PLACE: u32 = MESSAGE as u32 / 2;

/// By what messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Provider {
    /// TCP.
    #[default]
    Tcp,
    /// InfiniBand and RoCE.
    Verbs,
}

impl Provider {
    /// From its name.
    ///
    /// # Errors
    /// That it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "verbs" => Ok(Self::Verbs),
            _ => Err("must be \"tcp\", or \"verbs\" for InfiniBand and RoCE".into()),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        })
    }
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// Its name.
    pub name: String,
    /// Where its switch listens.
    pub address: SocketAddr,
    /// Whatever else its name stands for, until it is known which of them is meant.
    others: Vec<SocketAddr>,
}

impl HostConfig {
    /// From `NAME=ADDRESS` or `NAME=ADDRESS:PORT`; the address may be a name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').ok_or("write NAME=ADDRESS[:PORT]")?;
        check_name(name)?;
        Self::new(name, address)
    }

    /// At an address.
    #[must_use]
    pub fn at(name: &str, address: SocketAddr) -> Self {
        Self { name: name.into(), address, others: Vec::new() }
    }

    /// Of an address, or of what the system says that a name stands for.
    fn new(name: &str, address: &str) -> Result<Self, String> {
        let mut others = addresses_of(address)?.into_iter();
        let address = others.next().ok_or_else(|| format!("\"{address}\" has no address"))?;
        Ok(Self { name: name.into(), address, others: others.collect() })
    }

    /// Is one of its addresses this?
    fn is_at(&self, address: SocketAddr) -> bool {
        self.address == address || self.others.contains(&address)
    }

    /// At its address of this kind, if it has one.
    fn like(mut self, listen: SocketAddr) -> Self {
        let alike = |one: &SocketAddr| one.is_ipv4() == listen.is_ipv4();
        let others = std::mem::take(&mut self.others);
        let found = std::iter::once(self.address).chain(others).find(alike);
        self.address = found.unwrap_or(self.address);
        self
    }
}

/// The fabric that a switch belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricConfig {
    /// This host's own address, as the others have it.
    pub listen: SocketAddr,
    /// By what messages go.
    pub provider: Provider,
    /// What all hosts of the fabric have in common; `None`: nothing is proved.
    pub secret: Option<Secret>,
    /// Segments that reach other hosts; `None`: all.
    pub keys: Option<Vec<u32>>,
    /// Addresses that are learned of one host at most.
    pub macs: u32,
    /// Frames of so many bytes are sent from where they lie, where that is possible; `None`: all
    /// are copied.
    pub in_place: Option<u32>,
    /// The other hosts.
    pub hosts: Vec<HostConfig>,
}

impl FabricConfig {
    /// Of these hosts.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(listen: SocketAddr, hosts: Vec<HostConfig>) -> Result<Self, String> {
        // So that one file does for all of them.
        let others = hosts.into_iter().filter(|host| !host.is_at(listen));
        let hosts: Vec<_> = others.map(|host| host.like(listen)).collect();
        for (index, host) in hosts.iter().enumerate() {
            let before = &hosts[..index];
            if before.iter().any(|other| other.address == host.address || other.name == host.name) {
                return Err(format!("two hosts have the name or the address of {}", host.name));
            }
        }
        if hosts.iter().any(|host| host.address.is_ipv4() != listen.is_ipv4()) {
            return Err("all hosts have addresses of one kind, IPv4 or IPv6".into());
        }
        if hosts.is_empty() || hosts.len() > MAX_HOSTS {
            return Err(format!("a fabric has 1 to {MAX_HOSTS} other hosts"));
        }
        let (provider, secret, keys) = (Provider::default(), None, None);
        let in_place = Some(IN_PLACE);
        Ok(Self { listen, provider, secret, keys, macs: MACS, in_place, hosts })
    }

    /// Does this segment reach other hosts?
    #[must_use]
    pub fn carries(&self, key: u32) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(&key))
    }

    /// The segments of these ports that do.
    #[must_use]
    pub fn keys_of(&self, ports: &[PortConfig]) -> Vec<u32> {
        let mut keys: Vec<u32> = ports.iter().map(|port| port.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|&key| self.carries(key));
        keys
    }
}

/// An address of one host, with a port or without.
///
/// # Errors
/// That it is none.
pub fn address_of(text: &str) -> Result<SocketAddr, String> {
    let ip = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    let address = ip.ok().or_else(|| text.parse().ok());
    let good = |address: &SocketAddr| {
        let ip = address.ip();
        !ip.is_unspecified() && !ip.is_multicast() && address.port() != 0
    };
    address.filter(good).ok_or_else(|| {
        format!("\"{text}\" is no host's address, like \"10.0.0.1\" or \"[fd00::1]:{PORT}\"")
    })
}

/// The addresses of one host: the one that is written, or those that the system's resolver knows of
/// a name (`/etc/hosts`, DNS), in their order, so that it is the same one each time.
fn addresses_of(text: &str) -> Result<Vec<SocketAddr>, String> {
    let wrong = match address_of(text) {
        Ok(address) => return Ok(vec![address]),
        Err(wrong) => wrong,
    };
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok().filter(|&port| port != 0)),
        None => (text, Some(PORT)),
    };
    let letter = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    // What has no letter is an address that is wrong.
    let is_name = name.contains(|c: char| c.is_ascii_alphabetic()) && name.chars().all(letter);
    let Some(port) = port.filter(|_| is_name) else { return Err(wrong) };
    let found = (name, port).to_socket_addrs();
    let found = found.map_err(|error| format!("\"{name}\" has no address: {error}"))?;
    let usable = |address: &SocketAddr| {
        let ip = address.ip();
        !ip.is_unspecified() && !ip.is_multicast()
    };
    let mut found: Vec<SocketAddr> = found.filter(usable).collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() { Err(format!("\"{name}\" has no address")) } else { Ok(found) }
}

/// What [`FabricConfig::in_place`] may be: from what does not lie in the front of a frame, which is
/// copied, to any frame.
const SHORTEST: std::ops::RangeInclusive<u32> = 256..=LONGEST as u32;

/// A number of bytes, or `"off"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawInPlace {
    Bytes(u32),
    Word(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFabric {
    listen: Spanned<String>,
    provider: Option<Spanned<String>>,
    secret: Option<Spanned<PathBuf>>,
    keys: Option<Vec<u32>>,
    macs: Option<Spanned<u32>>,
    in_place: Option<Spanned<RawInPlace>>,
    hosts: Spanned<BTreeMap<String, Spanned<String>>>,
}

impl Reader<'_> {
    pub(super) fn fabric(&self, raw: &RawFabric) -> Result<FabricConfig, ConfigError> {
        let address = |text: &Spanned<String>, key: &str| {
            address_of(text.get_ref()).map_err(|problem| self.wrong(text.span(), key, problem))
        };
        let listen = address(&raw.listen, "fabric.listen")?;
        let mut hosts = Vec::new();
        for (name, text) in raw.hosts.get_ref() {
            let key = format!("fabric.hosts.{name}");
            check_name(name).map_err(|problem| self.wrong(text.span(), &key, problem))?;
            let host = HostConfig::new(name, text.get_ref());
            hosts.push(host.map_err(|problem| self.wrong(text.span(), &key, problem))?);
        }
        let mut fabric = FabricConfig::new(listen, hosts)
            .map_err(|problem| self.wrong(raw.hosts.span(), "fabric.hosts", problem))?;
        if let Some(text) = &raw.provider {
            fabric.provider = Provider::parse(text.get_ref())
                .map_err(|problem| self.wrong(text.span(), "fabric.provider", problem))?;
        }
        if let Some(path) = &raw.secret {
            let wrong = |problem| {
                let key = format!("fabric.secret: {}", path.get_ref().display());
                self.wrong(path.span(), key, problem)
            };
            fabric.secret = Some(Secret::load(path.get_ref()).map_err(wrong)?);
        }
        let macs = 1..=MAX_MACS;
        fabric.macs = self.number(raw.macs.as_ref(), MACS, macs, "fabric.macs", "addresses")?;
        fabric.keys.clone_from(&raw.keys);
        if let Some(in_place) = &raw.in_place {
            fabric.in_place = match in_place.get_ref() {
                RawInPlace::Bytes(bytes) if SHORTEST.contains(bytes) => Some(*bytes),
                RawInPlace::Word(word) if word == "off" => None,
                _ => {
                    let (least, most) = (SHORTEST.start(), SHORTEST.end());
                    let problem = format!("must be {least} to {most} bytes, or \"off\"");
                    return Err(self.wrong(in_place.span(), "fabric.in_place", problem));
                }
            };
        }
        Ok(fabric)
    }
}
