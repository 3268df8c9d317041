//! The objects of a segment, as `ginnel ls` shows them.

use crate::object::shown;
use crate::waiting::waiting;
use crate::{Kind, Result, Segment};

/// What `ginnel ls` shows of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name; bytes that are no UTF-8 are escaped (`\xff`), and [`Segment::remove`] takes it so.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes for its users.
    pub size: u64,
    /// The process with which the name goes; `None`: it is kept until it is removed.
    pub owner: Option<User>,
    /// Processes that use it.
    pub users: Vec<User>,
    /// How many wait at it at the moment, or have asked to be told.
    pub waiting: u32,
    /// It has no name any more, and is freed when nobody uses it.
    pub removed: bool,
}

/// A process that uses an object, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its number, in its own pid namespace; 0 where it says none.
    pub pid: u32,
    /// Its program.
    pub program: String,
}

impl Segment {
    /// Every object of the segment, by name.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Gone`], [`Error::Lost`].
    pub fn objects(&self) -> Result<Vec<ObjectInfo>> {
        let presence = &self.inner.presence;
        presence.check_looking()?;
        presence.sweep();
        let (names, all_users) = (presence.segment().names(), presence.users());
        let mut objects: Vec<_> = names
            .entries()
            .map(|entry| {
                let user =
                    |(pid, program): &(u32, String)| User { pid: *pid, program: program.clone() };
                let owner = entry.owner.map(|owner| user(&(presence.pid_of(owner), String::new())));
                ObjectInfo {
                    name: shown(&entry.name),
                    kind: Kind::of(entry.kind),
                    size: entry.size,
                    owner,
                    users: all_users.of(&entry).iter().map(user).collect(),
                    waiting: waiting(presence, &entry),
                    removed: entry.removed,
                }
            })
            .collect();
        objects.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }
}
