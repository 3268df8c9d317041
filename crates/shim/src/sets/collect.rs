//! What the rings of a set have to report.

mod examine;

use super::hot::{armed, make_waiter, note_arrival, rang};
use super::look::{self, by_tcp};
use super::places::{Asks, keep_places};
use super::{Inner, Registration, Set, arrange, doors, inside, local, local_bits, order};
use crate::spin::ticks;
use core::sync::atomic::Ordering;
use examine::{Look, examine, note_shot};
use ginnel_tcp::Attachment;
use libc::{c_int, epoll_event};

/// Between two looks at the kernel while rings are busy, ticks: about 20 µs. Where system calls
/// take long (an emulated machine), so many times as long as a look takes …
const LOOK_EVERY: u64 = 40_000;
const LOOKS: u64 = 32;
/// … but no longer than this.
const LOOK_AT_LEAST_EVERY: u64 = 400_000;
/// Hot registrations beyond which idle ones are armed and looked at no more.
const MANY: usize = 16;
/// Waits in vain after which a registration is idle.
const IDLE: u32 = 32;

pub(super) const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
pub(super) const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
/// What only the kernel tells.
pub(super) const ENDS: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// What a look at the hot rings came to.
pub(super) struct Pass {
    /// Events in `room`.
    pub(super) n: usize,
    /// Are there hot rings at all?
    pub(super) hot: bool,
    /// Was the kernel looked at a moment ago?
    pub(super) recent: bool,
    /// A place was kept free for it.
    pub(super) reserved: bool,
    /// Its number, of the set's.
    pub(super) number: u64,
}

/// Puts into `room` what hot rings have to report. `asked`: the kernel was asked just now, however
/// long that took.
pub(super) fn collect(
    set: &Set,
    attachment: &'static Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
    asked: bool,
) -> Pass {
    let now = ticks();
    set.with(|inner| {
        rang(inner, attachment);
        collect_hot(set, inner, attachment, epfd, room, now, asked)
    })
}

/// [`collect`] where there is one ring to look at, which is filled, and nothing else to think of. 0
/// where that is not so, as where another process has the set: it may have changed what is asked
/// for since that was looked at.
pub(super) fn only(
    set: &Set,
    attachment: &Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
) -> usize {
    let now = ticks();
    set.with(|inner| match set.shared.load(Ordering::Relaxed) {
        true => 0,
        false => match one_ring(set, inner, attachment, epfd, room, now) {
            One::Told => 1,
            One::Empty(_) | One::Unknown => 0,
        },
    })
}

/// What a look at the only ring came to.
enum One {
    /// Its event is in the first place.
    Told,
    /// This registration's ring has nothing, nor is there anything else to look at.
    Empty(u32),
    /// A pass over everything is to tell.
    Unknown,
}

/// [`only`] under the lock.
fn one_ring(
    set: &Set,
    inner: &mut Inner,
    attachment: &Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
    now: u64,
) -> One {
    let (&[index], Some(place)) = (inner.hot.as_slice(), room.first_mut()) else {
        return One::Unknown;
    };
    // Whoever else was written to before has rung by the time that this one's bytes are seen, or
    // was spoken to over TCP.
    let Inner { children, order, by_tcp, waiter, doors, registrations, arrivals, nested, .. } =
        inner;
    let is_alone = || children.is_empty() && order.next_since() == u64::MAX;
    let is_first = || {
        is_alone()
            && *by_tcp == attachment.node.joined().segment.by_tcp()
            && !doors::is_rung(*waiter, doors, attachment)
    };
    let Some(entry) = registrations.get_mut(index as usize) else { return One::Unknown };
    let mut has_bytes = false;
    let looked = examine(set, epfd, entry, true, |untold| {
        has_bytes = untold;
        untold && is_first()
    });
    match looked {
        Look::Report(events) => {
            *place = epoll_event { events, u64: entry.data };
            entry.idle = 0;
            note_shot(*nested, entry, events, arrivals);
            entry.turn.told(now, 0, !entry.wants(libc::EPOLLET) && !entry.disabled);
            inner.unasked += 1;
            inner.passed_over = 0;
            One::Told
        }
        // (Whether there is room was not looked at.)
        Look::Nothing if !has_bytes && entry.events & OUT == 0 && is_alone() => One::Empty(index),
        Look::Nothing | Look::Kernel => One::Unknown,
    }
}

