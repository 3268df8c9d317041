//! Descriptors: made, copied, replaced, closed.
use super::Outcome;
use crate::adopt::{self, Ended};
use crate::fds::{self, Entry};
use crate::moment::Moment;
use crate::{next, options, pool, runtime, service, sets};
use ginnel_region::sys;
use ginnel_tcp::ledger::{Stage, flag};
use ginnel_tcp::{Attachment, Endpoint};
use libc::c_int;

/// What a new descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A socket; looked at when first used.
    Socket,
    /// A TCP socket.
    Tcp,
    /// An epoll set.
    Epoll,
    /// Anything else.
    Other,
}

impl Kind {
    /// What `socket(domain, kind, protocol)` makes: mostly known without asking the kernel.
    #[must_use]
    pub fn of_socket(domain: c_int, kind: c_int, protocol: c_int) -> Self {
        let stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
        match domain {
            libc::AF_INET | libc::AF_INET6
                if stream && matches!(protocol, 0 | libc::IPPROTO_TCP) =>
            {
                Self::Tcp
            }
            // What it accepts may be TCP: it is looked at when it is used.
            libc::AF_INET | libc::AF_INET6 if stream && protocol == libc::IPPROTO_MPTCP => {
                Self::Socket
            }
            libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX | libc::AF_NETLINK => Self::Other,
            _ => Self::Socket,
        }
    }
}

/// `fd` was just made by a hooked call. Forgets whatever the number stood for before.
pub fn created(fd: c_int, kind: Kind) {
    if runtime::attachment().is_none() {
        return;
    }
    if !matches!(fds::get(fd), Entry::Unknown | Entry::Plain) {
        stale(fd);
    }
    match kind {
        Kind::Socket => fds::set(fd, Entry::Unknown),
        Kind::Tcp => fds::set(fd, Entry::Tcp),
        Kind::Epoll => sets::created(fd),
        Kind::Other => fds::set(fd, Entry::Plain),
    }
}

/// The number came back from the kernel, so whatever it stood for was closed past the hooks.
fn stale(fd: c_int) {
    match fds::take(fd) {
        Entry::Endpoint(slot) | Entry::Inherited(slot) => {
            sets::closing(fd, Some(slot));
            // The socket may live on elsewhere; the dead are found by their holders.
            let left = fds::counting(slot, || {
                let left = fds::unrefer(slot, fd);
                if let Some(attachment) = runtime::attachment().filter(|_| left == 0) {
                    attachment.ledger.slot(slot).let_go(attachment.node.me());
                }
                left
            });
            if left == 0 {
                service::forget(slot);
            }
        }
        Entry::Epoll(set) => sets::closed(fd, set),
        Entry::Tcp | Entry::Shared | Entry::Listener | Entry::Young(_) => sets::closing(fd, None),
        Entry::Unknown | Entry::Plain | Entry::Own | Entry::Uring => {}
    }
}

/// `close(2)`: when `Done`/`Failed` the kernel's close has been made.
pub fn close(fd: c_int) -> Outcome<c_int> {
    match fds::get(fd) {
        Entry::Unknown | Entry::Plain | Entry::Uring => {
            if fds::get(fd) != Entry::Unknown {
                fds::set(fd, Entry::Unknown);
            }
            Outcome::Libc
        }
        Entry::Own => Outcome::Failed(libc::EBADF),
        entry if is_inside(fd) => {
            // What is noted of it is as if it had been closed past the hooks, until the number is
            // another's: see `stale`.
            if let Entry::Endpoint(slot) | Entry::Inherited(slot) = entry {
                forsake(fd, slot);
            }
            Outcome::Libc
        }
        entry @ (Entry::Tcp | Entry::Shared | Entry::Listener | Entry::Young(_)) => {
            if !fds::replace(fd, entry, Entry::Unknown) {
                // Another thread has just used it for the first time.
                return close(fd);
            }
            sets::closing(fd, None);
            Outcome::Libc
        }
        Entry::Epoll(set) => {
            sets::closed(fd, set);
            fds::set(fd, Entry::Unknown);
            Outcome::Libc
        }
        Entry::Endpoint(_) | Entry::Inherited(_) => close_endpoint(fd),
    }
}

/// Does the caller run in a signal handler that interrupted this thread's work on the descriptor's
/// connection, or on an epoll set? Handlers may close and shut down (signal-safety(7)), but the
/// interrupted work holds locks, and goes on once the handler is over.
pub fn is_inside(fd: c_int) -> bool {
    sets::is_interrupted() || runtime::known(fd).is_some_and(Endpoint::is_interrupted)
}

