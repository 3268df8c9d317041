//! Readiness: poll, select and epoll.
mod select;

pub use select::select;

use super::{Outcome, limits};
use crate::deadline::{self, Deadline};
use crate::fds::{self, Entry};
use crate::pool::{self, Borrowed};
use crate::{next, runtime, sets, spin};
use ginnel_region::sys;
use ginnel_ring::park::Want;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Stage;
use libc::{c_int, epoll_event, pollfd, sigset_t, timespec};
use smallvec::SmallVec;

const IN: i16 = libc::POLLIN | libc::POLLRDNORM;
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// `epoll_ctl`; with `Done`/`Failed` the kernel's call has been made.
///
/// # Safety
/// `event` is null or points to an event.
pub unsafe fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> Outcome<c_int> {
    recover(epfd);
    match fds::get(epfd) {
        // SAFETY: the caller's promise.
        Entry::Epoll(set) => unsafe { sets::control(set, epfd, op, fd, event) },
        _ => Outcome::Libc,
    }
}

/// `epoll_wait`, `epoll_pwait`, `epoll_pwait2`. `timeout`: `None` waits for ever.
///
/// # Safety
/// `events` has room for `max` events (`max` may be invalid: ≤ 0 goes to libc).
pub unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Outcome<c_int> {
    recover(epfd);
    let Some(set) = sets::number_of(epfd) else { return Outcome::Libc };
    match usize::try_from(max) {
        // SAFETY: the caller's promise.
        Ok(max @ 1..) if !events.is_null() => unsafe {
            sets::wait(set, epfd, events, max, timeout, mask)
        },
        _ => Outcome::Libc,
    }
}

/// A number that epoll is asked of and that was not seen being made.
#[inline]
fn recover(epfd: c_int) {
    if fds::get(epfd) == Entry::Unknown && runtime::attachment().is_some() && epfd >= 0 {
        sets::recover(epfd);
        fds::replace(epfd, Entry::Unknown, Entry::Plain);
    }
}

/// Entries of a call. A few take no memory, as in the kernel's own calls, which programs make in
/// signal handlers too.
type Few<T> = SmallVec<[T; 16]>;

