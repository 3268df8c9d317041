//! Changes of registrations that the kernel is told of when it is next asked, and not before.
//!
//! Event loops that register a socket anew for every step (redis's and hiredis's `ae`, libevent,
//! asyncio) make up to four system calls for one exchange through rings, in which the kernel has no
//! part; most of them undo each other. So where nobody can notice (one process, nobody asleep on
//! the set, level-triggered, the connection in rings) a change is only noted, and the kernel is
//! told what it came to: before a look at the kernel's set, before anybody sleeps on it, and before
//! the descriptor or the set may be known to anybody else (close, fork, exec, passing, nesting).
//!
//! What the kernel does not have is always told at once: so an addition fails here as it does
//! there, and there is nothing that a late word could lack.
//!
//! What rang a sleeper lies in its FIFO until then too: who was just woken has better things to do
//! than to read it.

use super::change::ask_soon;
use super::collect::{IN, OUT};
use super::order;
use super::{
    Inner, Registration, Set, all_sets, doors, drop_registration, hot, kernel_control, local,
    local_bits, make_hot, outlived, places_of, set_at, unlink,
};
use crate::fds::{self, Entry};
use crate::outcome::Outcome;
use crate::runtime;
use core::sync::atomic::{AtomicU32, Ordering};
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Stage, flag};
use libc::c_int;

/// Whoever asks for one of these must be told by the kernel from this call on.
const AT_ONCE: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;

/// Threads that are about to fork: others let them have the locks first.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Threads that are in an exec: the kernel is told of everything at once.
static EXECUTING: AtomicU32 = AtomicU32::new(0);

/// What the kernel has: (events, data).
pub type Told = (u32, u64);

/// `epoll_ctl` without the kernel. `None`: not so, and the kernel has everything that was noted of
/// `fd`.
pub fn control(
    set: &Set,
    operation: c_int,
    fd: c_int,
    wanted: Option<Told>,
) -> Option<Outcome<c_int>> {
    let change = match (operation, wanted) {
        (libc::EPOLL_CTL_DEL, _) => None,
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some(wanted)) => Some(wanted),
        _ => return None,
    };
    set.with(|inner| {
        let place = *inner.by_fd.get(&fd)?;
        let quiet = inner.may_wait(set);
        let entry = inner.registrations.get_mut(place as usize)?;
        if entry.used == (operation == libc::EPOLL_CTL_ADD) {
            // An error, which is the kernel's to tell: it must know as much.
            tell_of(set, inner, place);
            return None;
        }
        let allowed = quiet
            && entry.may_wait(fd)
            && change.is_none_or(|(events, data)| events & AT_ONCE == 0 && data == entry.data);
        let (true, Some(slot)) = (allowed, entry.slot) else {
            tell_of(set, inner, place);
            return None;
        };
        entry.late.get_or_insert((entry.events, entry.data));
        match change {
            None => {
                entry.used = false;
                entry.turn.end();
                // Its only registration: see `may_wait`.
                local_bits(slot, 0, local::REGISTERED | local::WRITES | local::HOT);
            }
            Some((events, _)) => {
                let since = order::begins_anew(entry);
                (entry.events, entry.seen, entry.used) =
                    (events & !super::shared::MARKS, u64::MAX, true);
                entry.turn.begin(since);
                let writes = if events & libc::EPOLLOUT as u32 != 0 { local::WRITES } else { 0 };
                local_bits(
                    slot,
                    local::REGISTERED | writes | if entry.hot { local::HOT } else { 0 },
                    0,
                );
            }
        }
        if !core::mem::replace(&mut entry.listed, true) {
            inner.late.push(place);
        }
        make_hot(inner, place);
        if change.is_some() {
            ask_soon(inner, place);
        }
        Some(Outcome::Done(0))
    })
}

impl Inner {
    /// Can nobody notice what the kernel has not been told yet?
    fn may_wait(&self, set: &Set) -> bool {
        EXECUTING.load(Ordering::SeqCst) == 0
            && !self.nested
            && !set.shared.load(Ordering::Relaxed)
            && set.sleepers.load(Ordering::Acquire) == 0
    }

    /// Is nothing left to do before the kernel is asked?
    pub(super) fn is_told(&self) -> bool {
        self.late.is_empty() && !self.full
    }

    /// The kernel told of the waiter's FIFO.
    pub(super) fn rung(&mut self, set: &Set) {
        self.full = true;
        if !self.may_wait(set) {
            self.read_fifo();
        }
    }

    /// The kernel told of a FIFO of another process's, which has the set too and has not read it.
    /// For how long to look away then, ms: whoever rings it, a stranger maybe, would keep this
    /// process busy for as long as the other one looks elsewhere.
    pub(super) fn rung_elsewhere(&mut self) -> i32 {
        const SPAN: u64 = 50_000_000;
        const AT_ONCE: u32 = 16;
        let now = sys::monotonic_ns();
        let (since, often) = self.elsewhere;
        let often = if now.wrapping_sub(since) < SPAN { often + 1 } else { 0 };
        self.elsewhere = (if often == 0 { now } else { since }, often);
        i32::from(often > AT_ONCE)
    }

    /// Reads what rang.
    pub(super) fn read_fifo(&mut self) {
        if core::mem::take(&mut self.full)
            && let Some(waiter) = self.waiter
        {
            waiter.empty();
        }
    }
}

