//! The service thread: what cannot wait for the program's next call. It watches the kernel's side
//! of every carried socket, answers the wishes of peers, pays owed tokens, moves settling along,
//! and frees what the dead held.

mod broker;
mod due;
mod guard;
mod host;
mod left;
mod membership;
mod pairs;
mod paths;
mod start;
mod still;

pub use broker::want;
pub use guard::{own_slots, unless_serving, with_endpoint};
pub use left::pass_on;
pub use membership::{admit, retire_waiters};
pub use start::{
    attend_absence, begin, close_down, gains_no_privileges, heap, is_missing, moved, pause, resume,
};
pub use still::{not_executed, stand_still};

use crate::bell::{BELL, RUNNING, WATCHED, is_watched, ring};
use crate::{fds, leader, runtime};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use due::{all, serve};
use ginnel_node::node::Standing;
use ginnel_node::waiter::Waiter;
use ginnel_region::sys;
use ginnel_tcp::Attachment;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::reclaim::{self, Reach};
use host::{Again, hear, listen};
use left::{catch_up_all, hand_over_passed};
use libc::c_int;
use paths::{PATHS_TICK, Paths};
use start::{start, waiter};
use still::{rest, work};
use syscalls::Sysno;

static EPOLL: AtomicI32 = AtomicI32::new(-1);
static FIFO: AtomicI32 = AtomicI32::new(-1);
/// Which thread is to run: one of an earlier number ends.
static GENERATION: AtomicUsize = AtomicUsize::new(0);
/// Is anything under way that only another look brings to its end: a socket that settles, one whose
/// channel does not name this thread yet? The thread then looks often.
static SETTLING: AtomicU32 = AtomicU32::new(0);
/// Bytes that rings in the memory of pairs had carried at the last look at them, and for how many
/// looks that has not changed.
static IN_PAIRS: AtomicU64 = AtomicU64::new(0);
static QUIET: AtomicU32 = AtomicU32::new(0);

const BELL_DATA: u64 = u64::MAX;
const FIFO_DATA: u64 = u64::MAX - 1;
/// A doorbell of the host, or the connection to the daemon that passes it on.
const HOST_DATA: u64 = u64::MAX - 2;
/// The broker.
const BROKER_DATA: u64 = u64::MAX - 3;
/// How often the thread looks while something settles, ms.
const SETTLING_TICK: u64 = 1;
/// How often while a writer waits for its reader to freeze the ring, ms.
const LEAVING_TICK: u64 = 5;
/// How often where peers cannot wake it, ms.
const TOKEN_TICK: u64 = 100;
/// How often where peers cannot wake it, and nothing has moved for so many looks, ms: who wants
/// something of it (a program that is about to become another, say) waits two seconds.
const QUIET_TICK: u64 = 500;
const QUIET_LOOKS: u32 = 30;
/// How often where other processes have a socket of this one's too: the one that peers wake may
/// have ended, ms.
const SHARED_TICK: u64 = 200;
/// How often otherwise, ms: sooner than anybody gives up who waits for it and whose wake-up did not
/// reach it.
const IDLE_TICK: u64 = 3000;
/// How often it looks at its waiters while the daemon that rings it is away, ms.
const ALONE_TICK: u64 = 5;

/// The endpoint has a channel, or soon will: starts the thread if it does not run. It watches the
/// socket from its next look on: most of those that end before that need no watching, and the
/// thread is not woken for their end.
pub fn attend(endpoint: Endpoint<'static>) {
    let unseen = match endpoint.slot().stage() {
        Stage::Settling => true,
        Stage::Active => !is_watched(endpoint.index()),
        _ => false,
    };
    if unseen && start(endpoint.attachment) {
        look_often();
    }
    if start::FAILED.load(Ordering::Relaxed)
        && !endpoint.slot().has(flag::HOLD)
        && endpoint.slot().is_in_channel()
    {
        // Nobody would answer the other end while the program does something else.
        ginnel_tcp::hand_over::hold(endpoint, Reason::NoThread);
    }
}

/// Something is under way that only another look can bring to its end.
fn look_often() {
    if SETTLING.swap(1, Ordering::AcqRel) == 0 {
        ring();
    }
}

