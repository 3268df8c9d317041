//! `ginneld` on this machine: its configuration, its sockets, and whether anybody listens there.
//! None of the sockets is joined: that would take a slot.

use super::{Finding, allowed};
use crate::service::systemd;
use ginnel_host::config::{Config, DEFAULT_FILE};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CHECK: &str = "ginneld";

/// What there is of a daemon.
pub fn checks(file: Option<&Path>) -> Vec<Finding> {
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            return vec![Finding::wrong(CHECK, error.to_string(), "correct the configuration")];
        }
    };
    let named = file.is_some() || Path::new(DEFAULT_FILE).exists();
    if let Some(missing) = missing(&config, named) {
        let found = format!("not running: there is no {}", missing.display());
        // Where nothing was ever set up for virtual machines, nothing is missing.
        let finding = if named {
            Finding::wrong(CHECK, found, how_to_start())
        } else {
            Finding::none(CHECK, found)
        };
        return vec![finding];
    }
    let heard = listening();
    let both = |name: &String| [Some(segment(&config, name, &heard)), door(&config, name, &heard)];
    config.segments.keys().flat_map(both).flatten().collect()
}

/// The directory by whose absence a daemon is known not to run here. A broker has its socket
/// below `run_dir`, too, in containers as well: where nobody wrote a configuration, the directory
/// without a segment's in it tells of no daemon.
fn missing(config: &Config, named: bool) -> Option<PathBuf> {
    if !config.run_dir.exists() {
        return Some(config.run_dir.clone());
    }
    let places: Vec<PathBuf> =
        config.segments.keys().map(|name| config.run_dir.join(name)).collect();
    places.first().filter(|_| !named && !places.iter().any(|place| place.exists())).cloned()
}

/// In a container mostly no systemd runs, and `systemctl` does nothing.
fn how_to_start() -> &'static str {
    if systemd::runs() {
        "start it (systemctl start ginneld)"
    } else {
        "start it (`ginneld`; of a container, on its host)"
    }
}

/// Where programs of this host join.
fn door(config: &Config, name: &str, heard: &BTreeSet<PathBuf>) -> Option<Finding> {
    let segment = config.segments.get(name)?;
    heard.get(&config.socket(name, 0))?;
    Some(if segment.processes == 0 {
        Finding::none(
            CHECK,
            format!(
                "segment {name}: programs of the host do not join (segment.{name}.host.processes)"
            ),
        )
    } else if segment.host.admits(rustix::process::geteuid().as_raw(), &groups()) {
        Finding::ok(
            CHECK,
            format!("segment {name}: this user's programs join with `ginnel run --segment {name}`"),
        )
    } else {
        Finding::none(
            CHECK,
            format!(
                "segment {name}: this user's programs may not join (segment.{name}.host.users, .groups)"
            ),
        )
    })
}

fn groups() -> Vec<u32> {
    let others = rustix::process::getgroups().unwrap_or_default();
    others.into_iter().chain([rustix::process::getegid()]).map(|gid| gid.as_raw()).collect()
}

/// Paths of unix sockets on which somebody listens (`/proc/net/unix`: flag `SO_ACCEPTCON`).
fn listening() -> BTreeSet<PathBuf> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let lines = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(3) == Some(&"00010000")).then(|| fields.get(7).map(PathBuf::from)).flatten()
    });
    lines.collect()
}

fn segment(config: &Config, name: &str, heard: &BTreeSet<PathBuf>) -> Finding {
    let slots = config.segments.get(name).map_or(0, |segment| segment.machines);
    let sockets: Vec<PathBuf> = (1..=slots).map(|slot| config.socket(name, slot)).collect();
    let heard = |path: &PathBuf| {
        heard.contains(path) || fs::canonicalize(path).is_ok_and(|path| heard.contains(&path))
    };
    let deaf = sockets.iter().filter(|path| !heard(path)).count();
    let directory = config.run_dir.join(name);
    if deaf == sockets.len() {
        return if directory.exists() && !allowed(&directory, libc::X_OK) {
            Finding::wrong(
                CHECK,
                format!("segment {name}: {} may not be entered", directory.display()),
                "ask as root, or as one who may join",
            )
        } else {
            Finding::wrong(
                CHECK,
                format!("segment {name}: nobody listens in {}", directory.display()),
                how_to_start(),
            )
        };
    }
    if deaf != 0 {
        let found = format!("segment {name}: nobody listens at {deaf} of {slots} slots");
        return Finding::wrong(CHECK, found, "restart it: its configuration was changed");
    }
    Finding::ok(
        CHECK,
        format!("serves segment {name} with {slots} slots in {}", directory.display()),
    )
}
