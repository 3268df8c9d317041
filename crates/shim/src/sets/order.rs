//! In which order a set's connections in rings are told of: as the kernel tells of its own, in which
//! they became ready.
//!
//! The kernel keeps a list. Who becomes ready comes to its end; who is told of leaves it, or, where
//! that is level-triggered, comes to its end once more, until a wait finds it no longer ready. Here
//! nobody notes who becomes ready: that is found in a pass over the hot registrations, and the
//! writers say since when ([`ginnel_tcp::order`]). Who is found ready and has no place in this
//! wait is first in the next.

use super::collect::{IN, OUT};
use super::edges::key;
use super::{Inner, Registration, resolve};
use crate::spin::{prefetch, ticks};
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Stage;
use libc::epoll_event;

/// How many registrations a pass looks at together.
const TOGETHER: usize = 8;

/// What a set knows of its order.
#[derive(Default)]
pub struct Order {
    /// The registration that was looked at first (its number + 1), and whether others were: before,
    /// there is no order, and nobody is asked for one.
    first: u32,
    pub(super) several: bool,
    /// Found ready and not told of: (since when, registration), from `next` on.
    due: Vec<(u64, u32)>,
    next: usize,
}

/// What a registration's place in the order is made of.
#[derive(Default)]
pub struct Turn {
    /// When it was registered or changed last, ticks: nothing was ready before that.
    since: u64,
    /// Level-triggered: when it was told of, and not found empty since. 0: it is not in the list.
    listed: u64,
    /// Since when it was ready when it was told of last, as far as that is known here; else 0.
    ready: u64,
    /// It was not in the list when it was told of last.
    first: bool,
    /// It is among those that are due.
    due: bool,
    /// Its writer was asked to say since when it is ready.
    asked: bool,
    /// The last pass in which memory said that it has nothing to tell.
    nothing: u64,
}

impl Turn {
    /// It was registered, or changed.
    pub fn begin(&mut self, now: u64) {
        self.since = now;
    }

    /// It was told of, as number `place` of its wait.
    pub fn told(&mut self, now: u64, place: usize, stays: bool) {
        self.first = self.listed == 0;
        self.listed = if stays { now.wrapping_add(place as u64).max(1) } else { 0 };
    }

    /// The kernel told of it, perhaps what a ring told of in the same wait.
    pub fn told_by_kernel(&mut self, now: u64, stays: bool) {
        self.first = self.listed == 0;
        if self.first && stays {
            self.listed = now.max(1);
        }
    }

    /// It is told of, and was ready since then.
    pub fn was_ready(&mut self, since: u64) {
        self.ready = since;
    }

    /// It is told of before its turn.
    pub fn has_come(&mut self) {
        self.due = false;
    }

    /// Did memory say in this pass that it has nothing to tell?
    pub fn has_nothing(&self, pass: u64) -> bool {
        self.nothing == pass
    }

    /// It is not ready.
    pub fn empty(&mut self) {
        self.listed = 0;
    }

    /// It is looked at no more: what it has is the kernel's to tell, and comes when that tells it.
    pub fn give_up(&mut self) {
        (self.listed, self.due) = (0, false);
    }
}

impl Order {
    /// Room for as many as there are registrations: none may be taken in a wait.
    pub fn reserve(&mut self, registrations: usize) {
        self.due.reserve(registrations.saturating_sub(self.due.len()));
    }

    /// A registration is looked at.
    fn looks_at(&mut self, index: u32) {
        self.several |= self.first != 0 && self.first != index + 1;
        if self.first == 0 {
            self.first = index + 1;
        }
    }

    /// How many are due.
    fn len(&self) -> usize {
        self.due.len() - self.next
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
            if core::mem::take(&mut entry.turn.due) {
                entry.turn.was_ready(since);
                return Some(index);
            }
        }
    }
}

/// Registration `index` was added. From the second on there is an order, and their writers are asked for it.
pub(super) fn one_more(inner: &mut Inner, index: u32) {
    let Inner { registrations, order, .. } = inner;
    if registrations.get(index as usize).is_none_or(|entry| entry.slot.is_none()) {
        return;
    }
    let before = order.several;
    order.looks_at(index);
    match (before, order.several) {
        (false, true) => registrations.iter_mut().filter(|entry| entry.used).for_each(Registration::ask_for_order),
        (_, true) => registrations.get_mut(index as usize).into_iter().for_each(Registration::ask_for_order),
        _ => {}
    }
}

