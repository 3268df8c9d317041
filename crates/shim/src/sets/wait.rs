//! Waiting on an epoll set.

use super::asked::{arm_for_kernel, ready_inside};
use super::told::{look, rest, translate, usual};
use super::{
    FIFO_TAG, Inner, Registration, Set, kernel_control, late, local, local_bits, make_hot, retell, set_at, shared, stir, tag_base,
    want,
};
use crate::fds::{self, Entry};
use crate::ops::Outcome;
use crate::spin::{self, ticks};
use crate::wait::{self, Deadline};
use crate::{next, runtime};
use core::sync::atomic::Ordering;
use ginnel_channel::Attachment;
use ginnel_channel::attach::Standing;
use ginnel_channel::layout::NO_EOF;
use ginnel_channel::ledger::Stage;
use ginnel_channel::settle::Endpoint;
use ginnel_channel::waiter::Waiter;
use libc::{c_int, epoll_event, sigset_t, timespec};

/// Between two looks at the kernel while rings are busy, ticks: about 20 µs. Where system calls take long (an emulated machine), so many times as long as a look takes …
const LOOK_EVERY: u64 = 40_000;
const LOOKS: u64 = 32;
/// … but no longer than this.
const LOOK_AT_LEAST_EVERY: u64 = 400_000;
/// Hot registrations beyond which idle ones are armed and looked at no more.
const MANY: usize = 16;
/// Waits in vain after which a registration is idle.
const IDLE: u32 = 32;
/// How long a sleep lasts at most while a registration waits for room in a ring.
const ROOM_TICK: timespec = timespec { tv_sec: 0, tv_nsec: 10_000_000 };

pub(super) const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
pub(super) const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;

