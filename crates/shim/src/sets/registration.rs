//! One registration, and what the kernel is told of it.

use super::{Inner, Registration, Set, local, local_bits, shared, tag};
use crate::fds::{self, Entry};
use crate::runtime;
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use libc::{c_int, epoll_event};

impl Registration {
    pub(super) fn wants(&self, event: c_int) -> bool {
        self.events & event as u32 != 0
    }

    /// What the program may be told: what it asked for, and errors, which it need not ask for.
    pub(super) fn asked(&self) -> u32 {
        self.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32
    }

    /// Masks EPOLLOUT, and tells the kernel where that changes its interest: telling it again would make it report again. True if it was told.
    pub(super) fn hide(&mut self, set: &Set, epfd: c_int, index: u32) -> bool {
        let before = self.interest();
        self.mask(set, true);
        let changes = self.interest() != before;
        if changes {
            retell(set, epfd, index, self);
        }
        if let Some(endpoint) = self.endpoint() {
            endpoint.probe_half_closed();
        }
        changes
    }

    /// It is of this slot's socket.
    pub(super) fn link(&mut self, slot: u32) {
        self.slot = Some(slot);
        let writes = if self.wants(libc::EPOLLOUT) { local::WRITES } else { 0 };
        local_bits(slot, local::REGISTERED | writes, 0);
    }

    /// It was told of, and is armed once. `shot`: for bytes in a ring, or of what the kernel is yet to be told.
    pub(super) fn spend(&mut self, shot: bool) {
        self.disabled = true;
        self.shot |= shot;
        self.arming = self.armings();
    }

    /// What was told of it comes anew: it was changed, or only looked at.
    pub(super) fn forget_told(&mut self) {
        (self.seen, self.noted, self.ended, self.room) = (u64::MAX, u64::MAX, 0, true);
    }

    /// It is armed again.
    pub(super) fn rearm(&mut self) {
        (self.disabled, self.shot) = (false, false);
    }

    /// Is the kernel's report of it one too many? Another thread reported it meanwhile, and nobody has armed it since. (Another process's arming is known here only later.)
    pub(super) fn is_spent(&self, set: &Set) -> bool {
        let rearmed = set.shared.load(Ordering::Relaxed) && self.arming != self.armings();
        self.disabled && self.wants(libc::EPOLLONESHOT) && if self.slot.is_some() { !rearmed } else { self.shot }
    }

    pub(super) fn armings(&self) -> u32 {
        let slot = self.slot.and_then(|slot| Some(runtime::attachment()?.ledger.slot(slot)));
        slot.map_or(0, |slot| slot.armings.load(Ordering::Acquire))
    }

    /// What the kernel is told.
    pub(super) fn interest(&self) -> u32 {
        if self.disabled {
            // As the kernel's own shot leaves it: registered, and told of nothing. (Errors it adds by itself: those come once more, and are not passed on.)
            return (libc::EPOLLONESHOT | libc::EPOLLET) as u32;
        }
        let mut events = self.events;
        if self.masked {
            if !self.wants(libc::EPOLLET) {
                // Edges need no mask: the kernel tells of its own room only when that changes. Another process that has the set too would miss what is masked here.
                let mark = if self.wants(libc::EPOLLEXCLUSIVE) { 0 } else { shared::MASKED };
                events = events & !(libc::EPOLLOUT as u32) | mark;
            }
            if !self.wants(libc::EPOLLIN) && events & libc::EPOLLEXCLUSIVE as u32 == 0 {
                // A token for room must be noticed, once.
                events |= (libc::EPOLLIN | libc::EPOLLET) as u32 | shared::LISTENS;
            }
        }
        events
    }

    /// Takes EPOLLOUT out of the kernel's interest, or puts it back, as soon as the kernel is told.
    pub(super) fn mask(&mut self, set: &Set, on: bool) {
        match (self.masked, on) {
            (false, true) => set.masked.fetch_add(1, Ordering::AcqRel),
            (true, false) => set.masked.fetch_sub(1, Ordering::AcqRel),
            _ => return,
        };
        self.masked = on;
    }

    /// Is its number still its socket's? Where that has other numbers the registration outlives its own, and the kernel can be told nothing more of it: another socket may have the
    /// number.
    pub(super) fn is_named(&self) -> bool {
        match (self.inner_set, self.slot) {
            (Some(number), _) => fds::get(self.fd) == Entry::Epoll(number),
            (None, Some(slot)) => matches!(fds::get(self.fd), Entry::Endpoint(of) | Entry::Inherited(of) if of == slot),
            (None, None) => true,
        }
    }

    /// What the kernel returns with its events.
    pub(super) fn kernel_data(&self, index: u32) -> u64 {
        if self.tagged { tag(index, self.generation) } else { self.data }
    }

    pub(super) fn endpoint(&self) -> Option<Endpoint<'static>> {
        let slot = self.slot?;
        let fd = if self.is_named() { self.fd } else { fds::of_slot(slot)? };
        runtime::endpoint(fd, slot)
    }
}

pub(super) fn kernel_control(epfd: c_int, operation: c_int, fd: c_int, events: u32, data: u64) -> Result<usize, i32> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: `event` is readable.
    unsafe { sys::raw(syscalls::Sysno::epoll_ctl, [epfd as usize, operation as usize, fd as usize, &raw mut event as usize, 0, 0]) }
}

/// Tells the kernel a registration's present interest.
pub(super) fn retell(set: &Set, epfd: c_int, index: u32, entry: &mut Registration) {
    (entry.loud, entry.late) = (false, None);
    if !entry.is_named() {
        return;
    }
    let data = entry.kernel_data(index);
    if entry.wants(libc::EPOLLEXCLUSIVE) {
        // The kernel does not modify exclusive registrations.
        let _ = kernel_control(epfd, libc::EPOLL_CTL_DEL, entry.fd, 0, 0);
        entry.in_kernel = kernel_control(epfd, libc::EPOLL_CTL_ADD, entry.fd, entry.interest(), data).is_ok();
    } else if entry.in_kernel {
        let _ = kernel_control(epfd, libc::EPOLL_CTL_MOD, entry.fd, entry.interest(), data);
    } else {
        entry.in_kernel = kernel_control(epfd, libc::EPOLL_CTL_ADD, entry.fd, entry.interest(), data).is_ok();
    }
    shared::told(set, entry);
}

pub(super) fn make_hot(inner: &mut Inner, index: u32) {
    if let Some(entry) = inner.registrations.get_mut(index as usize) {
        entry.idle = 0;
        if entry.used && !entry.hot && entry.slot.is_some() {
            entry.hot = true;
            if let Some(slot) = entry.slot {
                local_bits(slot, local::HOT, 0);
            }
            inner.hot.push(index);
        }
    }
}
