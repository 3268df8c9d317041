//! What the kernel tells of a set, and what of that is for the program.

mod judge;

use super::hot::rang;
use super::{Inner, Set, doors, fifo_tag, inside, is_tag, kernel_control, order, resolve, tag};
use crate::fds;
use crate::{quiet, runtime};
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::ledger::Stage;
use judge::judge;
use libc::{c_int, epoll_event};

/// The events that rings reported in the same wait: how many stand before the kernel's, and which
/// pass found them.
pub(super) type Before = (usize, u64);
/// Nothing was.
pub(super) const NONE_BEFORE: Before = (0, 0);

/// The set's waiter may have been rung meanwhile: registrations whose channels rang become hot.
pub(super) fn heed_bells(set: &Set) {
    if let Some(attachment) = runtime::attachment() {
        set.with(|inner| rang(inner, attachment));
    }
}

/// What an event is looked at for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The program is told of it.
    Telling,
    /// Somebody only asks whether there is one.
    Asking,
}

/// What of an event of the kernel's is for the program, and of which registration it speaks.
pub(super) fn truth(
    set: &Set,
    epfd: c_int,
    event: epoll_event,
    purpose: Purpose,
) -> (Option<u32>, Option<epoll_event>) {
    let found = set.inner.with(|inner| {
        resolve(inner, event.u64).map(|index| (index, as_it_is(inner, index, event, purpose)))
    });
    match found {
        Some((index, Some(event))) => (Some(index), Some(event)),
        Some((index, None)) => {
            let is_set =
                set.inner.with(|inner| inner.children.iter().any(|(place, _)| *place == index));
            let judge = if is_set { inside::judge } else { judge };
            (Some(index), judge(set, epfd, event.events, index, purpose))
        }
        None => (None, unregistered(set, epfd, event)),
    }
}

/// [`truth`] of an event that speaks of no registration that is known here.
fn unregistered(set: &Set, epfd: c_int, event: epoll_event) -> Option<epoll_event> {
    let data = event.u64;
    if data == fifo_tag() {
        let (waiter, away) = set.inner.with(|inner| {
            inner.rung(set);
            let is_elsewhere = inner.waiter.is_none() && set.shared.load(Ordering::Relaxed);
            (inner.waiter, if is_elsewhere { inner.rung_elsewhere() } else { 0 })
        });
        if away > 0 {
            sys::sleep_ms(away);
        }
        if let Some(waiter) = waiter.filter(|_| event.events & libc::EPOLLHUP as u32 != 0) {
            // The device is gone (`service::membership`): nobody rings any more, and this would
            // be ready for ever.
            let _ = kernel_control(epfd, libc::EPOLL_CTL_DEL, waiter.fifo(), 0, 0);
        }
        return None;
    }
    if doors::heard(set, data) {
        return None;
    }
    let shared = set.shared.load(Ordering::Relaxed);
    // A tag whose registration is gone is nobody's, but for one that another process has made;
    // other data is of a descriptor that is none of ours, or of one that was removed since the
    // kernel was asked.
    if is_tag(data) {
        let data = tag::data_behind(data).filter(|_| shared)?;
        set.with(|inner| inner.alike = true);
        return Some(epoll_event { events: event.events, u64: data });
    }
    let asked = if shared { None } else { set.inner.with(|inner| inner.removed.of(data)) };
    let events = event.events & asked.unwrap_or(u32::MAX);
    (events != 0).then_some(epoll_event { events, u64: data })
}

/// The usual case of a descriptor that no ring carries: the kernel's report is the truth. `None`
/// where more is to be thought of.
fn as_it_is(
    inner: &Inner,
    index: u32,
    event: epoll_event,
    purpose: Purpose,
) -> Option<epoll_event> {
    let entry = inner.registrations.get(index as usize)?;
    // Unasked is what `stir` asked for, of a ring that has been left meanwhile.
    let told = purpose == Purpose::Telling
        && !entry.wants(libc::EPOLLONESHOT)
        && event.events & !entry.asked() == 0;
    if !told
        || entry.inner_set.is_some()
        || !entry.used
        || entry.disabled
        || entry.loud
        || entry.masked
    {
        return None;
    }
    let carried = match entry.slot {
        // The next call on it looks there, too.
        Some(slot) if quiet::goes(entry.fd, slot) => false,
        Some(slot) => matches!(
            runtime::attachment()?.ledger.slot(slot).stage(),
            Stage::Settling | Stage::Active
        ),
        // Else another process may have carried it, or another number of it may be used here.
        None => entry.outlived || !entry.plain && !fds::get(entry.fd).is_apart(),
    };
    (!carried).then_some(epoll_event { events: event.events, u64: entry.data })
}

