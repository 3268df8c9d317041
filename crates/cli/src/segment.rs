//! `ginnel segment`: create, list, remove.

use crate::args::segment::{Create, List, Remove, SegmentCommand};
use crate::name::{SegmentName, is_wake_file};
use crate::served;
use crate::status::{json, print};
use crate::survey::{Survey, settle};
use crate::table;
use anyhow::{Context, Result, bail, ensure};
use ginnel_node::home::default_directory;
use ginnel_node::join::is_socket;
use ginnel_node::processes::Processes;
use ginnel_node::wake::directory::wake_directory;
use ginnel_region::device::Source;
use ginnel_region::{Config, Error, Segment, sys};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Runs one of them.
pub fn segment(command: &SegmentCommand) -> Result<()> {
    match command {
        SegmentCommand::Create(args) => create(args),
        SegmentCommand::List(args) => list(args),
        SegmentCommand::Remove(args) => remove(args),
    }
}

fn create(args: &Create) -> Result<()> {
    let directory = default_directory();
    if !args.name.is_path() {
        make_directory(&directory)?;
    }
    let path = args.name.path(&directory);
    ensure!(
        !is_socket(&path),
        "{}: names that end in '.sock' belong to ginneld; choose another",
        path.display()
    );
    let config = Config { size: args.size.0, mode: args.mode.0, tokens_only: args.tokens };
    let made = Segment::create(&path, &config);
    let (name, shown) = (args.name.as_str(), path.display());
    match made {
        Ok(_) => {}
        Err(Error::System { errno: libc::EEXIST, .. }) => {
            bail!(
                "segment {name} exists already ({shown}); remove it with `ginnel segment remove {name}` or choose another name"
            )
        }
        Err(Error::System { errno: libc::ENOENT, .. }) => {
            bail!("segment {name}: there is no directory for {shown}; create it first")
        }
        Err(error) => return Err(error).with_context(|| format!("segment {name} ({shown})")),
    }
    // What was asked for, whatever the umask.
    fs::set_permissions(&path, Permissions::from_mode(args.mode.0))
        .with_context(|| format!("permissions of {shown}"))?;
    print(&format!("Created segment {name}: {shown}\n"))?;
    match served::socket(name).filter(|_| !args.name.is_path()) {
        Some(_) => print(&format!(
            "ginneld serves a segment of that name, and `--segment {name}` means that one: name this by its path.\n"
        )),
        None => Ok(()),
    }
}

/// The user's directory. In a world-writable place somebody else may have been there first.
fn make_directory(directory: &Path) -> Result<()> {
    let shown = directory.display();
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot make {shown}; name another with GINNEL_DIR"));
        }
    }
    let meta = fs::metadata(directory).with_context(|| shown.to_string())?;
    let (me, _) = ginnel_region::sys::effective_ids();
    ensure!(meta.is_dir(), "{shown} is no directory; name another with GINNEL_DIR");
    ensure!(
        meta.uid() == me || me == 0,
        "{shown} belongs to user {}; name another directory with GINNEL_DIR",
        meta.uid()
    );
    Ok(())
}

fn list(args: &List) -> Result<()> {
    let mut survey = Survey::new(default_directory()).with_served();
    let segments = survey.look(false).segments;
    if args.json {
        return json(&segments);
    }
    if segments.is_empty() {
        return print(&format!(
            "No segment in {}. The first `ginnel run` makes one; `ginnel segment create NAME` makes others.\n",
            survey.directory().display()
        ));
    }
    print(&table::segments(&segments, table::width()))
}

fn remove(args: &Remove) -> Result<()> {
    let directory = default_directory();
    let file = args.name.path(&directory);
    if is_socket(&file) {
        bail!("{} is where ginneld serves a segment: it is not removed from here", file.display());
    }
    if Segment::open(&file).is_ok_and(|segment| segment.source() != Source::File) {
        bail!(
            "{} is the host's: ginneld there serves it, and no machine can remove it",
            file.display()
        );
    }
    let wakes = wake_directory(&directory, &file);
    let name = args.name.as_str();
    let meta = match fs::symlink_metadata(&file) {
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            return Err(error).with_context(|| format!("segment {name} ({})", file.display()));
        }
    };
    let has_wakes = fs::symlink_metadata(&wakes).is_ok_and(|meta| meta.is_dir());
    if meta.is_none() && !has_wakes {
        bail!(
            "there is no segment {name} ({}); `ginnel segment list` shows those that are",
            file.display()
        );
    }
    if meta.is_some() {
        check_kind(&args.name, &file, args.force)?;
    }
    let users = Users::of(&file, &wakes, &directory);
    if users.any() && !args.force {
        bail!(
            "segment {name} is in use by {}; end them, or remove it all the same with --force",
            users.text()
        );
    }
    if meta.is_some() {
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    if users.any() && has_wakes {
        // Whoever sleeps there must still be found.
        return print(&format!(
            "Removed segment {name}. {} is kept for {}; the same command removes it when they have ended.\n",
            wakes.display(),
            users.text()
        ));
    }
    if has_wakes {
        remove_wakes(&wakes)?;
    }
    print(&format!("Removed segment {name}.\n"))
}

