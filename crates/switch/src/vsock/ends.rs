//! How connections begin and end: who knows of them, and who is told.

use super::connection::{At, Connection, End, State};
use super::hub::{Hub, MAX_BEGUN};
use super::machine::{Shown, key};
use super::packet::Op;
use crate::ring::Slices;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

/// Connections that one machine began and of which somebody is still to be told, of which it has at
/// most a part of what is free with one other: so those that take nothing leave some for those that
/// do, as with [bytes that wait](super::give). For the first it is as many as may be open.
const MOST_KEPT: usize = 5 * MAX_BEGUN;
const PART_OF_FREE: usize = 4;
/// A connection that nobody has answered for so long makes room for another, seconds.
const UNANSWERED: u32 = 10;

/// Among whose connections one with these ends is kept.
fn kept_by(ends: &[End; 2]) -> Option<(u32, At)> {
    match [ends[0].at, ends[1].at] {
        [At::Machine(from), to] => Some((from, to)),
        [At::Host, At::Machine(to)] => Some((to, At::Host)),
        [At::Host, At::Host] => None,
    }
}

impl Hub {
    /// Notes a connection: its number.
    pub(super) fn connect(&mut self, ends: [End; 2]) -> u64 {
        let id = self.number();
        self.connect_as(id, ends);
        id
    }

    /// The same under this number.
    pub(super) fn connect_as(&mut self, id: u64, ends: [End; 2]) {
        let keys = [key(&ends[0], &ends[1]), key(&ends[1], &ends[0])];
        for (place, known) in keys.into_iter().enumerate() {
            let Some((index, key)) = known else { continue };
            let Some(machine) = self.machine(index) else { continue };
            machine.connections.insert(key, id);
            machine.began += usize::from(place == 0);
            Shown::add(&machine.shown.connections, 1);
        }
        if let Some(pair) = kept_by(&ends) {
            *self.kept.entry(pair).or_default() += 1;
            if let (from, At::Machine(_)) = pair
                && let Some(machine) = self.machine(from)
            {
                machine.kept += 1;
            }
        }
        let began = self.clock.seconds;
        let (state, stream) = (State::Asked, None);
        self.connections.insert(id, Connection { ends, state, began, stream });
    }

    /// May a machine begin another connection with this one?
    pub(super) fn may_keep(&self, from: u32, to: u32) -> bool {
        let all = self.machines.get(from as usize).map_or(MOST_KEPT, |one| one.kept);
        let own = self.kept.get(&(from, At::Machine(to))).copied().unwrap_or_default();
        own < MOST_KEPT.saturating_sub(all) / PART_OF_FREE
    }

    /// Forgets a connection that is over and of which nobody is to be told anything more.
    pub(super) fn tidy(&mut self, id: u64) {
        let is_done = |one: &Connection| {
            let told = one.ends.iter().all(|end| end.waiting.is_empty() || end.at == At::Host);
            one.state == State::Over && told && one.stream.is_none()
        };
        if !self.connections.get(&id).is_some_and(is_done) {
            return;
        }
        let Some(pair) = self.connections.remove(&id).and_then(|one| kept_by(&one.ends)) else {
            return;
        };
        if let Entry::Occupied(mut count) = self.kept.entry(pair) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if let (from, At::Machine(_)) = pair
            && let Some(machine) = self.machine(from)
        {
            machine.kept -= 1;
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A machine's connections that nobody answers make room for others.
    pub(super) fn forget_unanswered(&mut self, index: u32) {
        let now = self.clock.seconds;
        let Some(machine) = self.machine(index) else { return };
        // Looking at all of them at each packet would take long.
        if std::mem::replace(&mut machine.swept, now) == now {
            return;
        }
        let old = |one: &Connection| {
            let asked = one.state == State::Asked && one.ends[0].at == At::Machine(index);
            asked && now.saturating_sub(one.began) >= UNANSWERED
        };
        let all = self.connections.iter().filter(|(_, one)| old(one));
        for id in all.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.reset(id, None);
        }
    }

    /// Resets a connection: both ends are told. `culprit` broke a rule.
    pub(super) fn reset(&mut self, id: u64, culprit: Option<u32>) {
        if let Some(index) = culprit {
            self.count(index, |shown| Shown::add(&shown.reset, 1));
        }
        self.end(id, None);
    }

    /// A connection is over; whoever is not `by` is told. What waits for a program of the host
    /// still goes to it, and once more of this ends its stream.
    pub(super) fn end(&mut self, id: u64, by: Option<u32>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            State::Ending => return,
            State::Over => {
                self.let_go(id);
                return self.tidy(id);
            }
            State::Asked | State::Open => connection.state = State::Ending,
        }
        let [one, two] = &connection.ends;
        let keys = [key(one, two), key(two, one)];
        let own = |one: &End| by.is_some_and(|by| one.at == At::Machine(by));
        let told = [own(one), own(two)];
        if [one, two].iter().all(|end| end.at != At::Host || end.waiting.data.is_empty()) {
            self.let_go(id);
        }
        for (place, known) in keys.into_iter().enumerate() {
            let Some((index, key)) = known else { continue };
            let Some(machine) = self.machine(index) else { continue };
            if machine.connections.get(&key) == Some(&id) {
                machine.connections.remove(&key);
                machine.shown.connections.fetch_sub(1, Ordering::Relaxed);
            }
            machine.began -= usize::from(place == 0);
            let asks =
                self.connections.get(&id).map(|one| one.ends[place].waiting.has(Op::Request));
            if told[place] || asks == Some(true) {
                // Whoever was never asked need not be told.
                self.drop_waiting(id, place);
            } else {
                self.give(id, place, Op::Rst, 0, &mut Slices::new());
            }
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Over;
        }
        self.tidy(id);
    }

    /// Nothing more is said to the program of the host that is one of a connection's ends.
    fn let_go(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let guest = connection.ends.iter().find_map(|end| match end.at {
            At::Machine(index) => Some(index),
            At::Host => None,
        });
        if let (Some(stream), Some(index)) = (connection.stream.take(), guest) {
            self.send_away(index, stream.socket);
        }
    }

    /// Every connection of a machine is over: it was let go, or has booted again.
    pub(super) fn end_all(&mut self, index: u32) {
        let Some(machine) = self.machine(index) else { return };
        let all: Vec<u64> = machine.connections.values().copied().collect();
        machine.replies.clear();
        // Before they end: each of them would be looked for in it.
        let queue = std::mem::take(&mut machine.queue);
        for id in all {
            self.end(id, Some(index));
        }
        for id in queue {
            for place in 0..2 {
                let its = self.connections.get(&id).map(|one| one.ends[place].at);
                if its == Some(At::Machine(index)) {
                    self.drop_waiting(id, place);
                }
            }
            self.tidy(id);
        }
    }
}
