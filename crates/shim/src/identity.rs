//! The process becomes somebody else: another user, other groups or rights, another root directory,
//! a user namespace of its own.
//!
//! What it has mapped and opened it keeps, whatever it becomes. So after each call that may change
//! who it is, it is asked whether it could still open its ledger and its segment by itself
//! ([`Attachment::is_still_own`]). A worker that was root's could not: its connections go back to
//! TCP, zeroes take the place of root's memory, and it joins anew as what it has become, with a
//! directory, a ledger and a segment of that user's. Where it cannot join, it stays on TCP.
//!
//! The rule, in short: another effective user leaves; fewer groups or rights, or another root
//! directory, leave where they take away what the process could open. Whoever sets the numbers that
//! it has already leaves nothing. Only a process that is the new user for good joins as that user:
//! with real, effective and saved user alike, in all of its threads. One that works for a user for
//! a while, and can be root again, must not be given into that user's hands: it stays on TCP.
//! `setfsuid` and `setfsgid` are no change: a thread that calls them stays who it is, and takes
//! them back when it likes.
//!
//! A connection that another process has too (its parent, who stays root) is on TCP for good from
//! then on, on both sides: two users have no memory in which they could agree on its bytes.

mod leave;

use self::leave::{empty_own, leave};
use crate::fds::{self, Entry};
use crate::{adopt, leader, maps, next, own, pool, report, runtime, service, sets};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use ginnel_region::sys;
use ginnel_tcp::ledger::Reason;
use ginnel_tcp::settings::Settings;
use ginnel_tcp::{Attachment, hand_over};
use libc::c_int;
use syscalls::Sysno;

/// How long the connections of a process may take to come back to TCP, nanoseconds. Those that have
/// not come back then are reset: bytes in a ring that is given up would be lost in silence.
const PATIENCE: u64 = 3_000_000_000;

/// After so many changes a process does not join again: it goes to and fro between users (a file
/// server does so at each request), and each time costs its connections more than a ring gains.
const MOST_CHANGES: u32 = 16;

/// How long a thread waits for another that takes the process out of its segment, nanoseconds. It
/// takes less; and it looks once more whether the waiter comes back or not.
const WAITS: u64 = 4 * PATIENCE;

/// The thread that is at it; 0 none.
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// How many calls are under way that may change who the process is, or were left by a handler's
/// `siglongjmp`: a fork child asks for itself then.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// What is being given up by now, null nothing: its connections are on TCP, and a fork child finds
/// the rest half done.
static PARTING: AtomicPtr<Attachment> = AtomicPtr::new(core::ptr::null_mut());

/// The process is to leave, whatever it may open.
static IS_TO_LEAVE: AtomicBool = AtomicBool::new(false);

/// How many calls there were that may have changed who the process is.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// How often the process has left.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Whose a call is that may change who the process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All threads' (the C library's functions).
    Process,
    /// Only the caller's (the system calls themselves).
    Thread,
}

/// Runs `call`, which may change who the process is, and does what follows from that. `errno` is as
/// the call left it.
pub fn around<T>(reach: Reach, call: impl FnOnce() -> T) -> T {
    UNDER_WAY.fetch_add(1, Ordering::SeqCst);
    let result = call();
    let saved = next::errno();
    // A handler that left this by `siglongjmp` would leave the process in its segment for good.
    let _blocked = runtime::attachment().map(|_| sys::block_signals());
    if own::is_ours_by_number() {
        look(reach);
    }
    // Less than there were where this goes on in a fork child, after a handler that forked.
    let _ =
        UNDER_WAY.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    next::set_errno(saved);
    result
}

/// The process leaves its segment for good, as if it had no right to it any more. Signals are
/// blocked.
pub fn leave_after_all() {
    CHANGES.store(MOST_CHANGES, Ordering::Relaxed);
    IS_TO_LEAVE.store(true, Ordering::SeqCst);
    look(Reach::Process);
}

/// Looks at who the process is, until no call has come in between. One thread does it, with its
/// signals blocked; others wait until it has looked once more.
fn look(reach: Reach) {
    ASKED.fetch_add(1, Ordering::SeqCst);
    let (me, end) = (thread(), sys::monotonic_ns() + WAITS);
    while runtime::attachment().is_some() || CHANGING.load(Ordering::SeqCst) != 0 {
        let asked = ASKED.load(Ordering::SeqCst);
        if CHANGING.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            if sys::monotonic_ns() > end {
                return;
            }
            sys::sleep_ms(1);
            continue;
        }
        if let Some(attachment) = runtime::attachment()
            && (IS_TO_LEAVE.load(Ordering::SeqCst) || !attachment.is_still_own())
        {
            change(attachment, reach);
        }
        CHANGING.store(0, Ordering::SeqCst);
        if ASKED.load(Ordering::SeqCst) == asked {
            return;
        }
    }
}