/// A descriptor that is polled and that the kernel alone cannot judge.
#[derive(Clone, Copy)]
enum Special {
    Socket(Endpoint<'static>),
    Set(u32),
}

fn special(fd: c_int) -> Option<Special> {
    match fds::get(fd) {
        Entry::Endpoint(_) | Entry::Inherited(_) => {
            runtime::find(fd).filter(|endpoint| runtime::carried(*endpoint)).map(Special::Socket)
        }
        Entry::Epoll(set) => sets::polled(set).map(Special::Set),
        _ => None,
    }
}

/// `poll` and `ppoll` (and their `_chk` forms). `timeout`: `None` waits for ever. `mask`: null or a
/// signal mask to sleep with.
///
/// # Safety
/// `fds` points to `n` pollfds.
pub unsafe fn poll(
    fds: *mut pollfd,
    n: usize,
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Outcome<c_int> {
    if n == 0 || fds.is_null() || runtime::attachment().is_none() {
        return Outcome::Libc;
    }
    // SAFETY: the caller's promise.
    let wanted = unsafe { core::slice::from_raw_parts_mut(fds, n) };
    if !wanted.iter().any(|entry| special(entry.fd).is_some()) {
        return Outcome::Libc;
    }
    // SAFETY: the caller's promise about `mask`.
    match unsafe { poll_special(wanted, timeout, mask) } {
        Ok(count) => Outcome::Done(c_int::try_from(count).unwrap_or(c_int::MAX)),
        Err(errno) => Outcome::Failed(errno),
    }
}

/// # Safety
/// `mask` is null or a signal mask.
unsafe fn poll_special(
    wanted: &mut [pollfd],
    timeout: Option<timespec>,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let at_once = timeout.is_some_and(|limit| limit.tv_sec == 0 && limit.tv_nsec == 0);
    let end = if at_once { None } else { deadline::after(timeout) };
    let mut asked = Few::new();
    static HABIT: spin::Habit = spin::Habit::new();
    loop {
        let ready = look(wanted, &mut asked)?;
        if ready > 0 {
            return Ok(ready);
        }
        if at_once {
            // SAFETY: the caller's promise.
            return unsafe { deadline::let_signals_in(mask) }.map(|()| 0);
        }
        let Some(attachment) = runtime::attachment() else { return Ok(ready) };
        let rings = || {
            wanted.iter().any(|entry| match special(entry.fd) {
                Some(Special::Socket(endpoint)) => shared_memory(endpoint, entry.events) != 0,
                _ => false,
            })
        };
        if wanted.iter().any(|entry| matches!(special(entry.fd), Some(Special::Socket(endpoint)) if endpoint.rx_in_ring()))
            && spin::spin(attachment, &HABIT, rings, || together(wanted))
            // A peer that has a byte come and go would keep it here; a sleep ends in time.
            && !deadline::is_over(end)
        {
            continue;
        }
        // SAFETY: the caller's promise about `mask`.
        match unsafe { sleep(wanted, &mut asked, attachment, end, mask) }? {
            Slept::Again => {}
            Slept::TimedOut => return look(wanted, &mut asked),
        }
    }
}

fn together(wanted: &[pollfd]) -> bool {
    wanted.iter().filter_map(|entry| special(entry.fd)).all(|special| match special {
        Special::Socket(endpoint) if endpoint.slot().stage() == Stage::Active => {
            spin::together(endpoint)
        }
        _ => false,
    })
}

/// What shared memory alone says about a socket.
fn shared_memory(endpoint: Endpoint<'_>, events: i16) -> i16 {
    let mut ready = 0;
    if endpoint.slot().stage() == Stage::Active {
        if events & IN != 0 && endpoint.rx_in_ring() && endpoint.readable() {
            ready |= events & IN;
        }
        if events & OUT != 0 && endpoint.tx_in_ring() && endpoint.writable() {
            ready |= events & OUT;
        }
    }
    ready
}

/// Fills in every `revents`. Returns how many are not empty.
fn look(wanted: &mut [pollfd], asked: &mut Few<pollfd>) -> Result<usize, i32> {
    asked.clear();
    asked.extend(wanted.iter().map(|entry| pollfd {
        fd: entry.fd,
        events: entry.events,
        revents: 0,
    }));
    for set in wanted.iter().filter_map(|entry| sets::index_of(entry.fd)) {
        sets::tell_set(set);
    }
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `asked` is ours; the kernel may write the remaining time into our copy.
    unsafe {
        sys::raw(
            syscalls::Sysno::ppoll,
            [asked.as_mut_ptr() as usize, asked.len(), &raw const now as usize, 0, 8, 0],
        )
    }?;
    let mut count = 0;
    for (entry, kernel) in wanted.iter_mut().zip(asked.iter()) {
        entry.revents = judge(entry.fd, entry.events, kernel.revents);
        count += usize::from(entry.revents != 0);
    }
    Ok(count)
}

/// What the kernel reported, corrected by what rings say.
fn judge(fd: c_int, events: i16, kernel: i16) -> i16 {
    match special(fd) {
        None => kernel,
        Some(Special::Set(set)) => {
            if events & IN == 0 {
                return kernel;
            }
            // The kernel's set may be ready for tokens that mean nothing to the program.
            let truly = sets::ready(set) || kernel & IN != 0 && sets::truly_ready(set, fd);
            if truly { kernel | events & IN } else { kernel & !IN }
        }
        Some(Special::Socket(endpoint)) => {
            let mut ready = kernel & !(IN | OUT);
            if kernel & (IN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0 {
                endpoint.slot().heed_kernel();
            }
            let ring = shared_memory(endpoint, events);
            // A set that has it may sleep, and would not be woken by what comes next.
            let in_set = || sets::registered(endpoint.index());
            let readable = || if in_set() { endpoint.tidy() } else { endpoint.tidy_before_sleep() };
            if ring & IN != 0 || kernel & IN != 0 && readable() {
                ready |= events & IN;
            }
            let in_ring = endpoint.slot().stage() == Stage::Active && endpoint.tx_in_ring();
            if (if in_ring { ring } else { kernel }) & OUT != 0 && endpoint.sendable(true) {
                ready |= events & OUT;
            }
            sets::as_end(endpoint, u32::from(ready.cast_unsigned())) as i16
        }
    }
}

enum Slept {
    Again,
    TimedOut,
}

/// # Safety
/// `mask` is null or a signal mask.
unsafe fn sleep(
    wanted: &[pollfd],
    asked: &mut Few<pollfd>,
    attachment: &'static ginnel_tcp::Attachment,
    end: Deadline,
    mask: *const sigset_t,
) -> Result<Slept, i32> {
    // The kernel takes no more entries than the process may have descriptors: then without a FIFO
    // of ours beside the program's.
    let waiter =
        if wanted.len() + LINES < most_entries() { pool::borrow(attachment) } else { None };
    let mut lines: Few<pool::Line> = Few::new();
    let mut quiet = true;
    let mut limit = deadline::remaining(end);
    asked.clear();
    let mut armed: Few<(Endpoint<'static>, Want, bool)> = Few::new();
    for entry in wanted {
        let mut kernel = pollfd { fd: entry.fd, events: entry.events, revents: 0 };
        match special(entry.fd) {
            Some(Special::Socket(endpoint))
                if matches!(endpoint.slot().stage(), Stage::Settling | Stage::Active) =>
            {
                let want = wish(endpoint, waiter.as_ref(), &mut lines);
                if entry.events & IN != 0 {
                    // Also while TCP carries: another who sleeps there may throw away the token by
                    // which a ring begins, and is then not to be woken alone. Taken back also where
                    // there was something: the next who sleeps there is to be the only one.
                    quiet &= endpoint.arm_data(want).is_some();
                    armed.push((endpoint, want, false));
                }
                if entry.events & OUT != 0
                    && endpoint.slot().stage() == Stage::Active
                    && endpoint.tx_in_ring()
                {
                    kernel.events &= !OUT;
                    match endpoint.arm_space(want) {
                        Some(now) => {
                            armed.push((endpoint, want, true));
                            // Unread bytes may hide a token, another thread may throw it away, and
                            // the reader may have gone over to TCP: look again soon.
                            let soon = match now {
                                Want::Token if entry.events & IN == 0 => 1_000_000,
                                Want::Token => 10_000_000,
                                _ => 20_000_000,
                            };
                            limit = sooner(limit, soon);
                        }
                        None => quiet = false,
                    }
                }
            }
            Some(Special::Set(set)) => {
                if !sets::arm_for_kernel(set) {
                    quiet = false;
                } else if sets::waits_for_room(set) {
                    limit = sooner(limit, 10_000_000);
                }
            }
            _ => {}
        }
        asked.push(kernel);
    }
    if let Some(waiter) = &waiter {
        waiter.sleeping();
        lines.iter().for_each(pool::Line::sleeping);
        quiet &= waiter.is_fit();
        let beside = core::iter::once(waiter.fifo()).chain(lines.iter().map(pool::Line::fd));
        asked.extend(beside.map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 }));
    }
    let news = || {
        armed.iter().any(|(endpoint, _, space)| {
            shared_memory(*endpoint, if *space { OUT } else { IN }) != 0
        }) || waiter.as_ref().is_some_and(Borrowed::any)
            || lines.iter().any(pool::Line::any)
    };
    let mut got = Ok(1);
    if quiet && !news() {
        let limit = limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: `asked` is ours; a cancellation point, as the program's own call.
        let n =
            unsafe { next::ppoll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, limit, mask) };
        got = if n < 0 { Err(next::errno()) } else { Ok(n) };
    }
    let told = |place: usize| asked.get(wanted.len() + place).map_or(0, |beside| beside.revents);
    for (line, place) in lines.iter().zip(1..) {
        let has_news = |(endpoint, _, space): &(Endpoint<'static>, Want, bool)| {
            line.is_of(endpoint.joined())
                && shared_memory(*endpoint, if *space { OUT } else { IN }) != 0
        };
        line.awake(told(place), armed.iter().any(has_news));
    }
    if let Some(waiter) = &waiter {
        waiter.awake([told(0), 0], true);
    }
    let current = waiter.as_ref().is_some_and(Borrowed::is_current);
    for (endpoint, want, space) in armed {
        match want {
            Want::Token if !space => endpoint.woken_by_kernel(),
            Want::Token => {}
            _ if !current => {}
            _ if space => endpoint.disarm_space(want),
            _ => endpoint.disarm_data(want),
        }
    }
    match got? {
        // Whatever the kernel said, which may mean nothing, and for ever.
        _ if deadline::is_over(end) => Ok(Slept::TimedOut),
        _ => Ok(Slept::Again),
    }
}

/// How many entries `poll` takes at most.
fn most_entries() -> usize {
    usize::try_from(limits::present(libc::RLIMIT_NOFILE as _)).unwrap_or(usize::MAX)
}

/// The limit, or `ns` nanoseconds (less than a second) where that is sooner.
fn sooner(limit: Option<timespec>, ns: i64) -> Option<timespec> {
    Some(deadline::sooner(limit, timespec { tv_sec: 0, tv_nsec: ns }))
}

/// How many pairs' lines one call takes at most.
const LINES: usize = 16;

fn wish(
    endpoint: Endpoint<'static>,
    waiter: Option<&Borrowed>,
    lines: &mut Few<pool::Line>,
) -> Want {
    let registered = sets::registered(endpoint.index());
    let shared = registered || endpoint.wakes_by_token();
    match waiter {
        Some(waiter) if !shared && endpoint.is_in_pair() => {
            let pair = endpoint.joined();
            if !lines.iter().any(|line| line.is_of(pair)) && lines.len() < LINES {
                lines.extend(waiter.take_line(pair));
            }
            lines.iter().find(|line| line.is_of(pair)).map_or(Want::Token, pool::Line::want)
        }
        Some(waiter) if !shared => waiter.want(),
        _ => Want::Token,
    }
}
