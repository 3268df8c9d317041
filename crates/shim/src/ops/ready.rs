//! Readiness: poll, select and epoll.
mod select;
mod sleep;

pub use select::select;
use sleep::{Slept, sleep};

use super::Outcome;
use crate::deadline;
use crate::fds::{self, Entry};
use crate::moment::{self, Moment};
use crate::{runtime, sets, spin};
use ginnel_region::sys;
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
    let mut switch = Moment::default();
    loop {
        let ready = look(wanted, &mut asked)?;
        if ready > 0 {
            return Ok(ready);
        }
        if at_once && switching(wanted).is_some_and(|endpoint| switch.passes(endpoint)) {
            continue;
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

/// One that would be readable, were its bytes not just changing carriers.
fn switching(wanted: &[pollfd]) -> Option<Endpoint<'static>> {
    wanted.iter().filter(|entry| entry.events & IN != 0).find_map(|entry| match special(entry.fd) {
        Some(Special::Socket(endpoint)) => Some(endpoint).filter(|of| of.is_switching()),
        _ => None,
    })
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
            let is_active = || endpoint.slot().stage() == Stage::Active;
            let comes = || events & IN != 0 && is_active() && moment::brings_bytes(endpoint);
            if ring & IN != 0 || kernel & IN != 0 && readable() || comes() {
                ready |= events & IN;
            }
            let in_ring = is_active() && endpoint.tx_in_ring();
            if (if in_ring { ring } else { kernel }) & OUT != 0 && endpoint.sendable(true) {
                ready |= events & OUT;
            }
            sets::as_end(endpoint, u32::from(ready.cast_unsigned())) as i16
        }
    }
}
