//! System V shared memory and semaphores (sysvipc(7)) in a segment, for the library that is
//! preloaded into unmodified programs (`crates/sysv`). Not part of this crate's interface.
//!
//! A segment is one IPC namespace. Each shared memory segment and each set of semaphores is a named
//! object: `sysv.shm.0x00001234`, or `sysv.shm.private.PARTY.N` for `IPC_PRIVATE`. So that two
//! cannot have one key, that what is half made when its maker dies is freed, that what is removed
//! stays for its users: all that comes from names and objects as they are. An id is where the name
//! stands in the table:
//!
//! | bits of an id | what |
//! |---|---|
//! | 0–10 | entry |
//! | 11–29 | generation of the entry, as far as there is room |
//! | 30 | 1, which ids of the kernel's have only after billions |
//!
//! What a call means is said by errors of the manual pages ([`No::Errno`]); what does not fit into
//! the segment goes to the kernel ([`No::Kernel`]).
//!
//! | offset | what stands in an object's first page, behind [`crate::object`]'s words |
//! |---|---|
//! | 0x40 | user (bits 0–31) and group (32–63) that own it |
//! | 0x48 | user and group that made it |
//! | 0x50 | mode (0–15), key (32–63) |
//! | 0x58 | seconds at which it was changed |
//! | 0x60 … | words of its kind |

mod asleep;
mod control;
mod doer;
mod memory;
mod operation;
mod perm;
mod quick;
mod set;
mod sleepers;
mod transaction;
mod undo;

pub use asleep::{interrupted, is_asleep};
pub use control::Ask;
pub use memory::{Attachment, Memory, MemoryStatus};
pub use operation::{Op, Waiting};
pub use perm::{Access, Caller, Perm};
pub use quick::Quick;
pub(crate) use set::wishes;
// (For the handlers of a fork that the library has.)
pub use crate::raw::at_fork;
pub use set::{HIGHEST, MOST_OPERATIONS, MOST_SEMAPHORES, Set, SetStatus};

use crate::joined::Inner;
use crate::object::Object;
use crate::{Error, Kind, Segment};
use ginnel_region::Entry;
use ginnel_region::names::NAMES;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// `key_t` of objects that nobody finds by a key.
pub const PRIVATE: i32 = libc::IPC_PRIVATE;

const ENTRY_BITS: u32 = 11;
const GENERATION: u32 = (1 << 19) - 1;
const OURS: u32 = 1 << 30;
/// The second number of an object that stands for one of the kernel's.
const ELSEWHERE: u64 = 1;
const _: () = assert!(NAMES == 1 << ENTRY_BITS);

/// Why a call is not answered with what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum No {
    /// Its answer is this `errno`.
    Errno(i32),
    /// It cannot be carried: the kernel is to be asked, and the user to be told why.
    Kernel(Error),
}

/// What a call gives.
pub type Answer<T> = Result<T, No>;

fn no<T>(errno: i32) -> Answer<T> {
    Err(No::Errno(errno))
}

/// What stands for an error of this crate's where an object was there already.
fn errno_of(error: &Error) -> i32 {
    match error {
        Error::SegmentFull { .. } | Error::NoMemory | Error::TooManyObjects => libc::ENOMEM,
        Error::Lost | Error::Gone => libc::EIDRM,
        Error::System { errno, .. } => *errno,
        _ => libc::EINVAL,
    }
}

impl From<Error> for No {
    fn from(error: Error) -> Self {
        Self::Errno(errno_of(&error))
    }
}

/// The id of what stands in an entry.
fn id_of((index, generation): (u32, u32)) -> i32 {
    let id = OURS | (generation & GENERATION) << ENTRY_BITS | index;
    i32::try_from(id).unwrap_or(-1)
}

/// Where the name of what an id stands for is in the table.
fn index_of(id: i32) -> u32 {
    id.cast_unsigned() & (NAMES - 1)
}

/// May this be an id that [`Space`] gave?
#[must_use]
pub fn is_ours(id: i32) -> bool {
    id >= 0 && id.cast_unsigned() & OURS != 0
}

/// Seconds since 1970, by the clock that the kernel takes for these times.
fn now() -> u64 {
    clock_gettime(ClockId::RealtimeCoarse).tv_sec.cast_unsigned()
}

/// Does the object only say that the kernel has what its name stands for?
fn is_elsewhere(object: &Object) -> bool {
    object.numbers[1] == ELSEWHERE
}

/// How an object is looked for or made.
#[derive(Debug, Clone, Copy)]
pub struct Get {
    /// Its key, or [`PRIVATE`].
    pub key: i32,
    /// `IPC_CREAT`, `IPC_EXCL` and nine bits of the mode.
    pub flags: i32,
}

impl Get {
    fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn mode(self) -> u32 {
        self.flags.cast_unsigned() & 0o777
    }
}

/// One process's System V objects in a segment. A child of fork makes another.
pub struct Space {
    segment: Segment,
    /// Sets that were used, by id: opening one for each call would cost more than the call.
    sets: Mutex<HashMap<i32, Arc<Set>>>,
    table: quick::Table,
}

impl Space {
    /// The objects of a segment.
    #[must_use]
    pub fn new(segment: Segment) -> Self {
        Self { segment, sets: Mutex::default(), table: quick::Table::default() }
    }