/// Another process has sockets of this one's too, and may carry them, and end: starts the thread
/// where it could not know of that by any call of this process's.
pub fn expect() {
    let Some(attachment) = runtime::attachment() else { return };
    let may_move = |(_, entry)| matches!(entry, fds::Entry::Endpoint(slot) | fds::Entry::Inherited(slot) if attachment.ledger.slot(slot).may_move());
    if fds::all().any(may_move) && start(attachment) {
        ring();
    }
}

/// Watches the kernel's side of an active channel.
pub fn watch(endpoint: Endpoint<'static>) {
    if !start(endpoint.attachment) {
        return;
    }
    let index = endpoint.index();
    if is_watched(index) || !WATCHED.set(index) {
        return;
    }
    let events = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLET;
    if !control(libc::EPOLL_CTL_ADD, endpoint.fd(), events as u32, u64::from(index)) {
        // The socket was another slot's, before it was connected anew. Or there is no set yet,
        // while another thread makes it.
        if !control(libc::EPOLL_CTL_MOD, endpoint.fd(), events as u32, u64::from(index)) {
            WATCHED.unset(index);
        }
    }
    if !endpoint.show_service() {
        look_often();
    }
}

/// A slot's last descriptor here is about to be closed.
pub fn forget(index: u32) {
    WATCHED.unset(index);
    broker::forget(index);
}

fn control(operation: c_int, fd: c_int, events: u32, data: u64) -> bool {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: `event` is readable.
    let done = unsafe {
        sys::raw(
            Sysno::epoll_ctl,
            [
                EPOLL.load(Ordering::Relaxed) as usize,
                operation as usize,
                fd as usize,
                &raw mut event as usize,
                0,
                0,
            ],
        )
    };
    done.is_ok()
}

fn run(generation: usize) {
    let Some(attachment) = runtime::attachment() else { return };
    work();
    let (mut reclaimed, mut reclaims) = (sys::monotonic_ns(), 0u32);
    let mut again = Again::default();
    // What handlers left to it before there was anything else to do for it.
    let (mut woken, mut next, mut next_path, mut passing) = (true, 0, 0, catch_up_all());
    let mut paths = Paths::default();
    let mut asks = broker::Asks::new(attachment);
    loop {
        let served = hear(attachment, &mut again);
        let now = sys::monotonic_ns();
        // An idle process wakes up once for both looks.
        let soon = if now >= next_path { now + PATHS_TICK * 1_000_000 } else { now };
        if woken || soon >= next {
            next = now + tick(attachment) * 1_000_000;
        }
        if now >= next_path {
            next_path = paths.look(attachment, now);
        }
        let next_ask = asks.tend(attachment);
        let left = next
            .min(next_path)
            .min(next_ask)
            .saturating_sub(sys::monotonic_ns())
            .div_ceil(1_000_000);
        let left = if served { left } else { left.min(ALONE_TICK) };
        let left = if passing { left.min(SETTLING_TICK) } else { left };
        let left = if leader::is_gone() {
            leader::end_if_last();
            left.min(leader::TICK)
        } else {
            left
        };
        woken = sleep(attachment, c_int::try_from(left).unwrap_or(c_int::MAX));
        if GENERATION.load(Ordering::Acquire) != generation {
            return rest();
        }
        passing = hand_over_passed();
        passing |= catch_up_all();
        if sys::monotonic_ns() - reclaimed > 10_000_000_000 {
            reclaimed = sys::monotonic_ns();
            if attachment.node.standing() != Standing::Away {
                reclaims = reclaims.wrapping_add(1);
                reclaim::reclaim_within(
                    attachment,
                    if reclaims.is_multiple_of(6) { Reach::All } else { Reach::Used },
                );
                membership::age(attachment);
            }
            pairs::age(attachment);
        }
    }
}