/// [`collect`] under the lock.
fn collect_hot(
    set: &Set,
    inner: &mut Inner,
    attachment: &'static Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
    now: u64,
    asked: bool,
) -> Pass {
    let mut n = 0;
    inner.passes += 1;
    let number = inner.passes;
    let every = set
        .question
        .load(Ordering::Relaxed)
        .saturating_mul(LOOKS)
        .clamp(LOOK_EVERY, LOOK_AT_LEAST_EVERY);
    // What the kernel had for the program the last time it has still, where that is
    // level-triggered.
    let lively = set.lively.load(Ordering::Relaxed);
    let mut recent = asked || !lively && now.wrapping_sub(inner.looked) < every;
    // (Where there is one place only, it goes round.)
    let mut empty = false;
    if recent && room.len() > 1 {
        match one_ring(set, inner, attachment, epfd, room, now) {
            One::Told => return Pass { n: 1, hot: true, recent, reserved: false, number },
            One::Empty(index) => {
                // What comes to it from here on has its turn in the next pass.
                empty = true;
                order::found_empty(inner, index, now, number);
            }
            One::Unknown => {}
        }
    }
    if !inner.hot.is_empty() && !empty {
        if inner.hot.len() > MANY {
            // Some of them may be armed instead.
            make_waiter(set, attachment, epfd, inner);
        }
        // (Where the kernel has the only place, what is due is known all the same: it keeps its
        // turn.)
        order::find(inner, attachment, room.len().max(1), now, number);
    }
    // Looked at after the rings: whoever wrote into one had said by then what went before.
    let by_tcp = !asked && inner.by_tcp != by_tcp();
    recent &= !by_tcp;
    let tight = room.len() <= inner.hot.len() + inner.children.len();
    let asks = Asks { asked, lively, by_tcp, recent };
    let (reserved, kept) = keep_places(inner, attachment, now, room.len(), tight, asks);
    recent &= !reserved;
    let places = room.len() - kept;
    inner.passed_over = if places == 0 { inner.passed_over + 1 } else { 0 };
    let room = room.get_mut(..places).unwrap_or_default();
    let inner_sets_first = tight && inner.favoured & 2 != 0;
    if inner_sets_first {
        n = inside::collect(set, inner, epfd, room, n, number);
    }
    if !inner.hot.is_empty() && !empty {
        n = collect_rings(set, inner, epfd, room, n, At { now, recent, number, due_only: false });
    }
    if !inner_sets_first {
        n = inside::collect(set, inner, epfd, room, n, number);
    }
    inner.unasked += n;
    // What was told by a ring until now may be the kernel's to tell. (One ring alone is looked at
    // only here.)
    recent &= asked || inner.looked != 0 && inner.by_tcp == look::by_tcp();
    Pass { n, hot: !inner.hot.is_empty(), recent, reserved, number }
}

/// The pass that a look belongs to.
#[derive(Clone, Copy)]
struct At {
    now: u64,
    recent: bool,
    number: u64,
    /// Only what is due is looked at.
    due_only: bool,
}

/// Behind `n` events, what is due and had no place as long as one was kept for the kernel. Returns
/// how many there are in all.
pub(super) fn collect_due(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    n: usize,
    number: u64,
) -> usize {
    set.with(|inner| {
        let at = At { now: inner.looked, recent: true, number, due_only: true };
        collect_rings(set, inner, epfd, room, n, at)
    })
}

/// Brings into order what one wait found: `ready` events of rings, and behind them, up to `n`, what
/// the kernel told in pass `number`. What has come to rings before the kernel was asked is told
/// with these, if there is room: it may come before what the kernel told of. Returns how many there
/// are in all.
pub(super) fn beside_kernel(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    ready: usize,
    n: usize,
    number: u64,
) -> usize {
    if n == ready {
        return n;
    }
    set.with(|inner| {
        let mut all = n;
        if !inner.hot.is_empty() && n < room.len() {
            let at = At { now: inner.looked, recent: true, number, due_only: true };
            order::find_before(inner, room.len() - n, inner.looked, number);
            all = collect_rings(set, inner, epfd, room, n, at);
            if let Some(behind) = room.get_mut(ready..all) {
                behind.rotate_left(n - ready);
            }
        }
        arrange::arrange(inner, room.get_mut(..all).unwrap_or_default(), ready + all - n);
        all
    })
}

