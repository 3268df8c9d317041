//! A segment, as a program opens it: by name, by path, or whatever this machine has for its user.

use crate::joined::{Inner, join};
use crate::object::shown;
use crate::{Error, Result};
use ginnel_node::home::default_directory;
use ginnel_region::{Entry, device, parse_size};
use std::path::{Path, PathBuf};

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

shown! {
    Segment as "Segment": |own| { path: own.path(), trusting: own.trusting };
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
