//! In which order a set's connections in rings are told of: as the kernel tells of its own, in
//! which they became ready.
//!
//! The kernel keeps a list. Who becomes ready comes to its end; who is told of leaves it, or, where
//! that is level-triggered, comes to its end once more, until a wait finds it no longer ready. Here
//! nobody notes who becomes ready: that is found in a pass over the hot registrations, and the
//! writers say since when ([`ginnel_tcp::order`]). Who is found ready and has no place in this
//! wait is first in the next.

mod since;

use super::collect::{IN, OUT};
use super::edges::{BYTES, channel, key};
use super::hot::rang;
use super::{Inner, Registration, resolve};
use crate::spin::ticks;
use ginnel_ring::prefetch;
use ginnel_tcp::{Attachment, Endpoint, by_tcp};
use libc::epoll_event;
use since::LATE;

/// How many registrations a pass looks at together.
const TOGETHER: usize = 8;
/// A pass that found only what came meanwhile is repeated so often.
const AGAIN: u32 = 4;

/// What a set knows of its order.
#[derive(Default)]
pub struct Order {
    /// The registration that was looked at first (its number + 1), and whether others were: before,
    /// there is no order, and nobody is asked for one.
    first: u32,
    pub(super) several: bool,
    /// Found ready and not told of: (since when, registration), from `next` on.
    pub(super) due: Vec<(u64, u32)>,
    next: usize,
    /// Room for [`Self::sort_among`].
    pub(super) places: Vec<u32>,
}

impl Order {
    /// Room for as many as there are registrations: none may be taken in a wait.
    pub fn reserve(&mut self, registrations: usize) {
        self.due.reserve(registrations.saturating_sub(self.due.len()));
        self.places.reserve(registrations.saturating_sub(self.places.len()));
    }

    /// What was under way here is under way no more: nothing is due, and there is an order.
    pub fn heal(&mut self) {
        self.due.clear();
        (self.next, self.several) = (0, true);
    }

    /// A registration is looked at.
    fn looks_at(&mut self, index: u32) {
        self.several |= self.first != 0 && self.first != index + 1;
        if self.first == 0 {
            self.first = index + 1;
        }
    }

    /// Since when the next that is due is ready; the greatest time where none is.
    pub(super) fn next_since(&self) -> u64 {
        self.due.get(self.next).map_or(u64::MAX, |&(since, _)| since)
    }

    /// How many are due.
    fn len(&self) -> usize {
        self.due.len() - self.next
    }

    /// Are so many due that none needs to be found? Forgets those that are not any more: the kernel
    /// may have told of one before its turn.
    #[inline]
    fn has(&mut self, room: usize, registrations: &mut [Registration]) -> bool {
        if self.due.is_empty() {
            return false;
        }
        let is_due = |entry: &Registration, since: u64| entry.used && entry.turn.due == since;
        let mut first = self.due.iter().skip(self.next).take(room);
        let all = first.all(|&(since, index)| {
            registrations.get(index as usize).is_some_and(|entry| is_due(entry, since))
        });
        if all && self.len() >= room {
            return true;
        }
        self.due.drain(..self.next);
        self.next = 0;
        self.due.retain(|&(since, index)| {
            let entry = registrations.get_mut(index as usize);
            entry.is_some_and(|entry| {
                let stays = is_due(entry, since);
                if !entry.used {
                    entry.turn.due = 0;
                }
                stays
            })
        });
        false
    }

    /// The next that is due.
    pub fn pop(&mut self, registrations: &mut [Registration]) -> Option<u32> {
        loop {
            let &(since, index) = self.due.get(self.next)?;
            self.next += 1;
            if self.next == self.due.len() {
                self.due.clear();
                self.next = 0;
            }
            // One that is gone may have left its number to another, which is due by itself.
            let Some(entry) = registrations.get_mut(index as usize) else { continue };
            if entry.turn.due == since {
                entry.turn.due = 0;
                entry.turn.was_ready(since);
                return Some(index);
            }
        }
    }
}

/// Registration `index` was added. From the second on there is an order, and their writers are
/// asked for it.
pub(super) fn one_more(inner: &mut Inner, index: u32) {
    let Inner { registrations, order, .. } = inner;
    let Some(entry) = registrations.get_mut(index as usize).filter(|entry| entry.slot.is_some())
    else {
        return;
    };
    let empty = |endpoint: &Endpoint<'_>| endpoint.look_at_ring() == Some(false);
    if let Some(endpoint) = entry.endpoint().filter(empty) {
        entry.turn.clean = end_of_read(endpoint);
    }
    let before = order.several;
    order.looks_at(index);
    match (before, order.several) {
        (false, true) => {
            // What they have had come before this one was registered.
            let added = registrations.get(index as usize).map_or(0, |entry| entry.turn.since);
            let all = registrations.iter_mut().filter(|entry| entry.used);
            all.for_each(|entry| entry.ask_for_order(added.saturating_sub(1)));
        }
        (_, true) => registrations
            .get_mut(index as usize)
            .into_iter()
            .for_each(|entry| entry.ask_for_order(ticks())),
        _ => {}
    }
}