/// `epoll_wait` and its kin on set `index`.
///
/// # Safety
/// `events` has room for `max` > 0 events; `mask` is null or a signal mask.
pub unsafe fn wait(
    index: u32,
    epfd: c_int,
    events: *mut epoll_event,
    max: usize,
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Outcome<c_int> {
    let Some(set) = set_at(index) else { return Outcome::Libc };
    let Some(attachment) = runtime::attachment() else {
        late::tell_set(index);
        return Outcome::Libc;
    };
    let at_once = timeout.is_some_and(|limit| limit.tv_sec == 0 && limit.tv_nsec == 0);
    // SAFETY: the caller's promise.
    let room = unsafe { core::slice::from_raw_parts_mut(events, max) };
    let waited = if !at_once && set.cold.load(Ordering::Relaxed) {
        // SAFETY: as above.
        unsafe { wait_in_kernel(set, attachment, epfd, room, timeout, mask) }
    } else {
        Err(if at_once { None } else { wait::deadline(timeout) })
    };
    // SAFETY: as above.
    let waited = waited.unwrap_or_else(|end| unsafe { until_ready(set, attachment, epfd, room, at_once, end, mask) });
    leave(set);
    waited.map_or_else(Outcome::Failed, |n| Outcome::Done(c_int::try_from(n).unwrap_or(c_int::MAX)))
}

/// Fills `room` with what there is to report, however long that takes. 0: nothing in time.
///
/// # Safety
/// `mask` is null or a signal mask.
pub(super) unsafe fn until_ready(
    set: &Set,
    attachment: &'static Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
    at_once: bool,
    end: Deadline,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let mut asked = false;
    loop {
        late::give_way();
        // Nothing here can be in a ring. But another thread may add what is, while this one sleeps.
        if !set.holds_any() && !at_once {
            // SAFETY: the caller's promise.
            match unsafe { sleep(set, attachment, epfd, room, end, mask) }? {
                Some(n) => return Ok(n),
                None => continue,
            }
        }
        shared::look(set, epfd);
        heat_masked(set);
        let Pass { n: ready, hot, recent, reserved } = collect(set, attachment, epfd, room, core::mem::take(&mut asked));
        if set.cold.load(Ordering::Relaxed) == hot {
            set.cold.store(!hot, Ordering::Relaxed);
        }
        if ready > 0 {
            return Ok(if ready < room.len() && !recent { look(set, epfd, room, ready).unwrap_or(ready) } else { ready });
        }
        if room.len() == 1 && reserved {
            // The only place was kept free for the kernel.
            match look(set, epfd, room, 0)? {
                0 => asked = true,
                n => return Ok(n),
            }
            continue;
        }
        let spins = hot && !at_once && spin::pays(attachment, &set.habit);
        if spins && recent && spin(set, attachment) {
            match only(set, epfd, room) {
                0 => continue,
                n => return Ok(n),
            }
        }
        // A sleep begins with a look of the kernel's own. But who sleeps arms every ring for it, and is rung, or sent tokens, for nothing where it does not come to that.
        if at_once || spins && !recent || hot && set.lively.load(Ordering::Relaxed) {
            let n = look(set, epfd, room, 0)?;
            if n > 0 || at_once {
                // SAFETY: the caller's promise.
                return if n == 0 { unsafe { wait::let_signals_in(mask) }.map(|()| 0) } else { Ok(n) };
            }
        }
        if spins && !recent && spin(set, attachment) {
            continue;
        }
        // SAFETY: the caller's promise.
        if let Some(n) = unsafe { sleep(set, attachment, epfd, room, end, mask) }? {
            return Ok(n);
        }
        if wait::is_over(end) {
            return match collect(set, attachment, epfd, room, true).n {
                0 => look(set, epfd, room, 0),
                n => Ok(n),
            };
        }
    }
}

/// A wait of the usual kind where no ring has news and none is looked at: what is armed stays armed, and all else is the kernel's to tell. `Err`: there is more to think of, until then.
///
/// # Safety
/// `mask` is null or a signal mask.
unsafe fn wait_in_kernel(
    set: &Set,
    attachment: &'static Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Result<Result<usize, i32>, Deadline> {
    late::give_way();
    if set.shared.load(Ordering::Relaxed) || set.masked.load(Ordering::Relaxed) != 0 {
        return Err(wait::deadline(timeout));
    }
    let begun = set.inner.with(|inner| {
        rang(inner, attachment);
        let quiet = inner.hot.is_empty() && inner.is_told() && inner.children.is_empty();
        quiet.then(|| {
            // Looked at once more, under the lock: a fork may have come between.
            let alone = !set.shared.load(Ordering::Relaxed) && set.masked.load(Ordering::Relaxed) == 0;
            if alone && inner.waiter.is_none() && !inner.waiter_tried {
                set.leave_to_kernel();
            }
            // From here on whoever changes something wakes this thread.
            set.sleepers.fetch_add(1, Ordering::AcqRel);
            let waiter = inner.waiter.inspect(|waiter| waiter.sleeping(&attachment.segment));
            (waiter, inner.waiter_tried)
        })
    });
    let Some((waiter, was_hot)) = begun else { return Err(wait::deadline(timeout)) };
    // Where nothing was hot before a sleep, nearly every wait ends here, and what is left of the time is not worth asking the hardware for.
    let end = if was_hot { wait::deadline(timeout) } else { wait::rough_deadline(timeout) };
    let asked = !waiter.is_some_and(|waiter| waiter.any(&attachment.segment));
    // SAFETY: the caller's promise; `room` is writable.
    let got = if asked { unsafe { kernel_wait(epfd, room, timeout, mask) } } else { Ok(0) };
    let told = set.inner.with(|inner| {
        awake(set, inner, attachment, room, asked, got);
        // Where another process has the set by now, not before its changes are looked at.
        let alone = !set.shared.load(Ordering::Relaxed);
        got.ok().filter(|_| alone).map_or((0, 0), |got| usual(inner, room, (0, 0), got))
    });
    match got {
        Err(errno) => Ok(Err(errno)),
        // The time is up.
        Ok(0) if asked => Ok(Ok(0)),
        Ok(0) => Err(end),
        Ok(got) => match hand_on(set, epfd, room, told, got) {
            0 => Err(end),
            n => Ok(Ok(n)),
        },
    }
}

/// Turns the kernel's answer to a sleep into the program's: `got` events, of which those that [`usual`] saw to are done. Returns how many there are for the program.
pub(super) fn hand_on(set: &Set, epfd: c_int, room: &mut [epoll_event], told: (usize, usize), got: usize) -> usize {
    shared::look(set, epfd);
    let n = rest(set, epfd, room, 0, told, got);
    set.lively.store(n > 0, Ordering::Relaxed);
    n
}

/// The thread sleeps no more; `got` came of the kernel's wait, if it was `asked` to. Under the lock.
pub(super) fn awake(
    set: &Set,
    inner: &mut Inner,
    attachment: &Attachment,
    room: &[epoll_event],
    asked: bool,
    got: Result<usize, i32>,
) {
    let others = set.wakes() > 1;
    let told =
        inner.waiter.is_some() && got.is_ok_and(|n| room.iter().take(n).any(|event| event.u64 == tag_base() | u64::from(FIFO_TAG)));
    // With the FIFO's event the kernel has told the others that were due before it, be there room for more or not.
    if inner.waiter_tried && asked && (told || got.is_ok_and(|n| n < room.len())) {
        inner.looked = ticks();
    }
    let Some(waiter) = inner.waiter else { return };
    waiter.awake(&attachment.segment, told);
    if others {
        left_asleep(waiter, attachment);
    }
    rang(inner, attachment);
}

/// Others still sleep on the waiter of a thread that was woken.
fn left_asleep(waiter: Waiter, attachment: &Attachment) {
    waiter.sleeping(&attachment.segment);
    if waiter.any(&attachment.segment) {
        waiter.poke();
    }
}

/// A thread goes to work on what it was told of. Others that sleep on the set are to hear of what comes next: whatever was told of, or looked at, is armed for them; where
/// it cannot be, since there is more to tell, one of them is woken, as the kernel wakes the next.
pub(super) fn leave(set: &Set) {
    if set.sleepers.load(Ordering::Acquire) != 0 {
        set.with(|inner| {
            if let Some(attachment) = runtime::attachment().filter(|_| !inner.hot.is_empty()) {
                make_waiter(attachment, set.fd.load(Ordering::Relaxed), inner);
            }
            if !arm_hot(set, inner) {
                stir(set, inner);
            } else if let (Some(waiter), Some(attachment)) = (inner.waiter, runtime::attachment()) {
                // What woke this thread, and took the FIFO's byte, may have been for them.
                left_asleep(waiter, attachment);
            }
        });
    }
}

/// What has a ring direction's readiness come to: changes with every byte and at the end.
pub(super) fn key(endpoint: Endpoint<'_>) -> u64 {
    let direction = endpoint.incoming();
    let end = u64::from(direction.eof().load(Ordering::Acquire) != NO_EOF);
    // A switch may bring back bytes that were told of and could not be read for a while.
    (direction.tail().load(Ordering::Acquire).wrapping_mul(2).wrapping_add(end)) ^ direction.epoch().load(Ordering::Acquire) << 52
}

/// What a look at the hot rings came to.
struct Pass {
    /// Events in `room`.
    n: usize,
    /// Are there hot rings at all?
    hot: bool,
    /// Was the kernel looked at a moment ago?
    recent: bool,
    /// A place was kept free for it.
    reserved: bool,
}

/// Puts into `room` what hot rings have to report. `asked`: the kernel was asked just now, however long that took.
fn collect(set: &Set, attachment: &'static Attachment, epfd: c_int, room: &mut [epoll_event], asked: bool) -> Pass {
    let now = ticks();
    set.with(|inner| {
        rang(inner, attachment);
        collect_hot(set, inner, attachment, epfd, room, now, asked)
    })
}

/// [`collect`] where there is one ring to look at and nothing else to think of. 0 where that is not so.
fn only(set: &Set, epfd: c_int, room: &mut [epoll_event]) -> usize {
    set.with(|inner| {
        let (&[index], Some(place)) = (inner.hot.as_slice(), room.first_mut()) else { return 0 };
        let Some(entry) = inner.registrations.get_mut(index as usize) else { return 0 };
        if !inner.children.is_empty() {
            return 0;
        }
        let Look::Report(events) = examine(set, epfd, index, entry) else { return 0 };
        *place = epoll_event { events, u64: entry.data };
        entry.idle = 0;
        1
    })
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
    let every = set.question.load(Ordering::Relaxed).saturating_mul(LOOKS).clamp(LOOK_EVERY, LOOK_AT_LEAST_EVERY);
    let recent = asked || now.wrapping_sub(inner.looked) < every;
    // Busy rings must not keep what only the kernel knows (a listening socket, a timer) from being told, nor they inner sets: where not all fit, one place is the kernel's now and
    // then, and a single place goes round.
    let tight = room.len() - n <= inner.hot.len() + inner.children.len();
    if tight && !asked {
        inner.favoured = inner.favoured.wrapping_add(1);
    }
    let reserved = tight && !recent && (room.len() > n + 1 || inner.favoured & 1 == 0);
    let places = room.len() - usize::from(reserved && room.len() > n);
    let room = room.get_mut(..places).unwrap_or_default();
    let inner_sets_first = tight && inner.favoured & 2 != 0;
    if inner_sets_first {
        n = collect_inside(inner, room, n);
    }
    if !inner.hot.is_empty() {
        let many = inner.hot.len() > MANY;
        if many {
            // Some of them may be armed instead.
            make_waiter(attachment, epfd, inner);
        }
        inner.turn += usize::from(n < room.len());
        if inner.turn >= inner.hot.len() {
            inner.turn = 0;
        }
        let mut cooled = false;
        let (behind, from) = inner.hot.split_at(inner.turn);
        for &index in from.iter().chain(behind) {
            if n == room.len() {
                break;
            }
            let Some(entry) = inner.registrations.get_mut(index as usize) else { continue };
            match examine(set, epfd, index, entry) {
                Look::Report(events) => {
                    let data = entry.data;
                    if let Some(before) = room.iter_mut().take(n).find(|before| before.u64 == data && !entry.tagged) {
                        before.events |= events;
                    } else if let Some(place) = room.get_mut(n) {
                        *place = epoll_event { events, u64: data };
                        n += 1;
                    }
                    entry.idle = 0;
                }
                Look::Nothing => {
                    entry.idle += 1;
                    if many && entry.idle > IDLE {
                        cooled = true;
                    }
                }
                Look::Kernel => {
                    entry.hot = false;
                    cooled = true;
                }
            }
        }
        if cooled {
            cool(inner);
        }
    }
    if !inner_sets_first {
        n = collect_inside(inner, room, n);
    }
    Pass { n, hot: !inner.hot.is_empty(), recent, reserved }
}

/// Puts behind the `n` events in `room` the inner sets that have something to report. Returns how many there are in all.
fn collect_inside(inner: &Inner, room: &mut [epoll_event], mut n: usize) -> usize {
    if !inner.children.is_empty() {
        for (child, events, data) in inner.children.clone() {
            if let Some(place) = room.get_mut(n)
                && events & IN != 0
                && ready_inside(child)
            {
                *place = epoll_event { events: libc::EPOLLIN as u32, u64: data };
                n += 1;
            }
        }
    }
    n
}

enum Look {
    /// These events.
    Report(u32),
    /// Nothing at the moment.
    Nothing,
    /// The kernel knows about it: not to be looked at here.
    Kernel,
}

/// What a hot registration has to report from its ring.
fn examine(set: &Set, epfd: c_int, index: u32, entry: &mut Registration) -> Look {
    let Some(endpoint) = entry.endpoint().filter(|_| entry.used && !entry.disabled) else { return Look::Kernel };
    unmask(set, epfd, index, entry, endpoint);
    if endpoint.slot().stage() != Stage::Active {
        return Look::Kernel;
    }
    let (rx, tx) = (endpoint.rx_in_ring(), endpoint.tx_in_ring());
    if !(rx || tx && entry.masked) {
        return Look::Kernel;
    }
    let mut events = 0;
    if rx && entry.events & IN != 0 && endpoint.readable() {
        let key = key(endpoint);
        if !entry.wants(libc::EPOLLET) || entry.seen != key {
            entry.seen = key;
            events |= entry.events & IN;
        }
    }
    if tx && entry.events & OUT != 0 && !entry.masked && (events != 0 || !entry.wants(libc::EPOLLET)) {
        if endpoint.sendable(false) {
            events |= entry.events & OUT;
        } else {
            entry.hide(set, epfd, index);
        }
    }
    if events == 0 {
        return Look::Nothing;
    }
    if entry.wants(libc::EPOLLONESHOT) {
        entry.spend(true);
        if entry.is_named() {
            let _ = kernel_control(epfd, libc::EPOLL_CTL_MOD, entry.fd, entry.interest(), entry.kernel_data(index));
        }
    }
    Look::Report(events)
}

/// There is room, or TCP is the carrier again: the kernel reports it, edge and all. True if that is new.
pub(super) fn unmask(set: &Set, epfd: c_int, index: u32, entry: &mut Registration, endpoint: Endpoint<'_>) -> bool {
    if !entry.masked {
        return false;
    }
    let left = endpoint.slot().stage() != Stage::Active || endpoint.reader_died();
    let news = left || !endpoint.tx_in_ring() || endpoint.writable();
    if news {
        entry.mask(set, false);
        retell(set, epfd, index, entry);
    }
    news
}

/// [`unmask`] for everything hot: a set that is only asked about, from outside, is never [`examine`]d.
pub(super) fn unmask_hot(set: &Set, inner: &mut Inner) {
    if set.masked.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Inner { hot, registrations, .. } = inner;
    for &index in hot.iter() {
        let Some(entry) = registrations.get_mut(index as usize).filter(|entry| entry.used && !entry.disabled) else { continue };
        if let Some(endpoint) = entry.endpoint() {
            unmask(set, set.fd.load(Ordering::Relaxed), index, entry, endpoint);
        }
    }
}

/// Takes registrations off the hot list: those the kernel knows about, and idle ones, which are armed instead.
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
            stays = !armed(inner, index, endpoint);
        }
        if !stays {
            cooled(inner, index);
        }
        stays
    });
    inner.hot = hot;
}

