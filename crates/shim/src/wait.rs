//! Waiting: first spinning, where that pays, then sleeping, armed.

mod limit;
mod room;

pub use limit::Limit;
pub use room::for_room;

use crate::deadline::{Deadline, is_over, remaining, sooner};
use crate::pool::{Borrowed, borrow_for};
use crate::spin::{Habit, spin, together};
use crate::{gather, next};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_region::sys;
use ginnel_ring::park::Want;
use ginnel_ring::prefetch;
use ginnel_tcp::Endpoint;
use libc::{c_int, pollfd, timespec};

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Look again.
    Again,
    /// The socket's time limit passed (EAGAIN).
    TimedOut,
    /// A signal handler ran that the program wants to hear of (EINTR).
    Interrupted,
}

/// One habit for each of a few hashed slots: blocking calls on the same socket.
static HABITS: [Habit; 256] = [const { Habit::new() }; 256];

/// Do the signal handlers of this process want interrupted calls restarted? `None`: some do, some
/// do not.
fn restarts() -> Option<bool> {
    // What a thread does to itself interrupts no call; the C library's own signals (32 and 33) are
    // not the program's.
    let own = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGSYS,
        32,
        33,
    ];
    let (mut yes, mut no) = (false, false);
    for signal in (1..=64).filter(|signal| !own.contains(signal)) {
        if let Some(action) =
            sys::signal_action(signal as usize).filter(|action| action.handler > 1)
        {
            if action.flags & libc::SA_RESTART as u64 != 0 { yes = true } else { no = true }
        }
    }
    if yes && no { None } else { Some(yes) }
}

/// A call that has done nothing yet was interrupted in a wait that the kernel never restarts, as
/// `poll(2)`. Do all handlers of this process want the call to go on?
pub fn goes_on_after_signal() -> bool {
    next::errno() == libc::EINTR && restarts() == Some(true)
}

/// Some handlers restart and some do not ([`mixed`]): sleeps that must tell them apart are left to
/// the kernel.
static MIXED: AtomicU32 = AtomicU32::new(UNASKED);
const UNASKED: u32 = 2;

/// Do some handlers restart, and some not? As it was when the first sleep began, or one was
/// interrupted: programs set their handlers before they wait.
fn mixed() -> bool {
    if MIXED.load(Ordering::Relaxed) == UNASKED {
        MIXED.store(restarts().is_none().into(), Ordering::Relaxed);
    }
    MIXED.load(Ordering::Relaxed) != 0
}

/// A sleep was interrupted. `None`: it goes on. `partial`: as [`Limit::partial`].
fn interrupted(limited: bool, partial: bool) -> Option<Woken> {
    if partial {
        return Some(Woken::Interrupted);
    }
    match restarts() {
        Some(true) if !limited => None,
        Some(_) => Some(Woken::Interrupted),
        None => {
            MIXED.store(1, Ordering::Relaxed);
            Some(Woken::Interrupted)
        }
    }
}

/// `ppoll` through the C library: a cancellation point, as the program's own call would have been.
fn ppoll(fds: &mut [pollfd], limit: Option<timespec>) -> Result<c_int, c_int> {
    let limit = limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `fds` and `limit` are ours.
    let n = unsafe {
        next::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit, core::ptr::null())
    };
    if n >= 0 {
        return Ok(n);
    }
    let errno = next::errno();
    if errno == libc::EINVAL {
        // More entries than the process may have descriptors (RLIMIT_NOFILE: sandboxes set it to
        // 0). The caller looks again, and again.
        let a_while = timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: no entries.
        unsafe { next::ppoll(core::ptr::null_mut(), 0, &raw const a_while, core::ptr::null()) };
    }
    Err(errno)
}

/// Waits until a receive may have something to say.
pub fn for_data(endpoint: Endpoint<'static>, limit: &mut Limit) -> Woken {
    let slot = endpoint.slot();
    if endpoint.receives_by_ring() {
        let habit = &HABITS[(slot.cookie.load(Ordering::Relaxed) % 256) as usize];
        let (watch, looks) = (endpoint.watch(), Cell::new(0u32));
        let next = watch.next_place();
        let readable = || {
            looks.set(looks.get().wrapping_add(1));
            // The bytes come over together with the news of them, instead of after it.
            prefetch::to_read(next);
            watch.has_changed() && endpoint.readable()
        };
        if spin(endpoint.attachment, habit, readable, || together(endpoint)) {
            gather::waited(endpoint, looks.get());
            return Woken::Again;
        }
        if !limit.is_still(endpoint) {
            return Woken::Again;
        }
        // A set that has it too would not hear of what this thread is woken for.
        let alone = !crate::sets::registered(endpoint.index());
        if alone
            && !mixed()
            && let Some(waiter) = borrow_for(endpoint)
        {
            return data_by_waiter(endpoint, &waiter, limit);
        }
    }
    data_by_token(endpoint, limit)
}