/// Registration `index`, the only one to look at in this pass, was found empty.
pub(super) fn found_empty(inner: &mut Inner, index: u32, now: u64, pass: u64) {
    let Inner { registrations, order, .. } = inner;
    order.looks_at(index);
    let Some(entry) = registrations.get_mut(index as usize) else { return };
    if order.several {
        entry.ask_for_order(now);
    }
    entry.turn.nothing = pass;
    if let Some(endpoint) = entry.endpoint() {
        entry.turn.clean = end_of_read(endpoint);
    }
    entry.turn.empty();
    entry.idle += 1;
}

/// Finds out which hot registrations have something to tell, in their order, where there is more
/// than one: at least as many as have room in this wait, if there are. `pass`: its number.
pub(super) fn find(inner: &mut Inner, attachment: &Attachment, room: usize, now: u64, pass: u64) {
    let mut now = now;
    let Inner { hot, registrations, order, .. } = &mut *inner;
    if let (&[index], 0) = (hot.as_slice(), order.len()) {
        order.looks_at(index);
        let Some(entry) = registrations.get_mut(index as usize) else { return };
        if order.several {
            entry.ask_for_order(now);
        }
        match ready(entry, entry.endpoint(), now, order.several, pass) {
            // Nor will it be looked at in this pass: who writes to it now may have rung before.
            Ready::Nothing => return entry.turn.nothing = pass,
            Ready::Unknown => return,
            Ready::Since(_) => {}
        }
        // Whoever rang by now may have written before this one did. (Not who rings after that: what
        // comes from here on has its turn in the next pass.)
        now = ticks();
        rang(inner, attachment);
        if inner.hot.len() == 1 {
            return;
        }
    }
    let mut late = find_before(inner, room, now, pass);
    for again in 1..=AGAIN {
        // There is nothing that was there before: what came meanwhile was there before the next.
        // (Should somebody's counter be ahead, what he wrote is told of all the same.)
        if !late || inner.order.len() != 0 {
            break;
        }
        let now = if again == AGAIN { u64::MAX } else { ticks() };
        rang(inner, attachment);
        late = find_before(inner, room, now, pass);
    }
}

/// Likewise, but only what was there before `now`, be it one ring's. True: something came since.
pub(super) fn find_before(inner: &mut Inner, room: usize, now: u64, pass: u64) -> bool {
    let Inner { registrations, order, .. } = &mut *inner;
    if order.has(room, registrations) {
        // Whoever is due became ready before those that are not found yet.
        return false;
    }
    let begun = order.due.len();
    let late = pass_over(inner, now, pass);
    sort(inner, begun);
    late
}

/// May something that was said over TCP since the kernel was asked come before all that is due?
/// (Whatever clock they have who said it, or if nobody noted when: it was said since then.)
pub(super) fn is_behind_tcp(inner: &Inner, attachment: &Attachment, now: u64) -> bool {
    by_tcp::begun(attachment, inner.begun_by_tcp, now).max(inner.asked) <= inner.order.next_since()
}

fn sort(inner: &mut Inner, begun: usize) {
    if let Some(found) = inner.order.due.get_mut(begun..) {
        found.sort_unstable();
    }
}

/// Adds to what is due what the hot rings have that was there before `before`, ticks. What came
/// since has its turn in the next pass: while these are looked at one by one, a writer may fill one
/// that was found empty, and then another that is yet to be looked at. True: there is such.
fn pass_over(inner: &mut Inner, before: u64, pass: u64) -> bool {
    let Inner { hot, registrations, order, .. } = inner;
    let now = if before == u64::MAX { ticks() } else { before };
    let mut late = false;
    for group in hot.chunks(TOGETHER) {
        // What their writers say is asked for at once, so that one comes while another is looked
        // at.
        let mut endpoints = [None; TOGETHER];
        for (endpoint, &index) in endpoints.iter_mut().zip(group) {
            *endpoint = registrations.get(index as usize).and_then(Registration::endpoint);
            endpoint.iter().for_each(|endpoint| prefetch::to_read(endpoint.writers_line()));
        }
        for (&index, endpoint) in group.iter().zip(endpoints) {
            let Some(entry) = registrations.get_mut(index as usize) else { continue };
            order.looks_at(index);
            if entry.turn.due != 0
                || entry.reported.0 == pass
                || order.due.len() == order.due.capacity()
            {
                continue;
            }
            match ready(entry, endpoint, now, order.several, pass) {
                Ready::Since(since) if since == LATE && before != u64::MAX => {
                    entry.turn.nothing = pass;
                    late = true;
                }
                Ready::Since(since) => {
                    let since = since.min(now).max(1);
                    entry.turn.due = since;
                    // (Its bytes are not asked for ahead: with many, that costs more than it
                    // saves.)
                    order.due.push((since, index));
                }
                Ready::Nothing => entry.turn.nothing = pass,
                Ready::Unknown => {}
            }
        }
    }
    late
}

