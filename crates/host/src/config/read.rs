//! The file as TOML has it, and how it becomes a [`Config`]: every value with its place, for saying
//! where something is wrong.

use super::{Backing, BrokerConfig, Config, ConfigError, Joiners, MAX_KEPT, SegmentConfig};
use crate::users;
use ginnel_tcp::policy::Policy;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    run_dir: Option<Spanned<PathBuf>>,
    status: Option<Spanned<String>>,
    #[serde(default)]
    segment: BTreeMap<Spanned<String>, RawSegment>,
    #[serde(default)]
    broker: RawBroker,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawBroker {
    memory: Option<Spanned<Size>>,
    pairs: Option<Spanned<u16>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawSegment {
    size: Option<Spanned<Size>>,
    slots: Option<Spanned<u16>>,
    vectors: Option<Spanned<u16>>,
    memory: Option<Spanned<Backing>>,
    users: Option<Vec<Spanned<Name>>>,
    groups: Option<Vec<Spanned<Name>>>,
    #[serde(default)]
    slot: BTreeMap<Spanned<String>, RawJoiners>,
    #[serde(default)]
    host: RawHost,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawJoiners {
    users: Option<Vec<Spanned<Name>>>,
    groups: Option<Vec<Spanned<Name>>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawHost {
    users: Option<Vec<Spanned<Name>>>,
    groups: Option<Vec<Spanned<Name>>>,
    processes: Option<Spanned<u16>>,
    trust: Option<Vec<Spanned<String>>>,
}

/// Bytes, or text like "1G".
#[derive(Deserialize)]
#[serde(untagged, expecting = "a size like \"256M\" or \"1G\", or a number of bytes")]
enum Size {
    Bytes(u64),
    Text(String),
}

/// A user or a group: its number or its name.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a name or a number")]
enum Name {
    Id(u32),
    Text(String),
}

/// The text, for saying where something is wrong in it.
pub(super) struct Reader<'a> {
    pub text: &'a str,
    pub file: &'a Path,
    /// Where the sockets are if the file does not say it.
    pub run_dir: PathBuf,
}

impl Reader<'_> {
    /// The configuration.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut raw: Raw = toml::from_str(self.text).map_err(|error| self.syntax(&error))?;
        if raw.segment.is_empty() {
            raw.segment.insert(Spanned::new(0..0, "default".into()), RawSegment::default());
        }
        let run_dir = match raw.run_dir {
            Some(path) if !path.get_ref().is_absolute() => {
                return Err(self.wrong(
                    path.span(),
                    "run_dir",
                    "must be an absolute path, like \"/run/ginnel\"",
                ));
            }
            Some(path) => path.into_inner(),
            None => self.run_dir.clone(),
        };
        let mut segments = BTreeMap::new();
        for (name, segment) in raw.segment {
            self.segment_name(&name)?;
            let config = self.segment(name.get_ref(), segment)?;
            segments.insert(name.into_inner(), config);
        }
        let kept: usize = segments
            .values()
            .map(|one| 1 + usize::from(one.machines + 1) * usize::from(one.vectors + 2))
            .sum();
        if kept > MAX_KEPT {
            let problem = format!(
                "all segments together need {kept} descriptors, at most {MAX_KEPT} can be handed to the next instance; \
                 take fewer slots or vectors, or serve some segments by a second ginneld with another run_dir"
            );
            return Err(ConfigError {
                file: self.file.to_owned(),
                line: None,
                key: "segment".into(),
                problem,
            });
        }
        Ok(Config {
            run_dir,
            status: self.status(raw.status)?,
            segments,
            broker: self.broker(raw.broker)?,
        })
    }

    fn broker(&self, raw: RawBroker) -> Result<BrokerConfig, ConfigError> {
        let mut config = BrokerConfig::default();
        if let Some(memory) = raw.memory {
            let span = memory.span();
            config.memory = self
                .size(memory.into_inner(), Backing::Memfd)
                .map_err(|problem| self.wrong(span, "broker.memory", problem))?;
        }
        if let Some(pairs) = raw.pairs {
            config.pairs = usize::from(pairs.into_inner());
        }
        Ok(config)
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|&byte| byte == b'\n').count()
    }

    fn wrong(
        &self,
        at: Range<usize>,
        key: impl Into<String>,
        problem: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            file: self.file.to_owned(),
            line: Some(self.line(at.start)),
            key: key.into(),
            problem: problem.into(),
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let line = error.span().map(|span| self.line(span.start));
        let shown = line
            .and_then(|line| self.text.lines().nth(line - 1))
            .map(str::trim)
            .unwrap_or_default();
        let key = if shown.is_empty() { String::new() } else { format!("`{shown}`") };
        let problem = format!(
            "{}; docs/ginneld.md lists the keys",
            error.message().trim().replace('\n', ", ")
        );
        ConfigError { file: self.file.to_owned(), line, key, problem }
    }

    fn status(&self, raw: Option<Spanned<String>>) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(raw) = raw else { return Ok(Some(SocketAddr::from(([127, 0, 0, 1], 9190)))) };
        let wrong = |problem: &str| Err(self.wrong(raw.span(), "status", problem));
        match (raw.get_ref().as_str(), raw.get_ref().parse::<SocketAddr>()) {
            ("off", _) => Ok(None),
            (_, Ok(address)) if address.ip().is_loopback() => Ok(Some(address)),
            (_, Ok(_)) => wrong(
                "must be a loopback address: the page shows process ids and asks nobody who he is; put a proxy before it",
            ),
            (_, Err(_)) => wrong(
                "must be an address and a port, like \"127.0.0.1:9190\" or \"[::1]:9190\", or \"off\"",
            ),
        }
    }

    fn segment_name(&self, name: &Spanned<String>) -> Result<(), ConfigError> {
        let text = name.get_ref();
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !text.is_empty() && text.len() <= 32 && text.chars().all(good) {
            return Ok(());
        }
        Err(self.wrong(
            name.span(),
            format!("segment.{text}"),
            "a name has 1 to 32 letters, digits, '_' and '-'",
        ))
    }

    fn segment(&self, name: &str, raw: RawSegment) -> Result<SegmentConfig, ConfigError> {
        let key = |rest: &str| format!("segment.{name}.{rest}");
        let memory = raw.memory.map_or(Backing::Memfd, Spanned::into_inner);
        let size = match raw.size {
            None => 1 << 30,
            Some(size) => {
                let span = size.span();
                self.size(size.into_inner(), memory)
                    .map_err(|problem| self.wrong(span, key("size"), problem))?
            }
        };
        let number = |value: Option<Spanned<u16>>,
                      default: u16,
                      most: u16,
                      what: &str,
                      rest: &str| match value {
            None => Ok(default),
            Some(value) if (1..=most).contains(value.get_ref()) => Ok(value.into_inner()),
            Some(value) => {
                Err(self.wrong(value.span(), key(rest), format!("must be 1 to {most}: {what}")))
            }
        };
        let machines =
            number(raw.slots, 8, ginnel_region::MAX_PEER, "one for each virtual machine", "slots")?;
        let vectors = number(
            raw.vectors,
            4,
            256,
            "interrupts of each machine; QEMU's doorbell knows no more",
            "vectors",
        )?;
        let own = Joiners { users: vec![0, rustix::process::geteuid().as_raw()], groups: vec![] };
        let joiners = self.joiners(raw.users, raw.groups, &own, &key(""))?;
        let slots = self.slots(raw.slot, machines, &own, &key(""))?;
        let processes = raw.host.processes.map_or(16, Spanned::into_inner);
        let host = self.joiners(raw.host.users, raw.host.groups, &own, &key("host."))?;
        let trust = self.trust(raw.host.trust.unwrap_or_default(), &key("host.trust"))?;
        Ok(SegmentConfig {
            size,
            machines,
            vectors,
            memory,
            joiners,
            slots,
            host,
            processes,
            trust,
        })
    }

    /// Who may be in which slot. `of`: what stands before the keys of their segment.
    fn slots(
        &self,
        rules: BTreeMap<Spanned<String>, RawJoiners>,
        machines: u16,
        own: &Joiners,
        of: &str,
    ) -> Result<BTreeMap<u16, Joiners>, ConfigError> {
        let mut slots = BTreeMap::new();
        for (number, rule) in rules {
            let place = format!("{of}slot.{}", number.get_ref());
            match number.get_ref().parse::<u16>() {
                Ok(slot) if (1..=machines).contains(&slot) => {
                    let place = format!("{place}.");
                    slots.insert(slot, self.joiners(rule.users, rule.groups, own, &place)?);
                }
                _ => {
                    let why = format!(
                        "there are slots 1 to {machines}; raise `slots` or choose one of these"
                    );
                    return Err(self.wrong(number.span(), place, why));
                }
            }
        }
        Ok(slots)
    }

    fn trust(
        &self,
        addresses: Vec<Spanned<String>>,
        key: &str,
    ) -> Result<Vec<String>, ConfigError> {
        let one = |address: Spanned<String>| {
            let rule = format!("trust address {}", address.get_ref());
            // One address, and nothing behind it that would be a rule of its own.
            let plain =
                address.get_ref().chars().all(|c| c.is_ascii_hexdigit() || ".:/".contains(c));
            match Policy::parse(&rule) {
                Ok(_) if plain => Ok(address.into_inner()),
                Ok(_) => Err(self.wrong(
                    address.span(),
                    key,
                    "must be addresses or networks, like \"10.0.0.7\"",
                )),
                Err(error) => Err(self.wrong(address.span(), key, error.to_string())),
            }
        };
        addresses.into_iter().map(one).collect()
    }

    fn size(&self, raw: Size, memory: Backing) -> Result<u64, String> {
        let bytes = match raw {
            Size::Bytes(bytes) => bytes,
            Size::Text(text) => ginnel_region::parse_size(&text)
                .ok_or("must be a number with K, M, G or T (powers of 1024), like \"256M\"")?,
        };
        if !bytes.is_power_of_two() || !(16 << 20..=1 << 40).contains(&bytes) {
            let near =
                bytes.checked_next_power_of_two().unwrap_or(1 << 40).clamp(16 << 20, 1 << 40);
            return Err(format!(
                "must be a power of two from 16M to 1T, as it is a PCI device's memory: \"{}M\" is the next",
                near >> 20
            ));
        }
        match memory.huge_page() {
            Some(page) if bytes < page => {
                Err("is less than one huge page; take a larger size, or other memory".into())
            }
            _ => Ok(bytes),
        }
    }

    fn joiners(
        &self,
        users: Option<Vec<Spanned<Name>>>,
        groups: Option<Vec<Spanned<Name>>>,
        default: &Joiners,
        key: &str,
    ) -> Result<Joiners, ConfigError> {
        if users.is_none() && groups.is_none() {
            return Ok(default.clone());
        }
        let ids = |names: Option<Vec<Spanned<Name>>>, kind: &str, find: fn(&str) -> Option<u32>| {
            let one = |name: Spanned<Name>| {
                match name.get_ref() {
                Name::Id(id) => Ok(*id),
                Name::Text(text) => find(text).ok_or_else(|| {
                    let problem =
                        format!("there is no {kind} \"{text}\" on this host; create it, write its number, or take it out");
                    self.wrong(name.span(), format!("{key}{kind}s"), problem)
                }),
            }
            };
            names.unwrap_or_default().into_iter().map(one).collect::<Result<Vec<u32>, _>>()
        };
        Ok(Joiners {
            users: ids(users, "user", users::user)?,
            groups: ids(groups, "group", users::group)?,
        })
    }
}
