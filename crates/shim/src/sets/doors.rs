//! What wakes those who sleep on a set for connections in the memory of pairs: of each such pair a
//! line ([`ginnel_node::wake::line`]), beside the set's own waiter.
//!
//! A *door* is the line that a set has taken of one pair. The kernel's set has its socket, with a
//! tag that is no registration's; the bits of its waiter are the registrations, as they are of the
//! set's own. A set takes a door when it is about to arm the first connection of a pair; where
//! there is none to be had, that pair's connections are armed with tokens. A door that is lost,
//! since its other process is gone or rings for nothing, is given back before the next sleep, and
//! what was armed with it is looked at. A set that several processes have has no doors: the kernel
//! would tell each of them of a line that only one can read.

use super::edges::{BYTES, key};
use super::registration::kernel_control;
use super::tag::{door_of, door_tag};
use super::{Inner, Registration, Set, all_sets, make_hot, stir};
use core::ptr;
use core::sync::atomic::Ordering;
use ginnel_node::joined::Joined;
use ginnel_node::waiter::Waiter;
use ginnel_node::wake::line::Ear;
use ginnel_ring::park::Want;
use ginnel_tcp::{Attachment, Endpoint};
use libc::{c_int, epoll_event};
use smallvec::SmallVec;

/// So many pairs wake a set by lines at most: it looks at each before it sleeps.
const MOST: usize = 32;

/// A line that a set has taken.
#[derive(Clone, Copy)]
pub(super) struct Door {
    ear: Ear,
    pair: &'static Joined,
    /// Which of the set's: in its tag.
    number: u32,
}

impl Door {
    pub(super) fn any(&self) -> bool {
        self.ear.any(self.pair)
    }

    fn is_lost(&self) -> bool {
        self.ear.is_lost(self.pair)
    }

