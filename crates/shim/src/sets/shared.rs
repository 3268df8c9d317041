//! Epoll sets that several processes have: after fork, exec or passing. The kernel's registrations
//! are the same for all of them, and each process keeps its own account of them here. So each
//! change of an upgraded socket's registration in such a set is counted in the socket's slot, which
//! the processes have in common; who finds that it does not know of one looks at what the kernel
//! has (`/proc/self/fdinfo`, proc(5)). What the kernel was told otherwise than the program said
//! carries marks: bits of poll(2) that TCP never reports.

use super::{
    Inner, Registration, Set, created, drop_registration, kernel_control, outlived, set_at, tag,
    unlink,
};
use crate::fds::{self, Entry};
use crate::runtime;
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use libc::c_int;

/// EPOLLOUT is the program's wish, and taken out.
pub const MASKED: u32 = libc::EPOLLWRBAND as u32;
/// EPOLLOUT is not the program's wish.
pub const LOUD: u32 = libc::EPOLLMSG as u32;
/// EPOLLIN is not the program's wish, nor is EPOLLET where EPOLLOUT is taken out: where edges are
/// told it never is.
pub const LISTENS: u32 = libc::EPOLLRDBAND as u32;

/// All marks. What a program asks for in vain is left out, so that they are ours alone.
pub const MARKS: u32 = MASKED | LOUD | LISTENS;

/// The program's wish, from what the kernel was told.
fn wish(mut told: u32) -> u32 {
    let edge = if told & MASKED != 0 { libc::EPOLLET as u32 } else { 0 };
    if told & LOUD != 0 {
        told &= !(LOUD | libc::EPOLLOUT as u32);
    }
    if told & MASKED != 0 {
        told = told & !MASKED | libc::EPOLLOUT as u32;
    }
    if told & LISTENS != 0 {
        told &= !(LISTENS | libc::EPOLLIN as u32 | edge);
    }
    told
}

