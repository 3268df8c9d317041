//! Which ends wait, which processes are a pair, and what one user may have of it. Pure numbers: no
//! socket and no memory is touched here.
//!
//! Two ends are those of one connection if their initial sequence numbers mirror each other. Of 64
//! bits nobody guesses them by chance; but whoever may change a network can make a socket there
//! with any numbers (TCP_REPAIR), and any user may own a network. So both ends' networks must
//! belong to one user namespace: who can forge a socket there can take the connection itself, too.
//! The kernel draws the numbers from the addresses and a clock, and every network has the same
//! loopback addresses: so two ends that both stayed within their network must be in one. An end
//! with the right numbers in a foreign network is no other end: both go on waiting, and hear of it
//! when nobody else came.
//!
//! What is limited counts for those who make it grow ([`shares`]): ends that wait for whoever
//! asked, pairs for the two users who have them *together*. Of what all share, nobody gets the
//! last.

mod member;
mod shares;

use crate::prover::numbers::Place;
use ginnel_tcp::broker::Verdict;
use ginnel_tcp::proof::Numbers;
use member::Member;
pub use shares::CLIENTS_OF_USER;
use shares::Shares;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How long an end waits for the other one.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Ends with the same numbers that one user has waiting at once: a socket that several processes
/// have.
const SAME: usize = 4;

/// A process that asks: its connection to the broker.
pub type Client = u64;

/// One end that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Who handed it in.
    pub client: Client,
    /// The number of its question.
    pub number: u64,
    /// It called connect.
    pub connected: bool,
    /// The sequence numbers.
    pub numbers: Numbers,
    /// Where it is.
    pub place: Place,
}

/// Why an end gets no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub verdict: Verdict,
    /// The other end, which waits no longer, and is to hear the same.
    pub also: Option<End>,
}

impl From<Verdict> for Refusal {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, also: None }
    }
}

/// Two ends of one connection, whose processes have a memory of their own, or are to get one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The number of the two processes' pair.
    pub id: u64,
    /// It was made just now: both processes are to get its memory.
    pub is_new: bool,
    /// The end that came first, and waits.
    pub first: End,
    /// The end that came to it.
    pub second: End,
}

/// What became of a new pair while its processes were told.
#[derive(Debug, PartialEq, Eq)]
pub struct Introduced {
    /// One of the two has gone, or wants none of it.
    pub has_ended: bool,
    /// Ends that met while one of the two did not have the memory yet: they are to be told now.
    pub queued: Vec<Pair>,
}

struct Waiting {
    end: End,
    until: Instant,
    /// An end with the right numbers is in a foreign network.
    saw_foreign: bool,
}

/// A pair of processes, until both are through with its memory: the one that is left has it mapped
/// for as long as it has a connection there, and the pair counts until it says that it has not.
struct Known {
    between: [Client; 2],
    users: [u32; 2],
    /// Which of the two may have its memory mapped.
    has: [bool; 2],
    /// Ends of further connections meet there.
    lasts: bool,
    /// Both were told.
    is_told: bool,
    queued: Vec<Pair>,
}

/// Everything that the broker remembers.
pub struct Matching {
    shares: Shares,
    clients: HashMap<Client, Member>,
    waiting: HashMap<(u32, u32), Vec<Waiting>>,
    /// When it is to be looked under which numbers whether an end has waited long enough, in order.
    due: VecDeque<(Instant, (u32, u32))>,
    pairs: HashMap<u64, Known>,
    last: u64,
}

impl Matching {
    /// Nobody is known. `pairs`: how many two users may have together.
    #[must_use]
    pub fn new(pairs: usize) -> Self {
        Self {
            shares: Shares::new(pairs),
            clients: HashMap::new(),
            waiting: HashMap::new(),
            due: VecDeque::new(),
            pairs: HashMap::new(),
            last: 0,
        }
    }

    /// A process of `user` comes to ask; `None`: there are as many of this user, or of all, as
    /// there may be.
    pub fn enter(&mut self, user: u32) -> Option<Client> {
        if !self.shares.enter(user) {
            return None;
        }
        let client = self.next();
        let member = Member {
            user,
            waits: HashSet::new(),
            with: HashMap::new(),
            has: HashSet::new(),
            has_with: HashMap::new(),
        };
        self.clients.insert(client, member);
        Some(client)
    }

