//! What an entry needs: nothing, since it is there; its data; or to be made at once.

use super::Receiving;
use super::place::look;
use super::writing::find_partial;
use crate::failure::Result;
use crate::hash;
use crate::names;
use crate::tree;
use crate::wire::{Action, Entry, Have, Meta, Want};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io::Error;
use std::os::fd::OwnedFd;

type Decision = std::io::Result<(Want, Action)>;

const MADE: (Want, Action) = (Want::Nothing, Action::Copied);
const SAME: (Want, Action) = (Want::Nothing, Action::Same);

impl Receiving<'_> {
    /// What is wanted of an entry, and what became of it, where that is known already.
    pub(super) fn decide(&mut self, entry: &Entry) -> Result<(Want, Action)> {
        let decided = match entry {
            Entry::File { path, meta, size } => self.decide_file(path, meta, *size),
            Entry::Dir { path, meta } => self.make_directory(path, meta),
            Entry::Link { path, meta, target } => self.make_link(path, meta, target),
            Entry::User(number, name) => {
                self.attributes.owners.user(*number, name);
                Ok((Want::Nothing, Action::Nothing))
            }
            Entry::Group(number, name) => {
                self.attributes.owners.group(*number, name);
                Ok((Want::Nothing, Action::Nothing))
            }
            Entry::Other { .. } | Entry::Listed { .. } | Entry::Left { .. } => {
                Ok((Want::Nothing, Action::Nothing))
            }
        };
        let (want, action) = match decided {
            Ok(decided) => decided,
            // In a directory that would be made.
            Err(error) if self.order.dry_run && tree::is_missing(&error) => MADE,
            Err(error) => {
                self.failed(entry.path(), "making it", &error)?;
                (Want::Nothing, Action::Failed)
            }
        };
        if let (Entry::File { size, .. }, Want::Nothing) = (entry, want) {
            self.report.moved(*size);
        }
        Ok((want, action))
    }

    fn decide_file(&mut self, path: &[u8], meta: &Meta, size: u64) -> Decision {
        let (dir, name) = self.place(path)?;
        let old = look(&dir, &name)?;
        let Some(stat) = old.filter(|stat| tree::kind(stat) == FileType::RegularFile) else {
            return match old {
                Some(stat) if tree::kind(&stat) == FileType::Directory && !self.order.delete => {
                    Err(Error::other("a directory has its place; --delete removes that"))
                }
                _ => Ok(self.data(&dir, &name, None, size)),
            };
        };
        if tree::size(&stat) == size {
            let is = tree::meta(&stat);
            if self.order.checksum {
                if let Some(have) = self.have(&dir, &name, size, false) {
                    return Ok((Want::Rest(have), Action::Nothing));
                }
            } else if !self.order.ignore_times && (is.mtime, is.nanos) == (meta.mtime, meta.nanos) {
                return self.same_file(&dir, &name, meta).map(|action| (Want::Nothing, action));
            }
        }
        Ok(self.data(&dir, &name, Some(&stat), size))
    }

    /// Its data is wanted; what there is of it need not come again.
    fn data(&self, dir: &OwnedFd, name: &[u8], old: Option<&Stat>, size: u64) -> (Want, Action) {
        if self.order.dry_run {
            return MADE;
        }
        let have = match (self.order.partial, self.order.inplace) {
            (true, false) => find_partial(dir, name)
                .filter(|&(_, len)| len > 0 && len <= size)
                .and_then(|(file, len)| self.hash(&file, len, true)),
            (true, true) => old
                .map(tree::size)
                .filter(|&len| len > 0 && len <= size)
                .and_then(|len| self.have(dir, name, len, true)),
            _ => None,
        };
        (have.map_or(Want::Whole, Want::Rest), Action::Nothing)
    }

    fn have(&self, dir: &OwnedFd, name: &[u8], len: u64, extends: bool) -> Option<Have> {
        let file = tree::open_in(dir, name, OFlags::RDONLY, 0).ok()?;
        self.hash(&file, len, extends)
    }

    fn hash(&self, file: &OwnedFd, len: u64, extends: bool) -> Option<Have> {
        let hash = hash::of_start(file, len, || self.link.alive()).ok()??;
        Some(Have { len, hash, extends })
    }

    /// A file that is there as it is to be: its attributes may not be.
    pub(super) fn same(&mut self, path: &[u8], meta: &Meta) -> Result<Action> {
        let done = self.place(path).and_then(|(dir, name)| self.same_file(&dir, &name, meta));
        match done {
            Ok(action) => Ok(action),
            Err(error) => {
                self.failed(path, "its attributes", &error)?;
                Ok(Action::Failed)
            }
        }
    }

    fn same_file(&self, dir: &OwnedFd, name: &[u8], meta: &Meta) -> std::io::Result<Action> {
        let order = self.order;
        if order.dry_run || !(order.perms || order.times || order.owner || order.group) {
            return Ok(Action::Same);
        }
        // Nothing to be set: then it need not be open.
        let stat = tree::stat_in(dir, name)?;
        let is = tree::meta(&stat);
        let mode = |is: Meta| self.attributes.mode(meta, Some(super::attributes::Old { meta: is }));
        let owners = self.attributes.policy.owners && (order.owner || order.group);
        let times = !order.times || (is.mtime, is.nanos) == (meta.mtime, meta.nanos);
        if mode(is) == is.mode && times && !owners {
            return Ok(Action::Same);
        }
        let open = |flags| tree::open_in(dir, name, flags, 0);
        let file = open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY))?;
        let is = tree::meta(&rustix::fs::fstat(&file)?);
        let set = self.attributes.set(&file, meta, mode(is), &is)?;
        Ok(if set { Action::Attributes } else { Action::Same })
    }

    fn make_directory(&mut self, path: &[u8], meta: &Meta) -> Decision {
        if path.is_empty() {
            return Ok(SAME);
        }
        let (dir, name) = self.place(path)?;
        let old = look(&dir, &name)?;
        let is_there = old.is_some_and(|stat| tree::kind(&stat) == FileType::Directory);
        if is_there || self.order.dry_run {
            return Ok(if is_there { SAME } else { MADE });
        }
        if old.is_some() {
            rustix::fs::unlinkat(&*dir, &*name, AtFlags::empty())?;
        }
        // What comes into it has to go into it.
        let mode = Mode::from_raw_mode(meta.mode & 0o777 | 0o700);
        match rustix::fs::mkdirat(&*dir, &*name, mode) {
            Ok(()) => Ok(MADE),
            Err(Errno::EXIST) => Ok(SAME),
            Err(errno) => Err(errno.into()),
        }
    }

    fn make_link(&mut self, path: &[u8], meta: &Meta, target: &[u8]) -> Decision {
        let fits = !target.is_empty() && target.len() <= names::MOST_PATH && !target.contains(&0);
        if !fits {
            return Err(Error::other("a link that says nothing, or too much"));
        }
        if (self.order.safe_links || !self.attributes.policy.any_links) && leads_out(path, target) {
            let text = format!(
                "left out: it leads to {}, outside of what is copied",
                names::shown(target)
            );
            return Err(Error::other(text));
        }
        let (dir, name) = self.place(path)?;
        let old = look(&dir, &name)?;
        if let Some(stat) = &old {
            let is_link = tree::kind(stat) == FileType::Symlink;
            let says = || rustix::fs::readlinkat(&*dir, &*name, Vec::new());
            if is_link && says().is_ok_and(|says| says.as_bytes() == target) {
                if !self.order.dry_run {
                    self.attributes.set_link(&dir, &name, meta)?;
                }
                return Ok(SAME);
            }
            self.make_way(&dir, &name, path, stat)?;
        }
        if self.order.dry_run {
            return Ok(MADE);
        }
        let replaces = old.is_some_and(|stat| tree::kind(&stat) != FileType::Directory);
        let first = if replaces { super::writing::temporary_name(&name) } else { name.clone() };
        rustix::fs::symlinkat(target, &*dir, &*first)?;
        let set = self.attributes.set_link(&dir, &first, meta);
        if replaces {
            let done = set.and_then(|()| Ok(rustix::fs::renameat(&*dir, &*first, &*dir, &*name)?));
            done.inspect_err(|_| {
                let _ = rustix::fs::unlinkat(&*dir, &*first, AtFlags::empty());
            })?;
        } else {
            set?;
        }
        Ok(MADE)
    }
}

/// Does a link lead out of what is copied, as far as its words tell?
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.first() == Some(&b'/') {
        return true;
    }
    let mut depth = path.iter().filter(|&&byte| byte == b'/').count();
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_are_told() {
        for (path, target) in
            [("a", "b"), ("a/b", "../c"), ("a/b/c", "../../x/../y"), ("a", "b/../c")]
        {
            assert!(!leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in
            [("a", "/etc"), ("a", ".."), ("a/b", "../../c"), ("a/b", "x/../../..")]
        {
            assert!(leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }
}
