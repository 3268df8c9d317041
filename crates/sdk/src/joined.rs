//! The segments that this process has joined.

use crate::neighbour::Neighbour;
use crate::presence::Presence;
use crate::raw::{ForkMark, OwnPointer};
use crate::sleeper::Sleepers;
use crate::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What all handles of a process in one segment share: made once, and never given up, as the map
/// is.
pub(crate) struct Inner {
    pub presence: Presence,
    pub sleepers: Sleepers,
    pub path: PathBuf,
    file: Option<(u64, u64)>,
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
pub(crate) fn join(path: &Path, size: u64) -> Result<&'static Inner> {
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
