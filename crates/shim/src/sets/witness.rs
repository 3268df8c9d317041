//! Edges of what no ring carries, in a set whose own edges are told to others.
//!
//! A wake-up over TCP is an edge of the kernel's for every set that the connection's set is in. So
//! is what comes to a pipe, an eventfd or a socket beside it that no ring carries, and the kernel
//! does not say which of both an edge was. So this library registers the latter a second time, in
//! a set of its own, which is in another of its own: the *witness*. An eventfd that always can be
//! read keeps the inner one ready. So the outer one tells whether an edge came since it was asked
//! last, also where nothing of that is left to be read. Nobody sleeps on either. A connection that
//! is carried by then leaves the witness when somebody asks.
//!
//! A set has a witness from when it is registered with EPOLLET, or in a set that is, as soon as it
//! holds something of that kind. A child of fork gives up those of its parent, who asks them. Where
//! there is none, [`super::asked::has_news`] goes by what is ready.

use super::asked::carried;
use super::registration::Edges;
use super::{Inner, Registration, kernel_control, set_at};
use crate::runtime;
use core::sync::atomic::{AtomicI32, Ordering};
use ginnel_region::sys;
use libc::{c_int, epoll_event};
use smallvec::SmallVec;
use syscalls::Sysno;

/// The eventfd that always can be read; -1: it was not made yet.
static ALWAYS: AtomicI32 = AtomicI32::new(-1);

/// What a set knows of its witness.
#[derive(Default)]
pub(super) struct Witness {
    /// The set is told of by its edges.
    wanted: bool,
    sets: Option<Sets>,
    pub(super) edges: Edges,
}

/// Both of the witness's sets.
#[derive(Clone, Copy)]
struct Sets {
    inner: c_int,
    outer: c_int,
}

impl Sets {
    /// `None`: this process may open no more.
    fn make() -> Option<Self> {
        let attachment = runtime::attachment()?;
        let own = |made: usize| {
            let fd = sys::move_high(c_int::try_from(made).unwrap_or(-1));
            attachment.node.own(fd);
            fd
        };
        Self::open(own, |fd| attachment.node.disown(fd))
    }