/// This thread's number: not 0.
fn thread() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { sys::raw(Sysno::gettid, [0; 6]) }.map_or(u32::MAX, |number| number as u32)
}

/// Is the process the same user in every respect, so that it cannot become another again by itself?
fn is_for_good(reach: Reach) -> bool {
    let (mut real, mut effective, mut saved) = (0u32, 0u32, 0u32);
    let places =
        [&raw mut real as usize, &raw mut effective as usize, &raw mut saved as usize, 0, 0, 0];
    // SAFETY: the three numbers are writable.
    let asked = unsafe { sys::raw(Sysno::getresuid, places) };
    asked.is_ok()
        && real == effective
        && effective == saved
        && (reach == Reach::Process || is_single_threaded())
}

/// Before a fork: what another thread is giving up is to be gone, if it is soon.
pub fn wait_for_parting() {
    let end = sys::monotonic_ns() + PATIENCE;
    while !PARTING.load(Ordering::Acquire).is_null() && sys::monotonic_ns() < end {
        sys::sleep_ms(1);
    }
}

/// In a fork child, before anything else: gives up what a thread of its parent was giving up.
pub fn abandon_what_was_left() {
    let left = PARTING.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or from a leaked box.
    if let Some(left) = unsafe { left.as_ref() } {
        abandon(left);
    }
}

/// In a fork child: gives up at once what it has of `old`, in whose ledger it has no entry. What
/// its parent has is untouched.
pub fn abandon(old: &'static Attachment) {
    if runtime::attachment().is_some_and(|present| core::ptr::eq(present, old)) {
        service::forget_parent(old);
        pool::forget();
        sets::forget_parent();
        runtime::stop();
    }
    maps::give_up(old);
    old.abandon();
    empty_own();
}

/// In a fork child that has entered the ledger: whoever was at it is not there. The child leaves by
/// itself, and is not carried again: it has no time to join, and nobody else may allocate memory
/// now.
pub fn forked(attachment: &'static Attachment) {
    let changing = CHANGING.swap(0, Ordering::SeqCst) != 0;
    let asks = UNDER_WAY.swap(0, Ordering::SeqCst) != 0 || changing;
    if asks && !attachment.is_still_own() {
        let _blocked = sys::block_signals();
        service::pause();
        leave(attachment, Reason::OtherUser, &mut |_| {});
        parted();
    }
}

/// Leaves everything as one user, and joins as another.
fn change(old: &'static Attachment, reach: Reach) {
    let settings = old.settings.of_present_user();
    let few = CHANGES.fetch_add(1, Ordering::Relaxed) < MOST_CHANGES;
    let may_join = few && is_for_good(reach) && !maps::may_lock_later_maps();
    service::pause();
    let name = old.node.processes.process(old.node.me()).name();
    let mut plain = Vec::new();
    leave(old, Reason::OtherUser, &mut |fd| plain.push(fd));
    let joined = may_join && join(settings);
    parted();
    if joined {
        plain.iter().for_each(|&fd| keep_plain(fd));
    } else {
        report::write_as(&name);
    }
}

/// For good, before the process confines itself: everything is on TCP by now, as far as it can be.
pub fn leave_for_good(old: &'static Attachment) {
    CHANGES.store(MOST_CHANGES, Ordering::Relaxed);
    leave(old, Reason::HandedOver, &mut |_| {});
    // Nobody who is late starts the thread again.
    service::pause();
    parted();
}

/// After [`leave`]: changes of the table go on, and forks.
fn parted() {
    PARTING.store(core::ptr::null_mut(), Ordering::Release);
    fds::release_changes(false);
}

/// Joins as the user that the process is now. False: it stays on TCP.
fn join(settings: Settings) -> bool {
    runtime::attach(settings);
    let joined = runtime::attachment().is_some();
    if joined {
        sets::rejoined();
    }
    joined
}

/// In the new ledger, too, it is said that the socket stays on TCP: for programs that inherit it.
fn keep_plain(fd: c_int) {
    if fds::replace(fd, Entry::Plain, Entry::Shared)
        && let Some(endpoint) = adopt::adopt(fd, false)
    {
        hand_over::hold(endpoint, Reason::HandedOver);
    }
}

/// Has the process but this thread? False where that cannot be told (no `/proc`).
pub fn is_single_threaded() -> bool {
    leader::threads() == Some(1)
}