fn cooled(inner: &mut Inner, index: u32) {
    if let Some(entry) = inner.registrations.get_mut(index as usize) {
        entry.hot = false;
        if let Some(slot) = entry.slot {
            local_bits(slot, 0, local::HOT);
        }
    }
}

/// Arms a registration's channel. False: there is something to report.
fn armed(inner: &Inner, index: u32, endpoint: Endpoint<'static>) -> bool {
    let Some(entry) = inner.registrations.get(index as usize) else { return true };
    if entry.disabled || endpoint.slot().stage() != Stage::Active {
        return true;
    }
    let want = want(inner, index, endpoint);
    if endpoint.rx_in_ring() && entry.events & IN != 0 {
        let silent = entry.wants(libc::EPOLLET) && entry.seen == key(endpoint);
        if endpoint.arm_data(want).is_none() && !silent {
            return false;
        }
        if silent {
            // Edge-triggered, reported, not read: only what comes after it is news.
            if endpoint.arm_past(want).is_err() || entry.seen != key(endpoint) {
                return false;
            }
        }
    }
    if entry.masked && endpoint.arm_space(want).is_none() {
        return false;
    }
    true
}

/// What a look at a registration's ring needs to know of it.
#[derive(Clone, Copy)]
struct Watched {
    endpoint: Endpoint<'static>,
    /// Bytes are news …
    reads: bool,
    /// … unless they are told of already.
    told: Option<u64>,
    /// Room is news.
    masked: bool,
}