    /// Is this the process that made the value, and not a child of it? And is the segment there?
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.inner().presence.check().is_ok()
    }

    /// Bytes of the segment.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner().presence.segment().len()
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has children of fork keep this process's party alive, or not: see `presence/attached.rs`.
    /// True where that is so now.
    pub fn share_life(&self, with_children: bool) -> bool {
        self.inner().presence.share_life(with_children)
    }

    /// In a child that was made while that was so: gives it up.
    pub fn leave_life_to_parent(&self) {
        self.inner().presence.give_up_life();
    }

    fn inner(&self) -> &'static Inner {
        self.segment.inner
    }

    /// The name of an object.
    fn name(&self, what: &str, key: i32) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        if key != PRIVATE {
            return format!("sysv.{what}.{:#010x}", key.cast_unsigned());
        }
        let (party, count) =
            (self.inner().presence.party().bits(), COUNT.fetch_add(1, Ordering::Relaxed));
        format!("sysv.{what}.private.{party:x}.{count}")
    }

    /// The entry that an id of this space names.
    fn entry(&self, id: i32) -> Answer<Entry> {
        if !is_ours(id) {
            return no(libc::EINVAL);
        }
        let id = id.cast_unsigned() & !OURS;
        let entry = self.inner().presence.segment().names().at(id & (NAMES - 1));
        let same = |entry: &Entry| entry.generation & GENERATION == id >> ENTRY_BITS;
        entry.filter(same).ok_or(No::Errno(libc::EINVAL))
    }

    /// Looks for an object by its key, and makes it where that is asked for (as the kernel's
    /// `ipcget_public`). `check` looks at one that is there.
    fn get<T>(
        &self,
        get: Get,
        (what, kind): (&str, Kind),
        check: impl Fn(Object) -> Answer<T>,
        make: impl Fn(&str) -> Result<T, Error>,
    ) -> Answer<T> {
        self.forget_removed();
        let cannot = |error: Error| match error {
            error @ (Error::SegmentFull { .. } | Error::NoMemory | Error::NamesFull) => {
                No::Kernel(error)
            }
            error @ Error::TooManyObjects => No::Kernel(error),
            error => error.into(),
        };
        // It may come and go meanwhile, but not for ever.
        for _ in 0..100 {
            let name = self.name(what, get.key);
            let found = if get.key == PRIVATE {
                Err(Error::NotFound { name: name.clone() })
            } else {
                self.opened(|| Object::open(self.inner(), &name, kind))
            };
            match found {
                // The kernel has it, and says what there is to be said.
                Ok(object) if is_elsewhere(&object) => {
                    return Err(No::Kernel(Error::SegmentFull { bytes: object.numbers[0] }));
                }
                Ok(_) if get.has(libc::IPC_CREAT) && get.has(libc::IPC_EXCL) => {
                    return no(libc::EEXIST);
                }
                Ok(object) => return check(object),
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            if !get.has(libc::IPC_CREAT) && get.key != PRIVATE {
                return no(libc::ENOENT);
            }
            match make(&name) {
                Err(Error::Taken { .. }) => {}
                Err(Error::TooManyObjects) if self.forget_unused() => {}
                other => return other.map_err(cannot),
            }
        }
        no(libc::ENOSPC)
    }

    /// Opens something; where this process has as many objects as it may, once more without those
    /// that are only kept for the next call.
    fn opened<T>(&self, open: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        match open() {
            Err(Error::TooManyObjects) if self.forget_unused() => open(),
            other => other,
        }
    }

    fn sets(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Arc<Set>>> {
        self.sets.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Lets go of sets that no call is in. False where there is none.
    fn forget_unused(&self) -> bool {
        let mut sets = self.sets();
        let before = sets.len();
        sets.retain(|&id, set| Arc::strong_count(set) > 1 || !self.table.let_go(id));
        sets.len() < before
    }

    /// Lets go of sets that are removed, so that they are freed.
    fn forget_removed(&self) {
        self.sets().retain(|&id, set| set.is_there() || !self.table.let_go(id));
    }

    /// The highest entry that stands for an object of this kind, how many there are, and their
    /// bytes.
    #[must_use]
    pub fn usage(&self, kind: Kind) -> Usage {
        let names = self.inner().presence.segment().names();
        let mine = names.entries().filter(|entry| entry.kind == kind as u16);
        mine.fold(Usage::default(), |usage, entry| Usage {
            highest: usage.highest.max(entry.index),
            count: usage.count + 1,
            bytes: usage.bytes.saturating_add(entry.size),
        })
    }

    /// The id of what stands in an entry, as `SHM_STAT` and `SEM_STAT` count them.
    ///
    /// # Errors
    /// EINVAL where nothing of this kind does.
    pub fn id_at(&self, index: i32, kind: Kind) -> Answer<i32> {
        let entry = u32::try_from(index)
            .ok()
            .and_then(|index| self.inner().presence.segment().names().at(index));
        let entry =
            entry.filter(|entry| entry.kind == kind as u16).ok_or(No::Errno(libc::EINVAL))?;
        Ok(id_of((entry.index, entry.generation)))
    }
}

/// What a kind of object takes of a segment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// The highest entry in use.
    pub highest: u32,
    /// Objects.
    pub count: u32,
    /// Bytes of all of them.
    pub bytes: u64,
}