    /// Off with it, out of the kernel's set.
    fn close(&self, epfd: c_int) {
        let fd = self.ear.fd(self.pair);
        if fd >= 0 {
            let _ = kernel_control(epfd, libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
        self.ear.give_back(self.pair);
    }
}

/// Some doors, without taking memory.
pub(super) type Doors = SmallVec<[Door; 2]>;

impl Inner {
    /// About to sleep: see [`ginnel_node::waiter::Waiter::sleeping`].
    pub(super) fn fall_asleep(&self, attachment: &Attachment) {
        if let Some(waiter) = self.waiter {
            waiter.sleeping(&attachment.node.joined().segment);
        }
        self.doors.iter().for_each(|door| door.ear.sleeping(door.pair));
    }

    /// [`is_rung`].
    pub(super) fn is_rung(&self, attachment: &Attachment) -> bool {
        is_rung(self.waiter, &self.doors, attachment)
    }

    /// The lines that are to be polled with the set's own FIFO.
    pub(super) fn lines(&self) -> impl Iterator<Item = c_int> {
        self.doors.iter().map(|door| door.ear.fd(door.pair))
    }
}

/// Has anybody rung who is to be looked after?
#[inline]
pub(super) fn is_rung(waiter: Option<Waiter>, doors: &Doors, attachment: &Attachment) -> bool {
    waiter.is_some_and(|waiter| waiter.any(&attachment.node.joined().segment))
        || doors.iter().any(Door::any)
}

/// How a connection of a pair is to wake the set.
pub(super) fn want(inner: &Inner, endpoint: Endpoint<'_>, bit: u16) -> Want {
    let pair = endpoint.joined();
    inner
        .doors
        .iter()
        .find(|door| ptr::eq(door.pair, pair))
        .map_or(Want::Token, |door| door.ear.want(pair, bit))
}

/// Takes what is missing for the registrations that are hot, and gives back what is lost. To be
/// called before anything is armed.
pub(super) fn open(set: &Set, attachment: &'static Attachment, epfd: c_int, inner: &mut Inner) {
    if inner.doors.iter().any(Door::is_lost) {
        shut(epfd, inner, Door::is_lost);
    }
    let has_none = inner.nested || set.shared.load(Ordering::Relaxed);
    let Some(waiter) = inner.waiter.filter(|_| attachment.pairs.are_there() && !has_none) else {
        return;
    };
    for place in 0..inner.hot.len() {
        let index = inner.hot.get(place).copied().unwrap_or(u32::MAX);
        let endpoint = inner.registrations.get(index as usize).and_then(Registration::endpoint);
        let Some(endpoint) =
            endpoint.filter(|endpoint| endpoint.is_in_pair() && !endpoint.wakes_by_token())
        else {
            continue;
        };
        let pair = endpoint.joined();
        if inner.doors.len() >= MOST || inner.doors.iter().any(|door| ptr::eq(door.pair, pair)) {
            continue;
        }
        let free = |number: &u32| !inner.doors.iter().any(|door| door.number == *number);
        let Some((ear, number)) = pair.take_line(&attachment.node, waiter).zip((0..).find(free))
        else {
            continue;
        };
        let door = Door { ear, pair, number };
        match kernel_control(
            epfd,
            libc::EPOLL_CTL_ADD,
            ear.fd(pair),
            libc::EPOLLIN as u32,
            door_tag(number),
        ) {
            Ok(_) => inner.doors.push(door),
            Err(_) => ear.give_back(pair),
        }
    }
}

/// Gives doors back, and has all that may be armed with them looked at.
fn shut(epfd: c_int, inner: &mut Inner, which: impl Fn(&Door) -> bool) {
    // (Before a fork nothing may be taken from an allocator.)
    while let Some(place) = inner.doors.iter().position(&which) {
        let door = inner.doors.swap_remove(place);
        door.close(epfd);
        heat(inner, door.pair);
    }
}

/// Another process is about to have the set, or to be told of it: gives all doors back. The
/// kernel's set would tell that process of a line that it cannot read, for as long as this one
/// looks elsewhere. Who sleeps here arms anew, with tokens.
pub(super) fn give_back(set: &Set, inner: &mut Inner) {
    if !inner.doors.is_empty() {
        shut(set.fd.load(Ordering::Relaxed), inner, |_| true);
        stir(set, inner);
    }
}

/// Has every registration of a pair looked at.
fn heat(inner: &mut Inner, pair: &Joined) {
    for index in 0..inner.registrations.len() {
        let endpoint = inner.registrations.get(index).and_then(Registration::endpoint);
        if endpoint
            .is_some_and(|endpoint| endpoint.is_in_pair() && ptr::eq(endpoint.joined(), pair))
        {
            make_hot(inner, u32::try_from(index).unwrap_or(0));
        }
    }
}

/// Registrations of pairs whose channels rang become hot.
pub(super) fn rang(inner: &mut Inner) {
    for place in 0..inner.doors.len() {
        let Some(door) = inner.doors.get(place).copied().filter(Door::any) else { continue };
        door.ear.take(door.pair, |bit| {
            let news = inner
                .registrations
                .get_mut(bit as usize)
                .is_some_and(|entry| has_news(entry, door.pair));
            make_hot(inner, bit);
            news
        });
        if door.is_lost() {
            heat(inner, door.pair);
        }
    }
}

/// Has anything come for which this pair's other process rightly rings a registration? Bytes count
/// once, and so does a switch to TCP: a program may leave them where they are for as long as it
/// likes, and whoever rings for them again and again rings for nothing.
fn has_news(entry: &mut Registration, pair: &Joined) -> bool {
    let endpoint =
        entry.endpoint().filter(|endpoint| entry.used && ptr::eq(endpoint.joined(), pair));
    let Some(endpoint) = endpoint else { return false };
    let came = match endpoint.rx_in_ring() {
        false => ON_TCP,
        true if endpoint.readable() => key(endpoint),
        true => entry.rung,
    };
    if is_later(came, entry.rung) {
        entry.rung = came;
        return true;
    }
    // (One that is disabled stays masked.)
    entry.masked && !entry.disabled && endpoint.writable()
}

/// For what a registration was rung that is on TCP.
const ON_TCP: u64 = u64::MAX - 1;

/// Has more come, by these [keys](key) or [`ON_TCP`], than a line was rung for? In one channel
/// positions only grow, and no further than the reader has room: whoever moves one back brings no
/// byte.
fn is_later(came: u64, rung: u64) -> bool {
    let one_channel = came & !BYTES == rung & !BYTES && came != ON_TCP && rung != u64::MAX;
    let bytes = came.wrapping_sub(rung) & BYTES;
    if one_channel { bytes != 0 && bytes <= BYTES / 2 } else { came != rung }
}

/// The kernel told of what has this `data`. True: it was a door, and is read empty.
pub(super) fn heard(set: &Set, data: u64) -> bool {
    let Some(number) = door_of(data) else { return false };
    set.inner.with(|inner| {
        empty(set, inner, |door| door.number == number);
    });
    true
}

/// Reads lines empty that the kernel told of. One that is lost would be told of for ever.
pub(super) fn empty(set: &Set, inner: &mut Inner, which: impl Fn(&Door) -> bool) {
    inner.doors.iter().filter(|door| which(door)).for_each(|door| door.ear.empty(door.pair));
    if inner.doors.iter().any(Door::is_lost) {
        shut(set.fd.load(Ordering::Relaxed), inner, Door::is_lost);
    }
}

/// A thread sleeps no more; `events` came of the kernel's wait.
pub(super) fn awake(inner: &Inner, events: &[epoll_event]) {
    for door in &inner.doors {
        let tag = door_tag(door.number);
        door.ear.awake(door.pair, events.iter().any(|event| event.u64 == tag));
    }
}

/// Gives all doors of a set back.
pub(super) fn close(epfd: c_int, inner: &mut Inner) {
    shut(epfd, inner, |_| true);
}

/// A pair is about to be given up: no set has a line of it any more.
pub fn part_with(pair: &Joined) {
    for set in all_sets() {
        let epfd = set.fd.load(Ordering::Relaxed);
        set.with(|inner| shut(epfd, inner, |door| ptr::eq(door.pair, pair)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rung_for_counts_once() {
        let key = |channel: u64, bytes: u64| channel << 52 | bytes & BYTES;
        assert!(
            is_later(key(1, 0), u64::MAX)
                && is_later(ON_TCP, u64::MAX)
                && is_later(ON_TCP, key(1, 5))
        );
        assert!(!is_later(ON_TCP, ON_TCP) && is_later(key(1, 5), ON_TCP), "each switch once");
        assert!(
            is_later(key(1, 6), key(1, 5))
                && !is_later(key(1, 5), key(1, 5))
                && !is_later(key(1, 4), key(1, 5))
        );
        assert!(is_later(key(1, 3), key(1, BYTES - 2)), "positions go round");
        assert!(is_later(key(2, 0), key(1, 5)), "another channel's begin anew");
    }
}
