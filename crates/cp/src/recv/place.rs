//! Where an entry lies here, and what is in its place.

use super::Receiving;
use super::delete::{DEEPEST, Deletion};
use crate::failure::{Result, said};
use crate::tree;
use crate::wire::Meta;
use rustix::fs::{FileType, Stat};
use std::collections::HashSet;
use std::io::Error;
use std::os::fd::OwnedFd;
use std::rc::Rc;

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

impl Receiving<'_> {
    /// The open directory of an entry, and its name there.
    pub(super) fn place(&self, path: &[u8]) -> std::io::Result<(Rc<OwnedFd>, Vec<u8>)> {
        let missing = || Error::from_raw_os_error(libc::ENOENT);
        let tree = self.base.tree.as_ref().ok_or_else(missing)?;
        if let Some(name) = &self.base.rename {
            return Ok((tree.dir(b"")?, name.clone()));
        }
        let (dir, name) = tree.parent(path)?;
        Ok((dir, name.to_vec()))
    }

    /// Takes away what a file or link cannot replace: a directory, with `--delete`.
    pub(super) fn make_way(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
    ) -> std::io::Result<()> {
        if tree::kind(stat) != FileType::Directory {
            return Ok(());
        }
        if !self.order.delete {
            return Err(Error::other("a directory has its place; --delete removes that"));
        }
        let deletion = Deletion { filter: &self.filter, dry_run: self.order.dry_run };
        if let Some(tree) = &self.base.tree {
            tree.forget();
        }
        if !deletion.remove(dir, name, path, DEEPEST)? {
            return Err(Error::other("a directory has its place, and holds what is excluded"));
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, path: &[u8], keep: &HashSet<Vec<u8>>) {
        let Some(tree) = &self.base.tree else { return };
        let Ok(dir) = tree.dir(path) else { return };
        tree.forget();
        let deletion = Deletion { filter: &self.filter, dry_run: self.order.dry_run };
        deletion.clear(&*dir, path, keep, self.report);
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