/// Up to where all was read, as a [`key`].
fn end_of_read(endpoint: Endpoint<'_>) -> u64 {
    endpoint.unread_from() & BYTES | channel(endpoint)
}

/// Since when a registration that is changed now may be ready: what was in the kernel's list stays
/// in its place there.
pub(super) fn begins_anew(entry: &mut Registration) -> u64 {
    let now = ticks();
    if entry.turn.due != 0 || entry.turn.listed != 0 || !entry.used {
        return if entry.used { entry.turn.since } else { now };
    }
    if entry.wants(libc::EPOLLET) && entry.wants(libc::EPOLLOUT) && entry.room && !entry.disabled {
        // Room is yet to be told: whatever comes until a wait finds nothing has its place.
        entry.turn.listed = entry.turn.since.max(1);
        return entry.turn.since;
    }
    let told = |endpoint| entry.wants(libc::EPOLLET) && entry.was_told(key(endpoint));
    if entry.endpoint().is_some_and(told) {
        return now;
    }
    // (Of one that is not asked for, as its shot was spent, the kernel's list has nothing.)
    let asked = entry.endpoint().filter(|_| !entry.disabled);
    let read = asked.and_then(|endpoint| entry.came_and_was_read(endpoint, now));
    match ready(entry, entry.endpoint(), now, false, 0) {
        Ready::Since(since) => {
            // It is in the list, whatever it is asked for from now on, until a wait finds nothing.
            entry.turn.listed = since.min(now).max(1);
            entry.turn.listed
        }
        Ready::Nothing | Ready::Unknown => {
            entry.turn.listed = read.unwrap_or(0);
            read.unwrap_or(now)
        }
    }
}

/// A registration was added or changed just now. What is ready by then comes into the kernel's
/// list, and has its place there until a wait finds it not ready: also where it is read meanwhile,
/// and more comes.
pub(super) fn enters(entry: &mut Registration) {
    let since = entry.turn.since;
    if entry.turn.listed == 0
        && let Ready::Since(_) = ready(entry, entry.endpoint(), since, false, 0)
    {
        entry.turn.listed = since.max(1);
    }
}

/// Does the kernel speak of a token of bytes that are due? They are told in their turn: a token
/// that lies unread would bring them forward. Only of what is hot, as no pass comes to the turn of
/// anything else.
pub(super) fn has_its_turn(inner: &Inner, event: epoll_event) -> bool {
    if inner.order.len() == 0 || event.events & !(IN | OUT) != 0 {
        return false;
    }
    let once = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
    let entry = resolve(inner, event.u64).and_then(|at| inner.registrations.get(at as usize));
    // What was told of, and not found empty since, has its turn behind what is due. (Not what has
    // ended, nor room of what receives by no ring: no pass comes to that.)
    entry.is_some_and(|entry| {
        let endpoint = entry.endpoint();
        let listed = || {
            entry.turn.listed != 0
                && !entry.masked
                && endpoint.is_some_and(Endpoint::receives_by_ring)
        };
        entry.hot
            && entry.events & once == 0
            && (entry.turn.due != 0 || listed())
            && !endpoint.is_some_and(Endpoint::may_have_ended)
    })
}

/// What memory tells of a registration.
enum Ready {
    /// It is ready since then, in ticks, as this set's order goes.
    Since(u64),
    /// It has nothing to tell.
    Nothing,
    /// Only a closer look can tell ([`super::collect`]).
    Unknown,
}

#[inline]
fn ready(
    entry: &mut Registration,
    endpoint: Option<Endpoint<'_>>,
    now: u64,
    several: bool,
    pass: u64,
) -> Ready {
    if !entry.used || entry.disabled {
        return Ready::Unknown;
    }
    let Some(endpoint) = endpoint.filter(|endpoint| endpoint.receives_by_ring()) else {
        return Ready::Unknown;
    };
    if several && !entry.turn.asked {
        entry.ask_for_order(now);
    }
    let level = !entry.wants(libc::EPOLLET);
    let look = if entry.events & IN == 0 { Some(false) } else { endpoint.look_at_ring() };
    let room = level && entry.events & OUT != 0 && endpoint.tx_in_ring() && !entry.masked;
    match look {
        Some(true) => {
            if entry.tells_bytes_alone() && !endpoint.may_have_ended() {
                entry.turn.found = (pass, key(endpoint));
            }
        }
        _ if room => {}
        // Who waits for room in a ring may have it by now.
        Some(false) if !entry.masked && !endpoint.is_switching() => {
            entry.turn.clean = end_of_read(endpoint);
            return Ready::Nothing;
        }
        _ => return Ready::Unknown,
    }
    if entry.turn.listed != 0 {
        return Ready::Since(entry.turn.listed);
    }
    // There is room as long as it is registered.
    Ready::Since(if room { entry.turn.since } else { entry.since_or_late(endpoint, now) })
}
