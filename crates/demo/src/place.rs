//! Where servers and clients run: two network namespaces with a bridge between them in a third, or
//! loopback.
//!
//! ```text
//!  ginnel-demo-PID-a         ginnel-demo-PID-sw         ginnel-demo-PID-b
//!  servers                   bridge br0                 clients
//!  eth0 10.77.N.1  ──veth──  port-a    port-b ──veth──  eth0 10.77.N.2
//! ```
//!
//! Nothing in the host's own namespace is touched, and no packet can leave the three.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tools;
use crate::undo;

const PREFIX: &str = "ginnel-demo-";

/// Where a pair's two ends run.
#[derive(Debug)]
pub enum Place {
    /// Both in the namespace that this program was started in.
    Loopback,
    /// Each in a namespace of its own.
    Namespaces(Namespaces),
}

/// Three namespaces, removed when dropped.
#[derive(Debug)]
pub struct Namespaces {
    name: String,
    /// Two demos at once may share Ginnel's segment, which is one address space: each has a subnet
    /// of its own.
    subnet: u8,
    _guards: Vec<undo::Guard>,
}

/// One end of a pair.
#[derive(Debug, Clone, Copy)]
pub enum Side {
    /// The end that listens.
    Server,
    /// The end that connects.
    Client,
}

impl Place {
    /// Namespaces where they can be made, else loopback, with a sentence that says why.
    pub fn choose(loopback: bool) -> Result<(Self, Option<String>)> {
        if loopback {
            return Ok((Self::Loopback, None));
        }
        if !rustix::process::geteuid().is_root() {
            return Ok((
                Self::Loopback,
                Some(
                    "Not root, so no network namespaces: servers and clients run over loopback. \
                 For the shape of two machines: sudo env \"PATH=$PATH\" make demo"
                        .to_owned(),
                ),
            ));
        }
        match Namespaces::create() {
            Ok(namespaces) => Ok((Self::Namespaces(namespaces), None)),
            Err(error) => {
                crate::interrupt::check()?;
                Ok((
                    Self::Loopback,
                    Some(format!(
                        "Network namespaces cannot be made here ({error:#}): servers and clients run over loopback."
                    )),
                ))
            }
        }
    }

    /// The word that stands in the results.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Namespaces(_) => "namespaces",
        }
    }

    /// For the reader.
    pub fn describe(&self) -> String {
        match self {
            Self::Loopback => "Servers and clients over the loopback interface".to_owned(),
            Self::Namespaces(spaces) => {
                format!(
                    "Servers in the network namespace {0}-a, clients in {0}-b, a bridge between them in {0}-sw",
                    spaces.name
                )
            }
        }
    }

    /// The address that servers listen on.
    pub fn address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Namespaces(spaces) => Ipv4Addr::new(10, 77, spaces.subnet, 1),
        }
    }

    /// The command that enters the place, to be put before another; it is replaced by that other
    /// one.
    pub fn enter(&self, side: Side) -> Vec<String> {
        match self {
            Self::Loopback => Vec::new(),
            Self::Namespaces(spaces) => {
                let end = match side {
                    Side::Server => "a",
                    Side::Client => "b",
                };
                ["ip", "netns", "exec"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([format!("{}-{end}", spaces.name)])
                    .collect()
            }
        }
    }
}

impl Namespaces {
    fn create() -> Result<Self> {
        let pid = std::process::id();
        let name = format!("{PREFIX}{pid}");
        let subnet = u8::try_from(pid % 250).unwrap_or(0);
        let mut guards = Vec::new();
        for end in ["a", "b", "sw"] {
            let space = format!("{name}-{end}");
            // One of that name is of an earlier process with our number.
            remove_namespace(&space);
            let gone = space.clone();
            guards.push(undo::enter(move || remove_namespace(&gone)));
            ip(&format!("netns add {space}"))?;
        }
        ip(&format!("-n {name}-sw link add br0 type bridge"))?;
        ip(&format!("-n {name}-sw link set dev br0 up"))?;
        for (end, host) in [("a", 1), ("b", 2)] {
            let (here, switch) = (format!("-n {name}-{end}"), format!("{name}-sw"));
            ip(&format!("{here} link add eth0 type veth peer name port-{end} netns {switch}"))?;
            ip(&format!("-n {switch} link set dev port-{end} master br0 up"))?;
            ip(&format!("{here} addr add 10.77.{subnet}.{host}/24 dev eth0"))?;
            ip(&format!("{here} link set dev eth0 up"))?;
            ip(&format!("{here} link set dev lo up"))?;
        }
        Ok(Self { name, subnet, _guards: guards })
    }
}

/// Runs `ip` with these arguments, none of which holds a space.
fn ip(arguments: &str) -> Result<()> {
    let command: Vec<&str> = ["ip"].into_iter().chain(arguments.split(' ')).collect();
    tools::output(20, &command).with_context(|| command.join(" ")).map(drop)
}

/// Removes a namespace, if it is there; its devices go with it.
pub fn remove_namespace(name: &str) {
    if !Path::new("/run/netns").join(name).exists() {
        return;
    }
    if let Err(error) = ip(&format!("netns del {name}")) {
        eprintln!("could not remove the network namespace {name}: {error:#}");
    }
}

/// Removes namespaces of an earlier demo that was killed outright (`kill -9`), and could not do so
/// itself.
pub fn sweep() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let dead = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
        if maker(&name).is_some_and(dead) {
            remove_namespace(&name);
        }
    }
}

/// The process that made a namespace of this name, if the name is one of ours.
fn maker(name: &str) -> Option<u32> {
    let (pid, end) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    ["a", "b", "sw"].contains(&end).then(|| pid.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_namespaces_are_swept() {
        assert_eq!(maker("ginnel-demo-4711-sw"), Some(4711));
        for other in
            ["ginnel-demo-4711", "ginnel-demo-x-a", "ginnel-demo-4711-c", "ginnel-4711-a", "blue"]
        {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