impl Watched {
    fn of(entry: &Registration) -> Option<Self> {
        let endpoint =
            entry.endpoint().filter(|endpoint| entry.used && !entry.disabled && endpoint.slot().stage() == Stage::Active)?;
        let told = entry.wants(libc::EPOLLET).then_some(entry.seen);
        Some(Self { endpoint, reads: entry.events & IN != 0, told, masked: entry.masked })
    }

    fn has_news(&self) -> bool {
        self.has(Endpoint::readable)
    }

    #[inline]
    fn has(&self, readable: impl Fn(Endpoint<'static>) -> bool) -> bool {
        let endpoint = self.endpoint;
        let bytes = self.reads && endpoint.rx_in_ring() && readable(endpoint) && self.told.is_none_or(|told| told != key(endpoint));
        bytes || self.masked && endpoint.writable()
    }
}

/// Everything hot that a ring may have news of.
fn watched(inner: &Inner) -> impl Iterator<Item = Watched> {
    inner.hot.iter().filter_map(|index| inner.registrations.get(*index as usize)).filter_map(Watched::of)
}

/// Has a hot ring something to report?
pub(super) fn hot_has_news(inner: &Inner) -> bool {
    watched(inner).any(|watched| watched.has_news())
}

/// Spins until a hot ring has something to report.
fn spin(set: &Set, attachment: &Attachment) -> bool {
    let together = || {
        set.with(|inner| {
            let mut hot = watched(inner).peekable();
            hot.peek().is_some() && hot.all(|watched| spin::together(watched.endpoint))
        })
    };
    let (waiter, few) = set.with(|inner| (inner.waiter, Few::of(inner)));
    let rang = || waiter.is_some_and(|waiter| waiter.any(&attachment.segment));
    // Few are looked at without the lock, in memory only: a slot is never unmapped, and what else changes meanwhile is seen after the spin.
    let found = || rang() || few.as_ref().map_or_else(|| set.with(|inner| hot_has_news(inner)), Few::has_news);
    spin::spin_on(attachment, &set.habit, found, together)
}

/// The hot registrations of a set that has few.
struct Few {
    list: [Option<Watched>; 8],
}

impl Few {
    fn of(inner: &Inner) -> Option<Self> {
        let mut list = [None; 8];
        let mut hot = watched(inner);
        for (place, watched) in list.iter_mut().zip(&mut hot) {
            *place = Some(watched);
        }
        hot.next().is_none().then_some(Self { list })
    }

