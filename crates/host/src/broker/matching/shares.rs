//! How much of the broker's room each user has, and two users together.
//!
//! A user's own limit does not do alone: a few hostile users who each fill theirs would have all
//! that there is. So of everything that all share, whoever has some of it may take more only while
//! many times that is free ([`has_room`]), and whoever has none may take one while anything is
//! free.
//!
//! A pair counts to *both* users together, whoever connected. If it counted to who connected, a
//! server could use up its client's pairs with others, by handing each connection in as another
//! process; if it counted to who accepted, clients could use up their server's. What two users have
//! together is theirs to fill, and no third one's loss.

use std::collections::HashMap;
use std::hash::Hash;

/// Processes of one user that may ask …
pub const CLIENTS_OF_USER: usize = 256;
/// … and of all.
const CLIENTS_OF_ALL: usize = 8192;
/// Ends of one user that wait, and of all.
const WAITING_OF_USER: usize = 256;
const WAITING_OF_ALL: usize = 16384;
/// Pairs of all users. Each keeps a page of the broker's memory.
const PAIRS_OF_ALL: usize = 65536;
/// Who has some of what all share takes more only while so many times that is free.
const FREE: usize = 8;

/// May somebody who has `own` of `all` things, of which `taken` are not free, have one more?
pub fn has_room(own: usize, taken: usize, all: usize) -> bool {
    all.saturating_sub(taken) > own.saturating_mul(FREE)
}

/// What users take of one kind of thing, and give back.
struct Share<User> {
    /// Things of one user …
    most_of_one: usize,
    /// … and of all.
    most: usize,
    of: HashMap<User, usize>,
    taken: usize,
}

impl<User: Copy + Eq + Hash> Share<User> {
    fn new(most_of_one: usize, most: usize) -> Self {
        Self { most_of_one, most, of: HashMap::new(), taken: 0 }
    }

    /// One more, if there may be one.
    fn take(&mut self, user: User) -> bool {
        let count = self.count(user);
        let may = count < self.most_of_one && has_room(count, self.taken, self.most);
        if may {
            self.of.insert(user, count + 1);
            self.taken += 1;
        }
        may
    }

    /// One less. Of whoever has none nothing is kept.
    fn give_back(&mut self, user: User) {
        let Some(count) = self.of.get_mut(&user) else { return };
        *count -= 1;
        self.taken -= 1;
        if *count == 0 {
            self.of.remove(&user);
        }
    }

    fn count(&self, user: User) -> usize {
        self.of.get(&user).copied().unwrap_or(0)
    }
}

/// What is taken.
pub struct Shares {
    clients: Share<u32>,
    waiting: Share<u32>,
    /// Of two users together, of whom the first has the lower number.
    pairs: Share<[u32; 2]>,
}

impl Shares {
    /// `pairs_of_two`: pairs that two users may have together.
    pub fn new(pairs_of_two: usize) -> Self {
        Self {
            clients: Share::new(CLIENTS_OF_USER, CLIENTS_OF_ALL),
            waiting: Share::new(WAITING_OF_USER, WAITING_OF_ALL),
            pairs: Share::new(pairs_of_two, PAIRS_OF_ALL),
        }
    }

    /// A process of `user`, if there may be one more.
    pub fn enter(&mut self, user: u32) -> bool {
        self.clients.take(user)
    }

    pub fn leave(&mut self, user: u32) {
        self.clients.give_back(user);
    }

    /// An end of `user` waits, if there may be one more.
    pub fn wait(&mut self, user: u32) -> bool {
        self.waiting.take(user)
    }

    pub fn end_wait(&mut self, user: u32) {
        self.waiting.give_back(user);
    }

    /// Ends that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.taken
    }

    /// A pair of these users, if there may be one more.
    pub fn pair(&mut self, users: [u32; 2]) -> bool {
        self.pairs.take(ordered(users))
    }

    pub fn unpair(&mut self, users: [u32; 2]) {
        self.pairs.give_back(ordered(users));
    }

    #[cfg(test)]
    pub fn are_free(&self) -> bool {
        self.clients.of.is_empty() && self.waiting.of.is_empty() && self.pairs.of.is_empty()
    }

    #[cfg(test)]
    pub fn together(&self, one: u32, other: u32) -> usize {
        self.pairs.count(ordered([one, other]))
    }
}

fn ordered(mut users: [u32; 2]) -> [u32; 2] {
    users.sort_unstable();
    users
}