/// The kernel was told of a registration.
pub fn told(set: &Set, entry: &mut Registration) {
    if set.shared.load(Ordering::Relaxed)
        && let (Some(slot), Some(attachment)) = (entry.slot, runtime::attachment())
    {
        // Where this was the first change that is not known here, it is known now.
        let before = attachment.ledger.slot(slot).registered.fetch_add(1, Ordering::AcqRel);
        if before == entry.changes {
            entry.changes = before.wrapping_add(1);
        }
        let before = attachment.ledger.registered().fetch_add(1, Ordering::AcqRel);
        let _ = set.changes.compare_exchange(
            before,
            before.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// The program is about to ask for a registration's events: see [`Registration::is_spent`].
pub fn arms(set: &Set, entry: &Registration) {
    if set.shared.load(Ordering::Relaxed)
        && let (Some(slot), Some(attachment)) = (entry.slot, runtime::attachment())
    {
        attachment.ledger.slot(slot).armings.fetch_add(1, Ordering::AcqRel);
    }
}

/// May another process sleep on the set for what is looked at here?
pub fn elsewhere(set: &Set, inner: &Inner) -> bool {
    let held = |index: &u32| {
        let entry = inner.registrations.get(*index as usize);
        entry
            .and_then(Registration::endpoint)
            .is_some_and(|endpoint| endpoint.slot().has_several_holders())
    };
    set.shared.load(Ordering::Relaxed) && inner.hot.iter().any(held)
}

/// [`look`] by somebody who waits on the set.
pub fn look_before_wait(set: &Set, epfd: c_int) {
    if set.shared.load(Ordering::Relaxed) {
        outlived::recall(set);
        look(set, epfd);
    }
}

/// Takes over what other processes changed.
pub fn look(set: &Set, epfd: c_int) {
    if !set.shared.load(Ordering::Relaxed) {
        return;
    }
    let Some(attachment) = runtime::attachment() else { return };
    let all = attachment.ledger.registered().load(Ordering::Acquire);
    if set.changes.swap(all, Ordering::AcqRel) == all {
        return;
    }
    let number = super::number_of(epfd);
    let changed = |entry: &Registration| {
        let slot = entry.slot.filter(|_| entry.used && !entry.plain)?;
        Some(attachment.ledger.slot(slot).registered.load(Ordering::Acquire))
            .filter(|&now| now != entry.changes)
    };
    set.with(|inner| {
        // Counted before the kernel is asked: what changes meanwhile is found by the next look.
        let changes: Vec<_> = (0u32..)
            .zip(&inner.registrations)
            .filter_map(|(place, entry)| Some((place, changed(entry)?)))
            .collect();
        if changes.is_empty() {
            return;
        }
        let Some(kernel) = Registered::of(epfd) else { return };
        for (place, now) in changes {
            let Some(entry) = inner.registrations.get_mut(place as usize) else { continue };
            // One that is exclusive cannot be changed, nor carry marks; it is away for a moment
            // while what the kernel is told changes. One whose number is closed here, or is
            // another's, is not found by it.
            let inode = sys::fstat(entry.fd).map(|stat| stat.st_ino);
            let (false, true, Ok(inode)) =
                (entry.wants(libc::EPOLLEXCLUSIVE), entry.is_named(), inode)
            else {
                entry.changes = now;
                continue;
            };
            let found = kernel.iter().find(|other| other.fd == entry.fd && other.inode == inode);
            let Some(found) = found else {
                // Removed there.
                let fd = entry.fd;
                inner.by_fd.remove(&fd);
                drop_registration(set, inner, place);
                if let Some(number) = number {
                    unlink(fd, number);
                }
                continue;
            };
            entry.changes = now;
            take_over(set, entry, found);
            let (data, disabled) = (found.data, entry.disabled);
            if data != entry.known {
                tag::learn(set, inner, place, data);
                // Untagged there, before an exec: here the tag is still needed.
                let differs = |entry: &&mut Registration| {
                    entry.known != data && entry.is_tagged() && !disabled
                };
                if let Some(entry) = inner.registrations.get_mut(place as usize).filter(differs) {
                    super::retell(set, epfd, entry);
                }
            }
            super::make_hot(inner, place);
        }
    });
}

/// Takes over what another process changed of one registration, as the kernel has it.
fn take_over(set: &Set, entry: &mut Registration, found: &Registered) {
    if found.is_shot() {
        // To whom, and of what it was asked to be told, is not known here: but that it was, once.
        entry.events |= libc::EPOLLONESHOT as u32;
        return;
    }
    let events = wish(found.events);
    if events & libc::EPOLLET as u32 == 0 {
        // (Where edges are told, the kernel is not: a mask is this process's own.)
        entry.mask(set, found.events & MASKED != 0);
    } else if events & libc::EPOLLOUT as u32 == 0 {
        entry.mask(set, false);
    }
    entry.loud = found.events & LOUD != 0;
    // Of an edge that another process made, who has several registrations of it learns here.
    let edge = events & libc::EPOLLET as u32 != 0
        && entry.common().is_none()
        && entry.edges != entry.edges_made();
    if events != entry.events || edge {
        // Who changed it has said so to all.
        entry.forget_told_here();
    }
    entry.events = events;
    entry.rearm();
}

/// `fd`, a connection, is about to be closed, and is itself yet: what another process asked for
/// since is not to be changed back by what that takes.
pub fn look_before_close(fd: c_int) {
    for set in super::places_of(fd).iter().filter_map(|&(index, _)| set_at(index)) {
        look(set, set.fd.load(Ordering::Relaxed));
    }
}

/// Did another process change something since that was looked at last?
pub fn is_behind(set: &Set) -> bool {
    let changes = || {
        runtime::attachment()
            .map(|attachment| attachment.ledger.registered().load(Ordering::Acquire))
    };
    set.shared.load(Ordering::Relaxed)
        && changes().is_some_and(|all| all != set.changes.load(Ordering::Acquire))
}

/// Was this registration changed by another process since? What its connection has by now may have
/// come after that, and is not to be told of by what was asked for before.
pub fn is_outdated(set: &Set, entry: &Registration) -> bool {
    is_behind(set)
        && entry.slot.zip(runtime::attachment()).is_some_and(|(slot, attachment)| {
            attachment.ledger.slot(slot).registered.load(Ordering::Acquire) != entry.changes
        })
}

/// Was a registration that is to be told of once told to another process, and not armed since?
pub fn is_shot(set: &Set, epfd: c_int, entry: &Registration) -> bool {
    set.shared.load(Ordering::Relaxed)
        && entry.wants(libc::EPOLLONESHOT)
        && Registered::of(epfd)
            .is_some_and(|all| all.iter().any(|other| other.fd == entry.fd && other.is_shot()))
}

/// A line of a set's `fdinfo`.
struct Registered {
    fd: c_int,
    events: u32,
    data: u64,
    inode: u64,
}

impl Registered {
    /// `None` where that cannot be read.
    fn of(epfd: c_int) -> Option<Vec<Self>> {
        let path =
            std::ffi::CString::new(format!("/proc/thread-self/fdinfo/{epfd}")).unwrap_or_default();
        let text = sys::read_file(&path);
        (!text.is_empty())
            .then(|| String::from_utf8_lossy(&text).lines().filter_map(Self::read).collect())
    }

    /// Has it fired, once? As the kernel leaves such a one.
    fn is_shot(&self) -> bool {
        let once = libc::EPOLLONESHOT as u32;
        self.events & once != 0 && self.events & !(once | libc::EPOLLET as u32) == 0
    }

    fn read(line: &str) -> Option<Self> {
        // tfd:        4 events:      69d data:                4  pos:0 ino:18b760 sdev:9
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let fd = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        let data = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let inode = words
            .find_map(|word| word.strip_prefix("ino:"))
            .and_then(|inode| u64::from_str_radix(inode, 16).ok());
        // EPOLLERR and EPOLLHUP are always there: the program need not have asked for them.
        Some(Self {
            fd,
            events: events & !(libc::EPOLLERR | libc::EPOLLHUP) as u32,
            data,
            inode: inode.unwrap_or(0),
        })
    }
}

/// May `fd` be an epoll set? The kernel tells no type of such a file (`anon_inode_getattr`). Go adds
/// each file that it opens to its set, to hear EPERM: for that nothing in `/proc` is opened.
fn may_be_epoll(fd: c_int) -> bool {
    sys::fstat(fd).is_ok_and(|file| file.st_mode & libc::S_IFMT == 0)
}

/// An epoll set that this process did not make (inherited over exec, received): takes over what is
/// registered there.
pub fn recover(fd: c_int) {
    if !may_be_epoll(fd) {
        return;
    }
    let registered = Registered::of(fd).unwrap_or_default();
    if registered.is_empty() && !is_epoll(fd) {
        return;
    }
    created(fd);
    let Entry::Epoll(index) = fds::get(fd) else { return };
    let Some(set) = set_at(index) else { return };
    set.shared.store(true, Ordering::Relaxed);
    for Registered { fd: target, events, data, .. } in registered {
        if fds::get(target) == Entry::Unknown {
            recover(target);
        }
        let entry = runtime::classify(target);
        if entry.is_tcp() || matches!(entry, Entry::Epoll(_)) {
            let _ = kernel_control(fd, libc::EPOLL_CTL_DEL, target, 0, 0);
            let events = if entry.is_tcp() { wish(events) } else { events };
            let _ = super::add(set, index, fd, target, events, data);
        }
    }
}

fn is_epoll(fd: c_int) -> bool {
    let path = std::ffi::CString::new(format!("/proc/thread-self/fd/{fd}")).unwrap_or_default();
    let mut name = [0u8; 64];
    // SAFETY: both are readable and writable for their lengths.
    let got = unsafe {
        let here = libc::AT_FDCWD as usize;
        sys::raw(
            syscalls::Sysno::readlinkat,
            [here, path.as_ptr() as usize, name.as_mut_ptr() as usize, name.len(), 0, 0],
        )
    };
    name.get(..got.unwrap_or(0)).is_some_and(|name| name.ends_with(b"[eventpoll]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_fdinfo() {
        let line = "tfd:        4 events:      69d data:                4  pos:0 ino:18b760 sdev:9";
        let read = Registered::read(line).expect("a registration");
        assert_eq!((read.fd, read.events, read.data, read.inode), (4, 0x685, 4, 0x18b760));
        assert!(Registered::read("pos:\t0").is_none());
    }

    #[test]
    fn the_wish_behind_marks() {
        let (input, output, edge) =
            (libc::EPOLLIN as u32, libc::EPOLLOUT as u32, libc::EPOLLET as u32);
        assert_eq!(wish(input | output), input | output);
        assert_eq!(wish(input | MASKED), input | output);
        assert_eq!(wish(input | edge | LISTENS | MASKED), output);
        assert_eq!(wish(input | output | LOUD), input);
        assert_eq!(wish(output | edge | input | LISTENS), output | edge);
    }
}
