//! Waiting on an epoll set.

mod rounds;

use super::asked::arm_for_kernel;
use super::collect::{beside_kernel, collect, pass_beside};
use super::hot::{arm_hot, make_waiter, rang};
use super::look::look;
use super::room::waiting_for_room;
use super::told::{Before, NONE_BEFORE, rest, translate, usual};
use super::{Inner, Set, arrange, doors, fifo_tag, inside, late, set_at, shared, stir};
use crate::deadline::{self, Deadline};
use crate::outcome::Outcome;
use crate::spin::ticks;
use crate::{next, runtime};
use core::sync::atomic::Ordering;
use ginnel_node::waiter::Waiter;
use ginnel_tcp::Attachment;
use libc::{c_int, epoll_event, sigset_t, timespec};
pub(super) use rounds::until_ready;

/// How long a sleep lasts at most while a registration waits for room in a ring.
const ROOM_TICK: timespec = timespec { tv_sec: 0, tv_nsec: 10_000_000 };

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
        Err(if at_once { None } else { deadline::after(timeout) })
    };
    // SAFETY: as above.
    let waited = waited.unwrap_or_else(|end| unsafe {
        until_ready(set, attachment, epfd, room, at_once, end, mask)
    });
    leave(set);
    waited.map_or_else(Outcome::Failed, |n| Outcome::Done(c_int::try_from(n).unwrap_or(c_int::MAX)))
}

/// A wait of the usual kind where no ring has news and none is looked at: what is armed stays
/// armed, and all else is the kernel's to tell. `Err`: there is more to think of, until then.
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
        return Err(deadline::after(timeout));
    }
    let begun = set.inner.with(|inner| {
        rang(inner, attachment);
        let quiet = inner.hot.is_empty()
            && inner.is_told()
            && inner.children.is_empty()
            && inner.owed.is_empty();
        quiet.then(|| {
            // Looked at once more, under the lock: a fork may have come between.
            let alone =
                !set.shared.load(Ordering::Relaxed) && set.masked.load(Ordering::Relaxed) == 0;
            if alone && inner.waiter.is_none() && !inner.waiter_tried {
                set.leave_to_kernel();
            }
            // From here on whoever changes something wakes this thread.
            set.sleepers.fetch_add(1, Ordering::AcqRel);
            inner.fall_asleep(attachment);
            (inner.is_rung(attachment), inner.waiter_tried)
        })
    });
    let Some((is_rung, was_hot)) = begun else { return Err(deadline::after(timeout)) };
    // Where nothing was hot before a sleep, nearly every wait ends here, and what is left of the
    // time is not worth asking the hardware for.
    let end = if was_hot { deadline::after(timeout) } else { deadline::roughly_after(timeout) };
    let asked = !is_rung;
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

/// Turns the kernel's answer to a sleep into the program's: `got` events, of which those that
/// [`usual`] saw to are done. Returns how many there are for the program.
pub(super) fn hand_on(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    told: (usize, usize),
    got: usize,
) -> usize {
    shared::look(set, epfd);
    let number = set.inner.with(pass_beside);
    let n = rest(set, epfd, room, (0, number), told, got);
    let n = fill(set, epfd, room, (n, number), got);
    in_their_order(set, room, n);
    let n = if number != 0 { beside_kernel(set, epfd, room, 0, n, number) } else { n };
    set.lively.store(n > 0, Ordering::Relaxed);
    n
}

/// What is for nobody may have taken places of what is to be told, among the `got` events that the
/// kernel had: it is asked again, as in a look. Returns how many there are in all.
fn fill(set: &Set, epfd: c_int, room: &mut [epoll_event], told: Before, got: usize) -> usize {
    let (n, _) = told;
    let may_have_more = got == room.len() && 0 < n && n < got;
    if may_have_more { look(set, epfd, room, told).unwrap_or(n) } else { n }
}

/// Brings what the kernel told of connections in rings, among `n` events, into their order.
fn in_their_order(set: &Set, room: &mut [epoll_event], n: usize) {
    if n > 1 {
        set.inner.with(|inner| {
            if inner.hot.len() > 1 {
                arrange::arrange_told(inner, room.get_mut(..n).unwrap_or_default());
            }
        });
    }
}

/// The thread sleeps no more; `got` came of the kernel's wait, if it was `asked` to. Under the
/// lock.
pub(super) fn awake(
    set: &Set,
    inner: &mut Inner,
    attachment: &Attachment,
    room: &[epoll_event],
    asked: bool,
    got: Result<usize, i32>,
) {
    let others = set.wakes() > 1;
    let told = inner.waiter.is_some()
        && got.is_ok_and(|n| room.iter().take(n).any(|event| event.u64 == fifo_tag()));
    // With the FIFO's event the kernel has told the others that were due before it, be there room
    // for more or not.
    let now = if inner.waiter_tried && asked { ticks() } else { 0 };
    if now != 0 && (told || got.is_ok_and(|n| n < room.len())) {
        inner.looked = now;
        inner.unasked = 0;
    }
    if asked && inner.waiter.is_some() {
        inner.was_told(attachment, now);
    }
    let Some(waiter) = inner.waiter else { return };
    waiter.awake(&attachment.node.joined().segment, told);
    doors::awake(inner, room.get(..got.unwrap_or(0)).unwrap_or_default());
    if others {
        left_asleep(inner, waiter, attachment);
    }
    rang(inner, attachment);
}