    /// A process goes. Returns who was a pair with it, and of which pair.
    pub fn leave(&mut self, client: Client) -> Vec<(Client, u64)> {
        let Some(member) = self.clients.get(&client) else { return Vec::new() };
        let (user, waits, has) = (member.user, member.waits.clone(), member.has.clone());
        for key in waits {
            self.forget_waiting_at(key, |waiting| waiting.end.client == client);
        }
        let others = has.into_iter().filter_map(|id| Some((self.part(client, id)?, id))).collect();
        self.clients.remove(&client);
        self.shares.leave(user);
        others
    }

    /// A process has a pair's memory no longer. Returns who does not know yet that the pair has
    /// ended.
    pub fn part(&mut self, client: Client, id: u64) -> Option<Client> {
        let pair = self.pairs.get_mut(&id)?;
        let side = pair.between.iter().position(|&one| one == client)?;
        let other = pair.between[1 - side];
        if !std::mem::take(&mut pair.has[side]) {
            return None;
        }
        let lasted = std::mem::take(&mut pair.lasts);
        let user = pair.users[1 - side];
        if lasted {
            for (one, another) in [(client, other), (other, client)] {
                self.clients.get_mut(&one).and_then(|member| member.with.remove(&another));
            }
        }
        if let Some(member) = self.clients.get_mut(&client) {
            member.forget(id, user);
        }
        self.forget_if_over(id);
        lasted.then_some(other)
    }

    /// A pair that neither process has counts no longer. (While they are told ends may be queued
    /// there.)
    fn forget_if_over(&mut self, id: u64) {
        let is_over = |pair: &Known| pair.is_told && pair.has == [false; 2];
        if self.pairs.get(&id).is_some_and(is_over)
            && let Some(pair) = self.pairs.remove(&id)
        {
            self.shares.unpair(pair.users);
        }
    }

    /// An end was handed in. `Ok(Some)`: the other one was there, and the two processes are a pair;
    /// `Ok(None)`: it waits.
    ///
    /// # Errors
    /// Why not.
    pub fn hand_in(&mut self, end: End, now: Instant) -> Result<Option<Pair>, Refusal> {
        let user = self.clients.get(&end.client).ok_or(Verdict::Nobody)?.user;
        let key = (end.numbers.received, end.numbers.sent);
        let (mut found, mut is_own, mut saw_foreign) = (None, false, false);
        for other in self.waiting.get_mut(&key).into_iter().flatten() {
            if other.until <= now || other.end.connected == end.connected {
                continue;
            }
            if !other.end.place.may_reach(end.place) {
                (other.saw_foreign, saw_foreign) = (true, true);
            } else if other.end.client == end.client {
                is_own = true;
            } else {
                found = found.or(Some(other.end));
            }
        }
        match found {
            Some(first) => self.pair(first, end),
            None if is_own => Err(Verdict::OneProcess.into()),
            None => self
                .wait(Waiting { end, until: now + PATIENCE, saw_foreign }, user, now)
                .map_err(Refusal::from)
                .map(|()| None),
        }
    }

    fn wait(&mut self, waiting: Waiting, user: u32, now: Instant) -> Result<(), Verdict> {
        let (end, until) = (waiting.end, waiting.until);
        let key = (end.numbers.sent, end.numbers.received);
        // Asked again, by the same process: the number is the new one.
        self.forget_waiting_at(key, |waiting| {
            waiting.end.client == end.client || waiting.until <= now
        });
        let is_users = |other: &&Waiting| {
            self.clients.get(&other.end.client).is_some_and(|member| member.user == user)
        };
        let same = self.waiting.get(&key).map_or(0, |ends| ends.iter().filter(is_users).count());
        if same >= SAME || !self.shares.wait(user) {
            return Err(Verdict::TooMany);
        }
        if let Some(member) = self.clients.get_mut(&end.client) {
            member.waits.insert(key);
        }
        self.waiting.entry(key).or_default().push(waiting);
        self.due.push_back((until, key));
        // Those whose ends wait no more are left where they are, until they are the most.
        if self.due.len() > 2 * self.shares.waiting() + 64 {
            let waiting = &self.waiting;
            self.due.retain(|(until, key)| {
                waiting.get(key).is_some_and(|ends| ends.iter().any(|one| one.until == *until))
            });
        }
        Ok(())
    }

