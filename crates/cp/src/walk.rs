//! The sender's walk: what is to be copied becomes a listing, directory by directory.
//!
//! The entries of one directory follow each other, then [`Entry::Listed`]; then come its
//! directories, each with all below it, and [`Entry::Left`] when that is done. So whoever receives
//! needs to remember the names of one directory, not of all.

use crate::failure::said;
use crate::filter::Filter;
use crate::names;
use crate::report::Report;
use crate::tree::{self, Tree};
use crate::wire::{Entry, Meta, Order};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::io::{Error, Result};
use std::os::fd::{AsFd, OwnedFd};

/// One thing that is to be copied, with what lies in it.
pub struct Source {
    /// Where it lies.
    pub tree: Tree,
    /// Its name there; `None`: what lies in the directory, rather than the directory.
    name: Option<Vec<u8>>,
    /// As the user wrote it.
    shown: Vec<u8>,
}

/// A path's directory, and its name in it; no name where the path says "what lies in it": it ends
/// in a slash, `.` or `..`.
#[must_use]
pub fn taken_apart(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    let bare = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let (_, last) = names::split(&path[..bare]);
    if bare < path.len() || matches!(last, b"" | b"." | b"..") {
        return (path, None);
    }
    (&path[..bare - last.len()], Some(last))
}

impl Source {
    fn new(path: &[u8], open: impl Fn(&[u8], OFlags) -> Result<OwnedFd>) -> Result<Self> {
        let (directory, name) = taken_apart(path);
        let root = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        let source =
            Self { tree: Tree::new(root), name: name.map(<[u8]>::to_vec), shown: path.to_vec() };
        match name {
            Some(name) if source.tree.stat(name)?.is_none() => {
                Err(Error::from_raw_os_error(libc::ENOENT))
            }
            _ => Ok(source),
        }
    }

    /// A path of the user's own.
    ///
    /// # Errors
    /// The system's.
    pub fn of_user(path: &[u8]) -> Result<Self> {
        let open = |path: &[u8], flags| {
            let path = if path.is_empty() { b"." } else { path };
            Ok(rustix::fs::open(path, flags, Mode::empty())?)
        };
        Self::new(path, open)
    }

    /// A path that a peer names, below what is offered.
    ///
    /// # Errors
    /// The system's.
    pub fn beneath(root: impl AsFd, path: &[u8]) -> Result<Self> {
        let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
        // All of what is offered, where nothing is left.
        let path = if start == path.len() { b"./" } else { &path[start..] };
        Self::new(path, |path, flags| tree::open_beneath(&root, path, flags))
    }

    /// Is it one file or link?
    #[must_use]
    pub fn is_single(&self) -> bool {
        let Some(name) = &self.name else { return false };
        let stat = self.tree.stat(name).ok().flatten();
        stat.is_some_and(|stat| tree::kind(&stat) != FileType::Directory)
    }

    /// Does it name what lies in a directory, or a directory?
    #[must_use]
    pub fn is_directory(&self) -> bool {
        !self.is_single()
    }
}

/// A directory that is being listed.
struct Here {
    path: Vec<u8>,
    names: std::vec::IntoIter<Vec<u8>>,
    directories: Vec<(Vec<u8>, Meta)>,
    whole: bool,
}

enum Frame {
    Visit(Vec<u8>),
    Leave(Vec<u8>, Meta),
}

/// The walk over all sources.
pub struct Walk<'a> {
    sources: &'a [Source],
    order: &'a Order,
    filter: &'a Filter,
    /// The destination.
    base: Option<[u64; 3]>,
    next: usize,
    stack: Vec<Frame>,
    here: Option<Here>,
    /// Numbers whose names were told: users and groups.
    told: (HashSet<u32>, HashSet<u32>),
    /// What comes before the next step.
    ready: Vec<Entry>,
}

impl<'a> Walk<'a> {
    /// Over these.
    #[must_use]
    pub fn new(
        sources: &'a [Source],
        order: &'a Order,
        filter: &'a Filter,
        base: Option<[u64; 3]>,
    ) -> Self {
        let (told, ready) = Default::default();
        let (stack, here, next) = (Vec::new(), None, 0);
        Self { sources, order, filter, base, next, stack, here, told, ready }
    }

    /// The next entry, and the number of its source; `None` at the end.
    pub fn next(&mut self, report: &mut dyn Report) -> Option<(usize, Entry)> {
        loop {
            if let Some(entry) = self.ready.pop() {
                return Some((self.next.saturating_sub(1), entry));
            }
            if self.here.is_some() {
                self.step(report);
            } else if let Some(frame) = self.stack.pop() {
                self.turn(frame, report);
            } else {
                let source = self.sources.get(self.next)?;
                self.next += 1;
                self.begin(source, report);
            }
        }
    }

