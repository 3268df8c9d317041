//! A segment, as a program opens it: by name, by path, or whatever this machine has for its user.

use crate::neighbour::Neighbour;
use crate::object::shown;
use crate::presence::Presence;
use crate::raw::{ForkMark, OwnPointer};
use crate::wait::Sleepers;
use crate::waiting::waiting;
use crate::{Error, Kind, Result};
use ginnel_node::home::default_directory;
use ginnel_region::{Entry, device, parse_size};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Where `ginneld` has its sockets, as the system's own service.
const GINNELD: &str = "/run/ginnel";
const DEFAULT: &str = "default";

/// A segment that this process has joined. Cheap to clone; it is joined once for a process, and
/// stays joined for as long as the process lives.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// let segment = ginnel::Segment::open("example")?;
/// let memory = ginnel::Memory::create(&segment, "numbers", 4096)?;
/// memory.write(0, b"hello")?;
/// let names: Vec<_> = segment.objects()?.into_iter().map(|object| object.name).collect();
/// assert_eq!(names, ["numbers"]);
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
#[derive(Clone)]
pub struct Segment {
    pub(crate) inner: &'static Inner,
    trusting: bool,
}

/// What all handles of a process in one segment share: made once, and never given up, as the map
/// is.
pub(crate) struct Inner {
    pub presence: Presence,
    pub sleepers: Sleepers,
    path: PathBuf,
    file: Option<(u64, u64)>,
}

/// How to open a segment.
#[derive(Debug, Clone, Default)]
pub struct Options {
    size: Option<u64>,
    existing: bool,
    trusting: bool,
}

impl Options {
    /// As [`Segment::open`] opens it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the segment's file, if it is made now: 16 MiB to 1 TiB, whole pages of 4 KiB.
    /// Memory is taken only as it is used. By default `GINNEL_SIZE`, else 1 GiB.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Opens only a segment that is there.
    #[must_use]
    pub fn existing(mut self, existing: bool) -> Self {
        self.existing = existing;
        self
    }

    /// Everybody in the segment is trusted: objects opened through this handle give in-place access
    /// to their bytes as slices, which any other process of the segment can change under your eyes.
    #[must_use]
    pub fn trusting(mut self, trusting: bool) -> Self {
        self.trusting = trusting;
        self
    }

    /// Opens a segment: see [`Segment::open`].
    ///
    /// # Errors
    /// [`Error::Segment`], which says why and what to do.
    pub fn open(&self, name: impl AsRef<Path>) -> Result<Segment> {
        let path = path_of(name.as_ref())?;
        if self.existing && !path.exists() {
            let message = format!("{}: there is no such segment", path.display());
            return Err(Error::Segment { message });
        }
        let environment = || std::env::var("GINNEL_SIZE").ok().and_then(|text| parse_size(&text));
        let size = self.size.or_else(environment).unwrap_or(1 << 30);
        Ok(Segment { inner: join(&path, size)?, trusting: self.trusting })
    }
}

impl Options {
    /// Opens the segment that is this program's where none is named: see [`Segment::own`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn own(&self) -> Result<Segment> {
        let named = std::env::var_os("GINNEL_SEGMENT").map(PathBuf::from);
        self.open(named.or_else(device::find).unwrap_or_else(|| DEFAULT.into()))
    }
}

/// What `ginnel ls` shows of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name; bytes that are no UTF-8 are escaped (`\xff`), and [`Segment::remove`] takes it so.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes for its users.
    pub size: u64,
    /// The process with which the name goes; `None`: it is kept until it is removed.
    pub owner: Option<User>,
    /// Processes that use it.
    pub users: Vec<User>,
    /// How many wait at it at the moment, or have asked to be told.
    pub waiting: u32,
    /// It has no name any more, and is freed when nobody uses it.
    pub removed: bool,
}

/// A process that uses an object, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its number, in its own pid namespace; 0 where it says none.
    pub pid: u32,
    /// Its program.
    pub program: String,
}

impl Segment {
    /// Opens a segment: a file in the user's directory by its name, made if there is none; a path
    /// (a file, the guest driver's device, `ginneld`'s `host.sock`); or a name that `ginneld`
    /// serves on this host.
    ///
    /// # Errors
    /// [`Error::Segment`], which says why and what to do.
    pub fn open(name: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(name)
    }