/// Its last descriptor is closed in such a handler: no more goes through rings. The other end sees
/// what it sees of a program that ended.
#[cold]
fn forsake(fd: c_int, slot: u32) {
    let Some(endpoint) = runtime::endpoint(fd, slot)
        .filter(|endpoint| fds::count(slot) == 1 && endpoint.slot().is_alone())
    else {
        return;
    };
    sets::forsake(fd);
    if runtime::carried(endpoint) {
        endpoint.slot().set_stage(Stage::Broken);
    }
}

fn close_endpoint(fd: c_int) -> Outcome<c_int> {
    sets::look_before_close(fd);
    let _change = fds::change();
    let (Entry::Endpoint(slot) | Entry::Inherited(slot)) = fds::take(fd) else {
        return Outcome::Libc;
    };
    let last = release(fd, slot);
    // SAFETY: the program's own call.
    let closed = unsafe { next::close(fd) };
    let errno = next::errno();
    if let Some(last) = last {
        super::sock::note_tcp();
        adopt::ended(&last);
    }
    if closed < 0 { Outcome::Failed(errno) } else { Outcome::Done(closed) }
}

/// Lets go of an endpoint's descriptor. `Some` if the socket ends with it.
fn release(fd: c_int, slot: u32) -> Option<Ended> {
    sets::closing(fd, Some(slot));
    part(fd, slot)
}

/// [`release`], except for the descriptor's places in epoll sets.
pub fn part(fd: c_int, slot: u32) -> Option<Ended> {
    let endpoint = runtime::endpoint(fd, slot);
    let last = adopt::let_go(fd, slot);
    if fds::count(slot) == 0 {
        service::forget(slot);
    }
    if let Some(endpoint) = endpoint {
        // The number is about to be another's, under a thread that sleeps on it perhaps.
        endpoint.wake_receiver();
    }
    last
}

/// Before `close_range`/`closefrom` on `first..=last` (after clamping): lets go of endpoints in the
/// range. With `Done(0)` the range was closed here, sparing the shim's own descriptors. `cloexec`:
/// CLOSE_RANGE_CLOEXEC was given.
pub fn close_range(first: u32, last: u32, cloexec: bool) -> Outcome<c_int> {
    if runtime::attachment().is_none() || first > last {
        return Outcome::Libc;
    }
    let inside = |fd: c_int| (first..=last).contains(&fd.unsigned_abs());
    if !cloexec {
        for (fd, entry) in fds::all().filter(|(fd, _)| inside(*fd)) {
            if entry != Entry::Own && entry != Entry::Unknown && close(fd) == Outcome::Libc {
                sys::close(fd);
            }
        }
    }
    // What is left between the shim's own, piece by piece.
    let mut from = first;
    for own in fds::all()
        .filter(|(fd, entry)| *entry == Entry::Own && inside(*fd))
        .map(|(fd, _)| fd.unsigned_abs())
    {
        if own > from && !range(from, own - 1, cloexec) {
            return Outcome::Failed(libc::ENOSYS);
        }
        from = own + 1;
    }
    if from <= last && !range(from, last, cloexec) {
        return Outcome::Failed(libc::ENOSYS);
    }
    Outcome::Done(0)
}

fn range(first: u32, last: u32, cloexec: bool) -> bool {
    const CLOEXEC: usize = 4;
    // SAFETY: no memory is passed.
    let done = unsafe {
        sys::raw(
            syscalls::Sysno::close_range,
            [first as usize, last as usize, if cloexec { CLOEXEC } else { 0 }, 0, 0, 0],
        )
    };
    done.is_ok()
}

/// Before `dup2`/`dup3` onto `new` (`old != new`): lets go of what `new` stood for, as `close`
/// does, except for the kernel's close.
pub fn replacing(new: c_int) {
    match fds::get(new) {
        Entry::Endpoint(slot) | Entry::Inherited(slot) => {
            sets::look_before_close(new);
            fds::take(new);
            if let Some(last) = release(new, slot) {
                // The kernel closes it within the call; the endpoint is finished either way.
                adopt::ended(&last);
            }
        }
        Entry::Epoll(set) => {
            sets::closed(new, set);
            fds::set(new, Entry::Unknown);
        }
        entry @ (Entry::Tcp | Entry::Shared | Entry::Listener | Entry::Young(_)) => {
            if !fds::replace(new, entry, Entry::Unknown) {
                return replacing(new);
            }
            sets::closing(new, None);
        }
        Entry::Own => {
            if let Some(attachment) = runtime::attachment() {
                make_room(attachment, new);
            }
            fds::set(new, Entry::Unknown);
        }
        Entry::Uring | Entry::Plain | Entry::Unknown => fds::set(new, Entry::Unknown),
    }
}

