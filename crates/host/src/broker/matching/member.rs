//! A process that asks, with the pairs that it has.

use super::{Client, shares};
use std::collections::{HashMap, HashSet};

/// What is known of a process.
pub(super) struct Member {
    pub(super) user: u32,
    /// Under which numbers its ends wait.
    pub(super) waits: HashSet<(u32, u32)>,
    /// With whom it is a pair.
    pub(super) with: HashMap<Client, u64>,
    /// The pairs whose memory it may have mapped …
    pub(super) has: HashSet<u64>,
    /// … and how many of them with each user.
    pub(super) has_with: HashMap<u32, usize>,
}

impl Member {
    /// May it have one more pair with a process of `user`?
    pub(super) fn has_room_with(&self, user: u32) -> bool {
        let with = self.has_with.get(&user).copied().unwrap_or(0);
        shares::has_room(with, self.has.len(), ginnel_tcp::pairs::MOST)
    }

    pub(super) fn keep(&mut self, id: u64, other: Client, user: u32) {
        self.with.insert(other, id);
        self.has.insert(id);
        *self.has_with.entry(user).or_default() += 1;
    }

    pub(super) fn forget(&mut self, id: u64, user: u32) {
        if self.has.remove(&id)
            && let Some(count) = self.has_with.get_mut(&user)
        {
            *count -= 1;
            if *count == 0 {
                self.has_with.remove(&user);
            }
        }
    }
}
