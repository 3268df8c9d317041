//! `ginnel detach` and `ginnel attach`: all programs leave a segment, and join it again.
//!
//! The request stands in the ledger of each user (`ginnel_tcp::ledger`); the programs' service
//! threads answer it. Here is only the asking and the waiting.

use crate::args::{Attach, Detach};
use crate::status::{directories, print};
use anyhow::{Context, Result, bail, ensure};
use ginnel_node::home::default_directory;
use ginnel_node::processes::{PROCESS_TABLE, Process, ProcessFlags};
use ginnel_node::settings::DEFAULT_SEGMENT;
use ginnel_node::waiter;
use ginnel_region::{Segment, device};
use ginnel_tcp::attach::Tables;
use ginnel_tcp::leave;
use ginnel_tcp::ledger::LEDGER;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The tables that may be written to: one's own; for root every user's, unless one directory is
/// named.
fn all_tables() -> Result<Vec<(PathBuf, Tables)>> {
    let everybody =
        ginnel_region::sys::effective_ids().0 == 0 && std::env::var_os("GINNEL_DIR").is_none();
    let all = if everybody { directories() } else { vec![default_directory()] };
    let mut found = Vec::new();
    for directory in all {
        let path = directory.join(LEDGER);
        let is_own = directory == default_directory();
        if std::fs::symlink_metadata(&path).is_err() {
            continue;
        }
        match open(&directory).with_context(|| path.display().to_string()) {
            Ok(tables) => found.push((directory, tables)),
            Err(error) if is_own => return Err(error),
            // Another user's nonsense stops nobody.
            Err(error) => eprintln!("ginnel: left out: {error:#}"),
        }
    }
    ensure!(!found.is_empty(), "nothing has run under ginnel yet");
    Ok(found)
}

/// Opens the tables in a directory, which must all be one user's.
fn open(directory: &Path) -> Result<Tables> {
    let place = std::fs::symlink_metadata(directory)?;
    for name in [LEDGER, PROCESS_TABLE] {
        let file = std::fs::symlink_metadata(directory.join(name))?;
        let is_own = file.is_file() && place.is_dir() && file.uid() == place.uid();
        ensure!(is_own, "{name} is no table of the directory's owner");
    }
    Tables::open(directory, true).map_err(|(_, error)| error.into())
}

/// The segment that is meant in a user's directory: as `ginnel run` finds it.
fn path(args: &Detach, directory: &Path) -> PathBuf {
    if let Some(name) = &args.segment {
        return name.path(directory);
    }
    match std::env::var_os("GINNEL_SEGMENT").map(PathBuf::from) {
        Some(path) if path.components().count() > 1 => path,
        Some(name) => directory.join(name),
        None => device::find().unwrap_or_else(|| directory.join(DEFAULT_SEGMENT)),
    }
}

/// One user's processes and the segment that they are to leave.
struct Place {
    directory: PathBuf,
    tables: Tables,
    segment: Segment,
}

impl Place {
    fn users(&self) -> impl Iterator<Item = (u32, &Process)> {
        let id = self.segment.id();
        self.tables.processes.living().filter(move |(_, process)| {
            process.segment.load(Relaxed) == id && process.pid.load(Relaxed) != std::process::id()
        })
    }

    /// How many connections of a process are in the segment.
    fn connections(&self, index: u32) -> usize {
        let held = |slot: &&ginnel_tcp::Slot| slot.held_by().any(|process| process == index);
        self.tables
            .ledger
            .slots()
            .filter(|slot| leave::is_in_segment(slot, self.segment.id()))
            .filter(held)
            .count()
    }

    /// Processes that have not answered. One without a service thread has nothing in the segment,
    /// unless it shares it with one that has such a thread.
    fn silent(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.users().filter(|(index, process)| {
            process.has(ProcessFlags::Serves) || self.connections(*index) != 0
        })
    }
}