/// Finds out which hot registrations have something to tell, in their order, where there is more
/// than one: at least as many as have room in this wait, if there are. `pass`: its number.
pub(super) fn find(inner: &mut Inner, room: usize, now: u64, pass: u64) {
    let Inner { hot, registrations, order, .. } = inner;
    if order.len() >= room {
        // Whoever is due became ready before those that are not found yet.
        return;
    }
    if let (&[index], 0) = (hot.as_slice(), order.len()) {
        order.looks_at(index);
        if let Some(entry) = registrations.get_mut(index as usize).filter(|_| order.several) {
            entry.ask_for_order();
        }
        return;
    }
    if order.next != 0 {
        order.due.drain(..order.next);
        order.next = 0;
    }
    let begun = order.due.len();
    for group in hot.chunks(TOGETHER) {
        // What their writers say is asked for at once, so that one comes while another is looked at.
        let mut endpoints = [None; TOGETHER];
        for (endpoint, &index) in endpoints.iter_mut().zip(group) {
            *endpoint = registrations.get(index as usize).and_then(Registration::endpoint);
            endpoint.iter().for_each(|endpoint| prefetch(endpoint.writers_line()));
        }
        for (&index, endpoint) in group.iter().zip(endpoints) {
            let Some(entry) = registrations.get_mut(index as usize) else { continue };
            order.looks_at(index);
            if entry.turn.due || order.due.len() == order.due.capacity() {
                continue;
            }
            match ready(entry, endpoint, now, order.several) {
                Ready::Since(since) => {
                    entry.turn.due = true;
                    order.due.push((since, index));
                    // The program will ask for its bytes next.
                    endpoint.iter().for_each(|endpoint| prefetch(endpoint.next_place()));
                }
                Ready::Nothing => entry.turn.nothing = pass,
                Ready::Unknown => {}
            }
        }
    }
    if let Some(found) = order.due.get_mut(begun..) {
        found.sort_unstable();
    }
}

/// Since when a registration that is changed now may be ready: what was in the kernel's list stays in
/// its place there.
pub(super) fn begins_anew(entry: &mut Registration) -> u64 {
    let now = ticks();
    if entry.turn.due || entry.turn.listed != 0 || !entry.used {
        return if entry.used { entry.turn.since } else { now };
    }
    if entry.wants(libc::EPOLLET) && entry.wants(libc::EPOLLOUT) && entry.room && !entry.disabled {
        // Room is yet to be told.
        return entry.turn.since;
    }
    let told = |endpoint| entry.wants(libc::EPOLLET) && entry.was_told(key(endpoint));
    if entry.endpoint().is_some_and(told) {
        return now;
    }
    match ready(entry, entry.endpoint(), now, false) {
        Ready::Since(since) => since,
        Ready::Nothing | Ready::Unknown => now,
    }
}

/// Does the kernel speak of a token of bytes that are due? They are told in their turn: a token that lies
/// unread would bring them forward. Only of what is hot, as no pass comes to the turn of anything else.
pub(super) fn has_its_turn(inner: &Inner, event: epoll_event) -> bool {
    if inner.order.len() == 0 || event.events & !(IN | OUT) != 0 {
        return false;
    }
    let once = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
    let entry = resolve(inner, event.u64).and_then(|at| inner.registrations.get(at as usize));
    // What was told of, and not found empty since, has its turn behind what is due.
    entry.is_some_and(|entry| entry.hot && (entry.turn.due || entry.turn.listed != 0) && entry.events & once == 0)
}

