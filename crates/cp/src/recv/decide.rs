//! What an entry needs: nothing, since it is there; its data; or to be made at once.

use super::Receiving;
use super::place::{look, replace};
use super::writing::{find_partial, temporary_name};
use crate::failure::Result;
use crate::hash;
use crate::names;
use crate::tree::{self, Seen};
use crate::wire::{Action, Entry, Have, Meta, Want};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io::Error;
use std::os::fd::OwnedFd;

/// What is wanted, what became of it, and what was compared where the rest is wanted.
type Decided = (Want, Action, Option<Seen>);
type Decision = std::io::Result<Decided>;

const MADE: Decided = (Want::Nothing, Action::Copied, None);
const SAME: Decided = (Want::Nothing, Action::Same, None);
const NOTHING: Decided = (Want::Nothing, Action::Nothing, None);
const FAILED: Decided = (Want::Nothing, Action::Failed, None);
/// Directories that were made, as far as it is remembered: a sender decides how many there are.
const MOST_MADE: usize = 10_000;

impl Receiving<'_> {
    /// What is wanted of an entry, and what became of it, where that is known already.
    pub(super) fn decide(&mut self, entry: &Entry) -> Result<Decided> {
        let decided = match entry {
            Entry::File { path, meta, size } => self.decide_file(path, meta, *size),
            Entry::Dir { path, meta } => self.make_directory(path, meta),
            Entry::Link { path, meta, target } => self.make_link(path, meta, target),
            Entry::User(number, name) => {
                self.attributes.owners.user(*number, name);
                Ok(NOTHING)
            }
            Entry::Group(number, name) => {
                self.attributes.owners.group(*number, name);
                Ok(NOTHING)
            }
            Entry::Other { .. } | Entry::Listed { .. } | Entry::Left { .. } => Ok(NOTHING),
        };
        let decided = match decided {
            Ok(decided) => decided,
            // In a directory that would be made, perhaps in a link's place.
            Err(error) if self.order.dry_run && is_no_directory(&error) => MADE,
            Err(error) => {
                self.failed(entry.path(), "making it", &error)?;
                FAILED
            }
        };
        if let (Entry::File { size, .. }, Want::Nothing) = (entry, decided.0) {
            self.report.moved(*size);
        }
        Ok(decided)
    }

    fn decide_file(&mut self, path: &[u8], meta: &Meta, size: u64) -> Decision {
        let (dir, name) = self.place(path)?;
        if self.made.contains(names::split(path).0) {
            // What others may have put there meanwhile is met when the file gets its name.
            return Ok((Want::Whole, Action::Nothing, None));
        }
        let old = look(&dir, &name)?;
        let Some(stat) = old.filter(|stat| tree::kind(stat) == FileType::RegularFile) else {
            self.may_replace(&dir, &name, path, old.as_ref())?;
            return Ok(self.data(&dir, &name, None, size));
        };
        if tree::size(&stat) == size {
            let is = tree::meta(&stat);
            if self.order.checksum {
                if let Some((have, _)) = self.have(&dir, &name, size, false) {
                    return Ok((Want::Rest(have), Action::Nothing, None));
                }
            } else if !self.order.ignore_times && (is.mtime, is.nanos) == (meta.mtime, meta.nanos) {
                let same = self.same_file(&dir, &name, meta);
                return same.map(|action| (Want::Nothing, action, None));
            }
        }
        Ok(self.data(&dir, &name, Some(&stat), size))
    }

    /// Its data is wanted; what there is of it need not come again.
    fn data(&self, dir: &OwnedFd, name: &[u8], old: Option<&Stat>, size: u64) -> Decided {
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
        match have {
            Some((have, seen)) => (Want::Rest(have), Action::Nothing, Some(seen)),
            None => (Want::Whole, Action::Nothing, None),
        }
    }

    fn have(&self, dir: &OwnedFd, name: &[u8], len: u64, extends: bool) -> Option<(Have, Seen)> {
        let file = tree::open_in(dir, name, OFlags::RDONLY, 0).ok()?;
        self.hash(&file, len, extends)
    }

    /// The hash of the first bytes of a file, and what it was all the while.
    fn hash(&self, file: &OwnedFd, len: u64, extends: bool) -> Option<(Have, Seen)> {
        let mut stat = rustix::fs::fstat(file).ok()?;
        if let (true, Some(rest)) = (extends, tree::to_rest(&stat)) {
            std::thread::sleep(rest);
            stat = rustix::fs::fstat(file).ok().filter(|stat| tree::to_rest(stat).is_none())?;
        }
        let hash = hash::of_start(file, len, || self.link.alive()).ok()??;
        let seen = Seen::of(&rustix::fs::fstat(file).ok()?);
        let is_still = !extends || seen == Seen::of(&stat) && seen.len == len;
        is_still.then_some((Have { len, hash, extends }, seen))
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
        let mode = |is: Meta| if order.perms { self.attributes.mode(meta, None) } else { is.mode };
        let owners = self.attributes.policy.owners && (order.owner || order.group);
        let times = !order.times || (is.mtime, is.nanos) == (meta.mtime, meta.nanos);
        if mode(is) == is.mode && times && !owners {
            return Ok(Action::Same);
        }
        let open = |flags| tree::open_in(dir, name, flags, 0);
        let file = open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY))?;
        let stat = rustix::fs::fstat(&file)?;
        if tree::kind(&stat) != FileType::RegularFile {
            return Err(Error::other("it is no file any more"));
        }
        let is = tree::meta(&stat);
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
        // What comes into it has to go into it.
        let mode = Mode::from_raw_mode(meta.mode & 0o777 | 0o700);
        let first = if old.is_some() { temporary_name(&name) } else { name.clone() };
        match rustix::fs::mkdirat(&*dir, &*first, mode) {
            Ok(()) if old.is_none() => {
                if self.made.len() < MOST_MADE {
                    self.made.insert(path.to_vec());
                }
                return Ok(MADE);
            }
            Ok(()) => {}
            Err(Errno::EXIST) if old.is_none() => return Ok(SAME),
            Err(errno) => return Err(errno.into()),
        }
        // A file or link had its name: it is there until the directory is.
        let replaced = replace(&dir, &first, &name, true).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&*dir, &*first, AtFlags::REMOVEDIR);
        });
        let aside = match replaced {
            // Another copy has made it meanwhile, and put something into it.
            Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => return Ok(SAME),
            other => other?,
        };
        if let Some(aside) = aside {
            rustix::fs::unlinkat(&*dir, &*aside, AtFlags::empty())?;
        }
        Ok(MADE)
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
        }
        let over = self.may_replace(&dir, &name, path, old.as_ref())?;
        if self.order.dry_run {
            return Ok(MADE);
        }
        let first = if old.is_some() { temporary_name(&name) } else { name.clone() };
        rustix::fs::symlinkat(target, &*dir, &*first)?;
        let set = self.attributes.set_link(&dir, &first, meta);
        if old.is_none() {
            return set.map(|()| MADE);
        }
        let done = set.and_then(|()| replace(&dir, &first, &name, over));
        let aside = done.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&*dir, &*first, AtFlags::empty());
        })?;
        self.remove_aside(&dir, aside, path);
        Ok(MADE)
    }
}

/// Has a directory of the way not been made yet?
fn is_no_directory(error: &Error) -> bool {
    tree::is_missing(error) || error.raw_os_error() == Some(libc::ELOOP)
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
