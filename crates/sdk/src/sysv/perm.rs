//! Who may do what to an object: `ipc_perm` as it stands in its first page.

use super::{No, now};
use crate::raw::Area;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const OWNER: usize = 0x40;
const MAKER: usize = 0x48;
const MODE: usize = 0x50;
const CHANGED: usize = 0x58;

/// `CAP_IPC_OWNER` and `CAP_SYS_ADMIN` (capabilities(7)).
const IPC_OWNER: u32 = 15;
const SYS_ADMIN: u32 = 21;

/// Who calls.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// Its process number.
    pub pid: u32,
    /// Its thread's effective user, asked for only where that matters.
    pub uid: fn() -> u32,
    /// Its thread's effective group, likewise.
    pub gid: fn() -> u32,
    /// Is it in this group, too?
    pub in_group: fn(u32) -> bool,
    /// Has it this capability?
    pub is_capable: fn(u32) -> bool,
}

/// What a call is about to do to an object: read (4), write (2), execute (1).
#[derive(Debug, Clone, Copy)]
pub struct Access(pub u32);

impl Access {
    /// Looks.
    pub const READ: Self = Self(4);
    /// Changes.
    pub const WRITE: Self = Self(2);
}

/// What `IPC_STAT` says of who may do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Perm {
    /// The key; 0 where it has none.
    pub key: i32,
    /// The user who owns it.
    pub uid: u32,
    /// The group that owns it.
    pub gid: u32,
    /// The user who made it.
    pub cuid: u32,
    /// The group of who made it.
    pub cgid: u32,
    /// Nine bits, and those that only are shown.
    pub mode: u32,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Perm {
    /// Writes what a new object has.
    pub(super) fn put(words: Area, caller: &Caller, key: i32, mode: u32) {
        let own = pair((caller.uid)(), (caller.gid)());
        words.word(OWNER).store(own, Relaxed);
        words.word(MAKER).store(own, Relaxed);
        words.word(MODE).store(pair(mode & 0o777, key.cast_unsigned()), Relaxed);
        words.word(CHANGED).store(now(), Relaxed);
    }

    /// What stands there.
    pub(super) fn of(words: Area) -> Self {
        let (uid, gid) = halves(words.word(OWNER).load(Relaxed));
        let (cuid, cgid) = halves(words.word(MAKER).load(Relaxed));
        let (mode, key) = halves(words.word(MODE).load(Acquire));
        Self { key: key.cast_signed(), uid, gid, cuid, cgid, mode: mode & 0xffff }
    }

    /// Seconds at which it was changed last.
    pub(super) fn changed(words: Area) -> u64 {
        words.word(CHANGED).load(Relaxed)
    }

    pub(super) fn touch(words: Area) {
        words.word(CHANGED).store(now(), Relaxed);
    }

    /// EACCES unless the caller may (the kernel's `ipcperms`).
    ///
    /// # Errors
    /// As said.
    pub fn check(&self, caller: &Caller, access: Access) -> Result<(), No> {
        let to_all = self.mode & self.mode >> 3 & self.mode >> 6;
        if access.0 & !to_all & 7 == 0 {
            return Ok(());
        }
        let is_in = |gid: u32| gid == (caller.gid)() || (caller.in_group)(gid);
        let granted = if self.is_owner(caller) {
            self.mode >> 6
        } else if is_in(self.cgid) || is_in(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        if access.0 & !granted & 7 == 0 || (caller.is_capable)(IPC_OWNER) {
            Ok(())
        } else {
            Err(No::Errno(libc::EACCES))
        }
    }

    /// The same for what `…get` was asked for: any of the three digits.
    pub(super) fn check_flags(&self, caller: &Caller, flags: i32) -> Result<(), No> {
        let flags = flags.cast_unsigned();
        self.check(caller, Access((flags >> 6 | flags >> 3 | flags) & 7))
    }

    /// EPERM unless the caller may change who may, and remove it.
    ///
    /// # Errors
    /// As said.
    pub fn check_owner(&self, caller: &Caller) -> Result<(), No> {
        let may = self.is_owner(caller) || (caller.is_capable)(SYS_ADMIN);
        if may { Ok(()) } else { Err(No::Errno(libc::EPERM)) }
    }

    /// Does the caller own it, or has it made it?
    #[must_use]
    pub fn is_owner(&self, caller: &Caller) -> bool {
        let uid = (caller.uid)();
        uid == self.cuid || uid == self.uid
    }

    /// Gives it to another owner, with another mode (`IPC_SET`).
    pub(super) fn set(words: Area, uid: u32, gid: u32, mode: u32) {
        words.word(OWNER).store(pair(uid, gid), Relaxed);
        Self::change_mode(words, |old| old & !0o777 | mode & 0o777);
        Self::touch(words);
    }

    pub(super) fn change_mode(words: Area, change: impl Fn(u32) -> u32) {
        let changed = |word| {
            let (mode, key) = halves(word);
            Some(pair(change(mode), key))
        };
        // Somebody who writes there without end has the last word.
        let word = words.word(MODE);
        let seen = word.load(Relaxed);
        if let Some(new) = changed(seen) {
            let _ = word.compare_exchange(seen, new, Release, Relaxed);
        }
    }

    /// It has no key any more.
    pub(super) fn forget_key(words: Area, more: u32) {
        let (mode, _) = halves(words.word(MODE).load(Relaxed));
        words.word(MODE).store(pair(mode | more, 0), Release);
    }
}