/// Asks for a segment to be left, and waits.
pub fn detach(args: &Detach) -> Result<()> {
    let mut places = Vec::new();
    let mut failed = None;
    for (directory, tables) in all_tables()? {
        let path = path(args, &directory);
        match Segment::open(&path) {
            Ok(segment) => places.push(Place { directory, tables, segment }),
            Err(error) => failed = Some(format!("{}: {error}", path.display())),
        }
    }
    if let (true, Some(failed)) = (places.is_empty(), failed) {
        bail!(failed);
    }
    let (mut processes, mut connections) = (0, 0);
    for place in &places {
        let id = place.segment.id();
        connections +=
            place.tables.ledger.slots().filter(|slot| leave::is_in_segment(slot, id)).count();
        processes += place.users().count();
        ensure!(
            place.tables.processes.set_detached(id, true),
            "too many segments are detached; `ginnel attach` takes all back"
        );
        for (_, process) in place.users() {
            waiter::call(&place.directory, &place.segment, process.service.load(Relaxed));
        }
    }
    let end = Instant::now() + Duration::from_secs_f64(args.timeout);
    while places.iter().any(|place| place.silent().next().is_some()) {
        if Instant::now() > end {
            bail!(unanswered(&places, args.timeout));
        }
        std::thread::sleep(LOOK);
    }
    let ends = if connections == 1 { "end of a connection" } else { "ends of connections" };
    print(&format!(
        "Detached: {processes} process(es), {connections} {ends} back on TCP. `ginnel attach` takes it back.\n"
    ))
}

fn unanswered(places: &[Place], seconds: f64) -> String {
    let mut text = format!("not detached after {seconds} s; still in the segment:\n");
    for place in places {
        for (index, process) in place.silent() {
            let (pid, name, left) =
                (process.pid.load(Relaxed), process.name(), place.connections(index));
            text += &format!("  {pid} ({name}): {left} connection(s)\n");
        }
    }
    text + "It is stopped, or the other end is, or bytes wait that only its program can read. To unplug now would reset these connections. \
            The request stands: the same command waits again, `ginnel attach` takes it back"
}

/// Lets segments be joined again, and waits.
pub fn attach(args: &Attach) -> Result<()> {
    let all = all_tables()?;
    for (directory, tables) in &all {
        let ids = match &args.segment {
            None => tables.processes.detached(),
            Some(name) => {
                let path = name.path(directory);
                vec![
                    Segment::open(&path)
                        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?
                        .id(),
                ]
            }
        };
        for id in ids {
            let _ = tables.processes.set_detached(id, false);
        }
    }
    let away = || {
        let all = all.iter().flat_map(|(_, tables)| tables.processes.living());
        all.filter(|(_, process)| {
            process.has(ProcessFlags::Away) && process.pid.load(Relaxed) != std::process::id()
        })
    };
    let before = away().count();
    let end = Instant::now() + Duration::from_secs_f64(args.timeout);
    while away().next().is_some() {
        if Instant::now() > end {
            let named: Vec<String> = away()
                .map(|(_, process)| format!("{} ({})", process.pid.load(Relaxed), process.name()))
                .collect();
            bail!(
                "no segment to join after {} s for {}; they join as soon as there is one",
                args.timeout,
                named.join(", ")
            );
        }
        std::thread::sleep(LOOK);
    }
    print(&format!(
        "Attached: {before} process(es) joined again; connections move as they are used.\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_node::processes::Processes;
    use ginnel_tcp::ledger::Ledger;
    use std::os::unix::fs::{chown, symlink};

    /// What a stranger puts in a ledger's place under /dev/shm is left out, and not opened.
    #[test]
    fn a_strangers_file_is_no_ledger() {
        let place = tempfile::tempdir().expect("a directory");
        let (directory, path) = (place.path(), place.path().join(LEDGER));
        Ledger::open_or_create(directory).expect("made");
        Processes::open_or_create(directory).expect("made");
        assert!(open(directory).is_ok());
        if ginnel_region::sys::effective_ids().0 == 0 {
            chown(&path, Some(65534), None).expect("given");
            assert!(open(directory).is_err(), "another user's");
            chown(directory.join(PROCESS_TABLE), Some(65534), None).expect("given");
            chown(directory, Some(65534), None).expect("given");
            assert!(open(directory).is_ok());
        }
        std::fs::rename(&path, directory.join("elsewhere")).expect("moved");
        symlink(directory.join("elsewhere"), &path).expect("made");
        assert!(open(directory).is_err(), "a link");
    }
}