/// Turns the kernel's events, in place, into the program's. What a ring reported in the same wait
/// is merged with it: nothing is reported twice. Returns how many there are in all.
pub(super) fn translate(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    before: Before,
    got: usize,
) -> usize {
    rest(set, epfd, room, before, (before.0, before.0), before.0 + got)
}

/// [`translate`] where there are `n` events in all by now, those before `next` are done, and the
/// kernel's reach to `end`.
pub(super) fn rest(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    before: Before,
    (mut n, mut next): (usize, usize),
    end: usize,
) -> usize {
    let pass = before.1;
    let end = room.len().min(end);
    while next < end {
        if pass == 0 {
            (n, next) = set.inner.with(|inner| usual(inner, room, (n, next), end));
        }
        let Some(event) = room.get(next..end).and_then(<[_]>::first).copied() else { break };
        next += 1;
        let done = |inner: &mut Inner| {
            let told = !inner.echoes.is_empty() && inside::echoes(inner, resolve(inner, event.u64));
            told || order::has_its_turn(inner, event)
        };
        if set.inner.with(done) {
            continue;
        }
        let (index, Some(event)) = truth(set, epfd, event, Purpose::Telling) else { continue };
        let twin = if pass == 0 { None } else { twin(set, room, pass, index, n) };
        match twin {
            Some(twin) => {
                twin.events |= event.events;
                let is_set =
                    |inner: &Inner| inner.children.iter().any(|(place, _)| Some(*place) == index);
                set.inner.with(|inner| inner.told_twice |= is_set(inner));
            }
            None => {
                if let Some(place) = room.get_mut(n) {
                    *place = event;
                    n += 1;
                }
            }
        }
    }
    n
}

/// The event in `room` that this wait has of the same registration already: a ring reported it, or
/// the kernel before, where what is level-triggered went round. `None`: there is none, and it is to
/// have `place`.
fn twin<'a>(
    set: &Set,
    room: &'a mut [epoll_event],
    pass: u64,
    index: Option<u32>,
    place: usize,
) -> Option<&'a mut epoll_event> {
    let twin = set.inner.with(|inner| {
        let entry = inner.registrations.get_mut(index? as usize)?;
        let twin = (entry.reported.0 == pass).then_some(entry.reported.1 as usize);
        if twin.is_none() {
            entry.reported = (pass, u32::try_from(place).unwrap_or(u32::MAX));
        }
        twin
    })?;
    room.get_mut(..place)?.get_mut(twin)
}

/// Is this the report of a connection whose calls go to the kernel uncounted, which the program is
/// to be told of just so? All that is most often to be asked, in few instructions.
#[inline]
fn goes_on(inner: &Inner, event: epoll_event) -> bool {
    let data = event.u64;
    let Some(entry) = inner.registrations.get(inner.lately.of(data).get() as usize) else {
        return false;
    };
    let special = entry.is_tagged()
        | entry.disabled
        | entry.loud
        | entry.masked
        | entry.wants(libc::EPOLLONESHOT);
    let asked = event.events & !entry.asked() == 0;
    entry.used
        && entry.known == data
        && !special
        && asked
        && entry.slot.is_some_and(|slot| quiet::goes(entry.fd, slot))
}

/// [`translate`]s events from `next` on, up to the first that is more than the kernel's report.
/// Returns how many there are in all, and how far it came. Under the lock.
pub(super) fn usual(
    inner: &Inner,
    room: &mut [epoll_event],
    (mut n, mut next): (usize, usize),
    end: usize,
) -> (usize, usize) {
    if n == next {
        // Most often all of them can stay as they are.
        n += room
            .get(n..end)
            .unwrap_or_default()
            .iter()
            .take_while(|event| goes_on(inner, **event))
            .count();
        next = n;
    }
    while let Some(event) = room.get(next..end).and_then(<[_]>::first).copied()
        && let Some(event) = resolve(inner, event.u64)
            .and_then(|index| as_it_is(inner, index, event, Purpose::Telling))
        && let Some(place) = room.get_mut(n)
    {
        *place = event;
        (n, next) = (n + 1, next + 1);
    }
    (n, next)
}