/// Brings what the kernel told of connections in rings into their order: its own list has those first
/// for which a wake-up was swept away before, and it is only of these that it knows no better.
pub(super) fn arrange_told(inner: &mut Inner, told: &mut [epoll_event]) {
    let now = ticks();
    let since = |event: &epoll_event| {
        let entry = resolve(inner, event.u64).and_then(|at| inner.registrations.get(at as usize))?;
        let in_ring = |endpoint: &Endpoint<'_>| endpoint.slot().stage() == Stage::Active && endpoint.rx_in_ring();
        let first = entry.hot && entry.turn.first && event.events & IN != 0;
        let endpoint = entry.endpoint().filter(|endpoint| first && in_ring(endpoint))?;
        entry.says_since(endpoint, now).map(|since| since.max(entry.turn.since))
    };
    for end in 1..told.len() {
        let Some(own) = told.get(end).and_then(since) else { continue };
        let mut at = end;
        for before in (0..end).rev() {
            let Some(other) = told.get(before).and_then(since) else { continue };
            if other <= own {
                break;
            }
            told.swap(before, at);
            at = before;
        }
    }
    // Their places in the list are these from now on.
    let now = ticks();
    for (place, event) in (0..).zip(told) {
        let index = resolve(inner, event.u64);
        if let Some(entry) = index.and_then(|at| inner.registrations.get_mut(at as usize)).filter(|entry| entry.turn.listed != 0) {
            entry.turn.listed = now.wrapping_add(place);
        }
    }
}

impl Registration {
    fn ask_for_order(&mut self) {
        if self.turn.asked {
            return;
        }
        let in_ring = |endpoint: &Endpoint<'_>| endpoint.slot().stage() == Stage::Active && endpoint.rx_in_ring();
        if let Some(endpoint) = self.endpoint().filter(in_ring) {
            self.turn.asked = true;
            endpoint.ask_for_order();
        }
    }

    /// Since when there is something in its ring, or it is registered as it is.
    pub(super) fn since(&self, endpoint: Endpoint<'_>, now: u64) -> u64 {
        self.says_since(endpoint, now).unwrap_or(now).min(now).max(self.turn.since)
    }

    /// The same, as its writer says. Edge-triggered, what was told of and left there does not count.
    fn says_since(&self, endpoint: Endpoint<'_>, now: u64) -> Option<u64> {
        if self.wants(libc::EPOLLET) { endpoint.ready_since(now) } else { endpoint.filled_since(now) }
    }
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
fn ready(entry: &mut Registration, endpoint: Option<Endpoint<'_>>, now: u64, several: bool) -> Ready {
    if !entry.used || entry.disabled {
        return Ready::Unknown;
    }
    let active = |endpoint: &Endpoint<'_>| endpoint.slot().stage() == Stage::Active && endpoint.rx_in_ring();
    let Some(endpoint) = endpoint.filter(active) else { return Ready::Unknown };
    if several && !entry.turn.asked {
        entry.ask_for_order();
    }
    let level = !entry.wants(libc::EPOLLET);
    let look = if entry.events & IN == 0 { Some(false) } else { endpoint.look_at_ring() };
    let room = level && entry.events & OUT != 0 && endpoint.tx_in_ring() && !entry.masked;
    match look {
        Some(true) => {}
        _ if room => {}
        // Who waits for room in a ring may have it by now.
        Some(false) if !entry.masked => return Ready::Nothing,
        _ => return Ready::Unknown,
    }
    if entry.turn.listed != 0 {
        return Ready::Since(entry.turn.listed);
    }
    // There is room as long as it is registered.
    Ready::Since(if room { entry.turn.since } else { entry.since(endpoint, now) })
}

/// Brings what one wait found into order: `ready` events of rings, which are in order, and behind them
/// what the kernel told. Its own come first: which of those and of the others became ready first
/// nobody knows, and a new connection, or what wakes a program, is to be told before what was said
/// on a connection meanwhile. What it told of connections in rings has its place among these.
pub(super) fn arrange(inner: &Inner, room: &mut [epoll_event], ready: usize) {
    let own = room.len().saturating_sub(ready);
    if own == 0 || ready == 0 {
        return;
    }
    room.rotate_left(ready);
    let since = |event: &epoll_event| {
        let entry = resolve(inner, event.u64).and_then(|at| inner.registrations.get(at as usize));
        entry.filter(|entry| entry.hot).map_or(0, |entry| entry.turn.ready)
    };
    let mut behind = own;
    for at in (0..own).rev() {
        let Some(told) = room.get(at).map(since).filter(|&told| told != 0) else { continue };
        let later = room.get(behind..).unwrap_or_default().iter().take_while(|e| since(e) < told);
        let to = behind + later.count();
        if let Some(moved) = room.get_mut(at..to) {
            moved.rotate_left(1);
        }
        behind -= 1;
    }
}