/// Refuses to remove what is no segment.
fn check_kind(name: &SegmentName, file: &Path, force: bool) -> Result<()> {
    let (name, shown) = (name.as_str(), file.display());
    ensure!(!file.is_dir(), "segment {name}: {shown} is a directory");
    match Segment::open(file) {
        Err(Error::Foreign) if !force => {
            bail!("{shown} is no Ginnel segment; --force removes it all the same")
        }
        _ => Ok(()),
    }
}

/// Removes the FIFOs and lock files of a segment, and their directory if nothing else is in it.
fn remove_wakes(directory: &Path) -> Result<()> {
    let shown = directory.display();
    for entry in fs::read_dir(directory).with_context(|| shown.to_string())? {
        let entry = entry.with_context(|| shown.to_string())?;
        if is_wake_file(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            bail!("{shown} holds other files; they were left there")
        }
        other => other.with_context(|| format!("cannot remove {shown}")),
    }
}

/// Who uses a segment.
struct Users {
    /// Processes of this user's ledger: number and name.
    named: Vec<(u32, String)>,
    /// Somebody else holds a member's lock.
    locked: bool,
}

impl Users {
    fn of(file: &Path, wakes: &Path, directory: &Path) -> Self {
        let named = Segment::open(file)
            .map(|segment| in_table(directory, segment.id()))
            .unwrap_or_default();
        Self { named, locked: locked(wakes) }
    }

    fn any(&self) -> bool {
        self.locked || !self.named.is_empty()
    }

    fn text(&self) -> String {
        if self.named.is_empty() {
            return "processes that are not in this user's list (of another user or container, or a `ginnel top`)".into();
        }
        let named: Vec<String> =
            self.named.iter().take(10).map(|(pid, name)| format!("{pid} ({name})")).collect();
        let more = self.named.len().saturating_sub(10);
        let processes = if self.named.len() == 1 { "process" } else { "processes" };
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{processes} {}{more}", named.join(", "))
    }
}

fn in_table(directory: &Path, segment: u64) -> Vec<(u32, String)> {
    // To write: where a process of another pid namespace is in doubt, that is noted there.
    let opened = Processes::open(directory, true).or_else(|_| Processes::open(directory, false));
    let Ok(processes) = opened else { return Vec::new() };
    settle(&processes);
    let users = processes.living().filter(|(_, process)| process.segment.load(Relaxed) == segment);
    users.map(|(_, process)| (process.pid.load(Relaxed), process.name())).collect()
}

/// Does anybody use a segment in this directory?
pub fn is_in_use(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .any(|path| path.extension().is_some_and(|end| end == "wake") && locked(&path))
}

/// Is a member's lock file (`ginnel_node::wake::directory`) held? The directory may be any user's,
/// and root may look: a link there would have it open a device, so plain files alone are opened.
fn locked(wakes: &Path) -> bool {
    let entries = fs::read_dir(wakes).into_iter().flatten().flatten();
    let ours = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with('m')
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    entries.filter(ours).any(|entry| {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(entry.path())
            .is_ok_and(|file| sys::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).is_err())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root looks at directories of all users: a link there would have it open anything.
    #[test]
    fn no_link_is_followed_to_a_lock() {
        let folder = tempfile::tempdir().expect("a directory");
        let (there, linked) = (folder.path().join("there"), folder.path().join("linked"));
        for place in [there.join("s.wake"), linked.join("s.wake")] {
            fs::create_dir_all(place).expect("made");
        }
        let lock = File::create(there.join("s.wake/m1")).expect("made");
        assert!(!is_in_use(&there), "nobody holds it");
        assert_eq!(sys::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB), Ok(()));
        assert!(is_in_use(&there));
        std::os::unix::fs::symlink(there.join("s.wake/m1"), linked.join("s.wake/m1"))
            .expect("made");
        std::os::unix::fs::symlink(there.join("s.wake"), linked.join("t.wake")).expect("made");
        assert!(!is_in_use(&linked));
    }
}