fn data_by_waiter(endpoint: Endpoint<'static>, waiter: &Borrowed, limit: &mut Limit) -> Woken {
    let (end, partial) = (limit.end(endpoint), limit.partial);
    let want = waiter.want();
    if endpoint.arm_data(want).is_none() {
        // Nobody sleeps here: the next who does is to be the only one.
        endpoint.disarm_data(want);
        return Woken::Again;
    }
    waiter.sleeping();
    let mut rung = [0; 2];
    let woken = loop {
        let known = limit.is_known(endpoint);
        if !known && !limit.is_still(endpoint)
            || endpoint.readable()
            || waiter.any()
            || !waiter.is_fit()
        {
            break Woken::Again;
        }
        let [fifo, line] = waiter.beside();
        let mut fds = [
            pollfd { fd: endpoint.fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 },
            fifo,
            line,
        ];
        // Where the number is about to be another's, nobody may ring when it is.
        match ppoll(waiter.entries(&mut fds), Some(nap(end, if known { 5 } else { 1 }))) {
            Ok(0) if is_over(end) => break Woken::TimedOut,
            Ok(0) => {}
            Ok(_) => {
                if fds[0].revents != 0 && limit.is_still(endpoint) {
                    endpoint.slot().heed_kernel();
                }
                rung = [fds[1].revents, fds[2].revents];
                break Woken::Again;
            }
            Err(libc::EINTR) => {
                if let Some(woken) = interrupted(end.is_some(), partial) {
                    break woken;
                }
            }
            Err(_) => break Woken::Again,
        }
    };
    waiter.awake(rung, !limit.has_slot(endpoint) || !endpoint.rx_in_ring() || endpoint.readable());
    if waiter.is_current() && limit.has_slot(endpoint) {
        endpoint.disarm_data(want);
    }
    woken
}

/// For how long to sleep at once on a number that may come to be another's, at most so many
/// seconds: `poll(2)` looks it up anew whenever something happens, but has registered with what it
/// found at first.
fn nap(end: Deadline, seconds: i64) -> timespec {
    sooner(remaining(end), timespec { tv_sec: seconds, tv_nsec: 0 })
}

/// Sleeps on the number until something happens, the time is over or the number is no longer the
/// connection's. (Not nap by nap outside: a signal that came between two would end nothing.)
fn naps(
    endpoint: Endpoint<'_>,
    limit: &Limit,
    fds: &mut [pollfd],
    end: Deadline,
) -> Result<c_int, c_int> {
    loop {
        let slept = ppoll(fds, Some(nap(end, 1)));
        if slept != Ok(0) || is_over(end) || !limit.is_still(endpoint) {
            return slept;
        }
    }
}

/// Sleeps inside the kernel's own receive, looking at one byte: signals, restarts and SO_RCVTIMEO
/// are exactly TCP's.
fn data_by_token(endpoint: Endpoint<'static>, limit: &mut Limit) -> Woken {
    let (end, partial) = (limit.end(endpoint), limit.partial);
    if is_over(end) {
        return Woken::TimedOut;
    }
    if endpoint.arm_data(Want::Token).is_none() {
        return Woken::Again;
    }
    if end.is_some() || partial {
        // Not restarted after a signal, and what is left of the time is not the whole of it.
        let mut fds =
            [pollfd { fd: endpoint.fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 }];
        let slept = naps(endpoint, limit, &mut fds, end);
        if limit.has_slot(endpoint) {
            endpoint.woken_by_kernel();
        }
        if !limit.is_still(endpoint) {
            return Woken::Again;
        }
        if fds[0].revents & !libc::POLLIN != 0 || !endpoint.readable() {
            endpoint.slot().heed_kernel();
        }
        return match slept {
            Ok(0) if is_over(end) => Woken::TimedOut,
            Err(libc::EINTR) => Woken::Interrupted,
            _ => Woken::Again,
        };
    }
    let mut byte = 0u8;
    let so_far = endpoint.tokens_so_far();
    // SAFETY: `byte` is writable.
    let got = unsafe { next::recv(endpoint.fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
    let errno = next::errno();
    if limit.has_slot(endpoint) {
        if got > 0 {
            endpoint.token_is_there(so_far);
        }
        endpoint.woken_by_kernel();
    }
    if !limit.is_still(endpoint) {
        // Perhaps an error of the old connection's: nobody else's.
        return Woken::Again;
    }
    if got > 0 && endpoint.readable() {
        // The token of those bytes. Whatever stands behind it is seen before the next sleep, which
        // sweeps it away.
        return Woken::Again;
    }
    endpoint.slot().heed_kernel();
    if got >= 0 {
        return Woken::Again;
    }
    match errno {
        libc::EAGAIN => Woken::TimedOut,
        libc::EINTR => Woken::Interrupted,
        errno => {
            endpoint.keep_error(errno);
            Woken::Again
        }
    }
}

/// Waits a little for bytes behind those that a receive has looked at and leaves where they are.
/// From the first such sleep of a call on no signal comes between two of them: it would end none,
/// and so not the call.
pub fn for_more(endpoint: Endpoint<'static>, limit: &mut Limit) -> Woken {
    const A_WHILE: timespec = timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let end = limit.end(endpoint);
    let left = sooner(remaining(end), A_WHILE);
    let mask = limit.mask.get_or_insert_with(|| {
        // SAFETY: both masks are ours.
        unsafe {
            let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
            libc::sigfillset(&raw mut all);
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
                libc::sigdelset(&raw mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            before
        }
    });
    // SAFETY: no descriptors; the limit and the mask are ours.
    let slept = unsafe {
        next::ppoll(core::ptr::null_mut(), 0, &raw const left, core::ptr::from_ref(mask))
    };
    match if slept < 0 { Err(next::errno()) } else { Ok(()) } {
        Err(libc::EINTR) => Woken::Interrupted,
        _ if is_over(end) => Woken::TimedOut,
        _ => Woken::Again,
    }
}