/// The program gives a number of the shim's own to something else, as any program may: what the
/// shim has by it, it has by another one from here on. A line is given up. (So is a waiter that
/// another thread sleeps on: [`crate::pool::Borrowed::is_fit`].)
fn make_room(attachment: &Attachment, number: c_int) {
    attachment.pairs.all().for_each(|pair| pair.joined.lines.replaced(number));
    let copied = |lowest: c_int| sys::fcntl(number, libc::F_DUPFD_CLOEXEC, lowest as usize);
    // Far from those that programs take, where there is room.
    let Ok(copy) = copied(number + 1).or_else(|_| copied(number / 2)) else { return };
    let to = c_int::try_from(copy).unwrap_or(-1);
    attachment.node.own(to);
    let joined = attachment.node.joined().moved(number, to);
    // A waiter may be known to a segment's relay, and has its own holder besides.
    let held = service::moved(number, to) || pool::moved(number, to) || sets::moved(number, to);
    if !joined && !held {
        attachment.node.disown(to);
    }
}

/// After `dup`, `dup2`, `dup3`, `F_DUPFD`, `F_DUPFD_CLOEXEC` succeeded.
pub fn duplicated(old: c_int, new: c_int) {
    if runtime::attachment().is_none() || old == new {
        return;
    }
    let mut entry = fds::get(old);
    if entry.has_no_slot() {
        entry = adopt::copying(old);
    }
    let _change = fds::change();
    stale(new);
    match entry {
        Entry::Endpoint(slot) | Entry::Inherited(slot) => {
            fds::refer(slot, new);
            sets::returned(new, slot);
        }
        Entry::Epoll(set) => sets::duplicated(set),
        Entry::Own => return,
        _ => {}
    }
    fds::set(new, entry);
    if new <= 2 && matches!(entry, Entry::Endpoint(_) | Entry::Inherited(_)) {
        // Standard streams are used through stdio, which bypasses the hooks.
        super::io::offer(new);
    }
}

/// A program that asks which numbers are open does not find the shim's own among them.
#[inline]
pub fn hide(fd: c_int) -> Outcome<c_int> {
    if fds::get(fd) == Entry::Own { Outcome::Failed(libc::EBADF) } else { Outcome::Libc }
}

/// After `fcntl(F_SETFL)`, `ioctl(FIONBIO)` succeeded: is the description non-blocking now?
/// `asynchronous`: O_ASYNC is set.
pub fn flags_changed(fd: c_int, nonblocking: bool, asynchronous: bool) {
    // Before the look, and before what is remembered: see `options::is_fit`.
    options::note_flags();
    if let Some(endpoint) = if asynchronous { runtime::find(fd) } else { runtime::known(fd) } {
        endpoint.slot().set(flag::NONBLOCKING, nonblocking);
        if asynchronous {
            let _ = super::io::hand_over_if_possible(fd);
        }
    }
}

/// `ioctl(FIONREAD)`/`SIOCINQ` and `SIOCOUTQ`/`TIOCOUTQ` on an accelerated socket: the number to
/// store; `Libc` for anything else.
pub fn ioctl_count(fd: c_int, request: libc::Ioctl) -> Outcome<c_int> {
    let Some(endpoint) = runtime::known(fd).filter(|endpoint| runtime::carried(*endpoint)) else {
        return Outcome::Libc;
    };
    let bytes = match request {
        libc::FIONREAD => readable_bytes(endpoint),
        libc::TIOCOUTQ => endpoint.unread_bytes(),
        _ => return Outcome::Libc,
    };
    Outcome::Done(c_int::try_from(bytes).unwrap_or(c_int::MAX))
}

/// What a receive could return. Bytes that are on their way from a ring to TCP are waited for, as a
/// receive does: whoever was told of them takes 0 for the end of file.
fn readable_bytes(endpoint: Endpoint<'static>) -> u64 {
    let mut switch = Moment::default();
    loop {
        let bytes = endpoint.pending_bytes();
        if bytes != 0 || !endpoint.is_switching() {
            return bytes;
        }
        if !switch.passes(endpoint) {
            // As for a receive that finds none.
            sets::edge(endpoint);
            return bytes;
        }
    }
}

/// `ioctl(SIOCATMARK)`: the answer while a ring's bytes come before the mark; `Libc` where the
/// kernel knows.
pub fn at_mark(fd: c_int) -> Outcome<c_int> {
    let Some(endpoint) = runtime::known(fd).filter(|endpoint| runtime::carried(*endpoint)) else {
        return Outcome::Libc;
    };
    // Urgent data goes over TCP, behind a switch that the kernel's position knows nothing of.
    let _ = endpoint.tidy();
    if endpoint.rx_in_ring() { Outcome::Done(0) } else { Outcome::Libc }
}