/// Others still sleep on the waiter of a thread that was woken.
pub(super) fn left_asleep(inner: &Inner, waiter: Waiter, attachment: &Attachment) {
    inner.fall_asleep(attachment);
    if inner.is_rung(attachment) {
        waiter.poke();
    }
}

/// A thread goes to work on what it was told of. Others that sleep on the set are to hear of what
/// comes next: whatever was told of, or looked at, is armed for them; where it cannot be, since
/// there is more to tell, one of them is woken, as the kernel wakes the next.
pub(super) fn leave(set: &Set) {
    if set.sleepers.load(Ordering::Acquire) != 0 {
        set.with(|inner| {
            if let Some(attachment) = runtime::attachment().filter(|_| !inner.hot.is_empty()) {
                make_waiter(set, attachment, set.fd.load(Ordering::Relaxed), inner);
            }
            if !arm_hot(set, inner) {
                stir(set, inner);
            } else if let (Some(waiter), Some(attachment)) = (inner.waiter, runtime::attachment()) {
                // What woke this thread, and took the FIFO's byte, may have been for them.
                left_asleep(inner, waiter, attachment);
            }
        });
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
    if set.with(|inner| !inner.owed.is_empty()) {
        return look(set, epfd, room, NONE_BEFORE).map(|n| (n > 0).then_some(n));
    }
    let (armed, children) = set.with(|inner| {
        if !inner.hot.is_empty() {
            make_waiter(set, attachment, epfd, inner);
        }
        let armed = arm_hot(set, inner);
        if armed {
            set.sleepers.fetch_add(1, Ordering::AcqRel);
            inner.fall_asleep(attachment);
        }
        (armed, inside::awaited(inner))
    });
    if !armed {
        set.lively.store(true, Ordering::Relaxed);
        return Ok(None);
    }
    let inside = children.into_iter().all(|(child, told)| match told {
        Some(told) => inside::arm_told(child, told),
        None => arm_for_kernel(child),
    });
    let quiet = inside && set.with(|inner| !inner.is_rung(attachment) && inner.hot.is_empty());
    let look_again = waiting_for_room(set).then_some(ROOM_TICK);
    let got = if quiet {
        let limit = deadline::remaining(end);
        let limit = look_again
            .filter(|tick| {
                limit.is_none_or(|limit| limit.tv_sec > 0 || limit.tv_nsec > tick.tv_nsec)
            })
            .or(limit);
        // SAFETY: the caller's promise; `room` is writable.
        unsafe { kernel_wait(epfd, room, limit, mask) }
    } else {
        // Whatever it was that came, the kernel was not asked.
        set.lively.store(true, Ordering::Relaxed);
        Ok(0)
    };
    set.with(|inner| awake(set, inner, attachment, room, quiet, got));
    match got? {
        0 if quiet && deadline::is_over(end) => {
            Ok(Some(collect(set, attachment, epfd, room, true).n))
        }
        0 => Ok(None),
        n => {
            shared::look(set, epfd);
            let number = set.inner.with(pass_beside);
            let told = translate(set, epfd, room, (0, number), n);
            let n = fill(set, epfd, room, (told, number), n);
            in_their_order(set, room, n);
            let n = if number != 0 { beside_kernel(set, epfd, room, 0, n, number) } else { n };
            set.lively.store(n > 0, Ordering::Relaxed);
            // An edge that comes once more is to be taken before the program hears of it.
            let n = if set.echoes.load(Ordering::Relaxed) {
                look(set, epfd, room, (n, number)).unwrap_or(n)
            } else {
                n
            };
            inside::forget_echoes(set);
            Ok((n > 0).then_some(n))
        }
    }
}

/// # Safety
/// `mask` is null or a signal mask.
unsafe fn kernel_wait(
    epfd: c_int,
    room: &mut [epoll_event],
    limit: Option<timespec>,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    /// The longest limit that fits into an `int` of milliseconds, seconds.
    const LONGEST: i64 = c_int::MAX as i64 / 1000 - 1;
    let milliseconds =
        |limit: timespec| (limit.tv_sec.min(LONGEST) * 1000 + limit.tv_nsec / 1_000_000) as c_int;
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
            // SAFETY: `limit` is not null here; rounded up, for the program must not be told too
            // early.
            let ms = unsafe { limit.as_ref() }.map_or(-1, |&limit| milliseconds(limit) + 1);
            // SAFETY: as above.
            unsafe { next::epoll_pwait(epfd, room.as_mut_ptr(), max, ms, mask) }
        } else {
            got
        }
    };
    if got < 0 { Err(next::errno()) } else { Ok(got.unsigned_abs() as usize) }
}