    /// Opens the segment that `GINNEL_SEGMENT` names; else, in a virtual machine, the one that the
    /// host shares; else the user's own.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn own() -> Result<Self> {
        Options::new().own()
    }

    /// Its file, device or socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Was it opened as [trusting](Options::trusting)?
    #[must_use]
    pub fn is_trusting(&self) -> bool {
        self.trusting
    }

    /// Every object of the segment, by name.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Gone`], [`Error::Lost`].
    pub fn objects(&self) -> Result<Vec<ObjectInfo>> {
        let presence = &self.inner.presence;
        presence.check_looking()?;
        presence.sweep();
        let names = presence.segment().names();
        let mut objects: Vec<_> = names
            .entries()
            .map(|entry| {
                let users = presence.users(&entry).into_iter();
                let user = |(_, pid, program)| User { pid, program };
                let owner =
                    entry.owner.map(|owner| user((owner, presence.pid_of(owner), String::new())));
                ObjectInfo {
                    name: shown(&entry.name),
                    kind: Kind::of(entry.kind),
                    size: entry.size,
                    owner,
                    users: users.map(user).collect(),
                    waiting: waiting(presence, &entry),
                    removed: entry.removed,
                }
            })
            .collect();
        objects.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    /// Takes the name from an object. Who uses it goes on using it; it is freed when nobody does.
    /// This works in a full segment, too.
    ///
    /// # Errors
    /// [`Error::NotFound`], and as for [`Self::objects`].
    pub fn remove(&self, name: &str) -> Result<()> {
        let presence = &self.inner.presence;
        presence.check_looking()?;
        let names = presence.segment().names();
        let is_shown = |entry: &Entry| !entry.removed && shown(&entry.name) == name;
        let found = names.find(name.as_bytes()).or_else(|| names.entries().find(is_shown));
        let found = found.filter(|entry| names.remove(entry));
        found.ok_or_else(|| Error::NotFound { name: name.to_owned() })?;
        presence.bury_removed();
        Ok(())
    }
}

impl Segment {
    /// Takes a name away that is this process's own, and not that of the process before fork.
    pub(crate) fn remove_own(&self, name: &str) -> Result<()> {
        let presence = &self.inner.presence;
        presence.check_looking()?;
        let names = presence.segment().names();
        let own = |entry: &Entry| entry.owner == Some(presence.party());
        if let Some(entry) = names.find(name.as_bytes()).filter(own) {
            names.remove(&entry);
        }
        presence.bury_removed();
        Ok(())
    }
}

/// What a name means. What would name a directory is refused here: further down it would be a file
/// that is no segment, and that one may remove.
fn path_of(name: &Path) -> Result<PathBuf> {
    let refused = |why: &str| {
        let message = format!(
            "{name:?} {why}; a segment has a name, as a file of {} has, or a file's whole path",
            default_directory().display()
        );
        Err(Error::Segment { message })
    };
    let bytes = name.as_os_str().as_encoded_bytes();
    if matches!(bytes, b"" | b"." | b"..") {
        return refused("is no name of a segment");
    }
    if bytes.contains(&0) {
        return refused("has a 0 in it");
    }
    if bytes.contains(&b'/') {
        return if name.is_dir() { refused("is a directory") } else { Ok(name.to_owned()) };
    }
    let file = default_directory().join(name);
    let served = Path::new(GINNELD).join(name).join("host.sock");
    Ok(if !file.exists() && served.exists() { served } else { file })
}

/// The segments that this process has joined. A child of fork begins with none, and with a lock of
/// its own: another thread of its parent may have held that one.
struct Joined {
    mark: ForkMark,
    segments: Mutex<Vec<&'static Inner>>,
}

fn joined() -> Result<&'static Joined> {
    static JOINED: OwnPointer<Joined> = OwnPointer::new();
    if let Some(joined) = JOINED.get().filter(|joined| joined.mark.is_own()) {
        return Ok(joined);
    }
    let mark = ForkMark::new();
    let mark = mark.map_err(|errno| Error::System { doing: "join a segment", errno })?;
    let joined = Box::leak(Box::new(Joined { mark, segments: Mutex::default() }));
    // Where another thread was faster, its list is this one's, too.
    Ok(JOINED.replace_unless(joined, |present| present.mark.is_own()))
}

/// Which file a path names, to tell it from another that comes to have the path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Joins a segment, once for a process: a child of fork joins anew.
fn join(path: &Path, size: u64) -> Result<&'static Inner> {
    let mut joined = joined()?.segments.lock().unwrap_or_else(|broken| broken.into_inner());
    let here = identity(path);
    // What cannot be used any more stays in memory for the handles that have it.
    let usable = |inner: &&&'static Inner| {
        inner.path == path && inner.file == here && inner.presence.check_looking().is_ok()
    };
    if let Some(inner) = joined.iter().find(usable).filter(|_| here.is_some()) {
        // Where the segment was full, there may be room by now.
        let _ = inner.presence.enter();
        return Ok(inner);
    }
    let presence = Presence::new(Neighbour::join(path, size)?)?;
    let (sleepers, file) = (Sleepers::default(), identity(path));
    let inner = Inner { presence, sleepers, path: path.to_owned(), file };
    let inner: &'static Inner = Box::leak(Box::new(inner));
    joined.push(inner);
    Ok(inner)
}