    fn pair(&mut self, first: End, second: End) -> Result<Option<Pair>, Refusal> {
        let numbers = first.numbers;
        self.forget_waiting_at((numbers.sent, numbers.received), |waiting| waiting.end == first);
        let between = [first.client, second.client];
        let [Some(one), Some(other)] = between.map(|client| self.clients.get(&client)) else {
            return Err(Verdict::Nobody.into());
        };
        let refusal = Refusal { verdict: Verdict::TooManyPairs, also: Some(first) };
        if let Some(&id) = one.with.get(&second.client) {
            let pair = Pair { id, is_new: false, first, second };
            return Ok(match self.pairs.get_mut(&id) {
                Some(known) if !known.is_told => {
                    known.queued.push(pair);
                    None
                }
                _ => Some(pair),
            });
        }
        let users = [one.user, other.user];
        if !one.has_room_with(users[1])
            || !other.has_room_with(users[0])
            || !self.shares.pair(users)
        {
            return Err(refusal);
        }
        let id = self.next();
        let known = Known {
            between,
            users,
            has: [true; 2],
            lasts: true,
            is_told: false,
            queued: Vec::new(),
        };
        self.pairs.insert(id, known);
        for side in [0, 1] {
            if let Some(member) = self.clients.get_mut(&between[side]) {
                member.keep(id, between[1 - side], users[1 - side]);
            }
        }
        Ok(Some(Pair { id, is_new: true, first, second }))
    }

    /// Both processes of a new pair were told.
    pub fn introduced(&mut self, id: u64) -> Introduced {
        let Some(pair) = self.pairs.get_mut(&id) else {
            return Introduced { has_ended: true, queued: Vec::new() };
        };
        pair.is_told = true;
        let introduced =
            Introduced { has_ended: !pair.lasts, queued: std::mem::take(&mut pair.queued) };
        self.forget_if_over(id);
        introduced
    }

    /// A new pair came to nothing: there was no memory, or it could not be given to both. Returns
    /// what was to meet there meanwhile.
    pub fn undo(&mut self, id: u64) -> Vec<Pair> {
        let Some(pair) = self.pairs.get(&id) else { return Vec::new() };
        for client in pair.between {
            self.part(client, id);
        }
        self.introduced(id).queued
    }

    /// Forgets the ends to which nobody came in time, and returns them with what they are to hear.
    pub fn give_up(&mut self, now: Instant) -> Vec<(End, Verdict)> {
        let mut gone = Vec::new();
        while let Some(&(_, key)) = self.due.front().filter(|(until, _)| *until <= now) {
            self.due.pop_front();
            gone.extend(self.forget_waiting_at(key, |waiting| waiting.until <= now));
        }
        let verdict = |waiting: Waiting| {
            if waiting.saw_foreign { Verdict::OtherNetwork } else { Verdict::Nobody }
        };
        gone.into_iter().map(|waiting| (waiting.end, verdict(waiting))).collect()
    }

    /// Does any end wait?
    #[must_use]
    pub fn is_waited(&self) -> bool {
        self.shares.waiting() > 0
    }

    fn forget_waiting_at(
        &mut self,
        key: (u32, u32),
        mut which: impl FnMut(&Waiting) -> bool,
    ) -> Vec<Waiting> {
        let Some(ends) = self.waiting.get_mut(&key) else { return Vec::new() };
        let gone: Vec<Waiting> = ends.extract_if(.., |waiting| which(waiting)).collect();
        if ends.is_empty() {
            self.waiting.remove(&key);
        }
        for waiting in &gone {
            if let Some(member) = self.clients.get_mut(&waiting.end.client) {
                member.waits.remove(&key);
                self.shares.end_wait(member.user);
            }
        }
        gone
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

#[cfg(test)]
mod tests;