    fn tree(&self) -> Option<&'a Tree> {
        self.sources.get(self.next.checked_sub(1)?).map(|source| &source.tree)
    }

    fn begin(&mut self, source: &Source, report: &mut dyn Report) {
        let path = source.name.clone().unwrap_or_default();
        let shown = &source.shown;
        match source.tree.stat(&path) {
            Ok(Some(stat)) if tree::kind(&stat) == FileType::Directory && !self.order.recursive => {
                report.problem(shown, "a directory: -r or -a copies it with what is in it", false);
            }
            Ok(Some(stat)) => self.add(path, &stat, report),
            Ok(None) => report.problem(shown, "it is gone", true),
            Err(error) => report.problem(shown, &said(&error), false),
        }
    }

    fn push(&mut self, directories: Vec<(Vec<u8>, Meta)>) {
        for (path, meta) in directories.into_iter().rev() {
            self.stack.push(Frame::Leave(path.clone(), meta));
            self.stack.push(Frame::Visit(path));
        }
    }

    fn turn(&mut self, frame: Frame, report: &mut dyn Report) {
        match frame {
            Frame::Leave(path, meta) => {
                self.ready.push(Entry::Left { path: ByteBuf::from(path), meta })
            }
            Frame::Visit(path) => {
                let Some(tree) = self.tree() else { return };
                let (found, read) = match tree.dir(&path) {
                    Ok(dir) => tree::list(&*dir),
                    Err(error) => (Vec::new(), Err(error)),
                };
                if let Err(error) = &read {
                    report.problem(
                        &path,
                        &format!("reading it: {}", said(error)),
                        tree::is_missing(error),
                    );
                }
                let (names, whole) = (found.into_iter(), read.is_ok());
                self.here = Some(Here { path, names, directories: Vec::new(), whole });
            }
        }
    }

    /// The next name of the directory that is being listed.
    fn step(&mut self, report: &mut dyn Report) {
        let Some(here) = &mut self.here else { return };
        let Some(name) = here.names.next() else {
            if let Some(here) = self.here.take() {
                let path = ByteBuf::from(here.path);
                self.ready.push(Entry::Listed { path, whole: here.whole });
                self.push(here.directories);
            }
            return;
        };
        let path = names::join(&here.path, &name);
        if path.len() > names::MOST_PATH {
            here.whole = false;
            return report.problem(&path, "its path is too long", false);
        }
        let Some(tree) = self.tree() else { return };
        match tree.stat(&path) {
            Ok(Some(stat)) => self.add(path, &stat, report),
            // It went between the two looks: whoever deletes is right to.
            Ok(None) => {}
            Err(error) => {
                if let Some(here) = &mut self.here {
                    here.whole = false;
                }
                report.problem(&path, &said(&error), false);
            }
        }
    }

    /// Adds the entry of something that was found.
    fn add(&mut self, path: Vec<u8>, stat: &Stat, report: &mut dyn Report) {
        let kind = tree::kind(stat);
        if !path.is_empty() && self.filter.leaves_out(&path, kind == FileType::Directory) {
            return;
        }
        let meta = tree::meta(stat);
        let bytes = ByteBuf::from(path.clone());
        let entry = match kind {
            FileType::RegularFile if self.is_unfinished(&path) => {
                report.skipped(&path, "an unfinished copy, as --partial leaves it");
                Entry::Other { path: bytes }
            }
            FileType::RegularFile => Entry::File { path: bytes, meta, size: tree::size(stat) },
            // It would go on for ever: what is made there is found there.
            FileType::Directory
                if self.base.is_some() && !path.is_empty() && self.is_base(stat) =>
            {
                report.problem(&path, "left out: it is the destination", false);
                Entry::Other { path: bytes }
            }
            FileType::Directory => {
                let below = (path, meta);
                match &mut self.here {
                    Some(here) => here.directories.push(below),
                    None => self.push(vec![below]),
                }
                Entry::Dir { path: bytes, meta }
            }
            FileType::Symlink if self.order.links => match self.read_link(&path) {
                Ok(target) => Entry::Link { path: bytes, meta, target: ByteBuf::from(target) },
                Err(error) => {
                    report.problem(&path, &said(&error), tree::is_missing(&error));
                    Entry::Other { path: bytes }
                }
            },
            other => {
                let link = "a symbolic link (-l copies it)";
                let why =
                    if other == FileType::Symlink { link } else { "no file, directory or link" };
                report.skipped(&path, why);
                Entry::Other { path: bytes }
            }
        };
        self.ready.push(entry);
        self.name_owners(meta);
    }

    fn is_base(&self, stat: &Stat) -> bool {
        self.base == tree::identity(stat)
    }

    /// Has it the name that a receiver gives to what it has of another? It would be taken for that.
    fn is_unfinished(&self, path: &[u8]) -> bool {
        let (_, name) = names::split(path);
        self.order.partial && self.here.is_some() && names::is_partial(name)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let tree = self.tree().ok_or(Error::from_raw_os_error(libc::ENOENT))?;
        let (dir, name) = tree.parent(path)?;
        Ok(rustix::fs::readlinkat(&*dir, name, Vec::new())?.into_bytes())
    }

    /// Tells names for numbers, once each, before the entry that has them.
    fn name_owners(&mut self, meta: Meta) {
        use nix::unistd::{Gid, Group, Uid, User};
        if self.order.numeric_ids {
            return;
        }
        if self.order.owner && self.told.0.insert(meta.uid) {
            let user = User::from_uid(Uid::from_raw(meta.uid)).ok().flatten();
            self.ready.extend(user.map(|user| Entry::User(meta.uid, user.name)));
        }
        if self.order.group && self.told.1.insert(meta.gid) {
            let group = Group::from_gid(Gid::from_raw(meta.gid)).ok().flatten();
            self.ready.extend(group.map(|group| Entry::Group(meta.gid, group.name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_slash_means_what_lies_in_it() {
        let whole = |path: &'static str| taken_apart(path.as_bytes());
        assert_eq!(whole("a/b"), (&b"a/"[..], Some(&b"b"[..])));
        assert_eq!(whole("b"), (&b""[..], Some(&b"b"[..])));
        assert_eq!(whole("/b"), (&b"/"[..], Some(&b"b"[..])));
        for contents in ["a/b/", "b//", ".", "..", "a/..", "/", "./", "a/."] {
            assert_eq!(whole(contents), (contents.as_bytes(), None), "{contents}");
        }
    }
}