    /// [`Self::make`], where `own` takes what was opened for the library's own, and `close` closes
    /// that.
    fn open(own: impl Fn(usize) -> c_int, close: impl Fn(c_int)) -> Option<Self> {
        let call = |call: Sysno, first: c_int, second: c_int| {
            // SAFETY: no memory is passed.
            unsafe { sys::raw(call, [first as usize, second as usize, 0, 0, 0, 0]) }.ok().map(&own)
        };
        if ALWAYS.load(Ordering::Acquire) < 0 {
            let made = call(Sysno::eventfd2, 1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)?;
            let other = ALWAYS.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire);
            if other.is_err() {
                close(made);
            }
        }
        let set = || call(Sysno::epoll_create1, libc::EPOLL_CLOEXEC, 0);
        let inner = set()?;
        let Some(outer) = set() else {
            close(inner);
            return None;
        };
        let sets = Self { inner, outer };
        let (always, event) = (ALWAYS.load(Ordering::Acquire), libc::EPOLLIN as u32);
        let edge = event | libc::EPOLLET as u32;
        let made = kernel_control(inner, libc::EPOLL_CTL_ADD, always, event, 0)
            .and_then(|_| kernel_control(outer, libc::EPOLL_CTL_ADD, inner, edge, 0));
        // It is told of once since it is ready as it is.
        if made.is_err() || !sets.had_edge() {
            close(outer);
            close(inner);
            return None;
        }
        Some(sets)
    }

    /// Has an edge come since this was asked last?
    fn had_edge(self) -> bool {
        let mut room = [epoll_event { events: 0, u64: 0 }];
        let at = [self.outer as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 8];
        // SAFETY: `room` is writable for as many events.
        unsafe { sys::raw(Sysno::epoll_pwait, at) }.is_ok_and(|got| got > 0)
    }

    /// Enters `entry`, which is an edge where it is ready. False where that cannot be.
    fn enter(self, entry: &Registration) -> bool {
        // Each edge, to nobody else's loss.
        let otherwise = libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP;
        let events = entry.events & !(otherwise as u32) | libc::EPOLLET as u32;
        kernel_control(self.inner, libc::EPOLL_CTL_ADD, entry.fd, events, 0).is_ok()
    }

    fn leave(self, fd: c_int) {
        let _ = kernel_control(self.inner, libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn close(self) {
        if let Some(attachment) = runtime::attachment() {
            attachment.node.disown(self.outer);
            attachment.node.disown(self.inner);
        }
    }
}

impl Registration {
    /// Is it of what no ring carries?
    fn is_kernels(&self) -> bool {
        self.used && !self.outlived && self.inner_set.is_none() && carried(self).is_none()
    }

    /// Is a change of it no edge of its set, as it is in the kernel's list? So is whatever is told
    /// for as long as it is ready, and what is to be told once and was not yet.
    fn is_listed(&self) -> bool {
        !self.wants(libc::EPOLLET)
            && !self.disabled
            && sys::poll(self.fd, (self.events & 0x3fff) as i16, 0) != 0
    }
}

/// Set `number` is told of by its edges from now on, and so is what is in it.
pub(super) fn begins(number: u32) {
    let Some(set) = set_at(number) else { return };
    let children: SmallVec<[u32; 4]> = set.with(|inner| {
        if core::mem::replace(&mut inner.witness.wanted, true) {
            return SmallVec::new();
        }
        for place in 0..inner.registrations.len() {
            added(inner, u32::try_from(place).unwrap_or(u32::MAX));
        }
        inner.children.iter().map(|(_, child)| *child).collect()
    });
    children.into_iter().for_each(begins);
}

impl Inner {
    /// Is the set told of by its edges, perhaps?
    pub(super) fn tells_edges(&self) -> bool {
        self.witness.wanted
    }
}

/// Registration `place` was added, as the kernel knows by now.
pub(super) fn added(inner: &mut Inner, place: u32) {
    let Inner { witness, registrations, .. } = inner;
    let entry = registrations.get_mut(place as usize).filter(|entry| entry.is_kernels());
    if let Some(entry) = entry.filter(|_| witness.wanted) {
        witness.sets = witness.sets.or_else(Sets::make);
        entry.witnessed = witness.sets.is_some_and(|sets| sets.enter(entry));
    }
}

/// Registration `place` is about to ask for `events`: is the witness to be told, afterwards?
pub(super) fn changes(inner: &Inner, place: u32, events: u32) -> bool {
    let entry = inner.registrations.get(place as usize).filter(|entry| entry.witnessed);
    // What is in the kernel's list makes no edge, and what the witness has of it serves as well.
    entry.is_some_and(|entry| {
        !entry.is_listed() || events & !entry.events & !(libc::EPOLLET as u32) != 0
    })
}

/// It asks for them.
pub(super) fn changed(inner: &mut Inner, place: u32) {
    let Inner { witness, registrations, .. } = inner;
    if let (Some(entry), Some(sets)) = (registrations.get_mut(place as usize), witness.sets) {
        sets.leave(entry.fd);
        entry.witnessed = sets.enter(entry);
    }
}

/// Registration `place` is told of no more: it is about to be removed, or its shot is spent.
pub(super) fn ends(inner: &Inner, place: u32) {
    let entry = inner.registrations.get(place as usize).filter(|entry| entry.witnessed);
    if let (Some(entry), Some(sets)) = (entry, inner.witness.sets) {
        sets.leave(entry.fd);
    }
}

/// What is carried by now is the witness's no more: wake-ups would be edges there, too.
pub(super) fn forget_carried(inner: &mut Inner) {
    let Inner { witness, registrations, .. } = inner;
    let Some(sets) = witness.sets else { return };
    for entry in
        registrations.iter_mut().filter(|entry| entry.witnessed && carried(entry).is_some())
    {
        sets.leave(entry.fd);
        entry.witnessed = false;
    }
}

/// What is known of the edges of set `number`, with those that its witness has by now.
pub(super) fn edges(number: u32) -> Edges {
    let read = |inner: &mut Inner| {
        let Witness { sets, edges, .. } = &mut inner.witness;
        edges.own += u64::from(sets.is_some_and(Sets::had_edge));
        *edges
    };
    set_at(number).map_or_else(Edges::default, |set| set.inner.with(read))
}

/// The set is closed, or this is a child of fork, whose parent asks its witness.
pub(super) fn close(inner: &mut Inner) {
    inner.registrations.iter_mut().for_each(|entry| entry.witnessed = false);
    inner.witness.wanted = false;
    if let Some(sets) = inner.witness.sets.take() {
        sets.close();
    }
}

/// The number `from` is about to be the program's: a witness that has it has the copy `to` from now
/// on. (The kernel's sets know the open files, which stay.)
pub(super) fn moved(inner: &mut Inner, from: c_int, to: c_int) -> bool {
    let Some(Sets { inner: at, outer }) = &mut inner.witness.sets else { return false };
    let mut number = [at, outer].into_iter().filter(|number| **number == from);
    number.next().map(|number| *number = to).is_some()
}

/// The same of what all have in common.
pub(super) fn moved_in_common(from: c_int, to: c_int) -> bool {
    ALWAYS.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    fn sets() -> (Sets, [OwnedFd; 2]) {
        let own = |made: usize| c_int::try_from(made).expect("a descriptor");
        let sets = Sets::open(own, |_| ()).expect("a process may open two sets");
        // SAFETY: both are this test's, and nobody else closes them.
        let owned = [sets.inner, sets.outer].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        (sets, owned)
    }

    fn pipe() -> (File, File) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)))
    }

    fn registered(file: &File, events: c_int) -> Registration {
        let events = events as u32;
        Registration { fd: file.as_raw_fd(), events, used: true, ..Registration::default() }
    }

    /// However an edge was made, and whatever is left of it: it is told once.
    #[test]
    fn each_edge_is_told_once_also_where_nothing_of_it_is_left() {
        let (sets, _owned) = sets();
        let (mut reader, mut writer) = pipe();
        assert!(!sets.had_edge(), "nothing is entered");
        assert!(sets.enter(&registered(&reader, libc::EPOLLIN)));
        assert!(!sets.had_edge(), "the pipe is empty");
        writer.write_all(b"a").expect("room");
        assert!(sets.had_edge() && !sets.had_edge(), "a byte came, once");
        writer.write_all(b"b").expect("room");
        reader.read_exact(&mut [0; 2]).expect("two bytes");
        assert!(sets.had_edge() && !sets.had_edge(), "one came and was read before that was asked");
    }

    #[test]
    fn a_shot_is_told_of_each_edge_and_what_has_left_of_none() {
        let (sets, _owned) = sets();
        let (reader, mut writer) = pipe();
        writer.write_all(b"a").expect("room");
        assert!(sets.enter(&registered(&reader, libc::EPOLLIN | libc::EPOLLONESHOT)));
        assert!(sets.had_edge() && !sets.had_edge(), "to enter what is ready is an edge");
        for _ in 0..2 {
            writer.write_all(b"b").expect("room");
            assert!(sets.had_edge(), "whoever spends the shot, the witness goes on");
        }
        sets.leave(reader.as_raw_fd());
        writer.write_all(b"c").expect("room");
        assert!(!sets.had_edge());
    }
}
