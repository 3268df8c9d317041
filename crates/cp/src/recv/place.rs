//! Where an entry lies here, and what is in its place.

use super::Receiving;
use super::delete::{DEEPEST, Deletion};
use super::writing::temporary_name;
use crate::failure::{Code, Failure, Result, said};
use crate::names;
use crate::tree::{self, Directory};
use crate::wire::Meta;
use rustix::fs::{FileType, RenameFlags, Stat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What has a name in a directory; `None`: nothing.
///
/// # Errors
/// The system's.
pub fn look(dir: &OwnedFd, name: &[u8]) -> std::io::Result<Option<Stat>> {
    match tree::stat_in(dir, name) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if tree::is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives `own` the name `name`, in one step. `over`: a directory gives way to what is none, and the
/// reverse. The two change places then, and what has to be removed has the name that is returned.
///
/// # Errors
/// The system's: then `name` is what it was.
pub fn replace(
    dir: &OwnedFd,
    own: &[u8],
    name: &[u8],
    over: bool,
) -> std::io::Result<Option<Vec<u8>>> {
    match rustix::fs::renameat(dir, own, dir, name) {
        Err(Errno::ISDIR | Errno::NOTDIR) if over => {}
        other => return Ok(other.map(|()| None)?),
    }
    let aside = temporary_name(name);
    match rustix::fs::renameat_with(dir, own, dir, name, RenameFlags::EXCHANGE) {
        // Whoever ends here leaves nothing that looks like an unfinished file.
        Ok(()) => match rustix::fs::renameat_with(dir, own, dir, &aside, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Some(aside)),
            Err(_) => Ok(Some(own.to_vec())),
        },
        // Not every file system can: then there is nothing of that name for a moment.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::renameat(dir, name, dir, &aside)?;
            rustix::fs::renameat(dir, own, dir, name).inspect_err(|_| {
                let _ = rustix::fs::renameat(dir, &aside, dir, name);
            })?;
            Ok(Some(aside))
        }
        Err(errno) => Err(errno.into()),
    }
}

impl Receiving<'_> {
    /// The open directory of an entry, and its name there.
    pub(super) fn place(&self, path: &[u8]) -> std::io::Result<(Arc<Directory>, Vec<u8>)> {
        let missing = || Error::from_raw_os_error(libc::ENOENT);
        let tree = self.base.tree.as_ref().ok_or_else(missing)?;
        if let Some(name) = &self.base.rename {
            return Ok((tree.dir(b"")?, name.clone()));
        }
        let (dir, name) = tree.parent(path)?;
        Ok((dir, name.to_vec()))
    }

    /// May a file or link take the place of this? That of a directory only with `--delete`, and
    /// where all of it may go. True: it is one.
    pub(super) fn may_replace(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        stat: Option<&Stat>,
    ) -> std::io::Result<bool> {
        if stat.is_none_or(|stat| tree::kind(stat) != FileType::Directory) {
            return Ok(false);
        }
        if !self.order.delete {
            return Err(Error::other("a directory has its place; --delete removes that"));
        }
        let deletion = Deletion { filter: &self.filter, dry_run: true };
        if !deletion.remove(dir, name, path, DEEPEST)? {
            return Err(Error::other("a directory has its place, and holds what is excluded"));
        }
        Ok(true)
    }

    /// Removes a directory that had a path, and now has another name.
    pub(super) fn remove_aside(&mut self, dir: &OwnedFd, aside: Option<Vec<u8>>, path: &[u8]) {
        let Some(name) = aside else { return };
        if let Some(tree) = &self.base.tree {
            tree.forget();
        }
        let deletion = Deletion { filter: &self.filter, dry_run: self.order.dry_run };
        let done = deletion.remove(dir, &name, path, DEEPEST);
        if !matches!(done, Ok(true)) {
            let why = done.err().map_or_else(|| "what is excluded is in it".into(), |it| said(&it));
            let text = format!("deleting what had its place, now {}: {why}", names::shown(&name));
            self.report.problem(path, &text, false);
        }
    }

    pub(super) fn delete(&mut self, path: &[u8], keep: &HashSet<Vec<u8>>) {
        let Some(tree) = &self.base.tree else { return };
        let Ok(dir) = tree.dir(path) else { return };
        tree.forget();
        let deletion = Deletion { filter: &self.filter, dry_run: self.order.dry_run };
        deletion.clear(&*dir, path, keep, self.report);
    }

    /// With `--fsync`: what was made in the destination itself is on the disk, too. All other
    /// directories are left ([`Self::leave`]).
    pub(super) fn sync(&self) -> Result<()> {
        let Some(tree) = self.base.tree.as_ref().filter(|_| self.order.fsync) else {
            return Ok(());
        };
        let synced = tree.dir(b"").and_then(|dir| Ok(rustix::fs::fsync(&*dir)?));
        let failed =
            |error| Failure::of_path(Code::Io, "onto the disk", b"the destination", &error);
        synced.map_err(failed)
    }

    /// All below a directory is done: what it says of itself is set.
    pub(super) fn leave(&mut self, path: &[u8], meta: &Meta) -> Result<()> {
        if self.order.dry_run {
            return Ok(());
        }
        let set = || -> std::io::Result<()> {
            let missing = || Error::from_raw_os_error(libc::ENOENT);
            let tree = self.base.tree.as_ref().ok_or_else(missing)?;
            let dir = tree.dir(path)?;
            let is = tree::meta(&rustix::fs::fstat(&*dir)?);
            let mode =
                if self.order.perms { self.attributes.directory_mode(meta) } else { is.mode };
            self.attributes.set(&*dir, meta, mode, &is)?;
            if self.order.fsync {
                rustix::fs::fsync(&*dir)?;
            }
            Ok(())
        };
        match set() {
            Ok(()) => Ok(()),
            // That it could not be made was told.
            Err(error) if tree::is_missing(&error) => Ok(()),
            Err(error) => {
                self.report.problem(path, &format!("its attributes: {}", said(&error)), false);
                Ok(())
            }
        }
    }
}
