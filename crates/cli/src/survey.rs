//! Reads a user's ledger and segments; in one's own, frees what the dead left first.

mod connection;
mod paths;

use crate::report::{Directory, Member, Process, Segment};
use crate::served;
use connection::word;
use ginnel_node::join;
use ginnel_node::processes::{self, PROCESS_TABLE, ProcessFlags, Processes};
use ginnel_node::settings::Settings as NodeSettings;
use ginnel_node::wake::directory::{member_is_shown, wake_directory};
use ginnel_region::device::Source;
use ginnel_region::sys::{self, Fd};
use ginnel_region::{Error, Segment as Region};
use ginnel_tcp::attach::{Attachment, LIBRARY, Tables};
use ginnel_tcp::ledger::LEDGER;
use ginnel_tcp::settings::Settings;
use ginnel_tcp::{Reason, reclaim};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Owners that died are known for dead for sure after this (`ginnel_tcp::reclaim`).
const GRACE: Duration = Duration::from_millis(1050);
/// And those of another pid namespace after this, for what they hold to be freed.
const MOST_PATIENCE: Duration = Duration::from_millis(processes::PATIENCE + 1100);

/// What tells two files of one name apart.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let meta = path.metadata().ok()?;
    Some((meta.dev(), meta.ino()))
}

/// A directory that is looked at, once or again and again: maps are kept from one look to the next.
pub struct Survey {
    directory: PathBuf,
    /// May it be written to? Only one's own: files made in somebody else's would be in their way.
    own: bool,
    tables: Option<([Identity; 2], Tables)>,
    regions: HashMap<PathBuf, (Identity, Result<Region, Error>)>,
    attachments: HashMap<PathBuf, (Identity, Attachment)>,
    /// Segments that lie in other directories.
    elsewhere: BTreeSet<PathBuf>,
}

