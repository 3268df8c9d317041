//! `ginnel service status`.

use super::dropin;
use super::systemd::{self, Manager, Unit};
use crate::args::service::Status;
use crate::status::{json, print};
use crate::{run, table};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// What `ginnel service status` says of one.
#[derive(serde::Serialize)]
struct State {
    unit: String,
    enabled: bool,
    state: String,
    processes: usize,
    with_library: usize,
}

pub(super) fn status(args: &Status) -> Result<()> {
    let manager = Manager { user: args.user };
    let units = if args.units.is_empty() { dropin::all(manager)? } else { args.units.clone() };
    let library = run::shim().unwrap_or_default();
    let library = library.canonicalize().unwrap_or(library);
    let mut states = Vec::new();
    for name in units {
        let unit = manager.show(&name)?;
        if !args.units.is_empty() {
            unit.must_be_there()?;
        }
        // By either name: what was said may have become an alias since.
        let mut enabled = dropin::is_there(&dropin::place(manager, &unit.name)?)?;
        enabled |= dropin::is_there(&dropin::place(manager, &systemd::full_name(&name)?)?)?;
        let (processes, with_library) = processes(&unit, &library);
        let state = unit.get("ActiveState").to_owned();
        states.push(State { unit: unit.name, enabled, state, processes, with_library });
    }
    if args.json {
        return json(&states);
    }
    if states.is_empty() {
        return print("No service is switched on. Start: ginnel service enable UNIT\n");
    }
    states.iter().try_for_each(|state| print(&line(state)))
}

fn line(state: &State) -> String {
    let word = if state.enabled { "on" } else { "off" };
    let runs = if state.processes == 0 {
        String::new()
    } else {
        format!(
            ", {} of {} with the library",
            state.with_library,
            count(state.processes, "process", "processes")
        )
    };
    let anew = match (state.enabled, state.with_library, state.processes) {
        (true, 0, 1..) => "; it was not started anew since",
        (false, 1.., _) => "; it goes on with it until it is started anew",
        _ => "",
    };
    table::clean(&format!("{}: {word}, {}{runs}{anew}", state.unit, state.state)) + "\n"
}

pub(super) fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// How many processes a service has, and how many of them have the library among their maps. Of
/// another user's nobody but root is told the latter.
pub(super) fn processes(unit: &Unit, library: &Path) -> (usize, usize) {
    let group = unit.get("ControlGroup");
    if group.len() < 2 {
        return (0, 0);
    }
    let within = |path: &Path| {
        let text = fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| path == group)
    };
    let name = library.to_string_lossy();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let own: Vec<PathBuf> =
        entries.filter(|path| path.join("cgroup").exists() && within(path)).collect();
    let has = |path: &&PathBuf| {
        let maps = fs::read_to_string(path.join("maps")).unwrap_or_default();
        // An upgraded package's old file is gone, and in use still.
        maps.lines().any(|line| line.trim_end_matches(" (deleted)").ends_with(&*name))
    };
    (own.len(), own.iter().filter(has).count())
}