/// The number of a pass that begins with what the kernel told, if rings may have more, or if data
/// does not tell events apart: else 0.
pub(super) fn pass_beside(inner: &mut Inner) -> u64 {
    let counts = !inner.hot.is_empty() || inner.alike;
    inner.passes += u64::from(counts);
    if counts { inner.passes } else { 0 }
}

/// Puts behind the `n` events in `room` what rings have to report: those that are due in their
/// order, then what else the others have. Returns how many there are in all.
fn collect_rings(
    set: &Set,
    inner: &mut Inner,
    epfd: c_int,
    room: &mut [epoll_event],
    mut n: usize,
    at: At,
) -> usize {
    let many = inner.hot.len() > MANY;
    let mut cooled = false;
    let Inner { hot, registrations, order, looked, arrivals, nested, .. } = inner;
    let mut others = hot.iter().take(if at.due_only { 0 } else { usize::MAX });
    while n < room.len() {
        let (index, was_due) = match order.pop(registrations) {
            Some(index) => (index, true),
            None => match others.next() {
                Some(&index) => (index, false),
                None => break,
            },
        };
        let Some(entry) = registrations.get_mut(index as usize) else { continue };
        if entry.reported.0 == at.number {
            continue;
        }
        if !was_due {
            if entry.turn.has_nothing(at.number) {
                entry.turn.empty();
                entry.idle += 1;
                cooled |= many && entry.idle > IDLE;
                continue;
            }
            let since = match (entry.turn.listed, entry.endpoint()) {
                // What was told of before has its place behind who was not.
                (listed @ 1.., _) => listed,
                (_, Some(endpoint)) if order.several => entry.since(endpoint, at.now),
                _ => at.now,
            };
            entry.turn.was_ready(since);
        }
        match look_once(set, epfd, entry, at, was_due) {
            Look::Report(events) => {
                if let Some(place) = room.get_mut(n) {
                    *place = epoll_event { events, u64: entry.data };
                    entry.reported = (at.number, u32::try_from(n).unwrap_or(u32::MAX));
                    let stays = !entry.wants(libc::EPOLLET) && !entry.disabled;
                    entry.turn.told(at.now, n, stays);
                    n += 1;
                }
                entry.idle = 0;
                note_shot(*nested, entry, events, arrivals);
            }
            Look::Nothing => {
                entry.turn.empty();
                entry.idle += 1;
                cooled |= many && entry.idle > IDLE;
            }
            Look::Kernel => {
                entry.turn.empty();
                // (Whose bytes are on their way to TCP is looked at until they have come.)
                entry.hot = entry.awaits_switch().is_some();
                cooled |= !entry.hot;
                *looked = 0;
            }
        }
    }
    if cooled {
        cool(inner);
    }
    n
}

/// [`examine`], where that was not done: nothing is looked at twice in one pass whose bytes are all
/// that it has to tell.
fn look_once(set: &Set, epfd: c_int, entry: &mut Registration, at: At, was_due: bool) -> Look {
    // (Another thread may have received since, or another process changed what is asked for.)
    let once = was_due && !at.due_only && !set.shared.load(Ordering::Relaxed);
    match entry.turn.has_bytes_alone(at.number).filter(|_| once) {
        Some(key) => {
            entry.seen = key;
            Look::Report(entry.events & IN)
        }
        None => examine(set, epfd, entry, at.recent, |_| true),
    }
}

/// Takes registrations off the hot list: those the kernel knows about, and idle ones, which are
/// armed instead.
fn cool(inner: &mut Inner) {
    let many = inner.hot.len() > MANY;
    // The list keeps its memory: nothing is to be taken from an allocator in each wait.
    let mut hot = core::mem::take(&mut inner.hot);
    hot.retain(|&index| {
        let Some(entry) = inner.registrations.get(index as usize) else { return false };
        let mut stays = entry.hot && entry.used;
        if stays
            && many
            && entry.idle > IDLE
            && let Some(endpoint) = entry.endpoint()
        {
            stays = !armed(inner, index, endpoint, false);
        }
        if !stays {
            cooled(inner, index);
        }
        stays
    });
    inner.hot = hot;
}

pub(super) fn cooled(inner: &mut Inner, index: u32) {
    if inner.nested {
        // What comes from here on is counted by its wake-up.
        note_arrival(inner, index);
    }
    if let Some(entry) = inner.registrations.get_mut(index as usize) {
        entry.hot = false;
        entry.turn.give_up();
        if let Some(slot) = entry.slot {
            local_bits(slot, 0, local::HOT);
        }
    }
}