impl Survey {
    /// Of a directory that may not be there.
    pub fn new(directory: PathBuf) -> Self {
        let own = directory
            .metadata()
            .is_ok_and(|meta| meta.uid() == ginnel_region::sys::effective_ids().0);
        Self {
            directory,
            own,
            tables: None,
            regions: HashMap::new(),
            attachments: HashMap::new(),
            elsewhere: BTreeSet::new(),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Looks at the segments of `ginneld` too, whether anybody uses them or not.
    pub fn with_served(mut self) -> Self {
        self.elsewhere.extend(served::all().into_iter().map(|(_, socket)| socket));
        self
    }

    /// What is there now. `patient`: waits a second where something died just now, so that its
    /// memory is freed too.
    pub fn look(&mut self, patient: bool) -> Directory {
        let mut seen =
            Directory { directory: self.directory.display().to_string(), ..Directory::default() };
        if let Err(error) = self.open_tables() {
            seen.error = Some(error);
        }
        let paths = self.segment_paths();
        if self.tables.is_some() && self.own {
            self.reclaim(&paths, patient);
        } else if let Some((_, tables)) = self.tables.as_ref().filter(|_| patient) {
            settle(&tables.processes);
        }
        seen.segments = paths.iter().filter_map(|path| self.segment(path)).collect();
        if let Some((_, tables)) = &self.tables {
            let names: HashMap<u64, String> = seen
                .segments
                .iter()
                .filter(|segment| segment.id != 0)
                .map(|segment| (segment.id, segment.name.clone()))
                .collect();
            let processes = described(&tables.processes, &names);
            seen.connections = self.connections(&tables.ledger, &processes, &names);
            seen.processes = processes
                .into_values()
                .filter(|process| process.attached || process.reason.is_some())
                .collect();
            seen.processes.sort_by_key(|process| process.pid);
            seen.connections.sort_by_cached_key(|connection| {
                let pid = connection.processes.iter().map(|holder| holder.pid).min();
                (pid, connection.local.clone(), connection.remote.clone(), connection.cookie)
            });
        }
        seen
    }

    fn open_tables(&mut self) -> Result<(), String> {
        let mut now = [(0, 0); 2];
        for (place, name) in now.iter_mut().zip([LEDGER, PROCESS_TABLE]) {
            let path = self.directory.join(name);
            match path.metadata() {
                Ok(meta) => *place = (meta.dev(), meta.ino()),
                Err(error) => {
                    self.tables = None;
                    let absent = error.kind() == std::io::ErrorKind::NotFound;
                    return if absent {
                        Ok(())
                    } else {
                        Err(format!("{}: {error}", path.display()))
                    };
                }
            }
        }
        if self.tables.as_ref().is_some_and(|(known, _)| *known == now) {
            return Ok(());
        }
        self.tables = None;
        let tables = Tables::open(&self.directory, false)
            .map_err(|(path, error)| table_error(&path, &error))?;
        self.tables = Some((now, tables));
        Ok(())
    }

    fn region(&mut self, path: &Path) -> Option<&Result<Region, Error>> {
        let now = identity(path)?;
        if self.regions.get(path).is_none_or(|(known, _)| *known != now) {
            self.regions.insert(path.to_owned(), (now, join::look(path)));
        }
        self.regions.get(path).map(|(_, region)| region)
    }

    fn segment(&mut self, path: &Path) -> Option<Segment> {
        let meta = path.metadata().ok()?;
        let in_directory = path.parent() == Some(&self.directory);
        let name = path.file_name().filter(|_| in_directory).unwrap_or(path.as_os_str());
        let mut segment = Segment {
            name: name.to_string_lossy().into_owned(),
            path: path.display().to_string(),
            size: meta.len(),
            mode: format!("{:o}", meta.mode() & 0o777),
            ..Segment::default()
        };
        match self.region(path)? {
            Ok(region) => {
                let (free, all) = region.page_counts();
                segment.size = region.len();
                segment.id = region.id();
                segment.pages = Some(all);
                segment.free_pages = Some(free);
                segment.free_extents = Some(free);
                segment.tokens_only = Some(region.tokens_only());
                segment.objects = region.names().entries().collect();
            }
            Err(error) => segment.error = Some(error.to_string()),
        }
        segment.detached = self
            .tables
            .as_ref()
            .is_some_and(|(_, tables)| tables.processes.is_detached(segment.id));
        if let Some((_, attachment)) = self.attachments.get(path) {
            segment.members = members(attachment);
        } else if let Some((_, Ok(region))) =
            self.regions.get(path).filter(|(_, region)| region.is_ok())
        {
            let own = self
                .tables
                .as_ref()
                .and_then(|(_, tables)| tables.processes.seen_as(region.id(), LIBRARY));
            segment.members = members_by_locks(region, &wake_directory(&self.directory, path), own);
        }
        Some(segment)
    }

    fn reclaim(&mut self, paths: &[PathBuf], patient: bool) {
        for path in paths {
            self.attach(path);
        }
        self.attachments.retain(|path, (known, _)| identity(path) == Some(*known));
        let until = Instant::now() + MOST_PATIENCE;
        loop {
            let mut dying = false;
            for (_, attachment) in self.attachments.values() {
                reclaim::reclaim(attachment);
                dying |= attachment.ledger.slots().any(|slot| slot.dead_since.load(Relaxed) != 0);
                dying |= attachment.node.processes.is_in_doubt();
            }
            if !dying || !patient || Instant::now() >= until {
                return;
            }
            std::thread::sleep(GRACE);
        }
    }

    /// Attaches to a segment that programs have used: only there is anything to free.
    fn attach(&mut self, path: &Path) {
        let Some(now) = identity(path) else {
            self.attachments.remove(path);
            return;
        };
        let known = self.attachments.get(path).is_some_and(|(known, _)| *known == now);
        if known
            || !wake_directory(&self.directory, path).is_dir()
            || !matches!(self.region(path), Some(Ok(_)))
        {
            return;
        }
        let given = Settings::from_environment();
        let node = NodeSettings {
            directory: self.directory.clone(),
            segment: path.to_owned(),
            ..given.node.clone()
        };
        let settings = Settings { node, chaos: None, ..given };
        if let Ok(attachment) = Attachment::new(settings, |_, _| {}) {
            // This process looks on; it is no user of the segment.
            attachment.node.processes.process(attachment.node.me()).segment.store(0, Relaxed);
            self.attachments.insert(path.to_owned(), (now, attachment));
        }
    }
}

/// Processes that live, by their entry's number.
fn described(processes: &Processes, names: &HashMap<u64, String>) -> BTreeMap<u32, Process> {
    let own = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
    let describe = |process: &processes::Process| {
        let io_uring = process.flags.load(Relaxed) & ProcessFlags::IoUring as u32 != 0;
        let reason = match Reason::of(process.reason.load(Relaxed)) {
            Reason::None if io_uring => Reason::IoUring,
            reason => reason,
        };
        let segment = process.segment.load(Relaxed);
        Process {
            pid: process.pid.load(Relaxed),
            name: process.name(),
            segment: names.get(&segment).cloned(),
            io_uring,
            other_pid_namespace: process.namespace.load(Relaxed) != own,
            reason: (reason != Reason::None).then(|| word(reason)),
            explanation: (reason != Reason::None).then(|| reason.to_string()),
            attached: segment != 0,
        }
    };
    processes
        .living()
        .map(|(index, process)| (index, describe(process)))
        .filter(|(_, process)| process.pid != std::process::id())
        .collect()
}

/// Waits until it is known which of a table's processes live: of those in other pid namespaces that
/// takes a while.
pub fn settle(processes: &Processes) {
    if processes.living().count() != 0 && processes.is_in_doubt() {
        std::thread::sleep(Duration::from_millis(processes::PATIENCE + 10));
    }
}

fn members(attachment: &Attachment) -> Vec<Member> {
    let describe = |member| Member {
        member,
        own: member == attachment.node.joined().member,
        alive: attachment.node.member_lives(member),
    };
    entered(&attachment.node.joined().segment).map(describe).collect()
}

/// The members of a segment that is only looked at: one that nobody of this directory's list uses,
/// or of another user's directory. `own`: as which its list is there, if it is.
fn members_by_locks(region: &Region, wakes: &Path, own: Option<u16>) -> Vec<Member> {
    if region.source() != Source::File {
        return Vec::new();
    }
    let path = CString::new(wakes.as_os_str().as_bytes()).map_err(|_| libc::EINVAL);
    let dir = path
        .and_then(|path| sys::openat(libc::AT_FDCWD, &path, libc::O_DIRECTORY | libc::O_RDONLY, 0))
        .map(Fd);
    let shown = |member| {
        dir.as_ref().map_err(|errno| *errno).and_then(|dir| member_is_shown(dir.0, member))
    };
    let describe = |member| Member {
        member,
        own: own == Some(member),
        alive: shown(member).unwrap_or_else(|errno| errno != libc::ENOENT),
    };
    entered(region).map(describe).collect()
}

/// The numbers that ever were a member's.
fn entered(region: &Region) -> impl Iterator<Item = u16> {
    /// Bytes of a member's entry; a word other than 0 at its start: somebody's.
    const ENTRY: u64 = 64;
    let (offset, bytes) = region.members();
    (0..u16::try_from(bytes / ENTRY).unwrap_or(u16::MAX))
        .filter(move |member| region.word(offset + u64::from(*member) * ENTRY).load(Relaxed) != 0)
}

fn table_error(path: &Path, error: &Error) -> String {
    let path = path.display();
    match error {
        Error::Version { theirs, ours } => {
            format!(
                "{path} has layout version {theirs}, this Ginnel speaks {ours}; end the programs of the other version and delete the file"
            )
        }
        Error::Foreign | Error::Truncated { .. } => {
            format!(
                "{path} is no table of this version; end the programs under ginnel run and delete the file"
            )
        }
        other => format!("{path}: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_node::settings::DEFAULT_SEGMENT;

    #[test]
    fn an_empty_directory_is_an_empty_report() {
        let directory = tempfile::tempdir().expect("a directory");
        for path in [directory.path().to_owned(), directory.path().join("absent")] {
            let seen = Survey::new(path).look(true);
            assert!(
                seen.error.is_none()
                    && seen.segments.is_empty()
                    && seen.processes.is_empty()
                    && seen.connections.is_empty()
            );
        }
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("readable").count(),
            0,
            "looking leaves nothing behind"
        );
    }

    #[test]
    fn other_files_are_errors_not_failures() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(DEFAULT_SEGMENT), "x").expect("write");
        std::fs::write(directory.path().join("notes.txt"), "x").expect("write");
        std::fs::write(directory.path().join(LEDGER), vec![b'x'; 100]).expect("write");
        Processes::open_or_create(directory.path()).expect("a table");
        let seen = Survey::new(directory.path().to_owned()).look(true);
        assert!(seen.error.is_some_and(|error| error.contains("is no table of this version")));
        assert_eq!(
            seen.segments.len(),
            1,
            "files that no program takes for a segment are left out"
        );
        assert!(seen.segments.iter().all(|segment| segment.error.is_some()));
    }
}