    #[inline]
    fn has_news(&self) -> bool {
        self.list.iter().map_while(Option::as_ref).any(|watched| {
            spin::prefetch(watched.endpoint.next_place());
            watched.has(Endpoint::ring_is_filled)
        })
    }
}

/// Does a registration of set `index`, or of one inside it, wait for room in a ring?
pub fn waits_for_room(index: u32) -> bool {
    set_at(index).is_some_and(waiting_for_room)
}

fn waiting_for_room(set: &Set) -> bool {
    let inside = |child: c_int| matches!(fds::get(child), Entry::Epoll(index) if waits_for_room(index));
    set.masked.load(Ordering::Acquire) != 0 || set.with(|inner| inner.children.clone()).iter().any(|(child, ..)| inside(*child))
}

/// Registrations that wait for room become hot, a thousand times a second at most: a token that says that there is room may have been thrown away by another
/// reader of the same socket.
pub(super) fn heat_masked(set: &Set) {
    const EVERY: u64 = 2_000_000;
    if set.masked.load(Ordering::Relaxed) != 0 {
        set.with(|inner| {
            if ticks().wrapping_sub(inner.searched) > EVERY {
                inner.searched = ticks();
                for index in 0..inner.registrations.len() {
                    if inner.registrations.get(index).is_some_and(|entry| entry.masked) {
                        make_hot(inner, u32::try_from(index).unwrap_or(0));
                    }
                }
            }
        });
    }
}

/// [`heed_bells`] under the lock.
#[inline]
pub(super) fn rang(inner: &mut Inner, attachment: &Attachment) {
    if let Some(waiter) = inner.waiter.filter(|waiter| waiter.any(&attachment.segment)) {
        waiter.take(&attachment.segment, |bit| make_hot(inner, bit));
    }
}

/// Arms every hot registration. False: there is something to report.
pub(super) fn arm_hot(set: &Set, inner: &mut Inner) -> bool {
    late::tell(set, inner);
    unmask_hot(set, inner);
    let mut hot = core::mem::take(&mut inner.hot);
    hot.retain(|&index| {
        let endpoint = inner.registrations.get(index as usize).and_then(Registration::endpoint);
        let sleeps = endpoint.is_none_or(|endpoint| armed(inner, index, endpoint));
        if sleeps {
            cooled(inner, index);
        }
        !sleeps
    });
    inner.hot = hot;
    inner.hot.is_empty()
}

/// Gives the set a waiter, where it may have one. To be called before anything is armed: what is armed without is woken by tokens for as long as it lasts.
pub(super) fn make_waiter(attachment: &'static Attachment, epfd: c_int, inner: &mut Inner) {
    if inner.waiter.is_none() && !inner.waiter_tried {
        inner.waiter_tried = true;
        if let Ok(waiter) = Waiter::new(attachment) {
            let data = tag_base() | u64::from(FIFO_TAG);
            let _ = kernel_control(epfd, libc::EPOLL_CTL_ADD, waiter.fifo(), libc::EPOLLIN as u32, data);
            inner.waiter = Some(waiter);
        } else {
            // To be had again, perhaps, after the process has joined.
            inner.waiter_lost = attachment.standing() != Standing::Here;
        }
    }
}

/// Sleeps in the kernel, armed. `Ok(None)`: look again; `Ok(Some(0))`: the time is up.
///
/// # Safety
/// `mask` is null or a signal mask.
unsafe fn sleep(
    set: &Set,
    attachment: &'static Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
    end: Deadline,
    mask: *const sigset_t,
) -> Result<Option<usize>, i32> {
    let (waiter, armed, children) = set.with(|inner| {
        if !inner.hot.is_empty() {
            make_waiter(attachment, epfd, inner);
        }
        let armed = arm_hot(set, inner);
        if armed {
            set.sleepers.fetch_add(1, Ordering::AcqRel);
            if let Some(waiter) = inner.waiter {
                waiter.sleeping(&attachment.segment);
            }
        }
        (inner.waiter, armed, inner.children.clone())
    });
    if !armed {
        set.lively.store(true, Ordering::Relaxed);
        return Ok(None);
    }
    let inside = children.iter().all(|(child, ..)| match fds::get(*child) {
        Entry::Epoll(child) => arm_for_kernel(child),
        _ => true,
    });
    let quiet = inside && !waiter.is_some_and(|waiter| waiter.any(&attachment.segment)) && set.with(|inner| inner.hot.is_empty());
    let look_again = waiting_for_room(set).then_some(ROOM_TICK);
    let got = if quiet {
        let limit = wait::remaining(end);
        let limit = look_again.filter(|tick| limit.is_none_or(|limit| limit.tv_sec > 0 || limit.tv_nsec > tick.tv_nsec)).or(limit);
        // SAFETY: the caller's promise; `room` is writable.
        unsafe { kernel_wait(epfd, room, limit, mask) }
    } else {
        // Whatever it was that came, the kernel was not asked.
        set.lively.store(true, Ordering::Relaxed);
        Ok(0)
    };
    set.with(|inner| awake(set, inner, attachment, room, quiet, got));
    match got? {
        0 if quiet && wait::is_over(end) => Ok(Some(collect(set, attachment, epfd, room, true).n)),
        0 => Ok(None),
        n => {
            shared::look(set, epfd);
            let n = translate(set, epfd, room, 0, n);
            set.lively.store(n > 0, Ordering::Relaxed);
            Ok((n > 0).then_some(n))
        }
    }
}

/// # Safety
/// `mask` is null or a signal mask.
unsafe fn kernel_wait(epfd: c_int, room: &mut [epoll_event], limit: Option<timespec>, mask: *const sigset_t) -> Result<usize, i32> {
    /// The longest limit that fits into an `int` of milliseconds, seconds.
    const LONGEST: i64 = c_int::MAX as i64 / 1000 - 1;
    let milliseconds = |limit: timespec| (limit.tv_sec.min(LONGEST) * 1000 + limit.tv_nsec / 1_000_000) as c_int;
    let max = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
    let whole = limit.is_none_or(|limit| limit.tv_nsec % 1_000_000 == 0 && limit.tv_sec <= LONGEST);
    let got = if whole {
        let ms = limit.map_or(-1, milliseconds);
        // SAFETY: the caller's promise; a cancellation point, as the program's own call.
        unsafe { next::epoll_pwait(epfd, room.as_mut_ptr(), max, ms, mask) }
    } else {
        let limit = limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: as above.
        let got = unsafe { next::epoll_pwait2(epfd, room.as_mut_ptr(), max, limit, mask) };
        if got < 0 && next::errno() == libc::ENOSYS {
            // SAFETY: `limit` is not null here; rounded up, for the program must not be told too early.
            let ms = unsafe { limit.as_ref() }.map_or(-1, |&limit| milliseconds(limit) + 1);
            // SAFETY: as above.
            unsafe { next::epoll_pwait(epfd, room.as_mut_ptr(), max, ms, mask) }
        } else {
            got
        }
    };
    if got < 0 { Err(next::errno()) } else { Ok(got.unsigned_abs() as usize) }
}
