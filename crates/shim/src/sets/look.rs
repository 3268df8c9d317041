//! Looks at the kernel's set: questions that do not wait, and whose events have room.

use super::hot::rang;
use super::told::{Before, rest};
use super::{Inner, Set, arrange, inside, late, owed, resolve, shared};
use crate::runtime;
use crate::spin::ticks;
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::Attachment;
use libc::{c_int, epoll_event};

/// How often a look asks the kernel where its answers leave places free.
const TURNS: usize = 8;

/// What the kernel has to report now, behind the events that rings reported. Returns how many there
/// are in all.
pub(super) fn look(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    before: Before,
) -> Result<usize, i32> {
    let start = before.0;
    let mut n = start;
    let number = |inner: &mut Inner| if before.1 == 0 { inner.tells_apart() } else { before.1 };
    let (begun, pass) = set.inner.with(|inner| (inner.begun_by_tcp, number(inner)));
    let at_once = look_at_all(set, epfd, room, before)?;
    n = at_once.unwrap_or(n);
    // What is for nobody, or was told of by a ring, may have taken the places of what is to be
    // told.
    let (mut echoed, mut first) = (false, None);
    for _ in 0..if at_once.is_some() { 0 } else { TURNS } {
        let places = room.len().saturating_sub(n);
        let got = ask(set, epfd, room.get_mut(n..).unwrap_or_default())?;
        let told = n;
        // What is level-triggered has gone round once it comes again.
        let mut asked = room.get(n..n + got).unwrap_or_default().iter();
        let round = match first {
            Some(first) => asked.any(|event| event.u64 == first),
            None => {
                first = asked.next().map(|event| event.u64);
                false
            }
        };
        n = rest(set, epfd, room, (start, pass), (n, n), n + got);
        if pass == 0 && told > 0 {
            n = without_repeats(room, told, n);
        }
        let once_more =
            set.echoes.load(Ordering::Relaxed) && !core::mem::replace(&mut echoed, true);
        if (got < places || round) && !once_more || n == room.len() {
            break;
        }
    }
    inside::forget_echoes(set);
    set.with(|inner| {
        // (What rings told of an inner set is the kernel's own as well, perhaps.)
        set.lively.store(n > start || core::mem::take(&mut inner.told_twice), Ordering::Relaxed);
        // However often it was asked.
        inner.begun_before = begun;
        if n > start + 1 && start == 0 {
            arrange::arrange_told(inner, room.get_mut(..n).unwrap_or_default());
        }
        inner.share = if n < room.len() { n - start } else { 2 * (n - start) };
        // Where all that it had room for is of connections in rings, its own is yet to come.
        let told = room.get(start..n).unwrap_or_default();
        let of_ring = |event: &epoll_event| {
            let entry =
                resolve(inner, event.u64).and_then(|at| inner.registrations.get(at as usize));
            entry.is_some_and(|entry| entry.hot)
        };
        if n < room.len() || !told.iter().all(of_ring) {
            inner.unasked = 0;
        }
        if let Some(attachment) = runtime::attachment() {
            rang(inner, attachment);
        }
    });
    Ok(n)
}

/// How many events are asked for at once beyond those that the program has room for.
const BEYOND: usize = 64;

/// [`look`] where all that the kernel may tell has room, though not beside what rings told of by
/// now, most of which it tells once more: one question does, after which its list is in the order
/// that it has plainly. Returns how many there are in all; `None`: it is no such set.
fn look_at_all(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    before: Before,
) -> Result<Option<usize>, i32> {
    let start = before.0;
    let most = set.inner.with(|inner| inner.registrations.len());
    let apart =
        room.len() - start > most || most > room.len() || set.shared.load(Ordering::Relaxed);
    if start == 0 || before.1 == 0 || apart || start + most >= BEYOND {
        return Ok(None);
    }
    let mut all = [epoll_event { events: 0, u64: 0 }; BEYOND];
    // One more, for what rings the set's own waiter.
    let Some(all) = all.get_mut(..=start + most) else { return Ok(None) };
    for (to, from) in all.iter_mut().zip(room.iter().take(start)) {
        *to = *from;
    }
    let got = ask(set, epfd, all.get_mut(start..).unwrap_or_default())?;
    let n = rest(set, epfd, all, before, (start, start), start + got).min(room.len());
    for (to, from) in room.iter_mut().zip(all.iter().take(n)) {
        *to = *from;
    }
    Ok(Some(n))
}

impl Inner {
    /// The kernel is about to be asked.
    fn looks_now(&mut self) {
        if let Some(attachment) = runtime::attachment() {
            self.by_tcp = attachment.node.joined().segment.by_tcp();
            self.was_told(attachment, self.looked);
        }
    }

    /// The kernel tells what it has, as of `now`.
    pub(super) fn was_told(&mut self, attachment: &Attachment, now: u64) {
        self.asked = now;
        self.begun_before = core::mem::replace(
            &mut self.begun_by_tcp,
            attachment.node.joined().segment.begun_by_tcp(),
        );
    }

    /// The number of a pass in which events are told apart by their registrations; 0 where data
    /// does.
    fn tells_apart(&mut self) -> u64 {
        self.passes += u64::from(self.alike);
        if self.alike { self.passes } else { 0 }
    }
}

/// Drops from the events between `told` and `end` those that stand before them: where
/// level-triggered ones go round, each is told once in a wait. Data says whose they are. Returns
/// how many are left in all.
fn without_repeats(room: &mut [epoll_event], told: usize, end: usize) -> usize {
    let mut n = told;
    for at in told..end {
        let Some(event) = room.get(at).copied() else { break };
        let mut before = room.get_mut(..told).unwrap_or_default().iter_mut();
        match before.find(|before| before.u64 == event.u64) {
            Some(before) => before.events |= event.events,
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

/// How often somebody of the segment said something over TCP.
#[inline]
pub(super) fn by_tcp() -> u64 {
    runtime::attachment().map_or(0, |attachment| attachment.node.joined().segment.by_tcp())
}

/// Asks the kernel what it has to report now. Returns how many events there are, which are yet to
/// be judged.
pub(super) fn ask(set: &Set, epfd: c_int, room: &mut [epoll_event]) -> Result<usize, i32> {
    set.with(|inner| {
        inner.looked = ticks();
        inner.looks_now();
        late::tell_before_look(set, inner);
    });
    if room.is_empty() {
        return Ok(0);
    }
    let max = room.len().min(c_int::MAX as usize);
    let begun = ticks();
    // SAFETY: `room` is writable for `max` events.
    let got = unsafe {
        sys::raw(
            syscalls::Sysno::epoll_pwait,
            [epfd as usize, room.as_mut_ptr() as usize, max, 0, 0, 8],
        )
    };
    set.question.store(ticks().wrapping_sub(begun), Ordering::Relaxed);
    let got = set.inner.with(|inner| match inner.owed.is_empty() {
        true => got,
        false => got.map(|got| owed::tell(inner, room, got)),
    })?;
    if got > 0 {
        shared::look(set, epfd);
    }
    Ok(got)
}