/// Looks at every slot of this process. Returns when it is to be done again at the latest, ms.
fn tick(attachment: &'static Attachment) -> u64 {
    let absent = membership::look(attachment);
    let settling = SETTLING.load(Ordering::Acquire) != 0;
    let mut seen = all(attachment);
    if settling && !seen.settling {
        // Sequentially consistent: the look that follows is not to come before it.
        SETTLING.swap(0, Ordering::SeqCst);
        // One that began meanwhile did not ring.
        seen = all(attachment);
        if seen.settling {
            SETTLING.store(1, Ordering::Release);
        }
    }
    if let Some(absent) = absent {
        absent
    } else if seen.settling {
        SETTLING_TICK
    } else if seen.leaving {
        LEAVING_TICK
    } else if waiter(attachment).is_none() || seen.owing {
        TOKEN_TICK
    } else if let Some(carried) = seen.pairs {
        if is_quiet(carried) { QUIET_TICK } else { TOKEN_TICK }
    } else if seen.shared {
        SHARED_TICK
    } else {
        IDLE_TICK
    }
}

/// Have the rings in the memory of pairs carried nothing for a while?
fn is_quiet(carried: u64) -> bool {
    let same = IN_PAIRS.swap(carried, Ordering::Relaxed) == carried;
    let looks = if same { QUIET.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
    QUIET.store(looks, Ordering::Relaxed);
    looks > QUIET_LOOKS
}

/// Sleeps until something is to be done, at most so long. False if nothing happened.
fn sleep(attachment: &'static Attachment, ms: c_int) -> bool {
    let waiter = waiter(attachment);
    if let Some(waiter) = waiter {
        waiter.sleeping(&attachment.node.joined().segment);
        if waiter.any(&attachment.node.joined().segment) {
            waiter.awake(&attachment.node.joined().segment, false);
            // Who is rung in every round never comes to sleep, and may be ended all the same.
            rest();
            work();
            waiter.take(&attachment.node.joined().segment, serve);
            return true;
        }
    }
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    rest();
    // SAFETY: room for 64 events.
    let got = unsafe {
        sys::raw(
            Sysno::epoll_pwait,
            [
                EPOLL.load(Ordering::Relaxed) as usize,
                events.as_mut_ptr() as usize,
                64,
                ms as usize,
                0,
                8,
            ],
        )
    };
    work();
    let events = events.get(..got.unwrap_or(0)).unwrap_or_default();
    // Asked for once more: its FIFO may have another number by now.
    let waiter = waiter.and_then(|_| self::waiter(attachment));
    if let Some(waiter) = waiter {
        waiter.awake(
            &attachment.node.joined().segment,
            events.iter().any(|event| event.u64 == FIFO_DATA),
        );
        waiter.take(&attachment.node.joined().segment, serve);
    }
    events.iter().for_each(|event| heed(attachment, waiter, event));
    // For a doorbell of the host there is nothing else to be done.
    let bells = events.iter().take(got.unwrap_or(0)).filter(|event| event.u64 == HOST_DATA).count();
    got != Ok(bells)
}

/// What woke the thread is heeded.
fn heed(attachment: &'static Attachment, waiter: Option<Waiter>, event: &libc::epoll_event) {
    match event.u64 {
        BELL_DATA => {
            let mut count = [0u8; 8];
            let _ = sys::read(BELL.load(Ordering::Relaxed), &mut count);
        }
        FIFO_DATA => {
            if let Some(waiter) = waiter {
                waiter.empty();
                if event.events & libc::EPOLLHUP as u32 != 0 {
                    membership::unplugged(attachment);
                }
            }
        }
        // Heard before the next sleep.
        HOST_DATA | BROKER_DATA => {}
        index => {
            // FIN, or an error: the next call is to ask the kernel.
            if let Ok(index) = u32::try_from(index) {
                attachment.ledger.slot(index).heed_kernel();
                serve(index);
            }
        }
    }
}

/// In a fork child: the thread is not there, and what it used is the parent's.
pub fn forget_parent(attachment: &Attachment) {
    RUNNING.store(false, Ordering::Release);
    start::PAUSES.store(0, Ordering::Relaxed);
    start::PAUSED.store(false, Ordering::Relaxed);
    still::STILL.store(0, Ordering::Relaxed);
    for guard in guard::GUARDS.iter().chain([&still::WORKING, &start::FAILED]) {
        guard.store(false, Ordering::Relaxed);
    }
    membership::forget_parent();
    WATCHED.unset_all();
    broker::close(attachment);
    attachment.pairs.forget_parent();
    for fd in [&EPOLL, &BELL, &FIFO] {
        attachment.node.disown(fd.swap(-1, Ordering::AcqRel));
    }
}
