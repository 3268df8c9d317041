//! Owners, permissions and times, as far as they were asked for and the receiver allows.

use crate::wire::{Meta, Order};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::Result;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// Names that a peer tells, at most.
const MOST_NAMES: usize = 1 << 16;

/// What a receiver lets a sender decide.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Owners, groups, and the bits by which a program gets them.
    pub owners: bool,
    /// Links that lead out of what is copied.
    pub any_links: bool,
    /// What is taken from the permissions of what is new.
    pub umask: u32,
}

impl Policy {
    /// Of this process.
    #[must_use]
    pub fn new(owners: bool, any_links: bool) -> Self {
        static UMASK: OnceLock<u32> = OnceLock::new();
        // There is no call that only looks; so it is looked at once, before there are threads.
        let umask = *UMASK.get_or_init(|| {
            let umask = rustix::process::umask(Mode::from_raw_mode(0o077));
            rustix::process::umask(umask);
            umask.as_raw_mode()
        });
        let root = rustix::process::geteuid().is_root();
        Self { owners: owners && root, any_links, umask }
    }
}

/// Numbers of users and groups here, by their names there.
#[derive(Default)]
pub struct Owners {
    users: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
}

impl Owners {
    /// A user's name, as the sender has it. Root is root by its number.
    pub fn user(&mut self, number: u32, name: &str) {
        if number != 0
            && self.users.len() < MOST_NAMES
            && let Ok(Some(user)) = nix::unistd::User::from_name(name)
        {
            self.users.insert(number, user.uid.as_raw());
        }
    }

    /// A group's.
    pub fn group(&mut self, number: u32, name: &str) {
        if number != 0
            && self.groups.len() < MOST_NAMES
            && let Ok(Some(group)) = nix::unistd::Group::from_name(name)
        {
            self.groups.insert(number, group.gid.as_raw());
        }
    }

    fn of(&self, order: &Order, policy: Policy, meta: &Meta) -> (Option<Uid>, Option<Gid>) {
        let uid = self.users.get(&meta.uid).copied().unwrap_or(meta.uid);
        let gid = self.groups.get(&meta.gid).copied().unwrap_or(meta.gid);
        // All ones is no number of anybody's.
        let uid = (order.owner && policy.owners && uid != u32::MAX).then(|| Uid::from_raw(uid));
        let gid = (order.group && policy.owners && gid != u32::MAX).then(|| Gid::from_raw(gid));
        (uid, gid)
    }
}

/// What of an existing file or directory matters.
#[derive(Debug, Clone, Copy)]
pub struct Old {
    /// Its attributes.
    pub meta: Meta,
}

/// All that decides attributes.
pub struct Attributes<'a> {
    /// What was asked for.
    pub order: &'a Order,
    /// What is allowed.
    pub policy: Policy,
    /// Who is who.
    pub owners: Owners,
}

impl Attributes<'_> {
    /// The permissions that a file is to have; `old`: those of the one that it replaces.
    #[must_use]
    pub fn mode(&self, meta: &Meta, old: Option<Old>) -> u32 {
        let special = if self.order.owner && self.policy.owners { 0o7000 } else { 0 };
        if self.order.perms {
            return meta.mode & (0o777 | special);
        }
        // Other bytes do not get the rights of whoever trusted the old ones.
        old.map_or(meta.mode & 0o777 & !self.policy.umask, |old| old.meta.mode & (0o777 | special))
    }

    /// Those of a directory.
    #[must_use]
    pub fn directory_mode(&self, meta: &Meta) -> u32 {
        if self.order.perms {
            let special = if self.order.owner && self.policy.owners { 0o7000 } else { 0o1000 };
            return meta.mode & (0o777 | special);
        }
        meta.mode & 0o777 & !self.policy.umask
    }

    fn times(&self, meta: &Meta) -> Option<Timestamps> {
        self.order.times.then(|| Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: meta.mtime,
                tv_nsec: meta.nanos.min(999_999_999).into(),
            },
        })
    }

    /// Sets those of an open file or directory, where they are not so. `is` are its own now.
    /// Returns whether any was.
    ///
    /// # Errors
    /// The system's.
    pub fn set(&self, file: impl AsFd, meta: &Meta, mode: u32, is: &Meta) -> Result<bool> {
        let mut set = false;
        let (uid, gid) = self.owners.of(self.order, self.policy, meta);
        let (uid, gid) =
            (uid.filter(|uid| uid.as_raw() != is.uid), gid.filter(|gid| gid.as_raw() != is.gid));
        if uid.is_some() || gid.is_some() {
            rustix::fs::fchown(&file, uid, gid)?;
            set = true;
        }
        // A change of owner takes the special bits away.
        if mode != is.mode || set && mode & 0o6000 != 0 {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            set = true;
        }
        if let Some(times) = self.times(meta)
            && (meta.mtime, meta.nanos) != (is.mtime, is.nanos)
        {
            rustix::fs::futimens(&file, &times)?;
            set = true;
        }
        Ok(set)
    }

    /// Sets those of a link. It has no permissions.
    ///
    /// # Errors
    /// The system's.
    pub fn set_link(&self, dir: &OwnedFd, name: &[u8], meta: &Meta) -> Result<()> {
        let (uid, gid) = self.owners.of(self.order, self.policy, meta);
        if uid.is_some() || gid.is_some() {
            rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(times) = self.times(meta) {
            match rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW) {
                // Not every file system has times for links.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