impl Registration {
    /// May the kernel hear later of a change of this one?
    fn may_wait(&self, fd: c_int) -> bool {
        let as_told = self.in_kernel
            && !(self.plain || self.is_tagged() || self.masked || self.loud || self.disabled);
        as_told
            && self.events & AT_ONCE == 0
            && self.slot.is_some_and(|slot| {
                matches!(fds::get(fd), Entry::Endpoint(of) if of == slot)
                    && fds::count(slot) == 1
                    && !runtime::uses_io_uring()
                    && self.endpoint().is_some_and(|endpoint| {
                        let slot = endpoint.slot();
                        slot.stage() == Stage::Active && !slot.has(flag::SHARED)
                    })
            })
    }

    /// Does what the kernel was told of it serve a look as well as what it is yet to be told? Room
    /// in a ring is told of by the ring. What the kernel says of bytes that nobody asks for is
    /// passed over, and ends this ([`super::told`]).
    fn may_wait_on(&self) -> bool {
        let Some((told, _)) = self.late.filter(|_| self.used && !self.masked && !self.disabled)
        else {
            return false;
        };
        let wanted = self.interest();
        let carried = |endpoint: Endpoint<'_>| endpoint.receives_by_ring() && endpoint.tx_in_ring();
        wanted & !told & !OUT == 0
            && told & !wanted & !IN == 0
            && self.endpoint().is_some_and(carried)
    }
}

/// Tells the kernel everything that it has not been told of this set.
pub fn tell(set: &Set, inner: &mut Inner) {
    tell_but(set, inner, |_| false);
}

/// The same before a look, after which nobody sleeps: a change may wait on that makes no difference
/// to what a look finds. An event loop that asks for room and for bytes by turns would else have
/// the kernel told of each turn in which a look happens to come.
pub fn tell_before_look(set: &Set, inner: &mut Inner) {
    tell_but(set, inner, Registration::may_wait_on);
}

/// [`tell`], but for those that may wait on.
fn tell_but(set: &Set, inner: &mut Inner, may_wait_on: impl Fn(&Registration) -> bool) {
    inner.read_fifo();
    let mut late = core::mem::take(&mut inner.late);
    late.retain(|&place| {
        let waits = inner.registrations.get(place as usize).is_some_and(&may_wait_on);
        if !waits {
            if let Some(entry) = inner.registrations.get_mut(place as usize) {
                entry.listed = false;
            }
            tell_of(set, inner, place);
        }
        waits
    });
    // The list keeps its memory: nothing is to be taken from an allocator in each wait.
    inner.late = late;
}

/// Tells the kernel of one registration, where it has not been told. One that is removed is gone
/// then.
pub fn tell_of(set: &Set, inner: &mut Inner, place: u32) {
    let epfd = set.fd.load(Ordering::Relaxed);
    let Some(entry) = inner.registrations.get_mut(place as usize) else { return };
    let Some(told) = entry.late.take() else { return };
    let fd = entry.fd;
    if entry.used {
        let (events, data) = (entry.interest(), entry.known);
        if told != (events, data) {
            // Where that fails, it was removed or closed past the hooks; the number may be
            // another's.
            let _ = kernel_control(epfd, libc::EPOLL_CTL_MOD, fd, events, data);
        }
        return;
    }
    let _ = kernel_control(epfd, libc::EPOLL_CTL_DEL, fd, 0, 0);
    if inner.by_fd.get(&fd) == Some(&place) {
        hot::disarm(inner, place);
        inner.by_fd.remove(&fd);
        unlink(fd, set.number);
    }
    drop_registration(set, inner, place);
}

/// Tells the kernel what it has not been told of `fd`, in whatever set.
pub fn tell_of_descriptor(fd: c_int) {
    let places = places_of(fd);
    for (index, place) in places {
        if let Some(set) = set_at(index) {
            set.with(|inner| tell_of(set, inner, place));
        }
    }
}

/// Set `index` is looked at by other means than a wait.
pub fn tell_set(index: u32) {
    if let Some(set) = set_at(index) {
        set.with(|inner| tell(set, inner));
        outlived::recall(set);
    }
}

/// `fd`, where it is a set, is given to another process.
pub fn lend(fd: c_int) {
    if let Some(set) = super::number_of(fd).and_then(set_at) {
        set.with(|inner| {
            tell(set, inner);
            inner.registrations.iter_mut().for_each(|entry| entry.lend(set));
            set.shared.store(true, Ordering::Relaxed);
            doors::give_back(set, inner);
        });
    }
}

/// A program is started: it has the sets that an exec leaves open.
pub fn lend_inherited() {
    for (fd, _) in fds::all().filter(|(_, entry)| matches!(entry, Entry::Epoll(_))) {
        if sys::fcntl(fd, libc::F_GETFD, 0)
            .is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0)
        {
            lend(fd);
        }
    }
}

/// A thread is about to take all locks, to fork.
pub fn forking() {
    FORKING.fetch_add(1, Ordering::SeqCst);
}

/// It has them.
pub fn may_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// In a fork child: the other threads are not here.
pub fn forked() {
    FORKING.store(0, Ordering::SeqCst);
    EXECUTING.store(0, Ordering::SeqCst);
}

/// Before work on a set that holds no lock: a fork, which must have all of them at once, comes
/// first. Not for ever: a signal handler may have interrupted that very thread.
#[inline]
pub fn give_way() {
    for _ in 0..1000 {
        if FORKING.load(Ordering::Relaxed) == 0 {
            return;
        }
        sys::yield_now();
    }
}

/// An exec begins: tells the kernel everything, and that at once from here on. The new program
/// knows nothing of what is noted here.
pub fn executing() {
    EXECUTING.fetch_add(1, Ordering::SeqCst);
    tell_all();
}

/// The exec did not happen.
pub fn not_executed() {
    // It may have begun before there was a segment, and so without a word.
    let _ =
        EXECUTING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// Tells the kernel everything.
pub fn tell_all() {
    for set in all_sets() {
        set.with(|inner| tell(set, inner));
    }
}
